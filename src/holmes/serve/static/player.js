// One film at a time, in its card or in a view of its own. The file is played as it is; where the browser cannot, the
// server converts it from the second asked for; where that fails too, pictures are shown, with the file to download.

import { address, at, request, thumbnail } from "./api.js";
import { button, clock, h, say, setIcon } from "./dom.js";
import { made } from "./extensions.js";

const PICTURES = 8;
const SPEEDS = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2];
const FRAME = 1 / 25; // seconds of a frame, until the film has shown two of them
const LATE = 300; // milliseconds after a seek in which its frame is shown

// How films are played, from one film to the next.
const chosen = { only: false, loop: false, speed: 1, volume: 1, muted: false };

export class Player {
  constructor(video, strip, closed) {
    this.of = video;
    this.strip = strip;
    this.offset = 0; // of a converted film: the second at which it starts
    this.how = "file";
    this.frame = FRAME;
    this.moment = video.moments[0] ?? null;
    this.video = h("video", { playsInline: true, preload: "auto", tabIndex: -1, "aria-label": video.title, volume: chosen.volume, muted: chosen.muted });
    for (const event of ["play", "pause", "timeupdate", "volumechange", "seeking", "seeked", "waiting", "playing"]) {
      this.video.addEventListener(event, () => this.#update());
    }
    this.video.addEventListener("loadedmetadata", () => { this.video.playbackRate = chosen.speed; });
    this.video.addEventListener("resize", () => this.video.style.setProperty("--ratio", this.video.videoWidth / this.video.videoHeight || null));
    this.video.addEventListener("error", () => this.#failed());
    this.video.addEventListener("ended", () => { if (chosen.loop) this.play(this.#start); });
    this.video.addEventListener("click", () => this.toggle());
    this.video.requestVideoFrameCallback?.((now, shown) => this.#shown(shown));
    this.note = h("p", { class: "note", role: "status" });
    this.time = h("span", {}, clock(0));
    this.stage = h("div", { class: "stage" }, this.video);
    this.panels = h("div", { class: "panels" });
    this.controls = this.#controls(closed);
    this.element = h("div", { class: "player" }, h("div", { class: "screen" }, this.stage, this.controls, this.note), this.panels);
    this.#panels();
    this.#choices();
  }

  get position() {
    return this.offset + this.video.currentTime;
  }

  async play(time) {
    this.wanted = time;
    this.aim = null;
    this.moment = this.of.moments.find(({ start, end }) => start - 0.05 <= time && time < end) ?? this.moment;
    this.strip.show(time);
    this.#choices();
    if (!this.of.file) return this.#pictures("The original file no longer exists; these are pictures from it.");
    if (this.how === "pictures") return this.#pictures();
    if (this.how === "file") {
      const source = at(`/api/videos/${this.of.id}/stream`);
      if (!this.video.src || this.video.error) this.video.src = source;
      this.video.currentTime = time;
    } else {
      await this.#convert(time);
    }
    this.video.play().catch(() => {}); // a browser may want a click first; the button is there
  }

  get #start() {
    return chosen.only && this.moment ? this.moment.start : 0;
  }

  toggle() {
    const past = this.video.error || (chosen.only && this.moment && this.position >= this.moment.end - 0.05);
    if (this.video.paused && past) this.play(this.#start);
    else if (this.video.paused) this.video.play().catch(() => {});
    else this.video.pause();
  }

  // To the moment before or after the present second, in the order of the film.
  jump(direction) {
    const starts = this.of.moments.map((moment) => moment.start).sort((a, b) => a - b);
    const now = this.position;
    const target = direction > 0 ? starts.find((start) => start > now + 0.5) : starts.findLast((start) => start < now - 1.5);
    if (target !== undefined) this.play(target);
  }

  // One frame on or back: to the middle of the next one, so that rounding cannot show the same frame again. Where the same is
  // shown, frames last longer than was thought. `aim` is the middle of a frame that is not shown yet.
  step(direction, tries = 0) {
    this.video.pause();
    const before = this.last ?? this.video.currentTime, run = this.run = Symbol("step");
    const look = (now, shown) => {
      if (run !== this.run) return;
      Object.assign(this, { run: null, last: shown?.mediaTime ?? this.last ?? before, aim: null });
      if (this.last === before && tries < 5) { this.frame *= 1.5; this.step(direction, tries + 1); } else if (tries) this.frame = Math.abs(this.last - before);
    };
    this.video.addEventListener("seeked", () => {
      this.video.requestVideoFrameCallback?.(look);
      setTimeout(look, LATE); // the frame may have been shown already
    }, { once: true });
    this.aim = Math.max(0, (this.aim ?? before + this.frame / 2) + direction * this.frame);
    this.video.currentTime = this.aim;
  }

  faster(direction) {
    const next = SPEEDS[SPEEDS.indexOf(chosen.speed) + direction];
    if (next) this.choose({ speed: next });
  }

  choose(values) {
    Object.assign(chosen, values);
    this.#choices();
  }

  key(name) {
    const does = { " ": () => this.toggle(), ArrowRight: () => this.jump(1), ArrowLeft: () => this.jump(-1), ",": () => this.step(-1), ".": () => this.step(1),
      "<": () => this.faster(-1), ">": () => this.faster(1), o: () => this.choose({ only: !chosen.only }), l: () => this.choose({ loop: !chosen.loop }),
      m: () => this.choose({ muted: !chosen.muted }), f: () => this.full() }[name];
    does?.();
    return Boolean(does);
  }

  full() {
    this.video.requestFullscreen?.().catch(() => {});
  }

  close() {
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
    this.element.remove();
  }

  #controls(closed) {
    const several = this.of.moments.length > 1;
    this.playButton = button("play", "Play", () => this.toggle());
    this.muteButton = button("sound", "Mute", () => this.choose({ muted: !chosen.muted }));
    this.volume = h("input", { type: "range", class: "volume", min: 0, max: 1, step: 0.05, "aria-label": "Volume",
      oninput: () => this.choose({ volume: Number(this.volume.value), muted: false }) });
    this.speed = h("select", { class: "speed", "aria-label": "Speed", title: "Speed", onchange: () => this.choose({ speed: Number(this.speed.value) }) },
      SPEEDS.map((speed) => h("option", { value: String(speed) }, `${speed}×`)));
    this.only = button("moment", "Play only the moment (o)", () => this.choose({ only: !chosen.only }), { text: "Only the moment" });
    this.loop = button("loop", "Loop (l)", () => this.choose({ loop: !chosen.loop }));
    this.momentTimes = button("play", "", () => this.play(this.moment.start), { text: " ", class: "action moment" });
    const about = this.moment ? [this.momentTimes, several ? button("previous", "Previous moment", () => this.jump(-1), { class: "action only jump" }) : null,
      several ? button("next", "Next moment", () => this.jump(1), { class: "action only jump" }) : null, this.only] : [];
    return h("div", { class: "controls" }, this.playButton, h("span", { class: "time" }, this.time, h("span", { class: "total" }, ` / ${clock(this.strip.duration)}`)), ...about.filter(Boolean), this.loop, h("span", { class: "space" }),
      button("frameBack", "One frame back (,)", () => this.step(-1)), button("frameOn", "One frame on (.)", () => this.step(1)), this.speed,
      this.muteButton, this.volume, button("full", "Full screen (f)", () => this.full()),
      closed ? button("close", "Close the player", closed, { class: "action only close" }) : null);
  }

  // What is chosen, shown and done.
  #choices() {
    const { video } = this;
    video.volume = chosen.volume;
    video.muted = chosen.muted;
    video.playbackRate = chosen.speed;
    this.volume.value = String(chosen.muted ? 0 : chosen.volume);
    this.speed.value = String(chosen.speed);
    this.only.setAttribute("aria-pressed", String(chosen.only));
    this.loop.setAttribute("aria-pressed", String(chosen.loop));
    if (this.moment) {
      const times = `${clock(this.moment.start)}–${clock(this.moment.end)}`;
      this.momentTimes.querySelector("span").textContent = times;
      this.momentTimes.setAttribute("aria-label", `Play the moment, ${times}`);
      this.momentTimes.title = `Play the moment, ${times}`;
    }
  }

  async #panels() {
    for (const each of made("panel", { video: this.of, player: this })) {
      Promise.resolve(each).then((panel) => {
        if (panel) this.panels.append(h("section", { class: "panel", "aria-label": panel.title }, h("h2", {}, panel.title), panel.element));
      }).catch(() => {}); // a panel that fails leaves the film alone
    }
  }

  // A frame has been shown: how long frames last, and whether the moment has ended.
  #shown({ mediaTime }) {
    const passed = mediaTime - (this.last ?? mediaTime);
    if (passed > 0.004 && passed < 1 && !this.video.paused) this.frame = Math.min(this.learnt ?? passed, passed), this.learnt = this.frame;
    this.last = mediaTime;
    if (this.aim - mediaTime < this.frame) this.aim = null;
    this.#end();
    this.video.requestVideoFrameCallback((now, shown) => this.#shown(shown));
  }

  #end() {
    if (!chosen.only || !this.moment || this.video.paused || this.video.seeking) return;
    const { start, end } = this.moment;
    if (this.position < end || this.wanted >= end) return;
    if (chosen.loop) this.play(start);
    else this.video.pause();
  }

  // What the browser cannot play. An error may also come from closing, when there is no source any more.
  #failed() {
    if (!this.video.getAttribute("src")) return;
    if (this.video.videoWidth && this.position > this.strip.duration - 1) this.#cutOff();
    else if (this.position > this.wanted + 0.5) this.#resume(this.position); // it played; a connection was lost, or the server ended a stream that was paused
    else if (this.how === "file") this.#convert(this.wanted).then(() => this.video.play()).catch(() => {});
    else this.#pictures("This film cannot be played here; these are pictures from it.");
  }

  // A file that was cut off ends with an error.
  #cutOff() {
    this.video.pause();
    this.note.textContent = "The rest of this file cannot be read.";
    if (chosen.loop) this.play(this.#start);
  }

  // Goes on where it was, as soon as the server answers.
  async #resume(time) {
    const { status } = await request("/api/health").catch((problem) => problem);
    if (status === 0) { document.addEventListener("back", () => this.#resume(time), { once: true }); return; }
    if (!this.element.isConnected) return;
    this.video.removeAttribute("src");
    this.play(time);
  }

  async #convert(time) {
    const { how } = this;
    this.how = "converted";
    this.stage.classList.add("waiting");
    try {
      const playback = await request(address(`/api/videos/${this.of.id}/playback`, { t: time.toFixed(2) }));
      this.offset = playback.start;
      this.video.src = at(playback.address);
      this.video.currentTime = Math.max(0, time - playback.start);
      this.note.textContent = playback.how === "copied"
        ? "Your browser cannot open this file; the video is repacked while you watch."
        : "Your browser cannot play this codec; the video is converted while you watch.";
    } catch (problem) {
      if (problem.status === 0) { this.how = how; this.#resume(time); return; }
      this.#pictures(`${problem.message.replace(/\.?$/, ".")} These are pictures from it.`);
    }
  }

  #pictures(reason) {
    this.how = "pictures";
    this.video.remove();
    if (reason) this.note.textContent = reason;
    const step = this.strip.duration / PICTURES;
    const centre = Math.min(Math.max(this.wanted, 0), this.strip.duration);
    const times = [...Array(PICTURES).keys()].map((at) => (at + 0.5) * step);
    times[Math.min(PICTURES - 1, Math.floor(centre / step))] = centre;
    const film = h("ol", { class: "film" }, times.map((time) => h("li", { class: time === centre ? "now" : "" },
      h("img", { src: thumbnail(this.of.id, time, 320), alt: `The picture at ${clock(time)}` }), clock(time))));
    const action = this.of.file
      ? h("a", { href: at(`/api/videos/${this.of.id}/stream?download=true`), download: this.of.title }, "Download the file")
      : h("a", { href: location.href }, "Look for it again"); // its disk may be connected by now
    this.stage.classList.remove("waiting");
    this.stage.replaceChildren(film);
    this.controls.classList.add("still");
    this.note.classList.add("problem");
    if (!this.note.querySelector("a")) this.note.append(" ", action);
    say(this.note.textContent);
  }

  #update() {
    const { paused, muted, readyState, seeking } = this.video;
    setIcon(this.playButton, paused ? "play" : "pause", paused ? "Play" : "Pause");
    setIcon(this.muteButton, muted ? "mute" : "sound", muted ? "Sound on" : "Mute (m)");
    this.stage.classList.toggle("waiting", !paused && (readyState < 3 || seeking));
    this.time.textContent = clock(this.position);
    this.strip.show(this.position);
    this.#end();
    this.element.dispatchEvent(new CustomEvent("position", { detail: this.position }));
  }
}
