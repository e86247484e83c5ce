// Holmes in the browser: which view the address means, the header and the keys. Plain ES modules, without a build step.
//
//   /  start.js      /?q=  answer.js      /library  library.js      /watch?video=  watch.js      player.js in the last three
//
// A module adds to the page at the five points of extensions.js. Import it below, in one line.

import { aboutIndex, at, pathOf, request, root, send, takeToken } from "./api.js";
import { Answer } from "./answer.js";
import { busy, button, h, pausePictures, plain, resumePictures } from "./dom.js";
import "./libraries.js";
import { Library } from "./library.js";
import "./picture.js";
import { made } from "./extensions.js";
import "./searches.js";
import { Start } from "./start.js";
import { Watch } from "./watch.js";
import "./cut.js"; // saves clips, reels and files for editors
import "./transcript.js"; // what a film says, beside the player

const POLL = 3000; // milliseconds between two checks whether the server is back
const content = document.getElementById("content");
const input = document.getElementById("q");
const views = {}; // made when they are first shown, and kept
let view = null;
let reading = null; // what the view asks the server for

function viewOf(address) {
  const pathname = pathOf(address), { search } = address;
  if (pathname === "/library") return views.library ??= new Library(go);
  if (pathname === "/watch") return views.watch ??= new Watch();
  const asked = new URLSearchParams(search);
  if (asked.get("q") || asked.get("like") || (asked.get("by") && views.answer?.source)) return views.answer ??= new Answer(input, go);
  return views.start ??= new Start();
}

// Shows what the address says.
function show() {
  const next = viewOf(location);
  if (next !== view) {
    view?.leave?.();
    pausePictures(content);
    view = next;
    content.replaceChildren(view.element);
    resumePictures(content);
  }
  if (view !== views.answer) input.value = "";
  document.body.dataset.view = pathOf(location) === "/" ? "search" : pathOf(location).slice(1);
  for (const link of document.querySelectorAll(".top nav a")) link.ariaCurrent = link.pathname === location.pathname ? "page" : null;
  const { scroll = 0, followed } = history.state ?? {};
  busy(true);
  const now = reading = Promise.resolve(view.read()).then(() => { scrollTo(0, scroll); refocus(followed); }).finally(() => { if (now === reading) busy(false); });
}

// The link that was followed from here has the focus again, as soon as it is there: a grid makes its tiles when scrolling rests.
function refocus(href, tries = 20) {
  if (!href || href !== history.state?.followed || ![document.body, content].includes(document.activeElement)) return;
  const link = [...content.querySelectorAll("a")].find((each) => each.href === href);
  if (link) link.focus({ preventScroll: true });
  else if (tries) setTimeout(refocus, 50, href, tries - 1);
}

function go(target, { replace = false } = {}) {
  if (target !== location.pathname + location.search) {
    if (!replace) history.replaceState({ scroll: scrollY, followed: document.activeElement?.href }, "");
    if (viewOf(new URL(target, location.href)) !== view) view?.leave?.();
    history[replace ? "replaceState" : "pushState"](null, "", target);
  }
  show();
}

document.addEventListener("added", () => { if ([views.library, views.start].includes(view)) view.read(); });
history.scrollRestoration = "manual";
addEventListener("popstate", show);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-link]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.pathname + link.search);
  content.focus({ preventScroll: true });
});

// The search box belongs to every view: what is typed is answered at once.
const answer = () => (views.answer ??= new Answer(input, go));
input.addEventListener("input", () => answer().typed());
input.form.addEventListener("submit", (event) => { event.preventDefault(); answer().ask({ replace: false }); });
input.form.querySelector(".extras").append(...made("search", { use: (source) => answer().use(source) }));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=range]), textarea, select");
  if (event.target === input && event.key === "ArrowDown") view.select?.(1);
  else if (event.target === input && event.key === "Escape") input.value ? go(at("/")) : input.blur();
  else if (typing || document.querySelector("dialog[open]")) return;
  else if (event.key === "/") { input.focus(); input.select(); }
  else if (event.key === "?") help();
  else if (!view.key?.(event)) return;
  event.preventDefault();
});

const KEYS = [["/", "go to the search box"], ["↓ ↑", "choose a video"], ["Enter", "play its best moment"], ["Space", "play or pause"],
  ["← →", "previous moment, next moment"], [", .", "one frame back, one frame on"], ["< >", "slower, faster"], ["o", "play only the moment"],
  ["l", "loop"], ["m", "sound off or on"], ["f", "full screen"], ["Esc", "close the player, clear the search"], ["?", "this list"]];

document.getElementById("show-keys").addEventListener("click", help);

function help() {
  const dialog = h("dialog", { "aria-labelledby": "keys", onclose: () => dialog.remove() }, h("h2", { id: "keys" }, "Keys"),
    h("dl", { class: "keys" }, KEYS.flatMap(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])),
    h("form", { method: "dialog" }, h("button", { class: "plain", type: "submit" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

// A server that is gone: what is shown is from before, so it is greyed, and nothing can be exported until it is back.
const gone = document.getElementById("gone");
gone.append(h("p", {}, "The server does not answer. These are old results."), plain("Try again", () => poll()));
let polling;

async function poll() {
  clearTimeout(polling);
  await request("/api/health").catch(() => { polling = setTimeout(poll, POLL); });
}

document.addEventListener("connection", ({ detail: reachable }) => {
  document.body.classList.toggle("gone", !reachable);
  gone.hidden = reachable;
  document.dispatchEvent(new CustomEvent(reachable ? "back" : "away"));
  if (!reachable) polling = setTimeout(poll, POLL);
  else if (view.failed) view.read();
});

// A server that others can reach wants its token once.
document.addEventListener("locked", () => {
  if (document.querySelector("dialog.lock")) return;
  const token = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p", { class: "error", role: "alert" });
  const unlock = async (event) => {
    event.preventDefault();
    try {
      await send("POST", "/api/session", { token: token.value.trim() });
      location.reload();
    } catch (problem) {
      wrong.textContent = problem.message;
    }
  };
  const dialog = h("dialog", { class: "lock", "aria-labelledby": "locked", oncancel: (event) => event.preventDefault() },
    h("form", { onsubmit: unlock }, h("h2", { id: "locked" }, "This server needs a token"),
      h("label", { htmlFor: "token" }, "It was printed when the server started."), token, wrong, h("button", { class: "plain strong", type: "submit" }, "Open")));
  document.body.append(dialog);
  dialog.showModal();
});

await takeToken().catch(() => {});
const header = document.getElementById("header-items");
header.append(button("sun", "Light or dark", () => document.documentElement.switchTheme()));
show();
aboutIndex().then((about) => header.prepend(...made("header", about))).catch(() => {});
if (location.pathname === root && !input.value && matchMedia("(hover: hover)").matches) input.focus();
