// One video in a view of its own: the film, its scenes, what is known of it, and videos that look like it.

import { address, at, request, send, thumbnail } from "./api.js";
import { clock, h, notice, pausePictures, plain, shortened } from "./dom.js";
import { Player } from "./player.js";
import { opened } from "./recent.js";
import { tile } from "./tile.js";
import { Strip, scaleOf } from "./timeline.js";

const ALIKE = 12;

export class Watch {
  constructor() {
    this.element = h("div", { class: "watch" });
  }

  async read() {
    const parameters = new URLSearchParams(location.search);
    const id = encodeURIComponent(parameters.get("video") ?? "");
    const time = Number(parameters.get("t") ?? 0) || 0;
    const query = parameters.get("q") ?? "";
    this.leave();
    pausePictures(this.element);
    this.failed = false;
    const run = this.run = Symbol("run");
    try {
      const video = await request(`/api/videos/${id}`);
      const hit = query ? await send("POST", "/api/search", { sentences: [query], names: [video.name], top: 1, timelines: true })
        .then(({ answers: [answer] }) => answer.hits[0]).catch(() => null) : null;
      if (run !== this.run) return;
      this.#show({ ...video, moments: hit?.moments ?? [], timeline: hit?.timeline }, time);
      opened.add(video.id);
    } catch (problem) {
      if (run !== this.run) return;
      this.failed = problem.status !== 404;
      this.element.replaceChildren(h("h1", { class: "hidden" }, "Video"), notice(problem.status === 404 ? "This video is not in the index." : problem.message,
        problem.status === 404 ? h("a", { class: "plain", href: at("/library"), "data-link": true }, "Open the library") : plain("Try again", () => this.read()),
        { error: true }));
    }
  }

  leave() {
    this.player?.close();
    this.player = null;
  }

  key(event) {
    if (event.key === "Escape") { history.length > 1 ? history.back() : location.assign(at("/library")); return true; }
    if (event.target.matches("button, a, summary, [role=slider]") && [" ", "ArrowLeft", "ArrowRight"].includes(event.key)) return false;
    return this.player?.key(event.key) ?? false;
  }

  #show(video, time) {
    document.title = `${video.title} · Holmes`;
    this.strip = new Strip(video, scaleOf([video]), (at) => this.player.play(at));
    this.player = new Player(video, this.strip, null);
    this.player.panels.prepend(details(video));
    const scenes = h("ol", { class: "scenes", "aria-label": "Scenes" });
    const alike = h("section", { class: "alike", "aria-label": "More like this" });
    this.element.replaceChildren(h("h1", {}, video.title), this.player.element, this.strip.element, scenes, alike);
    this.player.element.querySelector(".screen").append(this.strip.element, scenes);
    this.player.play(time);
    this.#scenes(video, scenes);
    this.#alike(video, time, alike);
  }

  async #scenes(video, list) {
    const { scenes } = await request(`/api/videos/${video.id}/scenes`).catch(() => ({ scenes: [] }));
    list.replaceChildren(...scenes.map((scene) => h("li", {}, h("button", { type: "button", "aria-label": `Scene at ${clock(scene.start)}`,
      onclick: () => this.player.play(scene.start) },
    h("img", { src: thumbnail(video.id, (scene.start + scene.end) / 2, 160), alt: "", width: 160, height: 90, loading: "lazy" }), h("span", {}, clock(scene.start))))));
    const mark = ({ detail }) => scenes.forEach((scene, at) => list.children[at].toggleAttribute("data-now", scene.start <= detail && detail < scene.end));
    this.player?.element.addEventListener("position", mark);
  }

  async #alike(video, time, section) {
    const { hits } = await request(address(`/api/videos/${video.id}/like`, { t: time, top: ALIKE })).catch(() => ({ hits: [] }));
    if (!hits.length) return;
    const here = () => address("/", { like: video.id, t: (this.player?.position ?? time).toFixed(1) });
    const all = h("a", { href: here(), "data-link": true, onclick: () => all.setAttribute("href", here()) }, "More like the moment shown now");
    section.replaceChildren(h("div", { class: "row-head" }, h("h2", {}, "More like this"), all),
      h("ul", { class: "tiles" }, hits.map((hit) => h("li", {}, tile(hit, { link: { t: (hit.moments[0]?.start ?? 0).toFixed(1) } })))));
  }
}

function details(video) {
  const facts = [["Length", clock(video.duration)], ["Date", video.date], ["Folder", shortened(video.folder)], ["File", video.file ? null : "is gone"],
    ["Read", video.note ? `only in part: ${video.note}` : null]];
  return h("section", { class: "panel", "aria-label": "Details" }, h("h2", {}, "Details"),
    h("dl", {}, facts.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", { title: name === "Folder" ? video.folder : null }, value)])),
    video.file ? h("a", { href: at(`/api/videos/${video.id}/stream?download=true`), download: video.title }, "Download the file") : null);
}
