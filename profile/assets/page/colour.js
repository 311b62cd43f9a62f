// The colours of frames: the rules of src/colour.rs.

// FNV-1a of the first letters.
const sumOf = (text) => {
  let sum = 0x811c9dc5;
  for (let i = 0; i < text.length && i < 256; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return sum;
};
const hash = (text) => (sumOf(text) >>> 8) / 2 ** 24;
const hex = (hue, saturation, lightness) => {
  const chroma = saturation * Math.min(lightness, 1 - lightness);
  const channel = (offset) => {
    const k = (((offset + hue / 30) % 12) + 12) % 12;
    const value = lightness - chroma * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(Math.max(0, Math.min(255, value * 255))).toString(16).padStart(2, "0");
  };
  return "#" + channel(0) + channel(8) + channel(4);
};
const HUES = { own: [28, 0.85, 0.66], builtin: [205, 0.55, 0.7], engine: [90, 0.06, 0.74] };
// By folders, code of the project is told from code of others.
const HUES_OF_FOLDERS = { ...HUES, vendor: [285, 0.45, 0.75] };
const ofFunction = (number) => {
  if (number < 0) return hex(30, 0.1, 0.86);
  const name = data.functions[number][0];
  const [hue, saturation, lightness] = HUES[originOf(number)] || HUES.own;
  const spread = 0.75 * hash(name.split("::")[0]) + 0.25 * hash(name);
  const fraction = spread * 7 - Math.floor(spread * 7);
  return hex(hue + 34 * (spread - 0.5), saturation, lightness + 0.12 * (fraction - 0.5));
};
const ofFolder = ({ name, origin }) => {
  if (!origin) return hex(30, 0.1, 0.86);
  const [hue, saturation, lightness] = HUES_OF_FOLDERS[origin];
  return hex(hue, saturation, lightness + 0.1 * (hash(name) - 0.5));
};
const ofChange = (before, after) => {
  const largest = Math.max(before, after);
  const change = largest > 0 ? (after - before) / largest : 0;
  const strength = Math.sqrt(Math.abs(change));
  return hex(change > 0 ? 8 : 212, 0.08 + 0.77 * strength, 0.86 - 0.22 * strength);
};
const FOUND = "#e05cff";
const GREY = hex(0, 0, 0.8);
// What a verdict names.
const NAMED = hex(42, 1, 0.55);
const named = new Set(data.verdict ? data.findings.map((one) => one.function).filter((f) => f !== null) : []);
const colours = new Map();
const colour = (d) => {
  if (lit) return lit(d.data.f) ? FOUND : GREY;
  if (named.has(d.data.f)) return NAMED;
  if (compared) return isNoise(d.data) ? GREY : ofChange(partBefore(d.data), partAfter(d.data));
  if (state.shape === "folders") return ofFolder(d.data);
  const known = colours.get(d.data.f);
  if (known) return known;
  const made = ofFunction(d.data.f);
  colours.set(d.data.f, made);
  return made;
};
// What the colours say.
const legend = () => {
  const tone = (hue) => hex(...hue);
  if (lit) return [[FOUND, "found"], [GREY, "not found"]];
  if (compared && ofHeaps) return [[ofChange(0, 1), "more than before"], [ofChange(1, 0), "less"], [GREY, "the same"]];
  if (compared) {
    const tones = [[ofChange(0, 1), "takes more than before"], [ofChange(1, 0), "takes less"], [GREY, "no more than chance"]];
    return named.size > 0 ? [[NAMED, "named by the verdict"], ...tones] : tones;
  }
  if (state.shape === "folders") return Object.entries(HUES_OF_FOLDERS).map(([origin, hue]) => [tone(hue), ORIGINS[origin]]);
  if (ofHeaps) return [[tone(HUES.builtin), "class, property or kind"], [tone(HUES.engine), "key or variable"]];
  return [[tone(HUES.own), "PHP code"], [tone(HUES.builtin), "built in"], [tone(HUES.engine), "the engine"]];
};
const drawLegend = () => {
  const host = at("legend");
  host.textContent = "";
  for (const [fill, words] of legend()) {
    const line = document.createElement("span");
    line.className = "legend";
    const patch = document.createElement("i");
    patch.style.background = fill;
    line.append(patch, words);
    host.append(line);
  }
};
