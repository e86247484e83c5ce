// Searches that are kept with the index: listed in a dialog of the header, saved and removed where the server allows it.

import { address, request, send } from "./api.js";
import { button, h, percent, svg } from "./dom.js";
import { addHeaderItem } from "./extensions.js";

const mark = () => svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: "M7 4.500h10v15l-5-4-5 4z" }));

addHeaderItem((about) => h("button", { type: "button", class: "action only", title: "Saved searches", "aria-label": "Saved searches", "aria-haspopup": "dialog",
  onclick: () => open(about) }, mark()));

async function open(about) {
  const list = h("ul", {});
  const news = h("p", { class: "news", role: "status" });
  const asked = document.getElementById("q").value.trim();
  const show = ({ searches }) => {
    list.replaceChildren(...(searches.length ? searches.map(row) : [h("li", {}, "No searches are saved yet.")]));
    if (save) save.hidden = searches.some(({ sentence }) => sentence === asked);
  };
  const change = async (act) => {
    try {
      show(await act());
      news.textContent = "";
    } catch (problem) {
      news.textContent = problem.message;
      news.classList.add("problem");
    }
  };
  const row = ({ name, sentence, least }) => h("li", {}, h("a", { href: address("/", { q: sentence }), "data-link": true, title: sentence, onclick: () => dialog.close() }, name),
    h("span", { class: "found" }, `from ${percent(least)}`),
    about.manage ? button("trash", `Remove ${name}`, () => change(() => send("DELETE", address("/api/searches", { name })))) : null);
  const save = asked && about.manage && h("form", { onsubmit: (event) => { event.preventDefault(); change(() => send("POST", "/api/searches", { sentence: asked })); } },
    h("button", { type: "submit", class: "plain strong" }, `Save “${asked}”`));
  const hint = about.manage ? [h("code", {}, "holmes index sync --watch"), " reports new videos that match."] : "Saving needs a server with --manage.";
  const dialog = h("dialog", { class: "saved", "aria-labelledby": "saved-title", onclose: () => dialog.remove() },
    h("div", { class: "dialog-head" }, h("h2", { id: "saved-title" }, "Saved searches"), button("close", "Close", () => dialog.close(), { class: "action only close" })),
    list, save || null, h("p", { class: "found" }, hint), news);
  document.body.append(dialog);
  dialog.showModal();
  await change(() => request("/api/searches"));
}
