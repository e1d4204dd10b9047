// Downloads of every view: a table as CSV from the API, a picture as PNG from what is drawn.

import { h } from "./dom.js";
import { t } from "./text.js";

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

export function downloads(name, { csv, png }) {
  return h(
    "div",
    { class: "downloads" },
    csv && h("a", { class: "button", href: csv, download: `${name}.csv` }, "CSV"),
    png && h("button", { type: "button", onclick: () => savePng(name, png), title: t("download.png") }, "PNG"),
  );
}

async function savePng(name, draw) {
  const canvas = await draw();
  if (!canvas) return;
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  const link = h("a", { href: URL.createObjectURL(blob), download: `${name}.png` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const paper = () => getComputedStyle(document.body).getPropertyValue("--paper").trim() || "#fff";

function newCanvas(width, height) {
  const canvas = document.createElement("canvas"),
    scale = 2;
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = paper();
  pen.fillRect(0, 0, width, height);
  return [canvas, pen];
}

// A drawing of ours, with the styles that the page gives it written into it.
export async function svgPicture(svg) {
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
    const [canvas, pen] = newCanvas(box.width, box.height);
    pen.drawImage(image, 0, 0, box.width, box.height);
    return canvas;
  } finally {
    URL.revokeObjectURL(address);
  }
}

// Tables and lists of a part of the page, as rows of text.
export async function tablePicture(node) {
  const rows = [...node.querySelectorAll("tr")].map((row) =>
    [...row.children].map((cell) => cell.innerText.replace(/\s+/g, " ").trim().slice(0, 60)),
  );
  const style = getComputedStyle(document.body),
    font = `13px ${style.fontFamily}`;
  const [, ruler] = newCanvas(1, 1);
  ruler.font = font;
  const widths = [];
  for (const row of rows)
    row.forEach((text, n) => {
      widths[n] = Math.max(widths[n] ?? 0, ruler.measureText(text).width);
    });
  const [canvas, pen] = newCanvas(
    Math.max(
      320,
      widths.reduce((a, b) => a + b + 18, 24),
    ),
    rows.length * 22 + 24,
  );
  pen.font = font;
  pen.fillStyle = style.color;
  rows.forEach((row, n) => {
    let x = 12;
    row.forEach((text, m) => {
      pen.fillText(text, x, 27 + n * 22);
      x += widths[m] + 18;
    });
  });
  return canvas;
}

// A chart with its legend below it.
export function chartPicture(chart, lines) {
  const source = chart.ctx.canvas,
    ratio = devicePixelRatio || 1;
  const width = source.width / ratio,
    height = source.height / ratio;
  const [canvas, pen] = newCanvas(width, height + 20 * Math.ceil(lines.length / 2) + 16);
  pen.drawImage(source, 0, 0, width, height);
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  lines.forEach(({ text, colour }, n) => {
    const x = 16 + (n % 2) * (width / 2),
      y = height + 18 + Math.floor(n / 2) * 20;
    pen.fillStyle = colour;
    pen.fillRect(x, y - 9, 14, 9);
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.fillText(text, x + 20, y);
  });
  return canvas;
}
