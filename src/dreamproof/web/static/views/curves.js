// Learning curves: the mean of each arm with its interval, every seed as a thin line.

import { studyPath } from "../api.js";
import { armColour, chartHint, countForLog, makeChart } from "../chart.js";
import { h, refresher } from "../dom.js";
import { downloads } from "../download.js";
import { chartPicture } from "../pictures.js";
import { t } from "../text.js";

const WINDOWS = [1, 5, 10, 25, 50, 100];

// Thin seeds, and over them the mean of each arm.
function linesOf(data, query) {
  const seeds = query.get("seeds") === "0" ? [] : data.arms.flatMap((arm) => thinLines(arm));
  const means = data.arms
    .filter((arm) => arm.mean.some((one) => one !== null))
    .map((arm) => ({
      label: `${arm.name} (n=${Object.keys(arm.seeds).length})`,
      values: arm.mean,
      colour: armColour(arm),
      width: 2,
      dash: arm.dash.length ? arm.dash : undefined,
      band: arm.low.some((one) => one !== null) ? [arm.low, arm.high] : null,
    }));
  return [...seeds, ...means];
}

const thinLines = (arm) =>
  Object.values(arm.seeds).map((values) => ({ values, colour: armColour(arm), width: 0.8, alpha: "55" }));

// A logarithmic axis is refused where it could show nothing, and says what it leaves out.
function logAxes(data, query, lines) {
  const wanted = (name) => query.get(name) === "log",
    { hidden, shown } = countForLog(lines),
    early = data.agent_steps.filter((one) => !(one > 0)).length;
  const x = wanted("x") && early < data.agent_steps.length,
    y = wanted("y") && shown > 0;
  return {
    x,
    y,
    said: [
      wanted("x") && !x && t("log_no_steps"),
      x && early > 0 && t("log_steps_hidden", { count: early }),
      wanted("y") && !y && t("log_no_values"),
      y && hidden > 0 && t("log_values_hidden", { count: hidden, all: hidden + shown }),
    ].filter(Boolean),
  };
}

// Arms whose mean ends before the last value of a seed.
function endedMeans(data) {
  const last = (values) => values.findLastIndex((one) => one !== null);
  return data.arms
    .filter((arm) => Math.max(-1, ...Object.values(arm.seeds).map(last)) > last(arm.mean))
    .map((arm) => arm.name);
}

function chart(data, query, lines, log, onZoom) {
  const zoom = query.get("from") && query.get("to") ? [Number(query.get("from")), Number(query.get("to"))] : null;
  return makeChart({
    x: data.agent_steps,
    series: lines,
    height: Math.min(460, Math.max(280, innerHeight * 0.5)),
    xLabel: t("axis.agent_steps"),
    yLabel: data.metric,
    xLog: log.x,
    yLog: log.y,
    levels: data.limit === null ? [] : [{ value: data.limit, label: `${t("axis.limit")} ${data.limit}` }],
    label: t("curve.label", { metric: data.metric, what: data.arms.map((arm) => arm.name).join(", ") }),
    onZoom,
    zoom,
  });
}

// A chart of the same lines is not redrawn but given new data, so that zoom and focus stay.
const shape = (data, query, lines, log) =>
  JSON.stringify([
    data.metric,
    data.limit,
    lines.map((one) => [one.label, one.colour, Boolean(one.band)]),
    [log.x, log.y, query.get("seeds")],
  ]);

const fileName = (study, data) =>
  `${study}-${data.metric.replace(/[^\p{L}\p{N}.-]+/gu, "_")}${data.smoothed > 1 ? `-mean_of_last_${data.smoothed}` : ""}`;

