// The decision report as it stands: answer, key table, verdicts, figures, what is missing and its price.

import { studyPath } from "../api.js";
import { h, refresher } from "../dom.js";
import { downloads } from "../download.js";
import { reportPicture } from "../pictures.js";
import { language, t } from "../text.js";

// `arm/seed@condition` as people read it.
const cellText = (text) => text.replace(/@(.+)$/, (_, condition) => ` (${condition})`);

// A number says the cells behind it when it is pointed at, touched or reached by keys.
function numberOf({ number, cells }) {
  const listed = cells.slice(0, 12).map(cellText).join(", ") + (cells.length > 12 ? ", …" : "");
  return h(
    "span",
    { class: "number", tabindex: "-1", title: t("number_from", { number, count: cells.length, cells: listed }) },
    number,
  );
}

const plain = (pieces) =>
  (pieces ?? []).map((piece) => (typeof piece === "string" ? piece.replace(/[`*]/g, "") : piece.number)).join("");

// A command of the report names the study as "."; here nobody is in its folder.
const commandText = (text, folder) => (text.startsWith("dreamproof ") ? text.replace(/(?<= )\.(?= |$)/, folder) : text);

// Arrow keys go from one number to the next.
function moveAmongNumbers(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches(".number")) return;
  const all = [...event.currentTarget.querySelectorAll(".number")],
    next = all[all.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// Texts keep `code` and **strong**; numbers show the cells behind them.
function spansOf(pieces, folder) {
  return pieces.map((piece) => {
    if (typeof piece !== "string") {
      return piece.cells.length ? numberOf(piece) : h("span", {}, piece.number);
    }
    return piece
      .split("`")
      .map((part, place) =>
        place % 2
          ? h("code", {}, commandText(part, folder))
          : part.split("**").map((text, n) => (n % 2 ? h("strong", {}, text) : text)),
      );
  });
}

function block(one, { study, version, folder }) {
  const spans = (pieces) => spansOf(pieces, folder);
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
        { class: one.header.length > 3 ? "folds" : null },
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
              row.map((text, n) =>
                h(
                  "td",
                  { class: one.left.includes(n) ? null : "right", "data-label": plain(one.header[n]) },
                  spans(text),
                ),
              ),
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
    node = h("article", { class: "report", onkeydown: moveAmongNumbers, onfocusin: sayCells }),
    source = h("p", { class: "source", role: "status", hidden: true }),
    update = refresher(node);
  function sayCells(event) {
    source.hidden = !event.target.matches(".number");
    source.textContent = event.target.title;
  }
  context.root.append(
    h(
      "div",
      { class: "head" },
      h("p", { class: "hint" }, t("decision_current")),
      downloads(`${study}-decision`, {
        csv: `/api/v1${studyPath(study, "/decision")}?format=csv`,
        png: () => reportPicture(node),
      }),
    ),
    node,
    source,
  );
  return {
    async refresh() {
      const data = await context.get(studyPath(study, `/decision?language=${language}`));
      const version = String(JSON.stringify(data).length);
      update(data, () => [
        h("h1", {}, data.title),
        data.blocks.map((one) => block(one, { study, version, folder: data.folder })),
      ]);
      const first = node.querySelector(".number");
      if (first && !node.querySelector(".number[tabindex='0']")) first.tabIndex = 0;
    },
  };
}
