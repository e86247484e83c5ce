// The similarity along a whole video as a strip: darker and higher where it fits, with the moments marked.
// It is the player's seek bar too: a click, or Enter on it, plays from there.

import { clock, h, svg } from "./dom.js";
import { thumbnail } from "./api.js";

const HEIGHT = 100;

export class Strip {
  constructor(hit, scale, seek) {
    this.hit = hit;
    this.seek = seek;
    this.duration = Math.max(hit.timeline?.duration ?? 0, hit.duration, 0.1);
    this.time = hit.moments[0]?.start ?? 0;
    this.head = h("div", { class: "head" });
    this.preview = h("div", { class: "preview", "aria-hidden": "true", hidden: true },
      h("img", { alt: "", width: 160, height: 90 }), h("span", {}));
    this.element = h("div", {
      class: hit.timeline ? "strip" : "strip bare", tabIndex: 0, role: "slider", "aria-label": `Timeline of ${hit.title}`,
      "aria-valuemin": "0", "aria-valuemax": String(Math.round(this.duration)),
      onclick: (event) => this.#click(event), onkeydown: (event) => this.#key(event),
      onpointermove: (event) => this.#hover(event), onpointerleave: () => { this.preview.hidden = true; },
      onblur: () => { this.choosing = false; },
    }, picture(hit.timeline?.similarity ?? [], scale), this.#marks(), this.head, this.preview);
    this.show(this.time);
  }

  // Where the film is now. A time that is being chosen by keys stays: a film that plays would move it.
  show(time) {
    if (this.choosing) return;
    this.time = Math.min(Math.max(time, 0), this.duration);
    this.head.style.left = `${100 * this.time / this.duration}%`;
    this.element.setAttribute("aria-valuenow", String(Math.round(this.time)));
    const number = this.hit.moments.findIndex((moment) => moment.start <= this.time && this.time < moment.end);
    const inside = number < 0 ? "" : number === 0 ? ", in the best moment" : `, in moment ${number + 1}`;
    this.element.setAttribute("aria-valuetext", `${clock(this.time)} of ${clock(this.duration)}${inside}`);
  }

  #marks() {
    return h("div", { class: "marks", "aria-hidden": "true" }, this.hit.moments.map((moment, number) => {
      const mark = h("span", { class: number ? "mark" : "mark best" });
      mark.style.left = `${100 * moment.start / this.duration}%`;
      mark.style.width = `${100 * Math.max(0, Math.min(moment.end, this.duration) - moment.start) / this.duration}%`;
      return mark;
    }));
  }

  #at(event) {
    const box = this.element.getBoundingClientRect();
    return this.duration * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  }

  #choose(time) {
    this.choosing = false;
    this.show(time);
    this.choosing = true;
  }

  #play() {
    this.choosing = false;
    this.seek(this.time);
  }

  #click(event) {
    this.#choose(this.#at(event));
    this.#play();
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (step) this.#choose(this.time + step * Math.max(1, Math.round(this.duration / 100)));
    else if (event.key === "Home") this.#choose(0);
    else if (event.key === "End") this.#choose(this.duration);
    else if (event.key === "Enter") this.#play();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #hover(event) {
    if (event.pointerType !== "mouse") return;
    const time = this.#at(event);
    const [image, label] = this.preview.children;
    this.preview.hidden = false;
    this.preview.style.left = `${100 * time / this.duration}%`;
    label.textContent = clock(time);
    // A picture for each fiftieth of the film is enough, and soon all of them are in the browser's cache.
    const step = this.duration / 50;
    const source = thumbnail(this.hit.id, Math.floor(time / step) * step, 160);
    if (!image.src.endsWith(source)) image.src = source;
  }
}

// Lowest and highest similarity among all hits: one scale, so that strips can be compared with each other.
export function scaleOf(hits) {
  const all = hits.flatMap((hit) => hit.timeline?.similarity ?? []).sort((a, b) => a - b);
  if (!all.length) return [0, 1];
  const low = all[Math.floor(0.1 * (all.length - 1))];
  return [low, Math.max(all[all.length - 1], low + 1e-3)];
}

let pictures = 0;

// Colour and height say the same, so that it can be read without seeing colours.
function picture(similarity, [low, high]) {
  const values = similarity.map((value) => Math.min(1, Math.max(0, (value - low) / (high - low))));
  const count = Math.max(1, values.length);
  const id = `heat${pictures += 1}`;
  const stops = values.map((value, at) => svg("stop", {
    offset: ((at + 0.5) / count).toFixed(4), class: "heat", "stop-opacity": (0.03 + 0.77 * value ** 1.7).toFixed(3),
  }));
  const level = (value) => (HEIGHT - 7 - 0.78 * HEIGHT * value).toFixed(1);
  const line = values.map((value, at) => `${at + 0.5} ${level(value)}`);
  if (line.length) { line.unshift(`0 ${level(values[0])}`); line.push(`${count} ${level(values[count - 1])}`); }
  return svg("svg", { viewBox: `0 0 ${count} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("linearGradient", { id, x1: 0, x2: 1, y1: 0, y2: 0 }, ...stops),
    svg("rect", { x: 0, y: 0, width: count, height: HEIGHT, fill: `url(#${id})` }),
    svg("polyline", { points: line.join(" "), class: "level" }));
}
