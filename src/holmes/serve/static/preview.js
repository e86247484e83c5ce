// Pictures that come alive under the mouse: a few frames of a video, or the moment itself, without sound.

import { at, thumbnail } from "./api.js";
import { still } from "./dom.js";

const PAUSE = 220; // milliseconds the mouse rests before anything moves
const FRAMES = [0.1, 0.3, 0.5, 0.7, 0.9]; // parts of the video
const EACH = 700; // milliseconds for which a frame is shown

let stop = null; // ends the preview that runs

// `moment` is played where the browser can; else, and without one, a few frames are shown in turn.
export function previewOnHover(box, video, moment = null) {
  let waiting;
  box.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "mouse" || still()) return;
    waiting = setTimeout(() => { stop?.(); stop = (moment && video.file ? playing : frames)(box, video, moment); }, PAUSE);
  });
  box.addEventListener("pointerleave", () => { clearTimeout(waiting); stop?.(); stop = null; });
}

function playing(box, video, moment) {
  const film = document.createElement("video");
  Object.assign(film, { muted: true, playsInline: true, className: "preview-film", src: at(`/api/videos/${video.id}/stream`), currentTime: moment.start });
  film.setAttribute("aria-hidden", "true");
  film.tabIndex = -1;
  let other = null;
  film.addEventListener("playing", () => box.classList.add("alive"), { once: true });
  film.addEventListener("timeupdate", () => { if (film.currentTime >= Math.max(moment.end, moment.start + 1)) film.currentTime = moment.start; });
  film.addEventListener("error", () => { if (film.getAttribute("src")) { film.remove(); other = frames(box, video, moment); } }, { once: true });
  box.append(film);
  film.play().catch(() => {});
  return () => { box.classList.remove("alive"); film.removeAttribute("src"); film.load(); film.remove(); other?.(); };
}

function frames(box, video, moment) {
  const image = box.querySelector("img");
  if (!image) return () => {};
  const [start, end] = moment ? [moment.start, moment.end] : [0, video.duration];
  const width = moment ? 480 : 160; // the index keeps small pictures: they need no decoding
  const sources = FRAMES.map((part) => thumbnail(video.id, start + part * (end - start), width));
  const before = image.getAttribute("src");
  let at = 0;
  const show = () => { const ready = new Image(); ready.onload = () => { if (timer) { image.src = ready.src; box.classList.add("alive"); } }; ready.src = sources[at % sources.length]; at += 1; };
  let timer = setInterval(show, EACH);
  show();
  return () => { clearInterval(timer); timer = null; box.classList.remove("alive"); if (before) image.src = before; };
}
