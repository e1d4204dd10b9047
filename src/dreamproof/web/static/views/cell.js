// One cell: its attempts with causes and quoted lines, its log, memory and GPU, curves and evaluations.

import { cellPath, studyPath } from "../api.js";
import { armColour, chartHint, makeChart } from "../chart.js";
import { h, refresher, replace, table } from "../dom.js";
import { downloads } from "../download.js";
import { chartPicture } from "../pictures.js";
import { stateMark } from "../states.js";
import {
  bytes,
  causeText,
  count,
  duration,
  money,
  moment,
  number,
  orItself,
  said,
  stateText,
  t,
  withSpread,
} from "../text.js";

// A cell that runs and makes no progress is not merely running.
const stateOf = (data) => (data.running?.liveness === "stalled" && data.status === "running" ? "stalled" : data.status);

function facts(data) {
  const notes = ["not_ours", "quarantined", "unreadable", "stopped", "unproven", "frozen"].filter((key) => data[key]);
  const run = data.running;
  return [
    h(
      "dl",
      { class: "facts wide" },
      h("dt", {}, t("column.agent_steps")),
      h("dd", {}, `${count(run ? run.agent_steps : data.agent_steps)} / ${count(data.declared_agent_steps)}`),
      h("dt", {}, t("time")),
      h("dd", {}, duration(run ? run.wall_seconds : data.wall_seconds)),
      data.money ? [h("dt", {}, t("tab.money")), h("dd", {}, money(data.money, data.currency))] : null,
      run && [
        h("dt", {}, t("column.rate")),
        h("dd", {}, run.agent_steps_per_second ? `${number(run.agent_steps_per_second)}/s` : "–"),
        h("dt", {}, t("left")),
        h("dd", {}, duration(run.seconds_left)),
        h("dt", {}, t("column.state")),
        h(
          "dd",
          {},
          h("span", { class: `live ${run.liveness}` }, stateText(run.liveness)),
          run.reason && [" ", said(run.reason)],
        ),
      ],
      data.proof && [
        h("dt", {}, t("proof")),
        h(
          "dd",
          {},
          h("code", {}, data.proof.checkpoint),
          ` ${count(data.proof.gradient_steps)} ${t("updates")}, ${data.proof.parameter_hash.slice(0, 12)}`,
        ),
      ],
      h("dt", {}, t("folder")),
      h("dd", {}, h("code", {}, data.run_folder)),
    ),
    notes.map((key) => h("div", { class: "stamp warn" }, h("b", {}, stateText(key)), said(String(data[key])))),
    data.remedies.length
      ? h(
          "ul",
          { class: "notices" },
          data.remedies.map((one) =>
            h("li", {}, `${moment(one.t)} ${orItself("remedy", one.action)}: `, said(one.reason)),
          ),
        )
      : null,
  ];
}

const secondsSince = (moment) => Math.max(0, Date.now() / 1000 - moment);

function stepsText({ first, last, kept, not_continued_by: other }) {
  const from = count(first);
  if (other === null) return t("kept", { from, to: count(last) });
  if (kept <= first) return t("not_kept", { from, to: count(last), other, began: count(kept) });
  return t("kept_in_part", { from, to: count(kept), other, last: count(last) });
}

function attempts(data, cell, chosen, choose) {
  if (!data.attempts.length) return h("p", {}, t("no_attempts"));
  return h(
    "ol",
    { class: "attempts" },
    [...data.attempts].reverse().map((one) => {
      const cause = one.cell_causes[cell] ?? one.cause;
      const tone = cause === null ? "open" : cause === "completed" ? "good" : "bad";
      return h(
        "li",
        { class: `attempt ${tone}` },
        h(
          "div",
          { class: "title" },
          h("b", {}, one.attempt),
          h("span", {}, t(`work.${one.work}`)),
          h("span", { class: "cause" }, cause === null ? stateText(one.liveness ?? "running") : causeText(cause)),
          h(
            "button",
            {
              type: "button",
              "aria-pressed": String(one.attempt === chosen),
              "data-key": `a-${one.attempt}`,
              onclick: () => choose(one.attempt),
            },
            t("log"),
          ),
        ),
        h(
          "p",
          { class: "hint" },
          `${moment(one.started)} · ${duration(cause === null ? secondsSince(one.started) : one.wall_seconds)}`,
          one.steps ? ` · ${stepsText(one.steps)}` : "",
          one.job ? ` · ${t("job", { job: one.job })}` : "",
          one.memory_trend ? ` · ${one.memory_trend}` : "",
        ),
        cause === null && one.liveness_reason && h("p", {}, `${stateText(one.liveness)}: `, said(one.liveness_reason)),
        one.evidence.length
          ? h(
              "blockquote",
              {},
              one.evidence.map((line) => h("p", {}, said(line))),
            )
          : null,
      );
    }),
  );
}

