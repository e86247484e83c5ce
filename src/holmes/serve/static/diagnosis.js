// How sure the answer is, and why: one sentence, and a small picture of where the probability lies.

import { h, percent, svg } from "./dom.js";

const ICONS = {
  precise: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM8 12.200l3 3 5.500-6",
  several_fit: "M9 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM15 7a5 5 0 1 1 0 10 5 5 0 0 1 0-10z",
  too_little: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM9.500 9.800a2.600 2.600 0 1 1 3.700 2.400c-.800.400-1.200.900-1.200 1.800M12 16.500v.200",
  not_here: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM6.500 17.500l11-11",
  unknown: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM8 12h8",
};
const SHOWN = 6; // hits with a part of the bar of their own
const LIKELY = 60; // percent from which on something is called likely

function kindOf(diagnosis) {
  return diagnosis.kind in ICONS ? diagnosis.kind : "unknown";
}

// Headings for the first hits, which the diagnosis is about, and for the others; none where there is one list.
export function groups({ diagnosis, hits }) {
  const size = diagnosis.group?.length ?? 0;
  if (kindOf(diagnosis) === "not_here") return [[0, "These videos come nearest"]];
  if (size < 2) return [];
  const together = hits.slice(0, size).reduce((sum, hit) => sum + hit.probability, 0);
  const word = Math.round(100 * together) >= LIKELY ? "Likely" : "Perhaps";
  const first = kindOf(diagnosis) === "precise" ? `These ${size} show the same moment` : `${word} one of these ${size}`;
  return size < hits.length ? [[0, first], [size, "Less likely"]] : [[0, first]];
}

export function panel(answer) {
  const { diagnosis, hits } = answer;
  const kind = kindOf(diagnosis);
  const mark = svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[kind] }));
  return h("section", { class: `diagnosis ${kind}`, "aria-label": "How sure this is" },
    h("div", { class: "verdict" }, h("p", { class: "kind" }, mark, h("span", {}, diagnosis.words)),
      h("p", { class: "explanation" }, diagnosis.explanation),
      diagnosis.advice ? h("p", { class: "advice" }, diagnosis.advice) : null),
    h("div", { class: "measured" }, diagnosis.probability === null ? null : distribution(hits, diagnosis.here), why(diagnosis)),
    cut(answer.read), missing(answer.missing ?? []));
}

// All of it, one whole: the leading videos, the other ones, and none of them.
function distribution(hits, here) {
  const leading = hits.slice(0, SHOWN).filter((hit) => hit.probability > 0);
  const none = Number.isFinite(here) ? 1 - here : 0;
  const rest = Math.max(0, 1 - none - leading.reduce((sum, hit) => sum + hit.probability, 0));
  const parts = leading.map((hit, at) => part(hit.probability, String(at + 1), `part level${at}`));
  const words = leading.map((hit, at) => `video ${at + 1} ${percent(hit.probability)}`).join(", ");
  return h("figure", { class: "distribution" },
    h("figcaption", {}, "Where the probability lies"),
    h("div", { class: "bar", role: "img", "aria-label": `Probability: ${words || "no video"}, other videos ${percent(rest)}, not in your collection ${percent(none)}` },
      parts, part(rest, "", "part rest"), part(none, "", "part none")),
    h("p", { class: "legend", "aria-hidden": "true" }, 
      h("span", {}, leading.length > 1 ? `first ${leading.length} ` : "first ", h("b", {}, percent(Math.max(0, 1 - rest - none)))),
      h("span", {}, h("i", { class: "swatch rest" }), "other videos ", h("b", {}, percent(rest))),
      h("span", {}, h("i", { class: "swatch none" }), "not in your collection ", h("b", {}, percent(none)))));
}

function part(share, label, style) {
  const element = h("span", { class: style }, h("span", {}, label), label ? h("b", {}, percent(share)) : null);
  element.style.flexGrow = String(Math.max(share, 0.004));
  return element;
}

function why({ agreement }) {
  if (!Number.isFinite(agreement)) return null;
  return h("details", { class: "why" }, h("summary", {}, "Why?"), h("dl", { class: "reasons" },
    meter("Frames and clips agree", agreement, "How far single frames and longer clips support the same videos.")));
}

function meter(name, share, meaning) {
  const value = Math.min(1, Math.max(0, share));
  const fill = h("span", { class: "fill" });
  fill.style.width = `${100 * value}%`;
  return [h("dt", { title: meaning }, name),
    h("dd", { title: meaning }, h("span", { class: "meter", "aria-hidden": "true" }, fill), h("b", {}, percent(value)))];
}

function cut(read) {
  return read ? h("p", { class: "warning", role: "status" }, `The sentence is too long for the model, which read only “${read}”.`) : null;
}

function missing(parts) {
  if (!parts.length) return null;
  return h("p", { class: "warning", role: "alert" },
    `Parts of the index did not answer and were not searched: ${parts.join(", ")}.`);
}
