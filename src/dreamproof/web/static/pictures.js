// Pictures of what a page shows: drawings, charts with their legend, tables, a whole report.

const STYLE = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-size",
  "font-family",
  "font-weight",
  "text-anchor",
  "fill-opacity",
  "stroke-linecap",
  "stroke-linejoin",
  "dominant-baseline",
];
const GAP = 16,
  MAX_PIXELS = 16000;

const paper = () => getComputedStyle(document.body).getPropertyValue("--paper").trim() || "#fff";

function newCanvas(width, height) {
  const canvas = document.createElement("canvas"),
    scale = Math.min(2, MAX_PIXELS / Math.max(width, height));
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = paper();
  pen.fillRect(0, 0, width, height);
  return [canvas, pen];
}

// A drawing of ours as an image, with the styles that the page gives it written into it.
async function imageOf(svg) {
  const box = svg.getBoundingClientRect(),
    copy = svg.cloneNode(true);
  const nodes = [svg, ...svg.querySelectorAll("*")],
    copies = [copy, ...copy.querySelectorAll("*")];
  nodes.forEach((node, n) => {
    const style = getComputedStyle(node);
    for (const name of STYLE) copies[n].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  const address = URL.createObjectURL(
    new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }),
  );
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    return { image, width: box.width, height: box.height };
  } finally {
    URL.revokeObjectURL(address);
  }
}

// Drawings side by side in rows of `across`, below a title; `legend` is {text, path, colour}, a path in a
// box of 16 by 16, or around its middle if it is `centred`.
export async function svgPicture(drawings, { title, legend = [], across = 1 }) {
  const found = await Promise.all([...drawings].map(imageOf)),
    style = getComputedStyle(document.body);
  if (!found.length) return null;
  const wide = Math.max(...found.map((one) => one.width)),
    tall = Math.max(...found.map((one) => one.height));
  const columns = Math.min(across, found.length),
    width = Math.max(480, columns * (wide + GAP) + GAP);
  const [, ruler] = newCanvas(1, 1);
  ruler.font = `13px ${style.fontFamily}`;
  const rows = legendRows(ruler, legend, width - 2 * GAP),
    top = 34 + 22 * rows.length;
  const [canvas, pen] = newCanvas(width, top + Math.ceil(found.length / columns) * (tall + GAP));
  pen.fillStyle = style.color;
  pen.font = `600 14px ${style.fontFamily}`;
  pen.fillText(cut(pen, title, width - 2 * GAP), GAP, 22);
  pen.font = ruler.font;
  rows.forEach((row, n) => row.forEach(({ item, x }) => drawItem(pen, item, GAP + x, 34 + 22 * n)));
  found.forEach(({ image, width: w, height: h }, n) =>
    pen.drawImage(image, GAP + (n % columns) * (wide + GAP), top + Math.floor(n / columns) * (tall + GAP), w, h),
  );
  return canvas;
}

// The legend of a page as one of a picture.
export const legendOf = (node) =>
  [...node.querySelectorAll(".item")].map((item) => {
    const shape = item.querySelector("rect, path"),
      path = shape?.tagName === "path" ? shape.getAttribute("d") : "M1 1h14v14H1z",
      style = shape && getComputedStyle(shape);
    const hollow = style?.fill === "none";
    return { text: textOf(item), path, colour: hollow ? style.stroke : (style?.fill ?? "#888"), hollow };
  });

