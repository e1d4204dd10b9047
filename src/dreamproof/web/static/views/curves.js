// Learning curves: the mean of each arm with its interval, every seed as a thin line.

import { studyPath } from "../api.js";
import { armColour, chartHint, makeChart } from "../chart.js";
import { h, refresher } from "../dom.js";
import { chartPicture, downloads } from "../download.js";
import { t } from "../text.js";

const WINDOWS = [1, 5, 10, 25, 50, 100];

function chart(data, query, onZoom) {
  const seeds = query.get("seeds") !== "0",
    series = [],
    x = data.agent_steps;
  for (const arm of data.arms) {
    const colour = armColour(arm);
    if (seeds) for (const values of Object.values(arm.seeds)) series.push({ values, colour, width: 0.8, alpha: "55" });
  }
  for (const arm of data.arms) {
    if (!arm.mean.length) continue;
    const wide = arm.low.some((one) => one !== null);
    series.push({
      label: `${arm.name} (n=${Object.keys(arm.seeds).length})`,
      values: arm.mean,
      colour: armColour(arm),
      width: 2,
      dash: arm.dash.length ? arm.dash : undefined,
      band: wide ? [arm.low, arm.high] : null,
    });
  }
  const zoom = query.get("from") && query.get("to") ? [Number(query.get("from")), Number(query.get("to"))] : null;
  return makeChart({
    x,
    series,
    height: Math.min(460, Math.max(280, innerHeight * 0.5)),
    xLabel: t("axis.agent_steps"),
    yLabel: data.metric,
    xLog: query.get("x") === "log",
    yLog: query.get("y") === "log",
    levels: data.limit === null ? [] : [{ value: data.limit, label: `${t("axis.limit")} ${data.limit}` }],
    label: t("curve.label", { metric: data.metric, what: data.arms.map((arm) => arm.name).join(", ") }),
    onZoom,
    zoom,
  });
}

// One series a chart is not redrawn but given new data, so that zoom and focus stay.
const shape = (data, query) =>
  JSON.stringify([
    data.metric,
    data.limit,
    data.arms.map((arm) => [arm.name, Object.keys(arm.seeds), arm.low.some((one) => one !== null)]),
    ["seeds", "x", "y"].map((name) => query.get(name)),
  ]);

function flat(data, query) {
  const found = [data.agent_steps];
  if (query.get("seeds") !== "0") for (const arm of data.arms) found.push(...Object.values(arm.seeds));
  for (const arm of data.arms)
    if (arm.mean.length) {
      if (arm.low.some((one) => one !== null)) found.push(arm.high, arm.low);
      found.push(arm.mean);
    }
  return found;
}

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
  const png = () =>
    made &&
    chartPicture(
      made.chart,
      data.arms.map((arm) => ({ text: arm.name, colour: armColour(arm) })),
    );
  const link = downloads(`${study}-curves`, { csv: "#", png });
  context.root.append(
    h("div", { class: "head" }, h("h1", {}, t("tab.curves")), link),
    controls,
    node,
    note,
    chartHint(),
  );
  return {
    async refresh() {
      const names = (await context.get(studyPath(study, "/metrics"))).metrics;
      data = await context.get(address());
      const query = context.query(),
        smooth = Number(query.get("smooth") ?? 1);
      link.querySelector("a").href = `/api/v1${address()}&format=csv`;
      updateControls([names, data.metric, smooth, query.get("x"), query.get("y"), query.get("seeds")], () => [
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
        h(
          "label",
          {},
          t("smoothing"),
          " ",
          h(
            "select",
            {
              "data-key": "smooth",
              onchange: (event) => context.setQuery({ smooth: event.target.value === "1" ? null : event.target.value }),
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
      ]);
      updateNote([data.smoothed, data.resampled, data.left_out, data.agent_steps.length], () => [
        t("figure_curves"),
        data.smoothed > 1 ? ` ${t("smoothing_said", { count: data.smoothed })}` : "",
        data.resampled ? ` ${t("resampled", { count: data.agent_steps.length })}` : "",
        data.left_out ? ` ${t("curves_left_out", { count: data.left_out })}` : "",
      ]);
      const now = shape(data, query),
        content = JSON.stringify(data);
      if (!data.agent_steps.length) {
        node.replaceChildren(h("p", {}, t("no_values")));
        shown = null;
      } else if (now !== shown) {
        made = chart(data, query, (range) =>
          context.setQuery({ from: range && range[0].toPrecision(8), to: range && range[1].toPrecision(8) }),
        );
        node.replaceChildren(made.box);
        shown = now;
      } else if (content !== drawn) made.chart.setData(flat(data, query), !query.get("from"));
      drawn = content;
    },
    changed() {
      shown = null;
    },
  };
}
