// Several libraries of one server: a switch in the header, and what the others answer where they are searched separately.

import { aboutIndex, address, pathOf, request, root } from "./api.js";
import { h, percent } from "./dom.js";
import { addHeaderItem } from "./extensions.js";

const ALL = "All libraries";

// The address of the server itself: that of this page without the name of its library.
const base = ({ library }) => (library && root.endsWith(`/${library}/`) ? root.slice(0, -library.length - 1) : root);

addHeaderItem((about) => {
  if (about.libraries.length < 2) return null;
  const names = about.why_separate ? about.libraries : [null, ...about.libraries];
  const options = names.map((name) => h("option", { value: name ?? "", selected: name === about.library }, name ?? ALL));
  const choice = h("select", { "aria-label": "Library", title: about.why_separate ?? "", onchange: () => open(about, choice.value) }, options);
  return h("div", { class: "library-choice" }, choice);
});

// The same view in another library; a video of this one is not looked for there.
function open(about, name) {
  const path = pathOf(location) === "/watch" ? "library" : pathOf(location).slice(1);
  const asked = new URLSearchParams(location.search);
  for (const own of ["play", "t", "like", "video", "folder"]) asked.delete(own);
  const query = path === "library" && pathOf(location) === "/watch" ? "" : asked.toString();
  location.assign(`${base(about)}${name ? `${name}/` : ""}${path}${query ? `?${query}` : ""}`);
}

// Where models differ, every library has an answer of its own: the others' first hits are named below this one's.
// An answer may come before the server has said which libraries it has.
document.addEventListener("answered", async ({ detail: { query, element } }) => {
  element.querySelector(".other-libraries")?.remove();
  const about = await aboutIndex().catch(() => null);
  if (!query || !about?.why_separate) return;
  const { answers } = await request(address("/api/libraries/search", { q: query, top: 1 })).catch(() => ({ answers: [] }));
  const found = answers.filter(({ library, answer }) => library !== about.library && answer?.hits.length);
  if (!found.length || !element.isConnected) return;
  element.querySelector(".other-libraries")?.remove();
  element.append(h("section", { class: "other-libraries", "aria-label": "Other libraries" }, h("h2", {}, "Other libraries"), h("p", {}, about.why_separate),
    h("ul", {}, found.map(({ library, answer: { hits: [hit], diagnosis } }) => h("li", {},
      h("a", { href: `${base(about)}${library}/?${new URLSearchParams({ q: query })}` }, library),
      `: ${hit.title}${diagnosis.probability === null ? "" : `, ${percent(diagnosis.probability)}`}`)))));
});
