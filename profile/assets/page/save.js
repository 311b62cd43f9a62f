// What leaves the page: a stack for the clipboard, and what is drawn as an SVG or PNG picture or as folded stacks.
//
// Invariant: names leave as text: escaped in SVG, without what separates frames and lines in folded stacks.

// The name of a script is its file already.
const withPlace = (f) => {
  const [name, file] = data.functions[f];
  const [, how, shown] = /^(\{main\}|include|eval) (.+)$/s.exec(name) || [];
  const isScript = how && (file === shown || file.endsWith("/" + shown));
  const place = placeOf(f);
  return isScript ? how + " " + file : nameOf(f) + (place ? " (" + place + ")" : "");
};

const copyStack = () => {
  const d = current && current.data.f === picked ? current : null;
  const chain = d ? d.ancestors().reverse() : [];
  const functions = d ? chain.map((one) => one.data.f).filter((f) => f >= 0) : [picked];
  copy(functions.map(withPlace).join("\n"));
};

// ── pictures ────────────────────────────────────────────────────────────────
const HEAD = 46;
const MARGIN = 10;
// A letter of the font, on average.
const LETTER = 6.95;
const FONT = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace";
const boxes = () => {
  const { left, top } = at("chart").getBoundingClientRect();
  return [...at("chart").querySelectorAll("g.frame")].map((frame) => {
    const rect = frame.querySelector("rect");
    const box = rect.getBoundingClientRect();
    const { data: node } = frame.__data__;
    return {
      node, x: box.left - left + MARGIN, y: box.top - top + HEAD, width: box.width, height: box.height, fill: rect.getAttribute("fill"),
      label: fitting(node.name, box.width),
    };
  });
};
const fitting = (name, width) => {
  const room = Math.floor((width - 6) / LETTER);
  const letters = [...name];
  if (letters.length <= room) return name;
  return room < 3 ? "" : letters.slice(0, room - 1).join("") + "…";
};
const sizeOf = (list) => [
  Math.ceil(list.reduce((most, { x, width }) => Math.max(most, x + width), 0) + MARGIN),
  Math.ceil(list.reduce((most, { y, height }) => Math.max(most, y + height), 0) + MARGIN),
];
// A character that XML has not is a space.
const xml = (text) => text.replace(/[\u0000-\u001f\u007f\ufffe\uffff]/g, " ").replace(/[&<>"]/g, (one) => "&#" + one.charCodeAt(0) + ";");
const svgOf = (list, ink) => {
  const [width, height] = sizeOf(list);
  const text = (x, y, fill, words) => '<text x="' + x.toFixed(1) + '" y="' + y.toFixed(1) + '" fill="' + fill + '">' + xml(words) + "</text>";
  const frames = list.map(({ node, x, y, width: wide, height: high, fill, label }) => "<g><title>" + xml(node.name + " (" + describe(node) + ")")
    + '</title><rect x="' + x.toFixed(1) + '" y="' + y.toFixed(1) + '" width="' + wide.toFixed(1) + '" height="' + high + '" fill="' + fill
    + '" stroke="' + ink.ground + '" stroke-width=".8"/>' + (label ? text(x + 4, y + 14, "#14171a", label) : "") + "</g>");
  return '<svg xmlns="http://www.w3.org/2000/svg" width="' + width + '" height="' + height + '" font-family="' + FONT + '" font-size="11.5">'
    + '<rect width="100%" height="100%" fill="' + ink.ground + '"/>' + text(MARGIN, 19, ink.ink, data.title)
    + text(MARGIN, 36, ink.soft, at("facts").textContent) + "\n" + frames.join("\n") + "\n</svg>\n";
};
const paintBoxes = (list, ink) => {
  const canvas = document.createElement("canvas");
  const [width, height] = sizeOf(list);
  const pen = sharp(canvas, width, height);
  const write = (x, y, fill, words) => {
    pen.fillStyle = fill;
    pen.fillText(words, x, y);
  };
  pen.font = "11.5px " + FONT;
  pen.fillStyle = ink.ground;
  pen.fillRect(0, 0, width, height);
  write(MARGIN, 19, ink.ink, data.title);
  write(MARGIN, 36, ink.soft, at("facts").textContent);
  for (const { x, y, width: wide, height: high, fill, label } of list) {
    pen.fillStyle = fill;
    pen.fillRect(x, y, Math.max(0.4, wide - 0.8), high - 0.8);
    write(x + 4, y + 14, "#14171a", label);
  }
  return canvas;
};

// ── folded stacks ───────────────────────────────────────────────────────────
const clean = (name) => name.trim().replace(/;/g, ":").replace(/\p{Cc}/gu, " ") || "[anonymous]";
// Of a sandwich the stacks that go through its function; of the others what is drawn, from where the graph is zoomed in to.
const folded = () => {
  const isSandwich = state.shape === "sandwich";
  const [top, above] = isSandwich ? [drawn.root, []] : [zoomed.data, zoomed.ancestors().slice(1).map((d) => d.data)];
  const lines = [];
  const open = [[top, above.filter(({ f }) => f !== -1).reverse().map(({ name }) => clean(name)), false]];
  while (open.length > 0) {
    const [node, path, isInside] = open.pop();
    const inside = isInside || !isSandwich || node.f === state.exact;
    const stack = node.f === -1 ? path : [...path, clean(node.name)];
    const own = node.children.reduce((left, child) => left - child.value, node.value);
    if (own > 0 && inside) lines.push((stack.join(";") || "[unknown]") + " " + own);
    for (const child of node.children) open.push([child, stack, inside && isSandwich]);
  }
  return lines.sort().join("\n") + "\n";
};

const download = (ending, blob) => {
  const link = document.createElement("a");
  link.download = (data.title.replace(/[^\w.-]+/g, "-") || "profile") + "." + ending;
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  at("detail").textContent = "Saved " + link.download;
};
const SAVES = {
  svg: () => download("svg", new Blob([svgOf(boxes(), inks())], { type: "image/svg+xml" })),
  // A browser has no picture of a canvas that is larger than its limit.
  png: () => paintBoxes(boxes(), inks()).toBlob((blob) => {
    if (blob) download("png", blob);
    else at("detail").textContent = "Not saved: the graph is too large for a PNG in this browser; save it as SVG";
  }),
  folded: () => download("folded", new Blob([folded()], { type: "text/plain" })),
};
const save = (ending) => panes.length > 0 && SAVES[ending]();
