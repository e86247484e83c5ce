// The five points where a module adds to the page. Call these functions when the module is loaded, and import the
// module in main.js. A function that returns null adds nothing, so a module can look at what it is given first.

const given = { card: [], panel: [], header: [], search: [], export: [] };

// 1. An action of a hit: (hit, { time, player }) => element. `time()` is the second shown now, `player()` the open player or null.
export const addCardAction = (make) => given.card.push(make);

// 2. A panel beside the film: ({ video, player }) => { title, element }, or a promise of it. `player.position` is the second now,
//    `player.play(seconds)` goes there, and `player.element` sends a "position" event while it plays.
export const addPlayerPanel = (make) => given.panel.push(make);

// 3. Something in the header, before the switch of light and dark: (about) => element. `about` is what /api/index says.
export const addHeaderItem = (make) => given.header.push(make);

// 4. Something in the search box: ({ use }) => element. `use({ title, image, answer })` asks with something other than a sentence:
//    `answer({ q, filters, signal })` promises { hits, diagnosis? }, `image` is the address of a picture. use(null) ends it.
export const addSearchField = (make) => given.search.push(make);

// 5. An entry of the menu "Export": ({ hits, parameters }) => element (an <a> or <button>). `parameters` are the query and the
//    filters as addresses have them; null where an answer has no address, as that to a picture.
export const addExport = (make) => given.export.push(make);

export function made(point, ...context) {
  return given[point].map((make) => make(...context)).filter(Boolean);
}
