// Attempts over time: one row per cell or pack, one bar per attempt, with a mark by how it ended.

import { cellPath, studyPath } from "../api.js";
import { h, isNarrow, refresher, s, table } from "../dom.js";
import { downloads } from "../download.js";
import { legendOf, svgPicture } from "../pictures.js";
import { causeLooks, causeMark, causeShape } from "../states.js";
import { bareMoment, causeText, clock, day, duration, moment, recorded, shortened, stateText, t } from "../text.js";

const TOP = 60,
  RIGHT = 24,
  MAX_ROWS = 300;
// On a phone a row's name stands above its bars, so that all of the time is seen.
const WIDE = { width: 1000, left: 190, row: 20, bar: 0, label: { x: 182, "text-anchor": "end" }, ticks: 8, name: 28 },
  NARROW = { width: 380, left: 4, row: 36, bar: 16, label: { x: 4 }, ticks: 3, name: 50 };
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

// Round times in UTC; a time carries its date where the date is new.
function ticks(first, last, most) {
  const step = STEPS.find((one) => (last - first) / one <= most) ?? 2592000,
    found = [];
  for (let at = Math.ceil(first / step) * step; at <= last; at += step) found.push(at);
  return found.map((at, n) => ({
    at,
    time: step < 86400 ? clock(at).slice(0, step < 60 ? 8 : 5) : "",
    date: !n || day(at) !== day(found[n - 1]) ? day(at) : "",
  }));
}

function rowOf(one) {
  const more = one.cells.length - 1;
  return more > 0 ? t("and_more", { cell: one.cells[0], count: more }) : (one.cells[0] ?? "–");
}

function supervisors(data, px, look) {
  return [
    look === WIDE && s("text", { ...look.label, y: 46, class: "tick" }, t("supervisor")),
    data.supervisors.map((one) => {
      const to = one.ended ?? (one.alive ? data.now : one.last_event),
        said = [
          `${moment(one.started)} – ${moment(to)}`,
          one.lost ? t("study_state.killed") : recorded(one.reason ?? ""),
        ];
      return [
        s(
          "rect",
          { x: px(one.started), y: 38, width: Math.max(2, px(to) - px(one.started)), height: 8, class: "supervisor" },
          s("title", {}, said.join(" ")),
        ),
        one.lost && s("path", { d: `M${px(to) - 1} 38l8 8m0-8l-8 8`, class: "end" }),
      ];
    }),
  ];
}

function bar(one, study, looks, px, y) {
  const thin = one.work !== "train",
    wide = Math.max(2, px(one.started + (one.wall_seconds ?? 0)) - px(one.started)),
    died = !one.open && one.cause !== "completed";
  const said = [
    one.attempt,
    t(`work.${one.work}`),
    one.cells.join(" "),
    one.open ? stateText(one.liveness ?? "running") : causeText(one.cause),
    duration(one.wall_seconds),
    one.evidence[0] && recorded(one.evidence[0]),
  ];
  return s(
    "a",
    { href: one.cells[0] ? cellPath(study, one.cells[0], `?attempt=${one.attempt}`) : null, tabindex: "-1" },
    s(
      "rect",
      {
        x: px(one.started),
        y: y + (thin ? 6 : 2),
        width: wide,
        height: thin ? 8 : 15,
        rx: 2,
        class: one.open ? "bar open" : died ? "bar died" : "bar",
        fill: one.colour,
      },
      s("title", {}, said.filter(Boolean).join(" · ")),
    ),
    died &&
      s(
        "g",
        { transform: `translate(${px(one.started) + wide + 2} ${y + 3}) scale(.8)` },
        s("circle", { cx: 8, cy: 8, r: 9.5, class: "paper" }),
        causeShape(looks.get(one.cause)),
      ),
  );
}

