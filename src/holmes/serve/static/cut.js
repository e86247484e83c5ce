// What was found, saved: a clip of a hit, or all moments as a timeline, markers, chapters or a reel with titles.

import { Problem, address, responseOf } from "./api.js";
import { button, bytes, clock, counted, h, plain, say } from "./dom.js";
import { addCardAction, addExport } from "./extensions.js";

const KINDS = [["reel", "Video: a reel with titles (MP4)"], ["otio", "Timeline: OpenTimelineIO"], ["fcpxml", "Timeline: Final Cut Pro, Resolve (FCPXML)"],
  ["edl", "Timeline: CMX 3600 (EDL)"], ["markers", "Markers: Resolve (CSV)"], ["markers-edl", "Markers: Resolve (EDL)"], ["vtt", "Chapters: WebVTT"],
  ["youtube", "Chapters: YouTube"], ["csv", "Table (CSV)"]];
const RATES = ["23.976", "24", "25", "29.97", "30", "50", "59.94", "60"];
const MOST = { moments: 50, seconds: 600 }; // of a reel, as the server takes it

// Fetches a file and hands it to the browser; `progress(bytes)` is called while it comes.
async function save(path, { signal, body, progress = () => {} } = {}) {
  const sent = body ? { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } } : {};
  const response = await responseOf(path, { signal, ...sent });
  const pieces = [], reader = response.body.getReader();
  let size = 0;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      pieces.push(next.value);
      progress(size += next.value.length);
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem("The file is incomplete. Save it again.", 0);
  }
  const name = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("content-disposition") ?? "")?.[1];
  const link = h("a", { href: URL.createObjectURL(new Blob(pieces, { type: response.headers.get("content-type") })), download: decodeURIComponent(name ?? "holmes") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return link.download;
}

// 1. The moment that is shown, or the best, as a clip. Pressed again it stops.
addCardAction((hit, { time }) => {
  if (!hit.file || !hit.moments.length) return null;
  let control = null;
  const words = (text) => {
    action.querySelector("span").textContent = text;
    action.setAttribute("aria-label", text === "Save clip" ? `Save clip of ${hit.title}` : `${text}: ${hit.title}`);
  };
  const action = button("moment", `Save clip of ${hit.title}`, async () => {
    if (control) { control.abort(); return; }
    control = new AbortController();
    const now = time();
    const { start, end } = hit.moments.find((moment) => moment.start <= now && now <= moment.end) ?? hit.moments[0];
    words("Saving…");
    say(`Saving ${clock(start)} to ${clock(end)}`);
    try {
      const name = await save("/api/cut", { signal: control.signal, body: { moments: [{ id: hit.id, start, end }] }, progress: (size) => words(`Saving… ${bytes(size)}`) });
      words("Saved");
      say(`Saved as ${name}`);
    } catch (problem) {
      words(problem.name === "AbortError" ? "Stopped" : "Not saved");
      action.title = problem.name === "AbortError" ? "" : problem.message;
      say(problem.name === "AbortError" ? "Stopped" : problem.message);
    }
    control = null;
    setTimeout(() => words("Save clip"), 3000);
  }, { text: "Save clip" });
  return action;
});

// 2. Everything that is probable enough, in one file.
addExport(({ hits, parameters }) => (parameters ? plain("Reel, timeline, table…", () => open(hits, parameters)) : null));

function open(hits, parameters) {
  const judged = hits.some((hit) => hit.probability !== null && hit.probability !== undefined);
  const field = (label, input) => h("label", {}, h("span", {}, label), input);
  const number = (value, most, step = 1) => h("input", { type: "number", min: 0, max: most, step, value: String(value), required: true });
  const kind = h("select", { name: "kind" }, KINDS.map(([value, name]) => h("option", { value }, name)));
  const least = number(judged ? 10 : 0, 100);
  const top = h("input", { type: "number", min: 1, max: 100, value: "10", required: true });
  const pad = number(0, 60, 0.5);
  const rate = h("select", {}, h("option", { value: "" }, "as most films"), RATES.map((value) => h("option", { value }, value)));
  const count = h("p", { class: "cut-count", role: "status" });
  const wrong = h("p", { class: "error", role: "alert" });
  const start = h("button", { class: "plain strong", type: "submit" }, "Save");
  const rates = field("Frames a second", rate);
  let control = null;

  const chosen = () => hits.slice(0, Number(top.value)).filter((hit) => !judged || (hit.probability ?? 0) >= Number(least.value) / 100);
  const moments = () => chosen().filter((hit) => hit.file).flatMap((hit) => [...hit.moments].sort((a, b) => a.start - b.start).map(({ start: from, end }) =>
    ({ id: hit.id, start: Math.max(0, from - Number(pad.value)), end: Math.min(hit.duration, end + Number(pad.value)) })));
  const look = () => {
    const found = moments(), seconds = found.reduce((sum, each) => sum + each.end - each.start, 0), reel = kind.value === "reel";
    count.textContent = `${counted(found.length, "moment")} of ${counted(chosen().length, "video")}, ${clock(seconds)}`;
    const much = reel && (found.length > MOST.moments || seconds > MOST.seconds);
    wrong.textContent = much ? `A reel may have ${MOST.moments} moments and ${clock(MOST.seconds)} at most; take fewer videos.`
      : !chosen().length ? `No video is at least ${least.value}% probable; lower the minimum probability.`
        : reel && !found.length ? "The files of these videos are gone, so there is nothing to show." : "";
    start.disabled = !chosen().length || much || (reel && !found.length);
    rates.hidden = reel || kind.value === "csv";
  };
  const run = async (event) => {
    event.preventDefault();
    control = new AbortController();
    wrong.textContent = "";
    start.disabled = true;
    start.textContent = "Saving…";
    const { signal } = control;
    try {
      const name = kind.value === "reel"
        ? await save("/api/cut", { signal, body: { moments: moments(), reel: true, title: parameters.q ?? "" }, progress: (size) => { start.textContent = `Saving… ${bytes(size)}`; } })
        : await save(address("/api/export", { ...parameters, format: kind.value, top: top.value, at_least: Number(least.value) / 100, pad: pad.value, rate: rate.value }), { signal });
      say(`Saved as ${name}`);
      dialog.close();
    } catch (problem) {
      if (problem.name !== "AbortError") wrong.textContent = problem.message;
    }
    start.disabled = false;
    start.textContent = "Save";
  };
  const dialog = h("dialog", { class: "cut", "aria-labelledby": "cut-title", onclose: () => { control?.abort(); dialog.remove(); } },
    h("h2", { id: "cut-title" }, "Save what was found"),
    h("form", { onsubmit: run, oninput: look }, field("Save as", kind), judged ? field("Minimum probability (%)", least) : null, field("Videos at most", top),
      field("Seconds before, after", pad), rates, count, wrong,
      h("div", { class: "cut-buttons" }, plain("Cancel", () => dialog.close()), start)));
  document.body.append(dialog);
  look();
  dialog.showModal();
}
