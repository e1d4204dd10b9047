// Score against cost under each condition, with the limit; scores alone where nothing is limited.

import { studyPath } from "../api.js";
import { armColour } from "../chart.js";
import { h, refresher, s, table } from "../dom.js";
import { downloads } from "../download.js";
import { svgPicture } from "../pictures.js";
import { linear as ticks } from "../ticks.js";
import { language, number, orItself, t } from "../text.js";

const MARKERS = [
  "M0-5a5 5 0 1 0 .01 0z",
  "M-4.5-4.5h9v9h-9z",
  "M0-5.5l5.5 10h-11z",
  "M0-6l6 6-6 6-6-6z",
  "M0 5.5l5.5-10h-11z",
  "M-2-5.5h4v3.5h3.5v4H2v3.5h-4V2h-3.5v-4H-2z",
  "M-4-5.5l4 3 4-3 1.5 1.5-3 4 3 4-1.5 1.5-4-3-4 3-1.5-1.5 3-4-3-4z",
  "M0-6l1.6 4.2 4.4.2-3.5 2.8 1.2 4.3L0 3l-3.7 2.5 1.2-4.3L-6-1.6l4.4-.2z",
];
const WIDTH = 420,
  HEIGHT = 310,
  LEFT = 56,
  BOTTOM = 42,
  TOP = 42,
  RIGHT = 14;

function extent(values, more = []) {
  const all = [...values, ...more].filter((one) => one !== null && Number.isFinite(one));
  if (!all.length) return [0, 1];
  const low = Math.min(...all),
    high = Math.max(...all),
    room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - room, high + room];
}

export function marker(arm, size = 1) {
  return s(
    "svg",
    { viewBox: "-8 -8 16 16", width: 14 * size, height: 14 * size, "aria-hidden": "true" },
    s("path", { d: MARKERS[arm.marker], fill: armColour(arm) }),
  );
}

// The score axis shows every seed; an interval of few seeds would flatten them, so it may continue beyond it.
const scoresOf = (one) => Object.values(one.arms).flatMap((at) => (at.score ? Object.values(at.score.seeds) : []));

const isCut = (conditions) =>
  conditions.some((one) => {
    const [low, high] = extent(scoresOf(one)),
      found = Object.values(one.arms).filter((at) => at.score && at.score.low !== null);
    return found.some((at) => at.score.low < low || at.score.high > high);
  });

