// The colours of frames: the rules of src/colour.rs.

const hash = (text) => {
  let sum = 0x811c9dc5;
  for (let i = 0; i < text.length && i < 256; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return (sum >>> 8) / 2 ** 24;
};
const hex = (hue, saturation, lightness) => {
  const chroma = saturation * Math.min(lightness, 1 - lightness);
  const channel = (offset) => {
    const k = (((offset + hue / 30) % 12) + 12) % 12;
    const value = lightness - chroma * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(Math.max(0, Math.min(255, value * 255))).toString(16).padStart(2, "0");
  };
  return "#" + channel(0) + channel(8) + channel(4);
};
const ofFunction = (number) => {
  if (number < 0) return hex(30, 0.1, 0.86);
  const [name, file] = data.functions[number];
  const [hue, saturation, lightness] = name.startsWith("[") ? [90, 0.06, 0.74] : file === "" ? [205, 0.55, 0.7] : [28, 0.85, 0.66];
  const spread = 0.75 * hash(name.split("::")[0]) + 0.25 * hash(name);
  const fraction = spread * 7 - Math.floor(spread * 7);
  return hex(hue + 34 * (spread - 0.5), saturation, lightness + 0.12 * (fraction - 0.5));
};
const ofChange = (before, after) => {
  const largest = Math.max(before, after);
  const change = largest > 0 ? (after - before) / largest : 0;
  const strength = Math.sqrt(Math.abs(change));
  return hex(change > 0 ? 8 : 212, 0.08 + 0.77 * strength, 0.86 - 0.22 * strength);
};
const colours = new Map();
const colour = (d) => {
  if (state.search !== "" || state.exact >= 0) {
    if (d.highlight) return "#e05cff";
    return hex(0, 0, 0.8);
  }
  if (compared) return ofChange(share(d.data.before, drawn.before), share(d.data.after, drawn.after));
  const known = colours.get(d.data.f);
  if (known) return known;
  const made = ofFunction(d.data.f);
  colours.set(d.data.f, made);
  return made;
};