export function open(context) {
  const { study } = context.place,
    controls = h("div", { class: "controls" }),
    node = h("div", {}),
    note = h("p", { class: "hint" });
  const updateControls = refresher(controls),
    updateNote = refresher(note);
  let made = null,
    shown = null,
    drawn = null,
    data = null;
  const address = () => {
    const query = context.query(),
      found = new URLSearchParams();
    for (const name of ["metric", "smooth", "arms"]) if (query.get(name)) found.set(name, query.get(name));
    return studyPath(study, `/curves?${found}`);
  };
  const toggle = (name, off, on, label) =>
    h(
      "label",
      {},
      h("input", {
        type: "checkbox",
        "data-key": name,
        checked: (context.query().get(name) ?? off) === on,
        onchange: (event) =>
          context.setQuery({ [name]: event.target.checked ? (on === off ? null : on) : on === off ? "0" : null }),
      }),
      " ",
      label,
    );
  const notes = () => [
    data.smoothed > 1 && t("smoothing_said", { count: data.smoothed }),
    ...logAxes(data, context.query(), linesOf(data, context.query())).said,
  ];
  const png = () =>
    made &&
    chartPicture(made.chart, {
      title: `${study} · ${data.metric}`,
      lines: data.arms.map((arm) => ({ text: arm.name, colour: armColour(arm), dash: arm.dash })),
      notes: notes().filter(Boolean),
    });
  const link = downloads(`${study}-curves`, { csv: "#", png }),
    hint = chartHint();
  context.root.append(h("div", { class: "head" }, h("h1", {}, t("tab.curves")), link), controls, node, note, hint);
  return {
    async refresh() {
      const names = (await context.get(studyPath(study, "/metrics"))).metrics;
      data = await context.get(address());
      const query = context.query(),
        smooth = Number(query.get("smooth") ?? 1);
      const lines = linesOf(data, query),
        log = logAxes(data, query, lines),
        empty = !data.agent_steps.length;
      link.name(fileName(study, data));
      link.querySelector("a").href = `/api/v1${address()}&format=csv`;
      for (const one of [link, note, hint]) one.hidden = empty;
      updateControls([empty, names, data.metric, smooth, query.get("x"), query.get("y"), query.get("seeds")], () => [
        h(
          "label",
          {},
          t("metric"),
          " ",
          h(
            "select",
            {
              "data-key": "metric",
              onchange: (event) => context.setQuery({ metric: event.target.value, from: null, to: null }),
            },
            names.map((name) => h("option", { value: name, selected: name === data.metric }, name)),
          ),
        ),
        ...(empty
          ? []
          : [
              h(
                "label",
                {},
                t("smoothing"),
                " ",
                h(
                  "select",
                  {
                    "data-key": "smooth",
                    onchange: (event) =>
                      context.setQuery({ smooth: event.target.value === "1" ? null : event.target.value }),
                  },
                  WINDOWS.map((one) =>
                    h(
                      "option",
                      { value: one, selected: one === smooth },
                      one === 1 ? t("smoothing_none") : t("smoothing_window", { count: one }),
                    ),
                  ),
                ),
              ),
              toggle("seeds", "1", "1", t("show_seeds")),
              toggle("x", "lin", "log", t("log_x")),
              toggle("y", "lin", "log", t("log_y")),
            ]),
      ]);
      const ended = endedMeans(data);
      updateNote([notes(), ended, data.resampled, data.left_out, data.not_finite, data.agent_steps.length], () =>
        [
          t("figure_curves"),
          ended.length > 0 && t("means_ended", { arms: ended.join(", ") }),
          ...notes(),
          data.resampled && t("resampled", { count: data.agent_steps.length }),
          data.left_out > 0 && t("curves_left_out", { count: data.left_out }),
          data.not_finite > 0 && t("not_finite", { count: data.not_finite }),
        ]
          .filter(Boolean)
          .join(" "),
      );
      const now = shape(data, query, lines, log),
        content = JSON.stringify(data);
      if (empty) {
        node.replaceChildren(
          h("p", {}, data.not_finite ? t("not_finite", { count: data.not_finite }) : t("no_values")),
        );
        shown = null;
      } else if (now !== shown) {
        made = chart(data, query, lines, log, (range) =>
          context.setQuery({ from: range && range[0].toPrecision(8), to: range && range[1].toPrecision(8) }),
        );
        node.replaceChildren(made.box);
        shown = now;
      } else if (content !== drawn) made.update(data.agent_steps, lines, !query.get("from"));
      drawn = content;
    },
    changed() {
      shown = null;
    },
  };
}
