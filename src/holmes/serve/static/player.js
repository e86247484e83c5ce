// One film at a time, inside its card. The file is played as it is; where the browser cannot, the server converts
// it from the second asked for; where that fails too, pictures are shown, with the file to download.

import { address, request, thumbnail } from "./api.js";
import { button, clock, h, say, setIcon } from "./dom.js";

const PICTURES = 8;

export class Player {
  constructor(hit, strip, closed) {
    this.hit = hit;
    this.strip = strip;
    this.offset = 0; // of a converted film: the second at which it starts
    this.how = "file";
    this.video = h("video", { playsInline: true, preload: "auto", tabIndex: -1, "aria-label": hit.title });
    for (const event of ["play", "pause", "timeupdate", "volumechange", "seeking", "waiting", "playing"]) {
      this.video.addEventListener(event, () => this.#update());
    }
    this.video.addEventListener("error", () => this.#failed());
    this.video.addEventListener("click", () => this.toggle());
    this.note = h("p", { class: "note", role: "status" });
    this.time = h("span", { class: "time" });
    this.playButton = button("play", "Play", () => this.toggle());
    this.muteButton = button("sound", "Mute", () => { this.video.muted = !this.video.muted; });
    this.controls = h("div", { class: "controls" }, this.playButton,
      button("previous", "Previous moment", () => this.jump(-1)), button("next", "Next moment", () => this.jump(1)),
      this.time, h("span", { class: "space" }), this.muteButton,
      button("full", "Full screen", () => this.video.requestFullscreen?.()), button("close", "Close the player", closed));
    this.stage = h("div", { class: "stage" }, this.video);
    this.element = h("div", { class: "player" }, this.stage, this.controls, this.note);
  }

  get position() {
    return this.offset + this.video.currentTime;
  }

  async play(time) {
    this.wanted = time;
    this.strip.show(time);
    if (!this.hit.file) return this.#pictures("The original file no longer exists; these are pictures from it.");
    if (this.how === "pictures") return this.#pictures();
    if (this.how === "file") {
      const source = `/api/videos/${this.hit.id}/stream`;
      if (!this.video.src) this.video.src = source;
      this.video.currentTime = time;
    } else {
      await this.#convert(time);
    }
    this.video.play().catch(() => {}); // a browser may want a click first; the button is there
  }

  toggle() {
    if (this.video.paused) this.video.play().catch(() => {});
    else this.video.pause();
  }

  // To the moment before or after the present second, in the order of the film.
  jump(direction) {
    const starts = this.hit.moments.map((moment) => moment.start).sort((a, b) => a - b);
    const now = this.position;
    const target = direction > 0 ? starts.find((start) => start > now + 0.5) : starts.findLast((start) => start < now - 1.5);
    if (target !== undefined) this.play(target);
  }

  close() {
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
    this.element.remove();
  }

  // What the browser cannot play. An error may also come from closing, when there is no source any more.
  #failed() {
    if (!this.video.getAttribute("src")) return;
    if (this.how === "file") this.#convert(this.wanted).then(() => this.video.play()).catch(() => {});
    else if (this.position > this.wanted + 0.5) this.play(this.position); // it played; the server ended a stream that was paused
    else this.#pictures("This film cannot be played here; these are pictures from it.");
  }

  async #convert(time) {
    this.how = "converted";
    this.stage.classList.add("waiting");
    try {
      const playback = await request(address(`/api/videos/${this.hit.id}/playback`, { t: time.toFixed(2) }));
      this.offset = playback.start;
      this.video.src = playback.address;
      this.video.currentTime = Math.max(0, time - playback.start);
      this.note.textContent = playback.how === "copied"
        ? "Your browser cannot open this file; the video is repacked while you watch."
        : "Your browser cannot play this codec; the video is converted while you watch.";
    } catch (problem) {
      this.#pictures(`${problem.message} These are pictures of it.`);
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
      h("img", { src: thumbnail(this.hit.id, time, 320), alt: `The picture at ${clock(time)}` }), clock(time))));
    const download = this.hit.file
      ? h("a", { href: `/api/videos/${this.hit.id}/stream?download=true`, download: this.hit.title }, "Download the file") : null;
    this.stage.classList.remove("waiting");
    this.stage.replaceChildren(film);
    this.controls.classList.add("still");
    if (download && !this.note.querySelector("a")) this.note.append(" ", download);
    say(this.note.textContent);
  }

  #update() {
    const { paused, muted, readyState, seeking } = this.video;
    setIcon(this.playButton, paused ? "play" : "pause", paused ? "Play" : "Pause");
    setIcon(this.muteButton, muted ? "mute" : "sound", muted ? "Sound on" : "Mute");
    this.stage.classList.toggle("waiting", !paused && (readyState < 3 || seeking));
    this.time.textContent = `${clock(this.position)} / ${clock(this.strip.duration)}`;
    this.strip.show(this.position);
  }
}
