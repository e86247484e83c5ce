// The last searches, kept in this browser only.

const KEY = "holmes.recent";
const MOST = 8;

export function recent() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((query) => typeof query === "string").slice(0, MOST) : [];
  } catch {
    return [];
  }
}

export function remember(query) {
  keep([query, ...recent().filter((other) => other !== query)].slice(0, MOST));
}

export function forget() {
  keep([]);
}

function keep(queries) {
  try {
    localStorage.setItem(KEY, JSON.stringify(queries));
  } catch { /* a browser that keeps nothing still searches */ }
}
