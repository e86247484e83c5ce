// What the index holds, as a grid: sorted, filtered, by folder; what was left out and why; changes where the server allows them.

import { aboutIndex, address, request, send } from "./api.js";
import { addVideos } from "./adding.js";
import { button, bytes, counted, h, notice, pausePictures, plain, say } from "./dom.js";
import { Filters } from "./filters.js";
import { folderTree, markFolder } from "./folders.js";
import { Grid } from "./grid.js";

const WIDE = 1000; // pixels from which the folders stand beside the videos
const SORTS = [["added", "", "Newly added"], ["name", "", "Name"], ["date", "", "Newest file"], ["date", "up", "Oldest file"],
  ["length", "", "Longest"], ["length", "up", "Shortest"]];

export class Library {
  // `go(address, { replace })` changes the address and shows what it says.
  constructor(go) {
    this.go = go;
    this.filters = new Filters(() => this.#changed());
    this.part = h("input", { type: "search", id: "part", placeholder: "Part of a name", maxLength: 500,
      oninput: () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.#changed(true), 200); } });
    this.sort = h("select", { id: "sort", onchange: () => this.#changed() }, SORTS.map(([, , name], at) => h("option", { value: String(at) }, name)));
    this.total = h("span", { class: "found" });
    this.adding = plain("Add videos", () => this.#add(), { class: "plain strong" });
    this.head = h("div", { class: "library-head" }, h("h1", {}, "Library"), this.total);
    this.tree = h("details", { class: "folders", hidden: true, open: innerWidth >= WIDE });
    this.left = h("div", {});
    this.grid = new Grid((offset, limit) => request(this.#asked({ offset, limit })), (video) => this.#extra(video));
    this.state = h("div", {});
    this.facts = h("details", { class: "index-facts", hidden: true });
    this.element = h("div", { class: "library" }, this.head,
      h("div", { class: "tools" }, h("label", { class: "hidden", htmlFor: "part" }, "Part of a name or folder"), this.part,
        h("label", { class: "sort", htmlFor: "sort" }, h("span", {}, "Sort by"), this.sort), this.filters.element),
      this.left, h("div", { class: "library-body alone" }, this.tree, h("section", { "aria-label": "Videos" }, this.state, this.grid.element)), this.facts);
  }

  // Shows what the address says; an address shown before keeps its place.
  async read() {
    document.title = "Library · Holmes";
    const parameters = new URLSearchParams(location.search);
    this.filters.read(parameters);
    this.part.value = parameters.get("name") ?? "";
    const [sort, order] = [parameters.get("sort") ?? "added", parameters.get("order") ?? ""];
    this.sort.value = String(Math.max(0, SORTS.findIndex(([name, way]) => name === sort && way === order)));
    this.failed = false;
    this.grid.enter();
    if (!this.shown?.startsWith(`${location.search} `)) pausePictures(this.grid.element); // another order
    try {
      const about = await aboutIndex(true);
      const now = `${location.search} ${about.generation}`;
      this.#about(about);
      if (now !== this.shown) await this.#load();
      this.shown = now;
    } catch (problem) {
      this.failed = true;
      this.shown = null;
      if (problem.status === 0 && this.grid.total) return; // what is shown stays, greyed
      this.state.replaceChildren(notice(problem.message, plain("Try again", () => this.read()), { error: true }));
    }
  }

  leave() {
    this.grid.leave();
  }

  get #sorting() {
    const [sort, order] = SORTS[Number(this.sort.value)];
    return { sort, order };
  }

  #asked(more) {
    return address("/api/videos", { q: this.part.value.trim(), ...this.filters.values, ...this.#sorting, ...more });
  }

  #changed(replace = false) {
    const { sort, order } = this.#sorting;
    this.go(address("/library", { name: this.part.value.trim(), ...this.filters.values, sort: sort === "added" ? "" : sort, order }), { replace });
  }

  async #load() {
    const total = await this.grid.reset();
    const every = total === this.about.videos;
    this.total.textContent = every ? counted(total, "video") : `${total.toLocaleString("en")} of ${counted(this.about.videos, "video")}`;
    this.state.replaceChildren(...(total ? [] : [this.#none()]));
    say(counted(total, "video"));
  }

  #none() {
    if (!this.about.videos) {
      return notice("There are no videos yet.", this.about.manage || this.about.uploads ? plain("Add videos", () => this.#add(), { class: "plain strong" })
        : h("code", { class: "command" }, `holmes index add ${this.about.path} VIDEOS`));
    }
    return notice("No video matches.", plain("Clear the filters", () => { this.part.value = ""; this.filters.reset(); }));
  }

  #about(about) {
    this.about = about;
    this.filters.folders(about.folders);
    if (!about.manage && !about.uploads) this.adding.remove();
    else if (!this.adding.parentElement) this.head.append(this.adding);
    this.tree.hidden = about.folders.length < 2;
    this.element.querySelector(".library-body").classList.toggle("alone", this.tree.hidden);
    this.#folders(about);
    this.left.replaceChildren(leftOut(about));
    this.facts.hidden = false;
    this.facts.replaceChildren(h("summary", {}, "About this index"), facts(about));
  }

  // The tree is made anew only where it has changed: what is open stays open, and the focus where it is.
  #folders({ folders, videos }) {
    const listed = JSON.stringify([folders, videos]);
    if (listed !== this.listed) this.tree.replaceChildren(h("summary", {}, "Folders"), folderTree(folders, videos, (folder) => this.#choose(folder)));
    this.listed = listed;
    markFolder(this.tree, this.filters.values.folder);
  }

  // On a narrow page the tree stands above the videos: it makes room for them.
  #choose(folder) {
    if (innerWidth < WIDE) {
      this.tree.open = false;
      this.tree.querySelector("summary").focus();
    }
    this.filters.set({ folder });
  }

  #add() {
    addVideos(this.about);
  }

  #extra(video) {
    return this.about.manage ? button("trash", `Remove ${video.title} from the index`, () => this.#remove(video)) : null;
  }

  async #remove(video) {
    if (!window.confirm(`Remove ${video.title} from the index? Its file stays where it is.`)) return;
    const position = document.activeElement.closest("[aria-posinset]")?.getAttribute("aria-posinset");
    try {
      await send("DELETE", `/api/videos/${video.id}`);
      this.shown = null;
      await this.read();
      if (position) this.grid.focus(position - 1); // of the video that has taken its place
    } catch (problem) {
      this.state.replaceChildren(notice(problem.message, null, { error: true }));
    }
  }
}

function facts(about) {
  const { videos, hours, model, extraction, path, removed } = about;
  const length = hours >= 1 ? `${hours.toLocaleString("en", { maximumFractionDigits: 1 })} hours` : `${Math.round(60 * hours)} minutes`;
  const found = [["Videos", videos.toLocaleString("en")], ["Length", length], ["On disk", bytes(about.bytes)],
    ["Model", modelName(model)], ["Frames", extraction?.backbone ? `${extraction.backbone.name}, ${extraction.rate} per second` : "made elsewhere"],
    ["Folder", path], removed ? ["Removed", `${removed.toLocaleString("en")}, ‘holmes index compact’ frees their space`] : null];
  return h("dl", {}, found.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { title: value }, value))));
}

function modelName(model) {
  const name = String(model?.name ?? "unknown").split("/").filter(Boolean).slice(-2).join("/");
  return model?.kind ? `${name} (${model.kind})` : name;
}

// What is missing from the index or not whole, in one line; opened, each file with its reason.
function leftOut(about) {
  const found = [["file", " left out", "Left out", about.left_out], ["duplicate", "", "Left out as duplicates", about.copies], ["file", " read in part", "Read in part", about.partial]]
    .filter(([, , , files]) => files?.length);
  if (!found.length) return "";
  return h("details", { class: "left" }, h("summary", {}, found.map(([what, became, , files]) => counted(files.length, what) + became).join(", ")),
    found.flatMap(([, , title, files]) => [h("h2", {}, title), h("ul", { tabIndex: 0, "aria-label": title }, files.map((file) => h("li", {}, h("b", {}, file.name), `: ${file.reason}`)))]));
}
