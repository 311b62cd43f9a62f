// Drawing on a canvas: sharp on any screen, in the page's colours, waiting hatched.

const sharp = (canvas, width, height) => {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
};
const inks = () => {
  const style = getComputedStyle(document.documentElement);
  const names = ["ground", "raised", "line", "ink", "soft", "accent", "busy", "waiting", "waiting-line", "heap"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
};
// Diagonal lines on a ground, which may be "transparent".
const hatch = (pen, ground, line) => {
  const size = 6;
  const ratio = window.devicePixelRatio || 1;
  const tile = document.createElement("canvas");
  const own = sharp(tile, size, size);
  own.fillStyle = ground;
  own.fillRect(0, 0, size, size);
  own.strokeStyle = line;
  own.lineWidth = 1.4;
  own.beginPath();
  for (const at of [-size, 0, size]) {
    own.moveTo(at - 1, size + 1);
    own.lineTo(at + size + 1, -1);
  }
  own.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
};
