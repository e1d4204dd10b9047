// Downloads of every view: a table as CSV from the API, a picture as PNG from what is drawn.

import { h } from "./dom.js";
import { t } from "./text.js";

export function downloads(name, { csv, png }) {
  const link = csv && h("a", { class: "button", href: csv, download: `${name}.csv` }, "CSV");
  const node = h(
    "div",
    { class: "downloads" },
    link,
    png && h("button", { type: "button", onclick: () => savePng(name, png), title: t("download.png") }, "PNG"),
  );
  return Object.assign(node, {
    name: (other) => {
      name = other;
      link?.setAttribute("download", `${name}.csv`);
    },
  });
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