function evaluations(found, metric) {
  const all = found.flatMap((one) => Object.values(one.checkpoints).flatMap((made) => Object.keys(made)));
  const metrics = [...new Set([metric, ...all])].filter((name) => all.includes(name)).slice(0, 6);
  const rows = found.flatMap((one) => {
    const made = Object.entries(one.checkpoints);
    return (made.length ? made : [["", {}]]).map(([checkpoint, values]) => [
      one.condition,
      stateMark(one.status),
      checkpoint,
      ...metrics.map((name) => (values[name] ? withSpread(values[name].mean, values[name].sd) : "–")),
      String(Object.values(values)[0]?.episodes ?? "–"),
    ]);
  });
  return rows.length
    ? [
        h("p", { class: "hint" }, t("evaluations_note")),
        table(
          t("evaluations"),
          [t("column.condition"), t("column.state"), t("column.checkpoint"), ...metrics, t("column.episodes")],
          rows,
          { right: metrics.map((_, n) => n + 3).concat(metrics.length + 3) },
        ),
      ]
    : null;
}

// A chart that is drawn anew where its data changed.
function chartSlot() {
  const node = h("div", {}),
    update = refresher(node);
  let made = null;
  return {
    node,
    get made() {
      return made;
    },
    show: (data, build) =>
      update(data, () => {
        made = build(data);
        return made?.box ?? null;
      }),
  };
}

