// The answer to a sentence, or to a moment that others should look like: it comes when typing pauses, what is shown stays
// until the next answer is there, and the address says all of it.

import { Problem, aboutIndex, address, at, pathOf, request, thumbnail } from "./api.js";
import { Card } from "./card.js";
import { groups, panel } from "./diagnosis.js";
import { busy, button, clock, counted, h, icon, notice, pausePictures, plain, say } from "./dom.js";
import { Filters } from "./filters.js";
import { made } from "./extensions.js";
import { searches } from "./recent.js";
import { scaleOf } from "./timeline.js";

const PAUSE = 220; // milliseconds without a key until a search starts
const SLOW = 700; // milliseconds after which a search is named, with a button that stops it
const SETTLED = 1500; // milliseconds until a search counts as one worth remembering

export class Answer {
  // `go(address, { replace })` changes the address and shows what it says.
  constructor(input, go) {
    this.input = input;
    this.go = go;
    this.cards = [];
    this.source = null; // what is asked with in place of a sentence: see addSearchField
    this.filters = new Filters(() => this.ask({ replace: false }));
    this.exports = h("ul", {});
    this.menu = h("details", { class: "exports", hidden: true }, h("summary", {}, icon("export"), h("span", {}, "Export")), this.exports);
    this.found = h("p", { class: "found" });
    this.slow = h("p", { class: "found slow", hidden: true }, "Searching… ", plain("Stop", () => this.#stop(), { class: "plain small" }));
    this.tools = h("div", { class: "tools" }, this.filters.element, this.found, this.slow, this.menu);
    this.results = h("div", { class: "results" });
    this.toast = h("div", { class: "toast", "aria-hidden": "true" });
    this.title = h("h1", { class: "hidden" }, "Search");
    this.element = h("div", { class: "search" }, this.title, this.tools, this.results, this.toast);
    this.exports.addEventListener("click", () => { this.menu.open = false; });
    document.addEventListener("click", ({ target }) => { if (!this.menu.contains(target)) this.menu.open = false; });
    for (const event of ["away", "back"]) document.addEventListener(event, () => this.#exporting());
  }

  get query() {
    return this.input.value.trim();
  }

  // Shows what the address says; what is shown already stays as it is.
  read() {
    const parameters = new URLSearchParams(location.search);
    this.filters.read(parameters);
    aboutIndex().then((about) => { this.about = about; this.filters.folders(about.folders); }).catch(() => {});
    this.like = parameters.get("like");
    this.filters.element.hidden = Boolean(this.like); // look-alikes are those of the whole collection
    this.at = Number(parameters.get("t") ?? 0) || 0;
    this.wanted = parameters.get("play");
    if (this.query !== (parameters.get("q") ?? "")) this.input.value = parameters.get("q") ?? "";
    const asked = this.#parameters();
    document.title = this.query ? `${this.query} · Holmes` : "Holmes";
    if (!this.source && !this.failed && JSON.stringify(asked) === this.shown) return this.#play();
    return this.run();
  }

  leave() {
    clearTimeout(this.timer);
    clearTimeout(this.settling);
    this.control?.abort();
    this.#busy(false);
    Card.open?.close({ quiet: true });
    this.source = null;
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask({ replace: pathOf(location) === "/" && location.search !== "" }), PAUSE);
  }

  ask({ replace }) {
    clearTimeout(this.timer);
    const filters = this.element.isConnected ? this.filters.values : {};
    this.go(address("/", { q: this.query, by: this.source ? "other" : "", ...(this.query || this.source ? filters : {}) }), { replace });
  }

  // Asks with something other than a sentence until `null` is given.
  use(source) {
    this.source = source;
    this.failed = true; // whatever is shown answers something else
    this.ask({ replace: false });
  }

  async run() {
    clearTimeout(this.settling);
    this.control?.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    this.failed = false;
    pausePictures(this.results);
    this.#busy(true);
    try {
      const asked = this.#parameters();
      const answer = await this.#answer(asked, signal);
      if (signal.aborted) return;
      this.#show(answer);
      this.shown = this.source ? null : JSON.stringify(asked);
      const { query } = this;
      if (query) this.settling = setTimeout(() => searches.add(query), SETTLED);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      if (problem.status) this.about = await aboutIndex().catch(() => null); // an index without videos has something else to offer
      if (!signal.aborted) this.#failed(problem);
    } finally {
      if (!signal.aborted) this.#busy(false);
    }
  }

  // Ends a search that takes too long.
  #stop() {
    this.control.abort();
    this.#failed(new Problem("The search was stopped."), { action: "Search again", error: false });
    this.results.querySelector("button").focus(); // that which was pressed is gone
    this.#busy(false);
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

  // What a key does here; says whether it does anything.
  key({ key, target }) {
    const pressed = target.matches("button, a, summary, input");
    const player = Card.open?.player;
    if (key === "Escape" && this.menu.open) { this.menu.open = false; this.menu.querySelector("summary").focus(); return true; }
    if (!this.cards.length) return false;
    if (key === "ArrowDown") this.select(1);
    else if (key === "ArrowUp") this.select(-1);
    else if (key === "Enter" && !pressed) this.selected?.playBest();
    else if (key === "Escape" && Card.open) { const { element } = Card.open; Card.open.close(); element.focus(); }
    else if (key === " " && !pressed && !player) this.selected?.playBest();
    else if (pressed && [" ", "Enter"].includes(key)) return false;
    else return Boolean(player?.key(key));
    return true;
  }

  #parameters() {
    return this.like ? { like: this.like, t: this.at.toFixed(1) } : { q: this.query, ...this.filters.values };
  }

  async #answer(asked, signal) {
    if (this.source) return { ...await this.source.answer({ q: this.query, filters: this.filters.values, signal }), source: this.source };
    if (!this.like) return request(address("/api/search", { ...asked, timelines: true }), { signal });
    const id = encodeURIComponent(this.like);
    const [video, found] = await Promise.all([request(`/api/videos/${id}`, { signal }),
      request(address(`/api/videos/${id}/like`, { t: this.at, timelines: true }), { signal })]);
    return { ...found, source: { title: `More like ${video.title} at ${clock(this.at)}`, image: thumbnail(video.id, this.at, 320),
      note: "Found by how it looks, so there is no probability: compare the similarities." } };
  }

