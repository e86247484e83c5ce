// The first view: three questions this collection can answer, the last searches, and videos to begin with.

import { aboutIndex, address, at, request } from "./api.js";
import { addVideos } from "./adding.js";
import { counted, h, notice, plain } from "./dom.js";
import { opened, searches } from "./recent.js";
import { tile } from "./tile.js";

const SHOWN = 8;

export class Start {
  constructor() {
    this.element = h("div", { class: "start" });
    this.examples = h("section", { class: "questions", "aria-label": "Example questions" });
  }

  async read() {
    document.title = "Holmes";
    this.failed = false;
    try {
      const about = await aboutIndex(true);
      if (!about.videos) return this.#nothing(about);
      const [added, latest, seen] = await Promise.all([list("added"), list("date"), videos(opened.all)]);
      this.#show(about, added, latest, seen);
      this.#ask(); // a changed index takes a while to find its examples
    } catch (problem) {
      this.failed = true;
      this.element.replaceChildren(h("h1", { class: "hidden" }, "Holmes"), notice(problem.message, plain("Try again", () => this.read()), { error: true }));
    }
    return undefined;
  }

  #show(about, added, latest, seen) {
    this.element.replaceChildren(
      h("div", { class: "welcome" }, h("h1", {}, "Find a moment"),
        h("p", { class: "lead" }, `Describe what can be seen. Holmes searches ${counted(about.videos, "video")} and says how sure the answer is.`),
        this.examples, this.#recent()),
      seen.length ? row("Opened last", seen) : row("Newest files", latest, at("/library?sort=date")),
      row("Newly added", added, at("/library?sort=added")));
  }

  async #ask() {
    const { examples } = await request("/api/examples").catch(() => ({}));
    if (!examples || String(examples) === this.offered) return; // what is shown stays, with its focus
    this.offered = String(examples);
    this.examples.replaceChildren(...(examples.length ? [h("h2", {}, "Try one of these"), links(examples)] : []));
  }

  #recent() {
    const last = searches.all;
    if (!last.length) return "";
    const section = h("section", { class: "recent" }, h("h2", {}, "Recent searches"), links(last),
      plain("Forget them", () => { searches.forget(); section.remove(); }, { class: "plain small" }));
    return section;
  }

  #nothing(about) {
    const adds = about.manage || about.uploads;
    const action = adds ? plain("Add videos", () => addVideos(about), { class: "plain strong" })
      : h("code", { class: "command" }, `holmes index add ${about.path} VIDEOS`);
    this.element.replaceChildren(h("h1", { class: "hidden" }, "Holmes"), notice("There are no videos yet.", action,
      { more: adds ? "Add some, then search in them." : "Add some on the machine of the server:" }));
  }
}

const list = (sort) => request(address("/api/videos", { sort, limit: SHOWN })).then((found) => found.videos);

// Videos by id; those that have been removed are left out.
const videos = (ids) => Promise.all(ids.slice(0, SHOWN).map((id) => request(`/api/videos/${encodeURIComponent(id)}`).catch(() => null)))
  .then((found) => found.filter(Boolean));

const links = (queries) => h("ul", {}, queries.map((query) => h("li", {}, h("a", { href: address("/", { q: query }), "data-link": true }, query))));

function row(name, list, more = null) {
  return h("section", { class: "row", "aria-label": name }, h("div", { class: "row-head" }, h("h2", {}, name), more ? h("a", { href: more, "data-link": true }, "All videos") : null),
    h("ul", { class: "tiles" }, list.map((video) => h("li", {}, tile(video)))));
}
