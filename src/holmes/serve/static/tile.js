// A video as a picture: name, length, date and folder; a click opens it.

import { address, thumbnail } from "./api.js";
import { clock, h, icon } from "./dom.js";
import { previewOnHover } from "./preview.js";

export const watchAddress = (video, more = {}) => address("/watch", { video: video.id, ...more });

export function tile(video, { extra = null, link = {} } = {}) {
  const image = h("img", { src: thumbnail(video.id, link.t ? Number(link.t) : video.duration / 2, 320), alt: "", width: 320, height: 180 });
  image.addEventListener("error", () => image.replaceWith(h("span", { class: "nothing" }, "no picture")), { once: true });
  const box = h("span", { class: "picture" }, image, h("span", { class: "length" }, clock(video.duration)), mark(video));
  const name = h("span", { class: "title", title: video.name }, video.title);
  const facts = [video.date, video.folder.split("/").pop()].filter(Boolean).join(" · ");
  const element = h("div", { class: "tile" },
    h("a", { class: "open", href: watchAddress(video, link), "data-link": true }, box, name), h("span", { class: "facts", title: video.folder }, facts), extra);
  previewOnHover(box, video);
  return element;
}

// Why a video is not whole; nothing where all is well.
function mark(video) {
  const reason = !video.file ? "its file is gone" : video.note;
  if (!reason) return null;
  return h("span", { class: "mark-note", title: reason }, icon("warning"), h("span", {}, video.file ? "read in part" : "file is gone"));
}
