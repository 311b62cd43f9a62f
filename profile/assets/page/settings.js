// What a reader has chosen for all profiles: dark or light, and whether letters are shortcuts. A browser that keeps nothing for a page
// asks again.

const kept = (key) => {
  try {
    return localStorage.getItem("phpprof." + key);
  } catch {
    return null;
  }
};
const keep = (key, value) => {
  try {
    if (value === null) localStorage.removeItem("phpprof." + key);
    else localStorage.setItem("phpprof." + key, value);
  } catch {
    // It holds until the page is closed.
  }
};
const themes = window.matchMedia("(prefers-color-scheme: dark)");
let theme = ["dark", "light"].includes(kept("theme")) ? kept("theme") : null;
const drawTheme = () => {
  const dark = theme === null ? themes.matches : theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  at("theme").textContent = dark ? "Light" : "Dark";
  paintStrip();
  paintCourse();
};
// Whoever turns back to what the machine asks for follows it again.
const turnTheme = () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  theme = next === (themes.matches ? "dark" : "light") ? null : next;
  keep("theme", theme);
  drawTheme();
};
let shortcuts = kept("shortcuts") !== "off";
const drawShortcuts = () => { at("shortcuts").checked = shortcuts; };
const turnShortcuts = () => {
  shortcuts = at("shortcuts").checked;
  keep("shortcuts", shortcuts ? null : "off");
};
