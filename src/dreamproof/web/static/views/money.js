// Money: useful, wasted by cause, idle; what it bought, what is left to pay, and the budget.

import { cellPath, studyPath } from "../api.js";
import { h, refresher, s, table } from "../dom.js";
import { downloads, svgPicture } from "../download.js";
import { causeText, duration, money, t } from "../text.js";

const WIDTH = 760,
  BAR = 26,
  LEFT = 210;

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

function drawing(data, price) {
  const parts = bars(data),
    most = Math.max(1, ...parts.map(([, ms]) => ms)),
    height = parts.length * (BAR + 8) + 10,
    width = (ms) => Math.max(2, (ms / most) * (WIDTH - LEFT - 170));
  return s(
    "svg",
    {
      class: "money-drawing",
      viewBox: `0 0 ${WIDTH} ${height}`,
      role: "img",
      "aria-label": parts.map(([name, ms]) => `${name}: ${duration(ms / 1000)}, ${price(ms)}`).join("; "),
    },
    parts.map(([name, ms, kind], n) => {
      const y = 5 + n * (BAR + 8);
      return [
        s("text", { x: LEFT - 10, y: y + 17, "text-anchor": "end", class: "row" }, name),
        s("rect", { x: LEFT, y, width: width(ms), height: BAR, rx: 2, class: `money-${kind}` }),
        s("text", { x: LEFT + width(ms) + 8, y: y + 17, class: "row" }, `${duration(ms / 1000)} · ${price(ms)}`),
      ];
    }),
  );
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
        png: () => {
          const one = node.querySelector("svg");
          return one && svgPicture(one);
        },
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
      update({ ...data, cells: Math.round(data.total_ms / 5000) }, () => [
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
          h(
            "dd",
            {},
            forecast.cells || forecast.eval_cells
              ? t("forecast_text", {
                  cells: forecast.cells,
                  evals: forecast.eval_cells,
                  time: duration(forecast.wall_seconds),
                  money: money(forecast.money, data.currency),
                })
              : t("nothing_left"),
          ),
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
          [t("column.cell"), t("use.useful"), t("use.wasted"), t("tab.money")],
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
