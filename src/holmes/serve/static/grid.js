// Thousands of videos in a grid: only those near the window are elements, and those are asked for page by page.

import { h, pausePictures } from "./dom.js";
import { tile } from "./tile.js";

const PAGE = 100; // videos of one request
const MARGIN = 3; // rows above and below the window
const GAP = 16;
const TEXT = 56; // pixels of the lines below a picture
const FAST = 1.5; // pixels a millisecond: above it nothing can be read, so tiles are left empty
const SPREAD = 2; // tiles that are made in one frame while scrolling: a whole row at once would delay the frame
const REST = 120; // milliseconds without scrolling until all are filled

export class Grid {
  // `load(offset, limit)` promises { total, videos }; `extra(video)` is an element of a tile, or null.
  constructor(load, extra) {
    this.load = load;
    this.extra = extra;
    this.element = h("ul", { class: "grid", onkeydown: (event) => this.#arrows(event) });
    this.shown = new Map(); // position → element
    this.scrolled = () => this.#scrolled();
    this.sized = new ResizeObserver(() => { this.#measure(); this.#draw(); });
  }

  // Begins anew; promises how many videos there are.
  async reset() {
    const run = this.run = Symbol("run");
    const first = await this.load(0, PAGE);
    if (run !== this.run) return first.total;
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.total = first.total;
    this.pages = new Map([[0, first.videos]]);
    this.#measure();
    this.#draw();
    return this.total;
  }

  enter() {
    addEventListener("scroll", this.scrolled, { passive: true });
    this.sized.observe(this.element);
  }

  leave() {
    removeEventListener("scroll", this.scrolled);
    this.sized.disconnect();
  }

  #measure() {
    const width = this.element.clientWidth;
    if (!width || this.total === undefined) return;
    const least = width < 520 ? 150 : 210;
    const columns = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
    const wide = (width - (columns - 1) * GAP) / columns;
    const changed = columns !== this.columns || wide !== this.wide;
    Object.assign(this, { columns, wide, high: Math.round(wide * 9 / 16) + TEXT + GAP });
    this.element.style.height = `${Math.ceil(this.total / columns) * this.high}px`;
    if (changed) for (const [at, element] of this.shown) this.#position(element, at);
  }

  #scrolled() {
    const now = performance.now();
    this.upwards = scrollY < (this.before ?? 0);
    this.speed = Math.abs(scrollY - (this.before ?? scrollY)) / Math.max(1, now - (this.when ?? 0));
    this.before = scrollY;
    this.when = now;
    this.#drawSoon();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => { this.speed = 0; this.#draw(); }, REST);
  }

  #draw() {
    if (!this.columns || !this.total) return;
    const top = scrollY - this.element.offsetTop;
    const first = Math.max(0, Math.floor(top / this.high) - MARGIN) * this.columns;
    const last = Math.min(this.total, (Math.ceil((top + innerHeight) / this.high) + MARGIN) * this.columns);
    for (const [at, element] of this.shown) {
      if ((at < first || at >= last) && !element.contains(document.activeElement)) { pausePictures(element); element.remove(); this.shown.delete(at); }
    }
    let left = this.speed ? SPREAD : Infinity;
    for (let at = first; at < last; at += 1) {
      const place = this.upwards ? first + last - 1 - at : at; // what is scrolled to comes last in either direction
      if (this.#fill(place)) left -= 1;
      if (!left) break;
    }
    if (!left) this.#drawSoon();
  }

  #drawSoon() {
    this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.#draw(); });
  }

  // Says whether a tile was made.
  #fill(at) {
    const page = this.pages.get(Math.floor(at / PAGE));
    const video = Array.isArray(page) ? page[at % PAGE] : null;
    const before = this.shown.get(at);
    if (before && (before.video === video || !video || this.speed > FAST)) return false;
    if (!page && !(this.speed > FAST)) this.#ask(Math.floor(at / PAGE));
    const element = h("li", { "aria-posinset": String(at + 1), "aria-setsize": String(this.total) },
      video && !(this.speed > FAST) ? tile(video, { extra: this.extra(video) }) : h("div", { class: "tile ghost" }));
    element.video = element.querySelector(".ghost") ? null : video;
    this.#position(element, at);
    if (before) before.replaceWith(element);
    else this.element.insertBefore(element, this.#following(at));
    this.shown.set(at, element);
    return Boolean(element.video);
  }

  // The element that comes next, so that the order of the document is that of the grid.
  #following(at) {
    let next = null;
    for (const position of this.shown.keys()) if (position > at && (next === null || position < next)) next = position;
    return next === null ? null : this.shown.get(next);
  }

  #position(element, at) {
    const column = at % this.columns;
    element.style.width = `${this.wide}px`;
    element.style.transform = `translate(${column * (this.wide + GAP)}px, ${Math.floor(at / this.columns) * this.high}px)`;
  }

  async #ask(number) {
    const { run } = this;
    this.pages.set(number, "asked");
    try {
      const { videos } = await this.load(number * PAGE, PAGE);
      if (run === this.run) this.pages.set(number, videos);
    } catch {
      if (run === this.run) this.pages.delete(number); // asked for again when it is scrolled to
    }
    if (run === this.run) this.#draw();
  }

  #arrows(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    const item = event.target.closest?.("li");
    if (!step || !item) return;
    const at = Number(item.getAttribute("aria-posinset")) - 1 + step;
    if (at < 0 || at >= this.total) return;
    event.preventDefault();
    event.stopPropagation();
    this.focus(at);
  }

  // The video at a position, or the last one.
  focus(at) {
    if (!this.total) return;
    const there = Math.min(at, this.total - 1);
    this.#fill(there);
    this.shown.get(there).querySelector("a")?.focus();
  }
}
