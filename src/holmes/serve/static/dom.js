// Elements and words: names of files are only ever set as text.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  return fill(element, properties, children);
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && !name.startsWith("aria") && name !== "list" && name !== "role") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const ICONS = {
  play: "M8 5.5v13l11-6.5z",
  pause: "M7 5h3.5v14H7zM13.5 5H17v14h-3.5z",
  sound: "M4 9.5v5h3.5L12 18.5v-13L7.5 9.5zM15 9a4 4 0 0 1 0 6M17.5 6.5a8 8 0 0 1 0 11",
  mute: "M4 9.5v5h3.5L12 18.5v-13L7.5 9.5zM15.5 10l4.5 4.5M20 10l-4.5 4.5",
  full: "M5 10V5h5M14 5h5v5M19 14v5h-5M10 19H5v-5",
  link: "M10 14a4 4 0 0 0 5.7 0l2.8-2.8a4 4 0 0 0-5.7-5.7L11.500 6.900M14 10a4 4 0 0 0-5.7 0l-2.800 2.800a4 4 0 0 0 5.700 5.700l1.300-1.300",
  like: "M4 7h10v10H4zM17 8.500v9.500H7.500M20 11v10H10.500",
  picture: "M4 5.500h16v13H4zM4 16l4.500-4.500 3.500 3.500 3-3 5 5M15.500 8.500a1.200 1.200 0 1 0 0 2.400 1.200 1.200 0 0 0 0-2.400z",
  next: "M6 5.500v13l9-6.500zM17 5.500v13",
  previous: "M18 5.500v13l-9-6.500zM7 5.500v13",
  close: "M6.500 6.500l11 11M17.500 6.500l-11 11",
  filter: "M4 6h16M7 12h10M10 18h4",
  export: "M12 4v11M7.500 10.500 12 15l4.500-4.500M5 19.500h14",
  trash: "M5 7h14M9.500 7V4.500h5V7M7 7l.800 12.500h8.400L17 7",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v2M12 19v2M3 12h2M19 12h2M5.600 5.600l1.400 1.400M17 17l1.400 1.400M5.600 18.400 7 17M17 7l1.400-1.400",
  add: "M12 5v14M5 12h14",
  seen: "M2.500 12c3-5 6-7 9.500-7s6.500 2 9.500 7c-3 5-6 7-9.500 7s-6.500-2-9.500-7zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  said: "M4 5h16v11h-9l-4.500 4V16H4z",
  written: "M5 6.500V5h14v1.500M12 5v14M9 19h6",
  folder: "M3.500 6.500h6l2 2.500h9v9.500h-17z",
  loop: "M5 12a6 6 0 0 1 6-6h7M15.500 3.500 18 6l-2.500 2.500M19 12a6 6 0 0 1-6 6H6M8.500 20.500 6 18l2.500-2.500",
  moment: "M6 5v14M18 5v14M9 12h6",
  frameBack: "M15 6l-6 6 6 6M18.500 6v12",
  frameOn: "M9 6l6 6-6 6M5.500 6v12",
  open: "M8 5H5v14h14v-3M13 5h6v6M19 5l-8.500 8.500",
  warning: "M12 4.500 3.500 19h17zM12 10v4M12 16.500v.200",
  more: "M6 9l6 6 6-6",
  less: "M6 15l6-6 6 6",
};
const SOLID = new Set(["play", "pause"]);

export function icon(name) {
  const shape = svg("path", { d: ICONS[name] });
  return svg("svg", { viewBox: "0 0 24 24", class: SOLID.has(name) ? "icon solid" : "icon", "aria-hidden": "true" }, shape);
}

export function button(name, label, onclick, properties = {}) {
  const { text, ...others } = properties;
  return h("button", { type: "button", class: text ? "action" : "action only", title: label, "aria-label": label, onclick, ...others },
    icon(name), text ? h("span", {}, text) : null);
}

export function setIcon(element, name, label) {
  element.querySelector("svg").replaceWith(icon(name));
  element.title = label;
  element.setAttribute("aria-label", label);
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 1e-6));
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const rest = `${Math.floor(whole / 60) % 60}:${two(whole % 60)}`;
  return hours ? `${hours}:${rest.padStart(5, "0")}` : rest;
}

export function percent(probability) {
  const value = 100 * probability;
  if (value > 0 && value < 1) return "< 1%";
  return value > 99 && value < 100 ? "> 99%" : `${Math.round(value)}%`;
}

// The last folders of a long path tell more than the first.
export function shortened(folder) {
  const parts = folder.split("/").filter(Boolean);
  return parts.length > 3 ? `…/${parts.slice(-3).join("/")}` : folder;
}

export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// One sentence and one action: how every state without content looks. The action vanishes with it, so the focus goes to the content.
export function notice(text, action = null, { error = false, more = "" } = {}) {
  action?.addEventListener("click", () => document.getElementById("content").focus({ preventScroll: true }));
  return h("div", { class: error ? "empty error" : "empty", role: error ? "alert" : null },
    h("p", {}, error ? icon("warning") : null, text), more ? h("p", { class: "advice" }, more) : null, action);
}

export function plain(text, onclick, properties = {}) {
  return h("button", { type: "button", class: "plain", onclick, ...properties }, text);
}

export function counted(count, what) {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${count.toLocaleString("en", { maximumFractionDigits: count < 10 && unit ? 1 : 0 })} ${units[unit]}`;
}

// A browser has few connections. Pictures that are about to be replaced, or not seen for a while, leave theirs to what is asked for now.
export function pausePictures(element) {
  for (const image of element.querySelectorAll("img")) {
    if (image.complete) continue;
    image.dataset.src = image.src;
    image.removeAttribute("src");
  }
}

export function resumePictures(element) {
  for (const image of element.querySelectorAll("img[data-src]")) {
    image.src = image.dataset.src;
    delete image.dataset.src;
  }
}

// A bar below the header while the server is asked.
export function busy(on) {
  document.getElementById("busy").hidden = !on;
}

export function say(message) {
  document.getElementById("status").textContent = message;
}
