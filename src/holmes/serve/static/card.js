// One film that was found: a picture of its best moment, how probable it is, the strip, its other moments, and the player
// when it is asked for.

import { thumbnail } from "./api.js";
import { button, clock, h, percent, say, shortened } from "./dom.js";
import { made } from "./extensions.js";
import { Player } from "./player.js";
import { previewOnHover } from "./preview.js";
import { watchAddress } from "./tile.js";
import { Strip } from "./timeline.js";
import { quotes } from "./transcript.js";

const OTHERS = 4; // further moments that are shown

export class Card {
  static open = null; // the card that plays

  constructor(hit, rank, scale, actions) {
    this.hit = hit;
    this.actions = actions;
    this.strip = new Strip(hit, scale, (time) => this.play(time));
    const best = hit.moments[0] ?? { start: 0, end: hit.duration };
    this.middle = (best.start + best.end) / 2;
    this.poster = this.#picture(best, 480, rank < 6, "poster");
    this.body = h("div", { class: "body" }, this.#heading(rank), this.strip.element, quotes(hit, (time) => this.play(time)) ?? "", this.#foot());
    this.element = h("li", { class: "card", tabIndex: -1, "data-id": hit.id, "aria-label": `${rank}. ${hit.title}` }, this.poster, this.body);
  }

  play(time) {
    if (Card.open && Card.open !== this) Card.open.close();
    Card.open = this;
    if (!this.player) {
      this.player = new Player(this.hit, this.strip, () => { this.close(); this.element.focus(); });
      this.element.classList.add("playing");
      this.element.prepend(this.player.element);
      this.player.video.addEventListener("resize", () => this.#scroll(), { once: true }); // the film is as high as it is now known to be
    }
    this.actions.playing(this.hit, time);
    this.player.play(time);
    this.#scroll();
  }

  #scroll() {
    this.element.scrollIntoView({ block: "nearest" });
  }

  // `quiet` leaves the address alone: another view has it already.
  close({ quiet = false } = {}) {
    this.player?.close();
    this.player = null;
    this.element.classList.remove("playing");
    if (Card.open === this) Card.open = null;
    this.strip.show(this.hit.moments[0]?.start ?? 0);
    if (!quiet) this.actions.playing(null);
  }

  playBest() {
    this.play(this.hit.moments[0]?.start ?? 0);
  }

  // A moment as a picture that plays in place under the mouse, and in the player when it is pressed.
  #picture(moment, width, eager, style) {
    const times = `${clock(moment.start)}–${clock(moment.end)}`;
    const image = h("img", { src: thumbnail(this.hit.id, (moment.start + moment.end) / 2, width), alt: "", loading: eager ? "eager" : "lazy", width: 480, height: 270 });
    image.addEventListener("error", () => image.replaceWith(h("span", { class: "nothing" }, "no picture")), { once: true });
    const picture = h("button", { type: "button", class: style, "aria-label": `${times}: play ${this.hit.title} from there`, onclick: () => this.play(moment.start) },
      image, h("span", { class: "span" }, style === "poster" ? times : clock(moment.start)));
    previewOnHover(picture, this.hit, moment);
    return picture;
  }

  #heading(rank) {
    const { probability, fit, score, title, folder } = this.hit;
    const sure = probability === null || probability === undefined
      ? h("p", { class: "sure" }, h("span", { class: "words" }, "similarity"), h("b", {}, score.toFixed(2)))
      : h("p", { class: "sure" }, h("span", { class: "words" }, fit), h("b", {}, percent(probability)));
    const open = watchAddress(this.hit, { t: (this.hit.moments[0]?.start ?? 0).toFixed(1), q: this.actions.query });
    return h("div", { class: "heading" }, h("span", { class: "rank", "aria-hidden": "true" }, String(rank)),
      h("div", { class: "names" }, h("h3", { title: this.hit.name }, h("a", { href: open, "data-link": true }, title)), h("p", { class: "folder" }, [clock(this.hit.duration), this.hit.library, shortened(folder)].filter(Boolean).join(" · "))), sure);
  }

  #foot() {
    const [best = { start: 0 }, ...others] = this.hit.moments;
    const here = () => this.player ? this.player.position : this.middle;
    return h("div", { class: "foot" },
      others.length ? h("div", { class: "others" }, h("span", { class: "words" }, "also at"),
        others.slice(0, OTHERS).map((moment) => this.#picture(moment, 160, false, "other"))) : null,
      h("div", { class: "actions" },
        button("like", `More like this: this moment of ${this.hit.title}`, () => this.actions.like(this.hit, here()), { text: "More like this" }),
        button("link", `Copy link to ${this.hit.title}`, () => this.#copy(this.player ? here() : best.start), { text: "Copy link" }),
        made("card", this.hit, { time: here, player: () => this.player ?? null })));
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
