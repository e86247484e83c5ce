// Requests to the server that this page came from. A failure says why, in a sentence.
// A server that stops or begins to answer is announced by a "connection" event of the document.

// The address below which the server is: "/", or that of a library or of a proxy's folder, such as "/films/".
export const root = new URL("..", import.meta.url).pathname;

// A path of the server, such as "/api/job", as an address; an address stays as it is.
export const at = (path) => (path.startsWith(root) ? path : root + path.slice(1));

// The path of an address: the other way round.
export const pathOf = ({ pathname }) => `/${pathname.slice(root.length)}`;

let reachable = true;

function reached(now) {
  if (now === reachable) return;
  reachable = now;
  document.dispatchEvent(new CustomEvent("connection", { detail: now }));
}

export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// The response of the server, once it begins.
export async function responseOf(path, options = {}) {
  let response;
  try {
    response = await fetch(at(path), { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reached(false);
    throw new Problem("The server does not answer. Is it still running?", 0);
  }
  reached(true);
  if (response.status === 401) document.dispatchEvent(new CustomEvent("locked"));
  if (response.ok) return response;
  const { error = `the server answered ${response.status}.` } = await response.json().catch(() => ({}));
  throw new Problem(error.charAt(0).toUpperCase() + error.slice(1), response.status);
}

// What the server answers.
export const request = async (path, options) => (await responseOf(path, options)).json().catch(() => ({}));

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
  return at(text ? `${path}?${text}` : path);
}

export const thumbnail = (id, time, width = 480) => address(`/api/videos/${id}/thumbnail`, { t: time.toFixed(1), width });

// The token comes after # in the address, which browsers never send; it is exchanged for a cookie at once.
export async function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  await send("POST", "/api/session", { token });
}

// What /api/index says; asked once, and again when it may have changed.
let told = null;

export function aboutIndex(fresh = false) {
  if (fresh || !told) {
    told = request("/api/index");
    told.catch(() => { told = null; });
  }
  return told;
}