function drawing(data, study, looks) {
  const bars = data.attempts,
    names = [...new Set(bars.map(rowOf))].slice(-MAX_ROWS),
    look = isNarrow() ? NARROW : WIDE,
    { width, left } = look,
    rows = new Map(names.map((name, row) => [name, TOP + row * look.row]));
  const first = Math.min(...bars.map((one) => one.started)),
    ends = bars.map((one) => (one.open ? data.now : one.started + (one.wall_seconds ?? 0))),
    last = ends.reduce((a, b) => Math.max(a, b), first + 1);
  const px = (at) => left + ((Math.min(last, Math.max(first, at)) - first) / (last - first)) * (width - left - RIGHT),
    anchor = (x) => (x < 20 ? "start" : x > width - 30 ? "end" : "middle"),
    height = TOP + names.length * look.row + 16;
  return s(
    "svg",
    {
      class: "timeline-drawing",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": t("timeline.label", { count: bars.length }),
    },
    s(
      "text",
      { ...look.label, y: look === WIDE ? 28 : 14, class: "tick" },
      look === WIDE ? "UTC" : `${day(first)} UTC`,
    ),
    ticks(first, last, look.ticks).map(({ at, time, date }) => [
      s("line", { x1: px(at), x2: px(at), y1: TOP - 4, y2: height - 10, class: "grid" }),
      s(
        "text",
        { x: px(at), y: 14, "text-anchor": anchor(px(at)), class: "tick" },
        date !== day(first) || look === WIDE ? date : "",
      ),
      s("text", { x: px(at), y: 28, "text-anchor": anchor(px(at)), class: "tick" }, time),
    ]),
    supervisors(data, px, look),
    names.map((name) =>
      s(
        "text",
        { ...look.label, y: rows.get(name) + 13, class: "row" },
        shortened(name, look.name),
        s("title", {}, name),
      ),
    ),
    bars
      .filter((one) => rows.has(rowOf(one)))
      .map((one) => bar(one, study, looks, px, rows.get(rowOf(one)) + look.bar)),
  );
}

// Every cause with its mark, and what runs.
function legend(data, looks) {
  const counted = (found) => h("b", {}, found.length),
    open = data.attempts.filter((one) => one.open),
    swatch = (look) =>
      s("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, s("rect", look));
  const causes = [...new Set(data.attempts.map((one) => one.cause).filter(Boolean))].sort(),
    box = { x: 1, y: 3, width: 14, height: 10, rx: 2 };
  return h(
    "div",
    { class: "legend" },
    causes.map((cause) => {
      const found = data.attempts.filter((one) => one.cause === cause);
      const mark =
        cause === "completed" ? [swatch({ ...box, fill: found[0].colour }), causeText(cause)] : causeMark(cause, looks);
      return h("span", { class: "item" }, mark, counted(found));
    }),
    open.length
      ? h("span", { class: "item" }, swatch({ ...box, class: "bar open" }), t("still_running"), counted(open))
      : null,
  );
}

const isMoving = (data) => data.attempts.some((one) => one.open) || data.supervisors.some((one) => one.alive);

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
        png: () =>
          svgPicture(node.querySelectorAll("svg.timeline-drawing"), {
            title: `${study} · ${t("tab.timeline")}`,
            legend: legendOf(node),
          }),
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
      const died = data.attempts.filter((one) => one.cause && one.cause !== "completed"),
        looks = causeLooks(
          died.map((one) => one.cause),
          Object.fromEntries(died.map((one) => [one.cause, one.colour])),
        );
      update({ ...data, now: isMoving(data) ? data.now : 0, narrow: isNarrow() }, () =>
        !data.attempts.length
          ? h("p", {}, t("no_attempts"))
          : [
              legend(data, looks),
              h(
                "div",
                { class: "scroll", tabindex: "0", role: "region", "aria-label": t("tab.timeline") },
                drawing(data, study, looks),
              ),
              data.left_out ? h("p", { class: "hint" }, t("timeline.left_out", { count: data.left_out })) : null,
              h(
                "details",
                {},
                h("summary", {}, t("as_table")),
                table(
                  t("tab.timeline"),
                  [t("attempt"), t("column.work"), t("cells"), `${t("started")} (UTC)`, t("time"), t("cause_of_end")],
                  [...data.attempts]
                    .reverse()
                    .slice(0, 300)
                    .map((one) => [
                      one.attempt,
                      t(`work.${one.work}`),
                      h("a", { href: cellPath(study, one.cells[0]) }, one.cells.join(" ")),
                      bareMoment(one.started),
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
