// Holmes in the browser: which page the address means, and the keys.

import { send, takeToken } from "./api.js";
import { Card } from "./card.js";
import { h } from "./dom.js";
import { Library } from "./library.js";
import { Search } from "./search.js";

const content = document.getElementById("content");
const input = document.getElementById("q");
let search, library;

function show() {
  const inLibrary = location.pathname === "/library";
  document.body.classList.toggle("in-library", inLibrary);
  document.getElementById("to-library").toggleAttribute("aria-current", inLibrary);
  library?.leave();
  Card.open?.close();
  if (inLibrary) {
    library = new Library();
    content.replaceChildren(library.element);
    library.read();
  } else {
    search ??= new Search(input);
    content.replaceChildren(search.element);
    search.read();
  }
}

function open(address) {
  history.pushState(null, "", address);
  show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-link]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  open(link.getAttribute("href"));
});
addEventListener("popstate", show);
input.addEventListener("input", () => { if (location.pathname === "/") search.typed(); });
input.form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (location.pathname === "/") search.go({ replace: false });
  else open(`/?${new URLSearchParams({ q: input.value.trim() })}`);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, textarea, select");
  const pressed = event.target.matches("button, a, summary");
  if (event.target === input && event.key === "ArrowDown") search?.select(1);
  else if (event.target === input && event.key === "Escape") input.value ? (input.value = "", search?.go({ replace: false })) : input.blur();
  else if (typing || document.querySelector("dialog[open]")) return;
  else if (event.key === "/") { input.focus(); input.select(); }
  else if (event.key === "?") help();
  else if (!search?.cards.length) return;
  else if (event.key === "ArrowDown") search.select(1);
  else if (event.key === "ArrowUp") search.select(-1);
  else if (event.key === "Enter" && !pressed) search.selected?.playBest();
  else if (event.key === " " && !pressed) { if (Card.open?.player) Card.open.player.toggle(); else search.selected?.playBest(); }
  else if (event.key === "ArrowRight") Card.open?.player?.jump(1);
  else if (event.key === "ArrowLeft") Card.open?.player?.jump(-1);
  else if (event.key === "Escape" && Card.open) { const { element } = Card.open; Card.open.close(); element.focus(); }
  else return;
  event.preventDefault();
});

const KEYS = [["/", "go to the search box"], ["↓ ↑", "choose a video"], ["Enter", "play its best moment"], ["Space", "play or pause"],
  ["← →", "previous moment, next moment"], ["Esc", "close the player, clear the search"], ["?", "this list"]];

function help() {
  const dialog = h("dialog", { "aria-labelledby": "keys", onclose: () => dialog.remove() }, h("h2", { id: "keys" }, "Keys"),
    h("dl", { class: "keys" }, KEYS.flatMap(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])),
    h("form", { method: "dialog" }, h("button", { class: "plain", type: "submit" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

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
show();
if (location.pathname === "/" && !input.value && matchMedia("(hover: hover)").matches) input.focus();
