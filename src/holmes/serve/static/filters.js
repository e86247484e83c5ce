// Which videos may be found: by folder, date and length. What is set stands in the address too.

import { button, h, icon } from "./dom.js";

export const NAMES = ["folder", "after", "before", "shortest", "longest"];
const LENGTHS = [["any length", "", ""], ["under 1 minute", "", "60"], ["1 to 10 minutes", "60", "600"],
  ["10 to 60 minutes", "600", "3600"], ["over an hour", "3600", ""]];

export class Filters {
  constructor(changed) {
    this.changed = changed;
    this.values = Object.fromEntries(NAMES.map((name) => [name, ""]));
    this.folder = h("select", { id: "folder", onchange: () => this.set({ folder: this.folder.value }) }, h("option", { value: "" }, "all folders"));
    this.after = h("input", { id: "after", type: "date", onchange: () => this.set({ after: this.after.value }) });
    this.before = h("input", { id: "before", type: "date", onchange: () => this.set({ before: this.before.value }) });
    this.length = h("select", { id: "length", onchange: () => this.#length() }, LENGTHS.map(([name], at) => h("option", { value: String(at) }, name)));
    this.count = h("span", { class: "count" });
    this.clear = button("close", "Clear all filters", () => this.reset(), { text: "Clear" });
    const field = (label, control) => h("label", { htmlFor: control.id }, h("span", {}, label), control);
    this.element = h("details", { class: "filters" },
      h("summary", {}, icon("filter"), h("span", {}, "Filters"), this.count),
      h("div", { class: "fields" }, field("Folder", this.folder), field("From", this.after), field("Until", this.before),
        field("Length", this.length), this.clear));
  }

  // What the address says.
  read(parameters) {
    for (const name of NAMES) this.values[name] = parameters.get(name) ?? "";
    this.#show();
  }

  // The folders that can be chosen.
  folders(folders) {
    this.folder.replaceChildren(h("option", { value: "" }, "all folders"),
      ...withParents(folders).map(({ folder, videos }) => h("option", { value: folder }, `${folder} (${videos.toLocaleString("en")})`)));
    this.#show();
  }

  #length() {
    const [, shortest, longest] = LENGTHS[Number(this.length.value)];
    this.set({ shortest, longest });
  }

  set(values) {
    Object.assign(this.values, values);
    this.#show();
    this.changed();
  }

  reset() {
    this.set(Object.fromEntries(NAMES.map((name) => [name, ""])));
  }

  get any() {
    return NAMES.some((name) => this.values[name]);
  }

  #show() {
    const { folder, after, before, shortest, longest } = this.values;
    if (folder && ![...this.folder.options].some((option) => option.value === folder)) {
      this.folder.append(h("option", { value: folder }, folder));
    }
    this.folder.value = folder;
    this.after.value = after;
    this.before.value = before;
    this.length.value = String(Math.max(0, LENGTHS.findIndex(([, least, most]) => least === shortest && most === longest)));
    const active = [folder, after, before, shortest || longest].filter(Boolean).length;
    this.count.textContent = active ? String(active) : "";
    this.count.title = active ? `${active} set` : "";
    this.clear.hidden = !active;
  }
}

// The folders of videos, and those above several of them; each counts the videos in it and below it.
function withParents(folders) {
  const above = (name) => name.slice(0, Math.max(0, name.lastIndexOf("/")));
  const counts = new Map(), largest = new Map(); // of the folders in each
  for (const { folder, videos } of folders) {
    for (let name = folder; name; name = above(name)) counts.set(name, (counts.get(name) ?? 0) + videos);
  }
  for (const [name, videos] of counts) largest.set(above(name), Math.max(largest.get(above(name)) ?? 0, videos));
  return [...counts].filter(([name, videos]) => videos > (largest.get(name) ?? 0))
    .sort(([one], [other]) => (one < other ? -1 : 1)).map(([folder, videos]) => ({ folder, videos }));
}
