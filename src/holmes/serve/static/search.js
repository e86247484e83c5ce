// The search: it answers when typing pauses, keeps what it shows until the next answer is there, and its state
// is the address.

import { address, request, thumbnail } from "./api.js";
import { Card } from "./card.js";
import { groups, panel } from "./diagnosis.js";
import { clock, counted, h, icon, say } from "./dom.js";
import { Filters, NAMES } from "./filters.js";
import { forget, recent, remember } from "./recent.js";
import { scaleOf } from "./timeline.js";

const PAUSE = 220; // milliseconds without a key until a search starts
const SETTLED = 1500; // milliseconds until a search counts as one worth remembering
const EXPORTS = [["json", "JSON"], ["csv", "CSV"], ["edl", "EDL cut list"], ["otio", "OpenTimelineIO"]];

export class Search {
  constructor(input) {
    this.input = input;
    this.cards = [];
    this.filters = new Filters(() => this.go({ replace: false }));
    this.tools = h("div", { class: "tools" }, this.filters.element, h("p", { class: "found" }), this.#exports());
    this.results = h("div", { class: "results" });
    this.toast = h("div", { class: "toast", "aria-hidden": "true" });
    this.element = h("div", { class: "search" }, this.tools, this.results, this.toast);
    this.filters.load().then((about) => { this.about = about; if (!this.query) this.#welcome(); }).catch((problem) => this.#failed(problem));
  }

  get query() {
    return this.input.value.trim();
  }

  // Shows what the address says.
  read() {
    const parameters = new URLSearchParams(location.search);
    this.filters.read(parameters);
    this.like = parameters.get("like");
    this.at = Number(parameters.get("t") ?? 0) || 0;
    this.wanted = parameters.get("play");
    this.input.value = parameters.get("q") ?? "";
    return this.run();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.go({ replace: true }), PAUSE);
  }

  go({ replace }) {
    clearTimeout(this.timer);
    this.like = this.wanted = null;
    const target = address("/", { q: this.query, ...this.filters.values });
    if (target !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", target);
    return this.run();
  }

  async run() {
    clearTimeout(this.settling);
    this.control?.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    if (!this.query && !this.like) return this.#welcome();
    this.#busy(true);
    try {
      const answer = this.like ? await this.#likeness(signal) : await request(this.#asked("/api/search", { timelines: true }), { signal });
      if (signal.aborted) return undefined;
      this.#show(answer);
      const { query } = this;
      if (query) this.settling = setTimeout(() => remember(query), SETTLED);
    } catch (problem) {
      if (problem.name !== "AbortError") this.#failed(problem);
    } finally {
      if (!signal.aborted) this.#busy(false);
    }
    return undefined;
  }

  select(step) {
    const now = this.cards.findIndex((card) => card.element.contains(document.activeElement));
    const card = this.cards[Math.min(this.cards.length - 1, Math.max(0, now < 0 ? (step > 0 ? 0 : -1) : now + step))];
    if (now === 0 && step < 0) this.input.focus();
    else card?.element.focus();
  }

  get selected() {
    return this.cards.find((card) => card.element.contains(document.activeElement)) ?? Card.open;
  }

  #asked(path, more) {
    return address(path, { q: this.query, ...this.filters.values, ...more });
  }

  async #likeness(signal) {
    const [video, found] = await Promise.all([request(`/api/videos/${encodeURIComponent(this.like)}`, { signal }),
      request(address(`/api/videos/${encodeURIComponent(this.like)}/like`, { t: this.at }), { signal })]);
    return { ...found, video };
  }

  #show(answer) {
    Card.open?.close();
    document.title = this.query ? `${this.query} · Holmes` : "Holmes";
    const scale = scaleOf(answer.hits);
    this.cards = answer.hits.map((hit, at) => new Card(hit, at + 1, scale, this.#actions()));
    const items = this.cards.map((card) => card.element);
    const parts = answer.diagnosis ? groups(answer) : [];
    const lists = (parts.length ? parts : [[0, ""]]).flatMap(([first, name], at) => [
      h("h2", { class: name ? "group" : "hidden" }, name || "Videos found"),
      h("ol", { class: "cards", start: first + 1 }, items.slice(first, parts[at + 1]?.[0]))]);
    const head = answer.diagnosis ? panel(answer) : this.#asking(answer.video);
    const title = h("h1", { class: "hidden" }, this.like ? "Moments like this one" : `Results for ${this.query}`);
    this.results.replaceChildren(title, head, ...(items.length ? lists : [this.#none(answer)]));
    this.#summary(answer);
    if (this.wanted) this.cards.find((card) => card.hit.id === this.wanted)?.play(this.at);
    this.wanted = null;
  }

  #summary({ hits, milliseconds }) {
    const took = milliseconds === undefined ? "" : ` in ${milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`}`;
    const line = `${counted(hits.length, "video")}${took}`;
    this.tools.querySelector(".found").textContent = line;
    this.tools.classList.toggle("answered", Boolean(hits.length) && !this.like);
    for (const link of this.tools.querySelectorAll(".exports a")) link.href = this.#asked("/api/export", { format: link.dataset.format });
    say(line);
  }

  #asking(video) {
    return h("section", { class: "asking" }, h("img", { src: thumbnail(video.id, this.at, 320), alt: "", width: 160, height: 90 }),
      h("div", {}, h("h2", {}, "More like this moment"), h("p", {}, `${video.title} at ${clock(this.at)}`),
        h("p", { class: "advice" }, "Found by how it looks, so there is no probability: compare the similarities.")));
  }

  #none(answer) {
    const filtered = NAMES.some((name) => this.filters.values[name]);
    return h("div", { class: "empty" }, h("p", {}, answer.diagnosis?.abstained ? "I do not know." : "No video fits."),
      h("p", { class: "advice" }, filtered ? "Try fewer filters." : answer.diagnosis?.advice ?? ""));
  }

  #failed(problem) {
    if (problem.status === 401) { this.element.dispatchEvent(new CustomEvent("locked", { bubbles: true })); return; }
    this.cards = [];
    this.results.replaceChildren(h("div", { class: "empty error", role: "alert" }, h("p", {}, problem.message),
      h("button", { type: "button", class: "plain", onclick: () => this.run() }, "Try again")));
    say(problem.message);
  }

  #welcome() {
    Card.open?.close();
    this.cards = [];
    document.title = "Holmes";
    this.#busy(false);
    this.tools.classList.remove("answered");
    this.tools.querySelector(".found").textContent = "";
    const last = recent();
    const empty = this.about && !this.about.videos;
    this.results.replaceChildren(h("div", { class: "welcome" },
      h("h1", {}, "Find a moment"),
      h("p", { class: "lead" }, empty ? "This index holds no videos yet. Add some in the library, or with ‘holmes index add’."
        : `Describe what can be seen. ${this.about ? `${counted(this.about.videos, "video")} are searched` : "All videos are searched"}, and you are told how sure the answer is.`),
      last.length ? h("section", { class: "recent" }, h("h2", {}, "Recent searches"),
        h("ul", {}, last.map((query) => h("li", {}, h("a", { href: address("/", { q: query }), "data-link": true }, query)))),
        h("button", { type: "button", class: "plain small", onclick: () => { forget(); this.#welcome(); } }, "Forget them")) : null,
      h("p", { class: "keys" }, key("/"), " search ", key("↓"), key("↑"), " choose ", key("Enter"), " play ", key("Space"), " pause ", key("?"), " more")));
  }

  #actions() {
    return {
      tell: (text) => this.#tell(text),
      link: (hit, time) => new URL(this.#asked("/", { play: hit.id, t: time.toFixed(1) }), location.href).href,
      like: (hit, time) => { history.pushState(null, "", address("/", { like: hit.id, t: time.toFixed(1) })); this.read(); scrollTo(0, 0); },
      playing: (hit, time) => {
        if (this.like) return;
        history.replaceState(null, "", this.#asked("/", hit ? { play: hit.id, t: time.toFixed(1) } : {}));
      },
    };
  }

  #exports() {
    return h("details", { class: "exports" }, h("summary", {}, icon("export"), h("span", {}, "Export")),
      h("ul", {}, EXPORTS.map(([format, name]) => h("li", {}, h("a", { href: "#", "data-format": format, download: `holmes.${format}` }, name)))));
  }

  #busy(on) {
    document.getElementById("busy").hidden = !on;
    this.results.setAttribute("aria-busy", String(on));
    if (on && !this.cards.length) this.results.replaceChildren(h("ol", { class: "cards", "aria-hidden": "true" }, [0, 1, 2].map(() => h("li", { class: "card ghost" }))));
  }

  #tell(text) {
    this.toast.textContent = text;
    this.toast.classList.add("shown");
    setTimeout(() => this.toast.classList.remove("shown"), 1600);
  }
}

function key(name) {
  return h("kbd", {}, name);
}
