// What a film says and shows in letters: beside the player, as captions, and under a hit. Words of files are only set as text.

import { address, request } from "./api.js";
import { clock, h, icon } from "./dom.js";
import { addPlayerPanel } from "./extensions.js";

const ICONS = { seen: "seen", said: "said", written: "written" };
const NAMES = { seen: "found by what is seen", said: "found by what is said", written: "found by text on screen" };

// Under a hit: what speaks for it, and the passages, with the words of the query marked.
export function quotes(hit, play) {
  if (!hit.because) return null;
  const because = h("span", { class: "because" }, hit.because.map((kind) => h("span", { title: NAMES[kind], role: "img", "aria-label": NAMES[kind] }, icon(ICONS[kind]))));
  const said = (hit.quotes ?? []).map((quote) => h("button", { type: "button", class: "quote", onclick: () => play(quote.start) },
    h("span", { class: "when" }, `${quote.kind} at ${clock(quote.start)}`), " “", ...marked(quote.text, quote.marks), "”"));
  return h("div", { class: "quotes" }, because, said);
}

function marked(text, marks) {
  const letters = Array.from(text); // marks count characters as Python does
  const parts = [];
  let done = 0;
  for (const [start, end] of marks) {
    if (start < done) continue;
    parts.push(letters.slice(done, start).join(""), h("mark", {}, letters.slice(start, end).join("")));
    done = end;
  }
  return [...parts, letters.slice(done).join("")];
}

// Beside the player: the transcript follows the film, can be searched, and goes where it is pressed.
addPlayerPanel(async ({ video, player }) => {
  const heard = await request(address(`/api/videos/${video.id}/transcript`, {}));
  if (!heard.passages.length) return null;
  const rows = heard.passages.map((passage) => ({ passage, row: h("li", {}, h("button", { type: "button", onclick: () => player.play(passage.start) },
    h("span", { class: "when" }, clock(passage.start)), passage.source === "screen" ? icon("written") : null, h("span", {}, passage.text))) }));
  const list = h("ol", { class: "transcript", tabIndex: 0, "aria-label": "Transcript" }, rows.map(({ row }) => row));
  const none = h("p", { class: "advice", hidden: true }, "No line has these words.");
  const find = h("input", { type: "search", placeholder: "Find words", "aria-label": "Find in the transcript", oninput: () => {
    const wanted = find.value.trim().toLocaleLowerCase();
    for (const { passage, row } of rows) row.hidden = Boolean(wanted) && !passage.text.toLocaleLowerCase().includes(wanted);
    none.hidden = rows.some(({ row }) => !row.hidden);
  } });
  find.addEventListener("keydown", (event) => event.stopPropagation()); // the player's keys are letters
  const captions = new Captions(player, heard.passages);
  const toggle = h("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => toggle.setAttribute("aria-pressed", String(captions.toggle())) }, "Captions");
  let now = null;
  player.element.addEventListener("position", ({ detail }) => {
    captions.shift(player.offset);
    const { row } = rows.findLast(({ passage }) => passage.start <= detail + 0.05 && detail < passage.end) ?? {};
    if (row === now) return;
    now?.removeAttribute("data-now");
    now = row ?? null;
    now?.setAttribute("data-now", "");
    if (now && !list.matches(":hover, :focus-within")) list.scrollTop = now.offsetTop - list.offsetTop - list.clientHeight / 3;
  });
  const sources = Object.entries(heard.sources).map(([source, origin]) => `${source}: ${origin}`).join("; ");
  return { title: "Transcript", element: h("div", {}, h("div", { class: "transcript-tools" }, find, toggle), none, list, h("p", { class: "advice" }, sources)) };
});

// A caption track of what is said. Of a converted film the clock starts later, so the cues are moved.
class Captions {
  constructor(player, passages) {
    this.passages = passages.filter(({ source }) => source !== "screen");
    this.track = player.video.addTextTrack("captions", "Transcript", "en");
    this.track.mode = "hidden";
    this.offset = null;
    this.shift(player.offset);
  }

  toggle() {
    this.track.mode = this.track.mode === "showing" ? "hidden" : "showing";
    return this.track.mode === "showing";
  }

  shift(offset) {
    if (offset === this.offset) return;
    this.offset = offset;
    for (const cue of Array.from(this.track.cues ?? [])) this.track.removeCue(cue);
    for (const { start, end, text } of this.passages) {
      if (end > offset) this.track.addCue(new VTTCue(Math.max(0, start - offset), end - offset, text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign])));
    }
  }
}
