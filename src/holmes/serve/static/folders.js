// The folders of the collection as a tree; each counts the videos in it and below it.

import { button, h, icon, setIcon } from "./dom.js";

// `choose(folder)` is called with a path, or "" for all.
export function folderTree(folders, total, choose) {
  const root = grown(folders);
  const item = ({ name, path, videos }) => h("button", { type: "button", class: "folder-name", value: path, title: path || null, onclick: () => choose(path) },
    icon("folder"), h("span", {}, name), h("b", {}, videos.toLocaleString("en")));
  const list = (node) => h("ul", {}, [...node.below.values()].map((each) => {
    const below = each.below.size ? list(each) : null;
    const open = below && each.below.size + root.below.size < 12;
    if (below) below.hidden = !open;
    const toggle = below ? button(open ? "less" : "more", `${open ? "Hide" : "Show"} the folders in ${each.name}`, () => {
      below.hidden = !below.hidden;
      toggle.setAttribute("aria-expanded", String(!below.hidden));
      setIcon(toggle, below.hidden ? "more" : "less", `${below.hidden ? "Show" : "Hide"} the folders in ${each.name}`);
    }, { "aria-expanded": String(Boolean(open)) }) : null;
    return h("li", {}, h("div", { class: "folder-row" }, item(each), toggle), below);
  }));
  return h("nav", { class: "tree", "aria-label": "Folders" }, item({ name: "All videos", path: "", videos: total }), list(root));
}

// Marks the folder that is chosen, and opens it and those around it. What is closed afterwards stays closed.
export function markFolder(tree, current) {
  const items = [...tree.querySelectorAll(".folder-name")];
  const chosen = items.find((item) => item.value === current);
  if (chosen?.ariaCurrent) return;
  for (const item of items) item.ariaCurrent = item === chosen ? "true" : null;
  for (let folder = chosen?.closest("li"); folder; folder = folder.parentElement.closest("li")) {
    folder.querySelector(":scope > .folder-row > [aria-expanded=false]")?.click();
  }
}

// Nested folders, without the beginning that all have in common; a chain of single folders is one line.
function grown(folders) {
  const root = { name: "", path: "", videos: 0, below: new Map() };
  for (const { folder, videos } of folders) {
    let node = root;
    let path = "";
    for (const name of folder.split("/").filter(Boolean)) {
      path += `/${name}`;
      if (!node.below.has(name)) node.below.set(name, { name, path, videos: 0, own: 0, below: new Map() });
      node = node.below.get(name);
      node.videos += videos;
    }
    node.own = (node.own ?? 0) + videos;
  }
  return joined(root, true);
}

function joined(node, top = false) {
  let here = node;
  while (here.below.size === 1 && !here.own) {
    const [only] = here.below.values();
    here = top ? only : { ...only, name: `${here.name}/${only.name}` };
  }
  here.below = new Map([...here.below].sort(([one], [other]) => one.localeCompare(other)).map(([name, each]) => [name, joined(each)]));
  if (top && here.own && here !== node) return { ...node, below: new Map([[here.name, here]]) };
  return here;
}
