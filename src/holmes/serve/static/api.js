// Requests to the server that this page came from. A failure says why, in a sentence.

export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server is not answering. Is it still running?", 0);
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(sentence(body.error ?? `the server answered ${response.status}.`), response.status);
  return body;
}

export function send(method, path, body) {
  const content = body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  return request(path, { method, ...content });
}

export function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export const thumbnail = (id, time, width = 480) => address(`/api/videos/${id}/thumbnail`, { t: time.toFixed(1), width });

// The token comes after # in the address, which browsers never send; it is exchanged for a cookie at once.
export async function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  await send("POST", "/api/session", { token });
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