// One condition and one limit, or no limit at all.
function panel(one, data, limit) {
  const limited = limit !== null,
    found = data.arms
      .map((arm) => [
        arm,
        { score: one.arms[arm.name].score, cost: limited ? one.arms[arm.name].costs[limit.name] : null },
      ])
      .filter(([, at]) => at.score);
  const costs = found.flatMap(([, at]) => (at.cost ? Object.values(at.cost.seeds) : []));
  const [y0, y1] = extent(scoresOf(one)),
    [x0, x1] = limited ? extent([0, ...costs], [limit.at_most]) : [-0.5, data.arms.length - 0.5];
  const px = (x) => LEFT + ((x - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT),
    py = (y) => HEIGHT - BOTTOM - ((y - y0) / (y1 - y0)) * (HEIGHT - BOTTOM - TOP);
  const place = (arm, at, seed) => (limited ? at.cost?.seeds[seed] : data.arms.indexOf(arm));
  const middle = (arm, at) => (limited ? at.cost?.mean : data.arms.indexOf(arm));
  const point = (arm, x, y, big, text) =>
    x === null || x === undefined || y === null
      ? null
      : s(
          "path",
          {
            d: MARKERS[arm.marker],
            transform: `translate(${px(x)} ${py(y)}) scale(${big ? 1.5 : 0.8})`,
            fill: armColour(arm),
            class: big ? "mean" : "seed",
          },
          s("title", {}, text),
        );
  return s(
    "svg",
    {
      class: "panel",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": `${one.label}: ${found.map(([arm, at]) => `${arm.name} ${data.metric} ${number(at.score.mean)}${at.cost ? `, ${limit.name} ${number(at.cost.mean)}` : ""}`).join("; ")}`,
    },
    s(
      "text",
      { x: LEFT, y: 16, class: "title" },
      `${one.label}${one.kind === "proxy" ? t("mark.proxy") : ""}${one.decides ? ` · ${t("decides")}` : ""}`,
    ),
    ticks(y0, y1).map((at) => [
      s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: py(at), y2: py(at), class: "grid" }),
      s("text", { x: LEFT - 6, y: py(at) + 4, "text-anchor": "end", class: "tick" }, number(at)),
    ]),
    limited
      ? ticks(x0, x1).map((at) => [
          s("line", { x1: px(at), x2: px(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "grid" }),
          s("text", { x: px(at), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle", class: "tick" }, number(at)),
        ])
      : data.arms.map((arm, n) =>
          s("text", { x: px(n), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle", class: "tick" }, arm.name),
        ),
    limited &&
      s("line", {
        x1: px(limit.at_most),
        x2: px(limit.at_most),
        y1: TOP,
        y2: HEIGHT - BOTTOM,
        class: "limit",
      }),
    found.map(([arm, at]) => {
      const x = middle(arm, at);
      if (at.score.low === null || x === undefined || x === null) return null;
      const foot = py(Math.max(y0, at.score.low)),
        top = py(Math.min(y1, at.score.high)),
        look = { stroke: armColour(arm), fill: armColour(arm), class: "interval" };
      return [
        s("line", { x1: px(x), x2: px(x), y1: foot, y2: top, ...look }),
        at.score.low < y0 && s("path", { d: `M${px(x) - 4} ${foot - 6}h8l-4 6z`, ...look }),
        at.score.high > y1 && s("path", { d: `M${px(x) - 4} ${top + 6}h8l-4-6z`, ...look }),
      ];
    }),
    found.map(([arm, at]) =>
      Object.entries(at.score.seeds).map(([seed, value]) =>
        point(
          arm,
          place(arm, at, seed),
          value,
          false,
          `${arm.name}/${seed}: ${data.metric} ${number(value)}${limited ? `, ${limit.name} ${number(place(arm, at, seed))}` : ""}`,
        ),
      ),
    ),
    found.map(([arm, at]) => point(arm, middle(arm, at), at.score.mean, true, `${arm.name}: ${number(at.score.mean)}`)),
    limited &&
      s(
        "text",
        { x: px(limit.at_most), y: TOP - 6, "text-anchor": "middle", class: "tick" },
        `${t("axis.limit")} ${limit.at_most}`,
      ),
    s(
      "text",
      { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "axis" },
      limited ? limit.name : "",
    ),
    s(
      "text",
      { transform: `translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle", class: "axis" },
      data.metric,
    ),
  );
}

function values(data) {
  const header = [
    t("column.condition"),
    t("arm"),
    data.metric,
    ...data.constraints.flatMap((limit) => [limit.name, `${t("axis.limit")} ${limit.at_most}`]),
    t("seeds"),
  ];
  const mean = (group) =>
    group ? `${number(group.mean)}${group.low === null ? "" : ` [${number(group.low)}, ${number(group.high)}]`}` : "–";
  const rows = data.conditions.flatMap((one) =>
    data.arms
      .filter((arm) => one.arms[arm.name].score)
      .map((arm) => {
        const at = one.arms[arm.name];
        return [
          one.label,
          arm.name,
          mean(at.score),
          ...data.constraints.flatMap(({ name }) => [
            mean(at.costs[name]),
            name in at.limits ? orItself("limit_verdict", at.limits[name]) : "–",
          ]),
          String(Object.keys(at.score.seeds).length),
        ];
      }),
  );
  const right = [2, ...data.constraints.map((_, place) => 3 + 2 * place), header.length - 1];
  return table(t("tab.conditions"), header, rows, { right });
}

export function open(context) {
  const { study } = context.place,
    node = h("div", {}),
    update = refresher(node);
  let legend = [];
  const csv = `/api/v1${studyPath(study, "/conditions")}?format=csv`;
  context.root.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, t("tab.conditions")),
      downloads(`${study}-conditions`, {
        csv,
        png: () =>
          svgPicture(node.querySelectorAll("svg.panel"), {
            title: `${study} · ${t("tab.conditions")}`,
            legend,
            across: 2,
          }),
      }),
    ),
    node,
  );
  return {
    async refresh() {
      const data = await context.get(studyPath(study, `/conditions?language=${language}`));
      const shown = data.conditions.filter((one) => Object.values(one.arms).some((at) => at.score));
      legend = data.arms.map((arm) => ({
        text: arm.name,
        path: MARKERS[arm.marker],
        colour: armColour(arm),
        centred: true,
      }));
      update(data, () =>
        shown.length
          ? [
              h(
                "div",
                { class: "legend" },
                data.arms.map((arm) => h("span", { class: "item" }, marker(arm), arm.name)),
              ),
              h(
                "div",
                { class: "panels" },
                (data.constraints.length ? data.constraints : [null]).map((limit) =>
                  shown.map((one) => panel(one, data, limit)),
                ),
              ),
              h("p", { class: "hint" }, t("figure_conditions"), isCut(shown) && ` ${t("intervals_cut")}`),
              values(data),
            ]
          : h("p", {}, t("no_results")),
      );
    },
  };
}
