// The index itself: what it holds, what was left out and why, and changes to it where the server allows them.

import { address, request, send, thumbnail } from "./api.js";
import { button, bytes, clock, counted, h, say } from "./dom.js";

const PAGE = 60;
const LOOK = 500; // milliseconds between two looks at the progress

export class Library {
  constructor() {
    this.list = h("ul", { class: "shelf" });
    this.more = h("button", { type: "button", class: "plain", onclick: () => this.#load(true) }, "Show more");
    this.part = h("input", { type: "search", id: "part", placeholder: "Part of a name or folder", maxLength: 500,
      oninput: () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.#load(false), 200); } });
    this.summary = h("div", { class: "summary" });
    this.manage = h("div", {});
    this.left = h("div", {});
    this.total = h("span", { class: "found" });
    this.element = h("div", { class: "library" }, h("h1", {}, "Library"), this.summary, this.manage, this.left,
      h("section", { "aria-label": "Videos" }, h("div", { class: "bar" }, h("h2", {}, "Videos"), this.total,
        h("label", { class: "hidden", htmlFor: "part" }, "Part of a name or folder"), this.part), this.list, this.more));
  }

  async read() {
    document.title = "Library · Holmes";
    try {
      await this.#about();
      await this.#load(false);
      if (this.about.manage) this.#follow(await request("/api/job"));
    } catch (problem) {
      this.#failed(problem);
    }
  }

  leave() {
    clearTimeout(this.looking);
  }

  async #about() {
    this.about = await request("/api/index");
    const { videos, hours, model, extraction, path, left_out: left, partial, removed } = this.about;
    const length = hours >= 1 ? `${hours.toLocaleString("en", { maximumFractionDigits: 1 })} hours` : `${Math.round(60 * hours)} minutes`;
    const facts = [["Videos", videos.toLocaleString("en")], ["Length", length], ["On disk", bytes(this.about.bytes)],
      ["Model", modelName(model)], ["Frames", extraction?.backbone ? `${extraction.backbone.name}, ${extraction.rate} per second` : "made elsewhere"],
      ["Folder", path], removed ? ["Removed", `${removed.toLocaleString("en")}, ‘holmes index compact’ frees their space`] : null];
    this.summary.replaceChildren(h("dl", {}, facts.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { title: value }, value)))));
    this.left.replaceChildren(...[["Left out", left], ["Read in part", partial]].filter(([, files]) => files?.length).map(([name, files]) => reasons(name, files)));
    if (this.about.manage && !this.form) this.manage.replaceChildren(this.#adding());
  }

  async #load(further) {
    const offset = further ? this.list.children.length : 0;
    const { videos, total } = await request(address("/api/videos", { q: this.part.value.trim(), offset, limit: PAGE }));
    const items = videos.map((video) => this.#item(video));
    if (further) this.list.append(...items);
    else this.list.replaceChildren(...(items.length ? items : [h("li", { class: "empty" }, "No video has that in its name.")]));
    this.total.textContent = total.toLocaleString("en");
    this.more.hidden = offset + videos.length >= total;
    say(counted(total, "video"));
  }

  #item(video) {
    const image = h("img", { src: thumbnail(video.id, video.duration / 2, 160), alt: "", loading: "lazy", width: 160, height: 90 });
    image.addEventListener("error", () => image.replaceWith(h("span", { class: "nothing" })), { once: true });
    const facts = [clock(video.duration), video.date, video.file ? null : "file is gone"].filter(Boolean).join(" · ");
    const remove = this.about.manage ? button("trash", `Remove ${video.title} from the index`, () => this.#remove(video)) : null;
    return h("li", {}, image, h("div", {}, h("p", { class: "title", title: video.name }, video.title), h("p", { class: "folder" }, video.folder),
      h("p", { class: "folder" }, facts)), remove);
  }

  #adding() {
    this.paths = h("textarea", { id: "paths", rows: 2, placeholder: "/path/of/a/folder, one on each line", spellcheck: false });
    this.progress = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of adding videos" });
    this.news = h("p", { class: "news", role: "status" });
    this.form = h("form", { class: "adding", onsubmit: (event) => { event.preventDefault(); this.#add(); } },
      h("h2", {}, "Add videos"), h("label", { htmlFor: "paths" }, "Files or folders on the machine that serves this page"), this.paths,
      h("button", { type: "submit", class: "plain strong" }, "Add"), this.progress, this.news);
    return this.form;
  }

  async #add() {
    const paths = this.paths.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!paths.length) return;
    try {
      this.#follow(await send("POST", "/api/videos", { paths }));
      this.paths.value = "";
    } catch (problem) {
      this.news.textContent = problem.message;
    }
  }

  // Looks again and again until it is done; the videos appear as they come.
  #follow(job) {
    clearTimeout(this.looking);
    const running = job.state === "running";
    this.progress.hidden = !running;
    if (job.total) { this.progress.max = job.total; this.progress.value = job.done; } else this.progress.removeAttribute("value");
    if (running) this.news.textContent = job.total ? `${job.what}: ${job.done} of ${job.total}` : `${job.what}…`;
    else if (job.state !== "idle") this.news.textContent = job.message;
    if (running) {
      this.followed = true;
      this.looking = setTimeout(async () => {
        try { this.#follow(await request("/api/job")); } catch (problem) { this.news.textContent = problem.message; }
      }, LOOK);
    } else if (this.followed) {
      this.followed = false;
      setTimeout(() => this.#about().then(() => this.#load(false)).catch(() => {}), 1200); // the server looks at its index every second
    }
  }

  async #remove(video) {
    if (!window.confirm(`Remove ${video.title} from the index? Its file stays where it is.`)) return;
    try {
      await send("DELETE", `/api/videos/${video.id}`);
      await this.#about();
      await this.#load(false);
    } catch (problem) {
      this.news.textContent = problem.message;
    }
  }

  #failed(problem) {
    if (problem.status === 401) { this.element.dispatchEvent(new CustomEvent("locked", { bubbles: true })); return; }
    this.summary.replaceChildren(h("div", { class: "empty error", role: "alert" }, h("p", {}, problem.message),
      h("button", { type: "button", class: "plain", onclick: () => this.read() }, "Try again")));
  }
}

function modelName(model) {
  const name = String(model?.name ?? "unknown").split("/").filter(Boolean).slice(-2).join("/");
  return model?.kind ? `${name} (${model.kind})` : name;
}

function reasons(name, files) {
  return h("details", { class: "left" }, h("summary", {}, `${name}: ${counted(files.length, "file")}`),
    h("ul", {}, files.map((file) => h("li", {}, h("b", {}, file.name), ` ${file.reason}`))));
}
