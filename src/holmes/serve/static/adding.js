// The dialog "Add videos": files and folders of the server's machine by their paths, and uploads where the server takes them.

import { aboutIndex, address, request, send } from "./api.js";
import { button, h } from "./dom.js";

const LOOK = 500; // milliseconds between two looks at the progress

// A view that shows new videos listens for "added" events of the document.
const added = () => document.dispatchEvent(new CustomEvent("added"));

// Videos held over the page want the dialog that takes them.
document.addEventListener("dragenter", async ({ dataTransfer }) => {
  if (![...dataTransfer?.items ?? []].some(({ kind, type }) => kind === "file" && !type.startsWith("image/"))) return;
  const about = await aboutIndex().catch(() => null);
  if (about?.uploads && !document.querySelector("dialog[open]")) addVideos(about);
});

export function addVideos(about) {
  const close = button("close", "Close", () => dialog.close(), { class: "action only close" });
  const uploads = h("div", { class: "uploads" });
  const dialog = h("dialog", { class: "add", "aria-labelledby": "add-title", onclose: () => { paths?.leave(); dialog.remove(); } },
    h("div", { class: "dialog-head" }, h("h2", { id: "add-title" }, "Add videos"), close), uploads);
  const paths = about.manage ? new ServerPaths() : null;
  if (paths) dialog.append(paths.element);
  if (about.uploads) import("./uploads.js").then(({ mountUploads }) => mountUploads(uploads, { onDone: added }));
  document.body.append(dialog);
  dialog.showModal();
  paths?.follow();
}

class ServerPaths {
  constructor() {
    this.paths = [];
    this.field = h("input", { id: "path", type: "text", list: "path-list", placeholder: "/path/of/a/folder", spellcheck: false, autocapitalize: "off",
      "aria-describedby": "add-news", oninput: () => this.#complete(), onpaste: (event) => this.#pasted(event) });
    this.known = h("datalist", { id: "path-list" });
    this.chosen = h("ul", { class: "chosen" });
    this.progress = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of adding videos" });
    this.news = h("p", { id: "add-news", class: "news", role: "status" });
    this.became = h("ul", { class: "became" });
    this.element = h("form", { class: "adding", onsubmit: (event) => { event.preventDefault(); this.#add(); } },
      h("label", { htmlFor: "path" }, "A file or folder on the machine that serves this page"),
      h("div", { class: "line" }, this.field, this.known, h("button", { type: "submit", class: "plain strong" }, "Add")),
      this.chosen, this.progress, this.news, this.became);
  }

  leave() {
    clearTimeout(this.looking);
  }

  // Shows what is being added already.
  async follow() {
    const job = await request("/api/job").catch(() => null);
    if (job && job.state === "running") this.#show(job);
  }

  async #add() {
    const paths = [...this.paths, this.field.value.trim()].filter(Boolean);
    if (!paths.length) return this.#problem("Write the path of a file or folder.");
    try {
      this.#show(await send("POST", "/api/videos", { paths }));
      this.paths = [];
      this.field.value = "";
      this.chosen.replaceChildren();
    } catch (problem) {
      this.#problem(problem.message);
    }
    return undefined;
  }

  // Paths pasted as several lines are added together.
  #pasted(event) {
    const lines = (event.clipboardData?.getData("text") ?? "").split("\n").map((line) => line.trim()).filter(Boolean);
    if (lines.length < 2) return;
    event.preventDefault();
    this.paths.push(...lines);
    this.chosen.replaceChildren(...this.paths.map((path) => h("li", {}, path)));
  }

  #complete() {
    clearTimeout(this.typing);
    this.#tell("");
    this.typing = setTimeout(async () => {
      const { paths } = await request(address("/api/paths", { prefix: this.field.value })).catch(() => ({ paths: [] }));
      this.known.replaceChildren(...paths.map((path) => h("option", { value: path })));
    }, 120);
  }

  // Looks again and again until it is done.
  #show(job) {
    clearTimeout(this.looking);
    const running = job.state === "running";
    this.progress.hidden = !running;
    if (job.total) { this.progress.max = job.total; this.progress.value = job.done; } else this.progress.removeAttribute("value");
    if (running) {
      this.#tell(`${job.words}…`);
      this.looking = setTimeout(() => request("/api/job").then((next) => this.#show(next), (problem) => this.#problem(problem.message)), LOOK);
      return;
    }
    if (job.state === "failed") this.#problem(job.message);
    else if (job.state === "done") this.#tell(`${job.message}.`);
    this.became.replaceChildren(...(job.copies ?? []).map(({ name, same_as: same }) => h("li", {}, h("b", {}, name), ` is the same as ${same}`)),
      ...(job.failures ?? []).map(({ name, reason }) => h("li", { class: "problem" }, h("b", {}, name), `: ${reason}`)));
    if (job.state === "done") added();
  }

  #tell(text) {
    this.news.textContent = text;
    this.news.classList.remove("problem");
  }

  #problem(text) {
    this.#tell(text);
    this.news.classList.add("problem");
  }
}
