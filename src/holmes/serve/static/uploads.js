// Files of this device, sent to the server: dropped or chosen, in pieces that continue after a lost connection.

import { request, send } from "./api.js";
import { bytes, counted, h } from "./dom.js";
import { sha256 } from "./sha256.js";

const SUFFIXES = /\.(3g2|3gp|asf|avi|divx|f4v|flv|gif|m2ts|m2v|m4v|mkv|mov|mp4|mpe?g|mts|mxf|ogm|ogv|qt|rm|rmvb|ts|vob|webm|wmv|y4m)$/i;
const AT_ONCE = 2; // files
const LEAST = 64 << 10, FIRST = 1 << 20; // bytes of a piece: the least, and of the first
const QUICK = 1500, SLOW = 6000; // milliseconds of a piece, after which the next one is larger or smaller
const POLL = 1000; // milliseconds between two requests for what the server adds
const AGAIN = [1000, 2000, 4000, 8000, 15000]; // milliseconds until the next try without a connection
const SHOWN = 50; // rows of the list
const OVER = ["added", "there", "same", "skipped", "failed", "cancelled"];

let current = null; // uploads go on while the list that shows them opens and closes

// Shows uploads in `container`; `onDone` is called when all are over. Resolves to nothing where the server takes no files.
export async function mountUploads(container, { onDone } = {}) {
  current ??= new Uploads();
  current.onDone = onDone ?? (() => {});
  container.replaceChildren(current.element);
  await current.ask();
  return current;
}

const bytesSent = (items) => sum(items, (item) => (item.sent ? item.file.size : item.offset));
const bytesAdded = (items) => sum(items.filter((item) => OVER.includes(item.state)), (item) => item.file.size);

// Until all is sent. What the server has was not sent, so it says nothing.
export function secondsLeft(items, seconds) {
  const work = items.filter((item) => item.state !== "there");
  const sent = bytesSent(work);
  return sent ? (seconds * (sum(work, (item) => item.file.size) - sent)) / sent : 0;
}

