// Attempts over time: one row per cell or pack, one bar per attempt, coloured by how it ended.

import { cellPath, studyPath } from "../api.js";
import { h, refresher, s, table } from "../dom.js";
import { downloads, svgPicture } from "../download.js";
import { causeText, duration, moment, stateText, t } from "../text.js";

const ROW = 20,
  LEFT = 150,
  TOP = 46,
  WIDTH = 960,
  RIGHT = 20,
  MAX_ROWS = 300;

function clock(seconds, span) {
  const d = new Date(seconds * 1000),
    two = (n) => String(n).padStart(2, "0");
  return span > 2 * 86400
    ? `${d.getMonth() + 1}-${two(d.getDate())}`
    : span > 7200
      ? `${two(d.getHours())}:${two(d.getMinutes())}`
      : `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

function ticks(first, last) {
  const step = STEPS.find((one) => (last - first) / one <= 9) ?? 2592000,
    zone = new Date(first * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((first - zone) / step) * step + zone; at <= last; at += step) found.push(at);
  return found;
}

const rowOf = (one) => `${one.cells[0] ?? "–"}${one.cells.length > 1 ? ` +${one.cells.length - 1}` : ""}`;

function drawing(data, study) {
  const bars = data.attempts,
    names = [...new Set(bars.map(rowOf))].slice(-MAX_ROWS);
  const end = (one) => one.started + (one.wall_seconds ?? 0);
  const spans = data.supervisors.map((one) => [one.started, one.ended ?? one.last_event]);
  const first = Math.min(...bars.map((one) => one.started)),
    last = Math.max(first + 1, ...bars.map(end), ...bars.filter((one) => one.open).map(() => data.now));
  const px = (at) => LEFT + ((Math.min(last, Math.max(first, at)) - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
  const height = TOP + names.length * ROW + 16,
    marks = ticks(first, last);
  return s(
    "svg",
    {
      class: "timeline-drawing",
      viewBox: `0 0 ${WIDTH} ${height}`,
      role: "img",
      "aria-label": t("timeline.label", { count: bars.length }),
    },
    marks.map((at) => [
      s("line", { x1: px(at), x2: px(at), y1: TOP - 4, y2: height - 10, class: "grid" }),
      s("text", { x: px(at), y: 14, "text-anchor": "middle", class: "tick" }, clock(at, last - first)),
    ]),
    s("text", { x: LEFT - 8, y: 33, "text-anchor": "end", class: "tick" }, t("supervisor")),
    spans.map(([from, to], n) =>
      s(
        "rect",
        { x: px(from), y: 25, width: Math.max(2, px(to) - px(from)), height: 8, class: "supervisor" },
        s("title", {}, `${moment(from)} – ${moment(to)} ${data.supervisors[n].reason ?? ""}`),
      ),
    ),
    names.map((name, row) =>
      s("text", { x: LEFT - 8, y: TOP + row * ROW + 13, "text-anchor": "end", class: "row" }, name),
    ),
    bars
      .filter((one) => names.includes(rowOf(one)))
      .map((one) => {
        const thin = one.work !== "train",
          y = TOP + names.indexOf(rowOf(one)) * ROW + (thin ? 6 : 2),
          wide = Math.max(2, px(end(one)) - px(one.started));
        const said = [
          one.attempt,
          t(`work.${one.work}`),
          one.cells.join(" "),
          one.open ? stateText(one.liveness ?? "running") : causeText(one.cause),
          duration(one.wall_seconds),
          one.evidence[0],
        ]
          .filter(Boolean)
          .join(" · ");
        return s(
          "a",
          { href: one.cells[0] ? cellPath(study, one.cells[0], `?attempt=${one.attempt}`) : null, tabindex: "-1" },
          s(
            "rect",
            {
              x: px(one.started),
              y,
              width: wide,
              height: thin ? 8 : 15,
              rx: 2,
              class: one.open ? "bar open" : one.cause === "completed" ? "bar" : "bar died",
              fill: one.colour,
            },
            s("title", {}, said),
          ),
          !one.open &&
            one.cause !== "completed" &&
            s("path", { d: `M${px(one.started) + wide + 2} ${y + (thin ? 1 : 4.5)}l6 6m0-6l-6 6`, class: "end" }),
        );
      }),
  );
}

export function open(context) {
  const { study } = context.place,
    node = h("div", {}),
    update = refresher(node),
    arm = () => context.query().get("arm") ?? "";
  const controls = h("div", { class: "controls" }),
    updateControls = refresher(controls);
  context.root.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, t("tab.timeline")),
      downloads(`${study}-attempts`, {
        csv: `/api/v1${studyPath(study, "/timeline")}?format=csv`,
        png: () => {
          const one = node.querySelector("svg");
          return one && svgPicture(one);
        },
      }),
    ),
    controls,
    node,
  );
  return {
    async refresh() {
      const data = await context.get(studyPath(study, `/timeline${arm() ? `?arm=${encodeURIComponent(arm())}` : ""}`));
      updateControls([data.arms, arm()], () =>
        h(
          "label",
          {},
          t("arm"),
          " ",
          h(
            "select",
            { "data-key": "arm", onchange: (event) => context.setQuery({ arm: event.target.value }) },
            ["", ...data.arms].map((name) => h("option", { value: name, selected: name === arm() }, name || t("all"))),
          ),
        ),
      );
      const causes = [...new Set(data.attempts.map((one) => one.cause).filter(Boolean))].sort();
      const colour = (cause) => data.attempts.find((one) => one.cause === cause).colour;
      update(data.attempts.some((one) => one.open) ? data : { ...data, now: 0 }, () =>
        !data.attempts.length
          ? h("p", {}, t("no_attempts"))
          : [
              h(
                "div",
                { class: "legend" },
                causes.map((cause) =>
                  h(
                    "span",
                    { class: "item" },
                    h("span", { class: "swatch", vars: { "--swatch": colour(cause) } }),
                    causeText(cause),
                    h("b", {}, data.attempts.filter((one) => one.cause === cause).length),
                  ),
                ),
              ),
              h(
                "div",
                { class: "scroll", tabindex: "0", role: "region", "aria-label": t("tab.timeline") },
                drawing(data, study),
              ),
              data.left_out ? h("p", { class: "hint" }, t("timeline.left_out", { count: data.left_out })) : null,
              h(
                "details",
                {},
                h("summary", {}, t("as_table")),
                table(
                  t("tab.timeline"),
                  [t("attempt"), t("column.work"), t("cells"), t("started"), t("time"), t("cause_of_end")],
                  [...data.attempts]
                    .reverse()
                    .slice(0, 300)
                    .map((one) => [
                      one.attempt,
                      t(`work.${one.work}`),
                      h("a", { href: cellPath(study, one.cells[0]) }, one.cells.join(" ")),
                      moment(one.started),
                      duration(one.wall_seconds),
                      one.open ? stateText(one.liveness ?? "running") : causeText(one.cause),
                    ]),
                  { right: [4] },
                ),
              ),
            ],
      );
    },
  };
}