export function open(context) {
  const { study, cell } = context.place,
    path = (rest = "") => cellPath(study, cell, rest);
  const arm = cell.slice(0, cell.lastIndexOf("/"));
  const title = h("div", { class: "head" }),
    top = h("section", {}),
    tries = h("section", {}),
    evals = h("section", {}),
    log = h("pre", { class: "log", tabindex: "0", "aria-label": t("log") }),
    logTitle = h("h2", {}),
    memoryTitle = h("h2", {});
  const updateTitle = refresher(title),
    updateTop = refresher(top),
    updateTries = refresher(tries),
    updateEvals = refresher(evals);
  const curve = chartSlot(),
    memory = chartSlot(),
    gpu = chartSlot(),
    controls = h("div", { class: "controls" }),
    updateControls = refresher(controls);
  let colour = { colour: "#0072B2", dark: "#3B9BD6" };
  const chosen = () => context.query().get("attempt");
  const metricOf = () => context.query().get("metric");
  let shownMetric = "";
  const link = downloads(`${study}-${cell.replace("/", "-")}`, {
    csv: "#",
    png: () =>
      curve.made?.chart &&
      chartPicture(curve.made.chart, {
        title: `${study} · ${cell} · ${shownMetric}`,
        lines: [{ text: cell, colour: armColour(colour) }],
      }),
  });
  context.root.append(
    title,
    top,
    h("div", { class: "head" }, h("h2", {}, t("tab.curves")), link),
    controls,
    curve.node,
    chartHint(),
    h("h2", {}, t("evaluations")),
    evals,
    h("h2", {}, t("attempts")),
    tries,
    memoryTitle,
    memory.node,
    gpu.node,
    logTitle,
    log,
  );
  let length = -1,
    shownAttempt = null;
  return {
    async refresh() {
      const attempt = chosen() ? `?attempt=${encodeURIComponent(chosen())}` : "",
        wanted = metricOf() ? `?metric=${encodeURIComponent(metricOf())}` : "";
      const [data, line, made, text, trace, matrix] = await Promise.all(
        [
          path(),
          path(`/curve${wanted}`),
          path("/evaluations"),
          path(`/log${attempt}`),
          path(`/trace${attempt}`),
          studyPath(study, "/matrix"),
        ].map(context.get),
      );
      colour = matrix.arms.find((one) => one.name === arm) ?? colour;
      updateTitle([stateOf(data)], () => [
        h("h1", {}, cell),
        stateMark(stateOf(data)),
        ...neighbours(matrix, study, cell),
      ]);
      updateTop({ ...data, attempts: null }, () => facts(data));
      updateTries([data.attempts, chosen()], () =>
        attempts(data, cell, text.attempt, (name) => context.setQuery({ attempt: name })),
      );
      updateEvals(
        made.evaluations,
        () => evaluations(made.evaluations, data.metric) ?? h("p", {}, t("no_evaluations")),
      );
      shownMetric = line.metric;
      link.name(`${study}-${cell.replace("/", "-")}-${line.metric.replace(/[^\p{L}\p{N}.-]+/gu, "_")}`);
      link.querySelector("a").href =
        `/api/v1${path("/curve")}?${new URLSearchParams({ metric: line.metric, format: "csv" })}`;
      updateControls([line.names, line.metric], () =>
        h(
          "label",
          {},
          t("metric"),
          " ",
          h(
            "select",
            { "data-key": "metric", onchange: (event) => context.setQuery({ metric: event.target.value }) },
            [...new Set([data.metric, ...line.names])].map((name) =>
              h("option", { value: name, selected: name === line.metric }, name),
            ),
          ),
        ),
      );
      curve.show([line.metric, line.agent_steps.length, line.values.at(-1), line.not_finite, line.fault], () =>
        line.values.length
          ? makeChart({
              x: line.agent_steps,
              series: [{ label: line.metric, values: line.values, colour: armColour(colour) }],
              xLabel: t("axis.agent_steps"),
              yLabel: line.metric,
              label: t("curve.label", { metric: line.metric, what: cell }),
              height: 260,
            })
          : {
              box: h(
                "p",
                {},
                line.fault ?? (line.not_finite ? t("not_finite", { count: line.not_finite }) : t("no_values")),
              ),
            },
      );
      memory.show([trace.attempt, trace.seconds.length], () =>
        trace.seconds.length > 1
          ? makeChart({
              x: trace.seconds,
              series: [{ label: t("memory"), values: trace.bytes, colour: armColour(colour) }],
              xLabel: t("axis_seconds"),
              yLabel: t("memory"),
              xText: duration,
              yText: bytes,
              yBase: 1024,
              label: t("memory"),
              height: 180,
            })
          : { box: h("p", {}, t("no_memory")) },
      );
      gpu.show(trace.gpu.unix_seconds.length, () =>
        trace.gpu.unix_seconds.length > 1
          ? makeChart({
              x: trace.gpu.unix_seconds.map((one) => one - trace.gpu.unix_seconds[0]),
              series: [{ label: "GPU %", values: trace.gpu.percent, colour: armColour(colour) }],
              xLabel: t("axis_seconds"),
              yLabel: "GPU %",
              xText: duration,
              label: t("gpu"),
              height: 180,
            })
          : null,
      );
      replace(memoryTitle, t("memory"), trace.attempt ? ` · ${trace.attempt}` : "");
      replace(logTitle, t("log"), text.attempt ? ` · ${text.attempt} · ${bytes(text.bytes)}` : "");
      if (text.bytes !== length || text.attempt !== shownAttempt) {
        const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
        log.textContent = text.text || text.fault || t("no_log");
        if (atEnd || text.attempt !== shownAttempt) log.scrollTop = log.scrollHeight;
        [length, shownAttempt] = [text.bytes, text.attempt];
      }
    },
  };
}

function neighbours(matrix, study, cell) {
  const all = matrix.arms.flatMap((arm) => matrix.seeds.map((seed) => `${arm.name}/${seed}`)),
    at = all.indexOf(cell);
  const link = (other, text) =>
    other && h("a", { class: "button", href: cellPath(study, other), "aria-label": `${text} ${other}` }, text);
  return [h("span", { class: "grow" }), link(all[at - 1], "‹"), link(all[at + 1], "›")];
}