class Uploads {
  constructor() {
    this.items = [];
    this.busy = 0;
    this.hint = h("p", { class: "upload-hint" });
    this.words = h("p", { class: "upload-words", role: "status" });
    this.bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of all files" });
    this.list = h("ul", { class: "upload-list", "aria-label": "Files", tabIndex: 0 });
    this.files = h("input", { type: "file", multiple: true, accept: "video/*,.mkv,.ts,.m2ts,.mts,.vob,.flv,.wmv", class: "hidden", tabIndex: -1, "aria-hidden": "true" });
    this.folder = h("input", { type: "file", multiple: true, webkitdirectory: true, class: "hidden", tabIndex: -1, "aria-hidden": "true" });
    for (const input of [this.files, this.folder]) {
      input.addEventListener("change", () => { this.add([...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name }))); input.value = ""; });
    }
    const choose = (label, input) => h("button", { type: "button", class: "plain", onclick: () => input.click() }, label);
    this.drop = h("div", { class: "upload-drop" }, h("p", {}, h("b", {}, "Drop videos or a folder here"), h("span", {}, ", or choose them")),
      h("div", { class: "upload-choose" }, choose("Choose files", this.files), choose("Choose a folder", this.folder), this.files, this.folder), this.hint);
    this.element = h("section", { class: "upload", "aria-label": "Send videos" }, this.drop, this.words, this.bar, this.list);
    this.#dragging();
    addEventListener("online", () => this.wake?.());
    addEventListener("beforeunload", (event) => { if (this.items.some((item) => !OVER.includes(item.state) && !item.sent)) event.preventDefault(); });
  }

  // What the server takes, and what an earlier visit left unfinished.
  async ask() {
    try {
      const { uploads, largest, piece, free } = await request("/api/uploads");
      Object.assign(this, { largest, piece });
      const mine = new Set(this.items.map((item) => item.id));
      const left = uploads.filter((upload) => upload.state === "sending" && upload.offset && !mine.has(upload.id));
      const names = left.slice(0, 3).map((upload) => upload.name).join(", ");
      this.hint.textContent = left.length ? `${counted(left.length, "file")} unfinished: ${names}${left.length > 3 ? " …" : ""}. Choose ${left.length === 1 ? "it" : "them"} again to continue.`
        : `Space for ${bytes(free)}. A file that stops halfway continues when you choose it again.`;
    } catch (problem) {
      this.hint.textContent = problem.message;
    }
  }

  add(found) {
    if (!this.items.some((item) => !OVER.includes(item.state))) { this.items = []; this.began = performance.now(); this.sentBefore = 0; }
    const known = new Set(this.items.filter((item) => item.state !== "failed").map((item) => `${item.name}/${item.file.size}`));
    for (const { file, name } of found) {
      if (/(^|\/)\./.test(name) || known.has(`${name}/${file.size}`)) continue; // hidden files of folders are not meant
      const item = { file, name, offset: 0, state: "waits" };
      if (!SUFFIXES.test(name)) Object.assign(item, { state: "skipped", reason: "it is not named like a video" });
      else if (!file.size) Object.assign(item, { state: "skipped", reason: "it is empty" });
      else if (this.largest && file.size > this.largest) Object.assign(item, { state: "skipped", reason: `it has ${bytes(file.size)}; this server takes up to ${bytes(this.largest)}` });
      this.items.push(item);
    }
    this.#next();
    this.#show();
  }

  #next() {
    while (this.busy < AT_ONCE) {
      const item = this.items.find((each) => each.state === "waits");
      if (!item) break;
      this.busy += 1;
      item.state = "reading";
      this.#send(item).finally(() => { this.busy -= 1; this.#next(); this.#show(); this.#follow(); });
    }
  }

  async #send(item) {
    try {
      let size = FIRST, tries = 0;
      while (item.state !== "cancelled") {
        try {
          item.order ??= { name: item.name, size: item.file.size, sha256: await sha256(item.file) };
          if (!item.id || tries) this.#told(item, await send("POST", "/api/uploads", item.order));
          tries = 0;
          this.#show();
          if (item.state !== "sending") return;
          const began = performance.now();
          const content = item.file.slice(item.offset, item.offset + Math.min(size, this.piece ?? FIRST));
          this.#told(item, await request(`/api/uploads/${item.id}?offset=${item.offset}`, { method: "PATCH", body: content }));
          const took = performance.now() - began;
          if (took < QUICK) size *= 2;
          else if (took > SLOW) size = Math.max(LEAST, size / 2);
          if (item.state !== "sending") return;
        } catch (problem) {
          const lost = problem.status === 0 || problem.status === 404 || problem.status === 412 || problem.status === 429 || problem.status === 503;
          if (!lost) throw problem;
          size = Math.max(LEAST, size / 2);
          item.state = problem.status === 0 ? "lost" : item.state;
          this.#show();
          await this.#pause(AGAIN[Math.min(tries, AGAIN.length - 1)]);
          tries += 1;
        }
        this.#show();
      }
    } catch (problem) {
      if (item.state !== "cancelled") Object.assign(item, { state: "failed", reason: problem.message, id: null });
    }
  }

  #pause(milliseconds) {
    return new Promise((resolve) => { this.wake = resolve; setTimeout(resolve, milliseconds); });
  }

  #told(item, { id, offset, state, same_as: same, reason, found, name }) {
    if (item.state === "cancelled") return;
    if (!item.id && state === "added") state = "there"; // it was sent before
    Object.assign(item, { id, offset, state, same, reason, found, kept: name, sent: state !== "sending" });
  }

  // Polls what the server adds.
  #follow() {
    if (this.polling || !this.items.some((item) => ["waiting", "adding"].includes(item.state))) { this.#finish(); return; }
    this.polling = setTimeout(async () => {
      try {
        const { uploads, seconds_left: adding } = await request("/api/uploads");
        this.adding = adding ?? 0;
        const byId = new Map(uploads.map((upload) => [upload.id, upload]));
        for (const item of this.items) if (item.sent && byId.has(item.id)) this.#told(item, byId.get(item.id));
      } catch { /* asked again */ }
      this.polling = null;
      this.#show();
      this.#follow();
    }, POLL);
  }

  #finish() {
    if (!this.items.length || this.items.some((item) => !OVER.includes(item.state)) || this.told === this.items) return;
    this.told = this.items;
    this.#show();
    this.ask(); // what was unfinished may be whole now
    this.onDone(this.#counts());
  }

  #counts() {
    const count = (state) => this.items.filter((item) => item.state === state).length;
    return { files: this.items.length, added: count("added"), there: count("there"), same: count("same"), left: count("skipped") + count("failed"), cancelled: count("cancelled") };
  }

  #cancel(item) {
    item.state = "cancelled";
    if (item.id) send("DELETE", `/api/uploads/${item.id}`).catch(() => {});
    this.#show();
    this.#follow();
  }

  #again(item) {
    Object.assign(item, { state: "waits", reason: null });
    this.told = null;
    this.#next();
    this.#show();
  }

  #show() {
    const over = this.items.filter((item) => OVER.includes(item.state));
    const going = this.items.length > over.length;
    this.bar.hidden = !going;
    this.words.textContent = going ? this.#progress() : this.#summary();
    const rank = (item) => (item.state === "failed" ? 0 : OVER.includes(item.state) ? 3 : item.state === "waits" ? 2 : 1);
    const rows = this.items.map((item, at) => ({ item, at })).sort((a, b) => rank(a.item) - rank(b.item) || a.at - b.at).slice(0, SHOWN);
    const held = this.list.contains(document.activeElement) ? document.activeElement.dataset.of : null;
    this.list.replaceChildren(...rows.map(({ item, at }) => this.#row(item, at)), ...(this.items.length > SHOWN ? [h("li", { class: "upload-more" }, `and ${counted(this.items.length - SHOWN, "more file")}`)] : []));
    if (held !== null) this.list.querySelector(`[data-of="${held}"]`)?.focus();
  }

  #row(item, at) {
    const [text, kind] = words(item);
    const does = (label, act) => h("button", { type: "button", class: "plain small", "data-of": String(at), "aria-label": `${label}: ${item.name}`, onclick: act }, label);
    const action = item.state === "failed" ? does("Try again", () => this.#again(item)) : OVER.includes(item.state) || item.sent ? null : does("Cancel", () => this.#cancel(item));
    return h("li", { class: kind }, h("span", { class: "upload-name", title: item.name }, item.name), h("span", { class: "upload-state" }, text), action,
      item.state === "sending" ? h("progress", { max: item.file.size, value: item.offset, "aria-label": item.name }) : null);
  }

  #progress() {
    const seconds = (performance.now() - this.began) / 1000;
    const meant = this.items.filter((item) => !["skipped", "failed", "cancelled"].includes(item.state));
    this.bar.max = 2 * sum(meant, (item) => item.file.size) || 1;
    this.bar.value = bytesSent(meant) + bytesAdded(meant);
    const left = Math.max(secondsLeft(meant, seconds), this.adding ?? 0); // sending and adding go on side by side
    const videos = this.items.filter((item) => item.id || item.state !== "skipped"); // others were never sent
    const over = videos.filter((item) => OVER.includes(item.state) || item.found).length;
    const lost = this.items.some((item) => item.state === "lost") ? ". The connection is lost; sending continues when it is back" : "";
    return `${over} of ${counted(videos.length, "video")}${seconds > 2 && left && !lost ? `, ${about(left)} left` : ""}${lost}.`;
  }

  #summary() {
    if (!this.items.length) return "";
    const { files, added, there, same, left, cancelled } = this.#counts();
    const parts = [`${added} added`, `${there} already there`, same ? `${same} ${same === 1 ? "copy" : "copies"}` : "", `${left} left out`, cancelled ? `${cancelled} cancelled` : ""];
    return `${counted(files, "file")} gave ${parts.filter(Boolean).join(", ")}.`;
  }

  // Files may be dropped anywhere on the page: beside the frame the browser would open them and leave the page.
  #dragging() {
    const on = (name, over, act = () => {}) => document.addEventListener(name, (event) => {
      if (!this.element.isConnected || (name === "dragleave" && event.relatedTarget)) return;
      event.preventDefault();
      this.drop.classList.toggle("over", over);
      act(event.dataTransfer);
    });
    on("dragenter", true);
    on("dragover", true);
    on("dragleave", false);
    on("drop", false, async ({ items, files }) => {
      const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      const given = [...files].map((file) => ({ file, name: file.name }));
      const found = [];
      for (const entry of entries) await walk(entry, found);
      this.add(entries.length ? found : given);
    });
  }
}

