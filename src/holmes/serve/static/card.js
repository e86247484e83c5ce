// One hit: a picture at the moment found, how probable it is, the strip, and the player when it is asked for.

import { thumbnail } from "./api.js";
import { button, clock, h, inWords, percent, say } from "./dom.js";
import { Player } from "./player.js";
import { Strip } from "./timeline.js";

export class Card {
  static open = null; // the card that plays

  constructor(hit, rank, scale, actions) {
    this.hit = hit;
    this.actions = actions;
    this.strip = new Strip(hit, scale, (time) => this.play(time));
    const best = hit.moments[0] ?? { start: 0, end: hit.duration };
    this.middle = (best.start + best.end) / 2;
    const image = h("img", { src: thumbnail(hit.id, this.middle), alt: "", loading: rank < 6 ? "eager" : "lazy", width: 480, height: 270 });
    image.addEventListener("error", () => image.replaceWith(h("span", { class: "nothing" }, "no picture")), { once: true });
    this.poster = h("button", { type: "button", class: "poster", "aria-label": `${clock(best.start)}–${clock(best.end)}: play ${hit.title} from there`,
      onclick: () => this.play(best.start) }, image, h("span", { class: "span" }, `${clock(best.start)}–${clock(best.end)}`));
    this.body = h("div", { class: "body" }, this.#heading(rank), this.strip.element, this.#foot());
    this.element = h("li", { class: "card", tabIndex: -1, "data-id": hit.id, "aria-label": `${rank}. ${hit.title}` }, this.poster, this.body);
  }

  play(time) {
    if (Card.open && Card.open !== this) Card.open.close();
    Card.open = this;
    if (!this.player) {
      this.player = new Player(this.hit, this.strip, () => { this.close(); this.element.focus(); });
      this.element.classList.add("playing");
      this.element.prepend(this.player.element);
    }
    this.actions.playing(this.hit, time);
    this.player.play(time);
    this.element.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.player?.close();
    this.player = null;
    this.element.classList.remove("playing");
    if (Card.open === this) Card.open = null;
    this.strip.show(this.hit.moments[0]?.start ?? 0);
    this.actions.playing(null);
  }

  playBest() {
    this.play(this.hit.moments[0]?.start ?? 0);
  }

  #heading(rank) {
    const { probability, fit, score, title, folder } = this.hit;
    const sure = probability === null || probability === undefined
      ? h("p", { class: "sure" }, h("span", { class: "words" }, "similarity"), h("b", {}, score.toFixed(2)))
      : h("p", { class: "sure" }, h("span", { class: "words" }, fit ?? inWords(probability)), h("b", {}, percent(probability)));
    return h("div", { class: "heading" }, h("span", { class: "rank", "aria-hidden": "true" }, String(rank)),
      h("div", { class: "names" }, h("h3", { title: this.hit.name }, title), h("p", { class: "folder" }, shortened(folder))), sure);
  }

  #foot() {
    const [best = { start: 0 }, ...others] = this.hit.moments;
    const here = () => this.player ? this.player.position : this.middle;
    return h("div", { class: "foot" },
      h("span", { class: "times" }, clock(0)),
      h("div", { class: "others" }, others.length ? h("span", { class: "words" }, "also at") : null,
        others.map((moment) => h("button", { type: "button", class: "time", "aria-label": `${clock(moment.start)}: play from there`,
          onclick: () => this.play(moment.start) }, clock(moment.start)))),
      h("div", { class: "actions" },
        button("like", `More like this: this moment of ${this.hit.title}`, () => this.actions.like(this.hit, here()), { text: "More like this" }),
        button("link", `Copy link to ${this.hit.title}`, () => this.#copy(this.player ? here() : best.start), { text: "Copy link" })),
      h("span", { class: "times" }, clock(this.strip.duration)));
  }

  async #copy(time) {
    const link = this.actions.link(this.hit, time);
    try {
      await navigator.clipboard.writeText(link);
      this.actions.tell("Link copied");
    } catch {
      window.prompt("Copy this link:", link); // without https a browser may not allow the clipboard
    }
    say("Link copied");
  }
}

// The last folders of a long path tell more than the first.
function shortened(folder) {
  const parts = folder.split("/").filter(Boolean);
  return parts.length > 3 ? `…/${parts.slice(-3).join("/")}` : folder;
}