function legendRows(pen, legend, width) {
  const rows = [];
  let x = Infinity;
  for (const item of legend) {
    const wide = pen.measureText(item.text).width + 44;
    if (x + wide > width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push({ item, x });
    x += wide;
  }
  return rows;
}

function drawItem(pen, { text, path, colour, hollow, centred }, x, y) {
  pen.save();
  pen.translate(x, y);
  pen.scale(0.75, 0.75);
  if (centred) pen.translate(8, 8);
  pen.fillStyle = pen.strokeStyle = colour;
  pen.lineWidth = 2;
  if (hollow) pen.stroke(new Path2D(path));
  else pen.fill(new Path2D(path));
  pen.restore();
  pen.fillText(text, x + 18, y + 11);
}

const textOf = (node) => (node.innerText ?? "").replace(/\s+/g, " ").trim();

// The tables of a part of the page below a title.
export const tablePicture = (node, title) =>
  blocksPicture([{ text: title, size: 15, bold: true }, ...[...node.querySelectorAll("table")].map(tableBlock)]);

// A report as one long picture: headings, texts, lists, tables and figures in their order.
export const reportPicture = (node) => blocksPicture([...node.children].flatMap(blocksOf));

function blocksOf(node) {
  const tag = node.tagName.toLowerCase(),
    heading = /^h[1-6]$/.test(tag);
  if (heading) return [{ text: textOf(node), size: { h1: 20, h2: 16 }[tag] ?? 14, bold: true, above: 10 }];
  if (tag === "ul") return [...node.children].map((item) => ({ text: `• ${textOf(item)}`, indent: 12 }));
  if (node.matches(".stamp")) return stampBlocks(node);
  const table = node.querySelector("table"),
    image = node.querySelector("img");
  if (table) return [tableBlock(table)];
  return image ? [{ image }, { text: textOf(node), soft: true }] : [{ text: textOf(node) }];
}

function stampBlocks(node) {
  const list = node.querySelector("ul"),
    text = [...node.childNodes].filter((one) => one !== list).map((one) => one.textContent);
  return [{ text: text.join(" ").replace(/\s+/g, " "), bold: true }, ...(list ? blocksOf(list) : [])];
}

const tableBlock = (table) => ({
  rows: [...table.rows].map((row) =>
    [...row.cells].map((cell) => ({ text: textOf(cell), right: cell.classList.contains("right") })),
  ),
});

const fontOf = (block) =>
  `${block.bold ? "600 " : ""}${block.size ?? 13}px ${getComputedStyle(document.body).fontFamily}`;

// Blocks below each other; the picture is as wide as its widest table.
async function blocksPicture(blocks) {
  const [, ruler] = newCanvas(1, 1);
  ruler.font = fontOf({});
  await Promise.all(blocks.filter((one) => one.image).map(({ image }) => ready(image)));
  for (const block of blocks) if (block.rows) block.widths = columnWidths(ruler, block.rows);
  const tables = blocks.filter((one) => one.rows).map(({ widths }) => widths.reduce((a, b) => a + b + 18, 0));
  const width = Math.max(760, ...tables) + 2 * GAP;
  let height = GAP;
  for (const block of blocks) {
    block.at = height + (block.above ?? 0);
    height = block.at + heightOf(ruler, block, width - 2 * GAP) + 8;
  }
  const [canvas, pen] = newCanvas(width, height + GAP);
  for (const block of blocks) drawBlock(pen, block);
  return canvas;
}

const ready = (image) => {
  image.loading = "eager";
  return image.decode().catch(() => null);
};

function columnWidths(pen, rows) {
  const widths = [];
  rows.forEach((row, line) => {
    pen.font = fontOf({ bold: line === 0 });
    row.forEach(({ text }, n) => {
      widths[n] = Math.min(420, Math.max(widths[n] ?? 0, pen.measureText(text).width));
    });
  });
  return widths;
}

function heightOf(pen, block, width) {
  if (block.rows) return block.rows.length * 22;
  if (block.image) {
    const scale = Math.min(1, width / (block.image.naturalWidth || 1));
    block.box = [block.image.naturalWidth * scale, block.image.naturalHeight * scale];
    return block.box[1];
  }
  pen.font = fontOf(block);
  block.lines = wrapped(pen, block.text, width - (block.indent ?? 0));
  pen.font = fontOf({});
  return block.lines.length * ((block.size ?? 13) + 6);
}

function drawBlock(pen, block) {
  const style = getComputedStyle(document.body);
  pen.fillStyle = block.soft ? style.getPropertyValue("--soft") : style.color;
  pen.font = fontOf(block);
  if (block.image && block.box[1]) pen.drawImage(block.image, GAP, block.at, ...block.box);
  const size = block.size ?? 13;
  (block.lines ?? []).forEach((line, n) =>
    pen.fillText(line, GAP + (block.indent ?? 0), block.at + size + n * (size + 6)),
  );
  (block.rows ?? []).forEach((row, n) => {
    pen.font = fontOf({ bold: n === 0 });
    let x = GAP;
    row.forEach(({ text, right }, m) => {
      const shown = cut(pen, text, block.widths[m] + 4),
        rest = right ? block.widths[m] - pen.measureText(shown).width : 0;
      pen.fillText(shown, x + rest, block.at + 15 + n * 22);
      x += block.widths[m] + 18;
    });
  });
}

// A chart with its title above it; lines of the legend, with their dashes, and notes below it.
export function chartPicture(chart, { title, lines, notes = [] }) {
  const source = chart.ctx.canvas,
    ratio = devicePixelRatio || 1,
    style = getComputedStyle(document.body),
    top = 30;
  const width = source.width / ratio,
    height = top + source.height / ratio,
    wide = lines.length > 1 && width > 500 ? width / 2 : width;
  const rows = Math.ceil(lines.length / Math.round(width / wide)),
    font = `12px ${style.fontFamily}`;
  const [, ruler] = newCanvas(1, 1);
  ruler.font = font;
  const said = notes.flatMap((note) => wrapped(ruler, note, width - 32));
  const [canvas, pen] = newCanvas(width, height + 20 * rows + 18 * said.length + 16);
  pen.drawImage(source, 0, top, width, height - top);
  pen.fillStyle = style.color;
  pen.font = `600 14px ${style.fontFamily}`;
  pen.fillText(cut(pen, title, width - 32), 16, 20);
  pen.font = font;
  lines.forEach(({ text, colour, dash = [] }, n) => {
    const x = 16 + Math.floor(n / rows) * wide,
      y = height + 14 + (n % rows) * 20;
    pen.strokeStyle = colour;
    pen.lineWidth = 2.5;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + 34, y);
    pen.stroke();
    pen.fillText(cut(pen, text, wide - 60), x + 42, y + 4);
  });
  said.forEach((line, n) => pen.fillText(line, 16, height + 20 * rows + 18 + n * 18));
  return canvas;
}

function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}

// Lines of a text that fit; breaks between words, or between characters where a word is too long.
function wrapped(pen, text, width) {
  const found = [""];
  for (const word of text.split(/(?<=\s)|(?<=[\u3000-\u9fff\uff00-\uffef])/u)) {
    if (pen.measureText(found.at(-1) + word).width <= width) found[found.length - 1] += word;
    else found.push(...pieces(pen, word, width));
  }
  return found.map((line) => line.trim()).filter(Boolean);
}

function pieces(pen, word, width) {
  const found = [""];
  for (const letter of word)
    if (pen.measureText(found.at(-1) + letter).width <= width) found[found.length - 1] += letter;
    else found.push(letter);
  return found;
}
