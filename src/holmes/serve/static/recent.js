// The last searches and the videos opened last, kept in this browser only.

const MOST = 8;

class Kept {
  constructor(key) {
    this.key = key;
  }

  get all() {
    try {
      const kept = JSON.parse(localStorage.getItem(this.key) ?? "[]");
      return Array.isArray(kept) ? kept.filter((each) => typeof each === "string").slice(0, MOST) : [];
    } catch {
      return [];
    }
  }

  add(value) {
    this.#keep([value, ...this.all.filter((other) => other !== value)].slice(0, MOST));
  }

  forget() {
    this.#keep([]);
  }

  #keep(values) {
    try {
      localStorage.setItem(this.key, JSON.stringify(values));
    } catch { /* a browser that keeps nothing still searches */ }
  }
}

export const searches = new Kept("holmes.recent");
export const opened = new Kept("holmes.opened"); // ids of videos