  #show(answer) {
    Card.open?.close({ quiet: true });
    const hits = grouped(answer.hits);
    const scale = scaleOf(hits);
    this.cards = hits.map((hit, at) => new Card(hit, at + 1, scale, this.#actions()));
    const items = this.cards.map((card) => card.element);
    const parts = answer.diagnosis && !answer.source ? groups({ ...answer, hits }) : [];
    const lists = (parts.length ? parts : [[0, ""]]).flatMap(([first, name], at) => [
      h("h2", { class: name ? "group" : "hidden" }, name || "Videos found"),
      h("ol", { class: "cards", start: first + 1 }, items.slice(first, parts[at + 1]?.[0]))]);
    this.title.textContent = answer.source?.title ?? `Results for ${this.query}`;
    this.results.replaceChildren(...(answer.source ? [this.#queryShown(answer.source)] : []), ...(answer.diagnosis && hits.length ? [panel({ ...answer, hits })] : []),
      ...(items.length ? lists : [this.#none(answer)]));
    this.hits = hits;
    this.#summary(answer);
    this.#play();
    this.#answered();
  }

  // The video that the address names.
  #play() {
    if (this.wanted) this.cards.find((card) => card.hit.id === this.wanted)?.play(this.at);
    this.wanted = null;
  }

  #summary({ milliseconds }) {
    const took = milliseconds === undefined ? "" : ` in ${milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`}`;
    this.found.replaceChildren(counted(this.hits.length, "video"), h("span", { class: "took" }, took));
    this.#exporting();
    say(this.found.textContent);
  }

  // The menu of exports; a server that is gone can export nothing.
  #exporting() {
    const gone = document.body.classList.contains("gone");
    const parameters = this.source ? null : this.#parameters();
    const whole = parameters && h("a", { href: address("/api/export", { ...parameters, format: "json" }), download: "holmes.json" }, "The answer (JSON)");
    const entries = this.hits?.length ? [whole, ...made("export", { hits: this.hits, parameters })].filter(Boolean) : [];
    this.menu.hidden = !entries.length;
    this.menu.classList.toggle("disabled", gone);
    this.menu.open = this.menu.open && !gone;
    const summary = this.menu.querySelector("summary");
    summary.setAttribute("aria-disabled", String(gone));
    summary.title = gone ? "The server does not answer" : "";
    summary.onclick = (event) => { if (gone) event.preventDefault(); };
    for (const action of this.results.querySelectorAll(".actions button")) action.disabled = gone;
    this.exports.replaceChildren(...entries.map((entry) => h("li", {}, entry)));
  }

  #queryShown({ title, image, note }) {
    const end = this.source ? button("close", "End this search", () => this.use(null)) : null;
    return h("section", { class: "query-shown" }, image ? h("img", { src: image, alt: "", width: 160, height: 90 }) : null,
      h("div", {}, h("h2", {}, title), note ? h("p", { class: "advice" }, note) : null), end);
  }

  #none(answer) {
    if (this.filters.any) return notice("No video matches these filters.", plain("Clear the filters", () => this.filters.reset()));
    return notice(answer.diagnosis?.abstained ? "I do not know." : "No video fits.", null, { more: answer.diagnosis?.advice ?? "" });
  }

  #failed(problem, { action = "Try again", error = true } = {}) {
    this.failed = true;
    this.shown = null;
    if (problem.status === 0 && this.cards.length) return; // what is shown stays, greyed
    this.cards = [];
    this.hits = [];
    this.found.textContent = "";
    this.#exporting();
    const empty = this.about && !this.about.videos;
    this.results.replaceChildren(empty ? notice("There are no videos yet.", h("a", { class: "plain", href: at("/library"), "data-link": true }, "Open the library"))
      : notice(problem.message, plain(action, () => this.run()), { error }));
    say(this.results.querySelector("p").textContent);
    if (empty) this.#answered();
  }

  #answered() {
    document.dispatchEvent(new CustomEvent("answered", { detail: { query: this.source || this.like ? "" : this.query, element: this.results } }));
  }

  #actions() {
    return {
      tell: (text) => this.#tell(text),
      query: this.like ? "" : this.query,
      link: (hit, time) => new URL(address("/", { ...this.#parameters(), play: hit.id, t: time.toFixed(1) }), location.href).href,
      like: (hit, time) => { Card.open?.close({ quiet: true }); this.input.value = ""; this.source = null; this.go(address("/", { like: hit.id, t: time.toFixed(1) })); },
      playing: (hit, time) => {
        if (this.like || this.source) return;
        history.replaceState(history.state, "", address("/", { ...this.#parameters(), ...(hit ? { play: hit.id, t: time.toFixed(1) } : {}) }));
      },
    };
  }

  #busy(on) {
    busy(on);
    this.results.setAttribute("aria-busy", String(on));
    clearTimeout(this.waiting);
    const slow = (now) => { this.slow.hidden = !now; this.found.hidden = now; };
    slow(on && !this.slow.hidden);
    if (!on) return;
    this.waiting = setTimeout(() => slow(true), SLOW);
    say("Searching…");
    if (!this.cards.length) this.results.replaceChildren(h("ol", { class: "cards", "aria-hidden": "true" }, [0, 1, 2].map(() => h("li", { class: "card ghost" }))));
  }

  #tell(text) {
    this.toast.textContent = text;
    this.toast.classList.add("shown");
    setTimeout(() => this.toast.classList.remove("shown"), 1600);
  }
}

// Hits of one film are one card: the best comes first and takes the moments of the others.
function grouped(hits) {
  const films = new Map();
  for (const hit of hits) {
    const first = films.get(hit.id);
    if (first) first.moments.push(...hit.moments);
    else films.set(hit.id, { ...hit, moments: [...hit.moments] });
  }
  return [...films.values()];
}
