// The decision report as it stands: answer, key table, verdicts, figures, what is missing and its price.

import { studyPath } from "../api.js";
import { h, refresher } from "../dom.js";
import { downloads, tablePicture } from "../download.js";
import { language, t } from "../text.js";

const MARKS = { "✅": "proven", "❌": "missing", "🔄": "running", "⛔": "stopped" };

// Texts keep `code` and **strong**; numbers show the cells behind them.
function spans(pieces) {
  return pieces.map((piece) => {
    if (typeof piece !== "string") {
      const cells = piece.cells.slice(0, 12).join(" ") + (piece.cells.length > 12 ? " …" : "");
      return h("span", { class: "number", title: piece.key ? `${piece.key} · ${cells}` : null }, piece.number);
    }
    return piece
      .split("`")
      .map((part, place) =>
        place % 2 ? h("code", {}, part) : part.split("**").map((text, n) => (n % 2 ? h("strong", {}, text) : text)),
      );
  });
}

function block(one, study, version) {
  if (one.kind === "heading") return h(`h${one.level}`, {}, spans(one.text));
  if (one.kind === "paragraph") return h("p", {}, spans(one.text));
  if (one.kind === "stamp")
    return h(
      "div",
      { class: `stamp ${one.tone}` },
      h("b", {}, one.label),
      spans(one.text),
      one.points.length
        ? h(
            "ul",
            {},
            one.points.map((point) => h("li", {}, spans(point))),
          )
        : null,
    );
  if (one.kind === "bullets")
    return h(
      "ul",
      {},
      one.items.map((item) => h("li", {}, spans(item))),
    );
  if (one.kind === "table")
    return h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": t("table") },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            one.header.map((text, n) =>
              h("th", { scope: "col", class: one.left.includes(n) ? null : "right" }, spans(text)),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          one.rows.map((row) =>
            h(
              "tr",
              {},
              row.map((text, n) => h("td", { class: one.left.includes(n) ? null : "right" }, spans(text))),
            ),
          ),
        ),
      ),
    );
  const image = h("img", {
    src: `/api/v1${studyPath(study, `/figures/${one.name}.png`)}?language=${language}&v=${version}`,
    alt: one.caption,
    loading: "lazy",
    onerror: (event) => event.target.closest("figure").remove(),
  });
  return h("figure", {}, image, h("figcaption", {}, one.caption));
}

export function open(context) {
  const { study } = context.place,
    node = h("article", { class: "report" }),
    update = refresher(node);
  context.root.append(
    h(
      "div",
      { class: "head" },
      h("p", { class: "hint" }, t("decision_current")),
      downloads(`${study}-decision`, {
        csv: `/api/v1${studyPath(study, "/decision")}?format=csv`,
        png: () => tablePicture(node),
      }),
    ),
    node,
  );
  return {
    async refresh() {
      const data = await context.get(studyPath(study, `/decision?language=${language}`));
      const version = String(JSON.stringify(data).length);
      update(data, () => [h("h1", {}, data.title), data.blocks.map((one) => block(one, study, version))]);
    },
  };
}
