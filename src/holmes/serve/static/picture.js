// Search with a picture: chosen, dropped anywhere on the page, or pasted. It is made small here, and then sent; what is typed
// into the search box is added to it.

import { request } from "./api.js";
import { button, h } from "./dom.js";
import { addSearchField } from "./extensions.js";

const SIDE = 384; // pixels: more than most models look at
const LARGEST = 45000; // bytes, so that a request stays within its limit
const TYPES = ["image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp"];
let shown = ""; // the address of the picture on the page

addSearchField(({ use }) => {
  const input = h("input", { type: "file", accept: TYPES.join(","), hidden: true, "aria-label": "Picture to search with",
    onchange: () => { take(input.files, use); input.value = ""; } });
  addEventListener("paste", (event) => { if (take(event.clipboardData?.files, use)) event.preventDefault(); });
  addEventListener("dragover", (event) => { if (holdsPicture(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (event.defaultPrevented || !holdsPicture(event)) return;
    event.preventDefault();
    take(event.dataTransfer.files, use);
  });
  return h("span", { class: "picture-field" }, input, button("picture", "Search with a picture", () => input.click()));
});

function holdsPicture(event) {
  return [...event.dataTransfer?.items ?? []].some((item) => item.kind === "file" && TYPES.includes(item.type));
}

function take(files, use) {
  const file = [...files ?? []].find((each) => TYPES.includes(each.type));
  if (!file) return false;
  const small = made(file);
  if (shown) URL.revokeObjectURL(shown);
  shown = URL.createObjectURL(file);
  use({
    title: `Videos that look like ${file.name || "your picture"}`,
    image: shown,
    note: "Add a sentence to refine the search.",
    answer: async ({ q, filters, signal }) => request("/api/search/by", {
      method: "POST", signal, headers: { "content-type": "application/json" },
      body: JSON.stringify({ image: await small, ...(q ? { sentence: q } : {}), ...wanted(filters) }),
    }),
  });
  return true;
}

// The filters as numbers and texts; empty ones are left out.
function wanted(filters) {
  const kept = Object.entries(filters ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return Object.fromEntries(kept.map(([name, value]) => [name, ["shortest", "longest"].includes(name) ? Number(value) : value]));
}

async function made(file) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error("This file cannot be read as a picture.");
  }
  const scale = Math.min(1, SIDE / Math.max(picture.width, picture.height));
  const canvas = h("canvas", { width: Math.max(1, Math.round(picture.width * scale)), height: Math.max(1, Math.round(picture.height * scale)) });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  for (const quality of [0.9, 0.75, 0.5, 0.25]) {
    const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", quality));
    if (blob.size > LARGEST) continue;
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  }
  throw new Error("This picture is too large to send.");
}