async function walk(entry, found) {
  if (entry.isFile) {
    const file = await new Promise((resolve) => entry.file(resolve, () => resolve(null)));
    if (file) found.push({ file, name: entry.fullPath.replace(/^\//, "") });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
    if (!some.length) return;
    for (const each of some) await walk(each, found);
  }
}

function words(item) {
  const share = item.file.size ? Math.floor((100 * item.offset) / item.file.size) : 0;
  switch (item.state) {
    case "waits": return [bytes(item.file.size), ""];
    case "reading": return ["being read", ""];
    case "sending": return [`${share}% of ${bytes(item.file.size)}`, ""];
    case "lost": return [`${share}%, no connection`, "problem"];
    case "waiting": case "adding": return [item.found ? "added; its words follow" : "being added to the index", ""];
    case "added": return [item.kept && item.kept !== item.name ? `added as ${item.kept}` : "added", "good"];
    case "there": return ["already there", "good"];
    case "same": return [`the same as ${item.same}`, "remark"];
    case "cancelled": return ["cancelled", "remark"];
    case "failed": return [item.reason, "problem"];
    default: return [`left out: ${item.reason ?? "the server does not say why"}`, "problem"];
  }
}

function about(seconds) {
  if (seconds < 10) return "a few seconds";
  if (seconds < 60) return `about ${10 * Math.round(seconds / 10)} seconds`;
  return seconds < 3600 ? `about ${counted(Math.round(seconds / 60), "minute")}` : `about ${counted(Math.round(seconds / 3600), "hour")}`;
}

const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);
