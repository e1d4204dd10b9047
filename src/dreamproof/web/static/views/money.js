// Money: useful, wasted by cause, idle; what it bought, what is left to pay, and the budget.

import { cellPath, studyPath } from "../api.js";
import { h, isNarrow, refresher, s, table } from "../dom.js";
import { downloads } from "../download.js";
import { svgPicture } from "../pictures.js";
import { causeText, duration, money, t } from "../text.js";

const BAR = 26;
const WIDE = { width: 760, left: 210, row: BAR + 8, label: { x: 200, y: 17, "text-anchor": "end" }, bar: 0, most: 380 },
  NARROW = { width: 360, left: 2, row: BAR + 26, label: { x: 2, y: 12 }, bar: 18, most: 356 };

function bars(data) {
  const found = [
    [t("use.useful"), data.useful_ms - data.running_ms, "useful"],
    [t("still_running"), data.running_ms, "open"],
    ...Object.entries(data.wasted_by_cause)
      .sort((a, b) => b[1] - a[1])
      .map(([cause, ms]) => [`${t("use.wasted")}: ${causeText(cause)}`, ms, "wasted"]),
    [t("use.idle"), data.idle_ms, "idle"],
  ].filter(([, ms]) => ms > 0);
  return found;
}

// On a phone a bar stands below its name and value.
function drawing(data, price) {
  const parts = bars(data),
    look = isNarrow() ? NARROW : WIDE,
    most = Math.max(1, ...parts.map(([, ms]) => ms)),
    height = parts.length * look.row + 10,
    width = (ms) => Math.max(2, (ms / most) * look.most);
  return s(
    "svg",
    {
      class: "money-drawing",
      viewBox: `0 0 ${look.width} ${height}`,
      role: "img",
      "aria-label": parts.map(([name, ms]) => `${name}: ${duration(ms / 1000)}, ${price(ms)}`).join("; "),
    },
    parts.map(([name, ms, kind], n) => {
      const y = 5 + n * look.row,
        value = `${duration(ms / 1000)} · ${price(ms)}`,
        below = look === NARROW;
      return [
        s("text", { ...look.label, y: y + look.label.y, class: "row" }, below ? `${name}: ${value}` : name),
        s("rect", { x: look.left, y: y + look.bar, width: width(ms), height: BAR, rx: 2, class: `money-${kind}` }),
        !below && s("text", { x: look.left + width(ms) + 8, y: y + 17, class: "row" }, value),
      ];
    }),
  );
}

function forecastText(forecast, currency) {
  if (!forecast.cells && !forecast.eval_cells) return t("nothing_left");
  const left = { cells: forecast.cells, evals: forecast.eval_cells };
  if (forecast.wall_seconds === null) return t("forecast_unknown", left);
  return t("forecast_text", {
    ...left,
    time: duration(forecast.wall_seconds),
    money: money(forecast.money, currency),
  });
}

export function open(context) {
  const { study } = context.place,
    node = h("div", {}),
    update = refresher(node);
  context.root.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, t("tab.money")),
      downloads(`${study}-money`, {
        csv: `/api/v1${studyPath(study, "/money")}?format=csv`,
        png: () => svgPicture(node.querySelectorAll("svg"), { title: `${study} · ${t("tab.money")}` }),
      }),
    ),
    node,
  );
  return {
    async refresh() {
      const data = await context.get(studyPath(study, "/money")),
        unit = data.total_ms ? data.total_money / data.total_ms : 0,
        price = (ms) => money(ms * unit, data.currency);
      const { forecast } = data,
        share = data.budget ? Math.min(1, data.total_money / data.budget) : null;
      const coming =
        data.budget && forecast.money !== null ? Math.min(1, (data.total_money + forecast.money) / data.budget) : null;
      update({ ...data, cells: Math.round(data.total_ms / 5000), narrow: isNarrow() }, () => [
        h(
          "dl",
          { class: "facts wide" },
          h("dt", {}, t("spent")),
          h("dd", {}, money(data.total_money, data.currency), ` · ${duration(data.total_ms / 1000)}`),
          h("dt", {}, t("bought")),
          h("dd", {}, t("bought_text", { cells: data.proven_cells, evals: data.proven_eval_cells })),
          data.proven_cells && data.total_money
            ? [h("dt", {}, t("per_cell")), h("dd", {}, money(data.total_money / data.proven_cells, data.currency))]
            : null,
          h("dt", {}, t("forecast")),
          h("dd", {}, forecastText(forecast, data.currency)),
          data.imported_seconds ? [h("dt", {}, t("outside")), h("dd", {}, duration(data.imported_seconds))] : null,
          data.budget
            ? [
                h("dt", {}, t("use.budget")),
                h(
                  "dd",
                  {},
                  `${money(data.budget, data.currency)}, ${t("budget_left", { money: money(data.budget - data.total_money, data.currency) })}`,
                  h(
                    "div",
                    { class: "progress budget", role: "img", "aria-label": `${Math.round(100 * share)} %` },
                    h("span", {
                      class: `fill ${share > 0.8 ? "over" : "under"}`,
                      vars: { "--share": `${100 * share}%` },
                    }),
                    coming !== null && coming > share
                      ? h("span", { class: "fill coming", vars: { "--share": `${100 * (coming - share)}%` } })
                      : null,
                  ),
                ),
              ]
            : null,
        ),
        data.total_ms
          ? h(
              "div",
              { class: "scroll", tabindex: "0", role: "region", "aria-label": t("tab.money") },
              drawing(data, price),
            )
          : h("p", {}, t("nothing_spent")),
        data.clock_jumps.length ? h("p", { class: "hint" }, t("jumps", { count: data.clock_jumps.length })) : null,
        h("h2", {}, t("cells")),
        table(
          t("cells"),
          [t("column.cell"), t("use.useful"), t("use.wasted"), t("column.money")],
          Object.entries(data.cells)
            .slice(0, 500)
            .map(([cell, part]) => [
              h("a", { href: cellPath(study, cell) }, cell),
              duration(part.useful_ms / 1000),
              duration(part.wasted_ms / 1000),
              price(part.useful_ms + part.wasted_ms),
            ]),
          { right: [1, 2, 3] },
        ),
      ]);
    },
  };
}
