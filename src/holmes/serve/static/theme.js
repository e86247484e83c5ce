// Light or dark as this browser was told; without a word, as the system. Loaded before the page is drawn.
(() => {
  const root = document.documentElement;
  const kept = () => { try { return localStorage.getItem("holmes.theme"); } catch { return null; } };
  if (["light", "dark"].includes(kept())) root.dataset.theme = kept();
  root.switchTheme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("holmes.theme", root.dataset.theme); } catch { /* a browser that keeps nothing still switches */ }
  };
})();
