// Charts over agent steps or time, drawn by uPlot: zoom by dragging, values under the pointer, log axes.

import uPlot from "./vendor/uPlot.js";
import { h } from "./dom.js";
import { linear, logarithmic } from "./ticks.js";
import { number, steps, t } from "./text.js";

export const isDark = () => getComputedStyle(document.body).getPropertyValue("--dark").trim() === "1";
export const armColour = (arm) => (isDark() ? arm.dark : arm.colour);
const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

const observers = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const chart = entry.target.chart;
    const width = Math.floor(entry.contentRect.width);
    if (chart && width > 0 && Math.abs(width - chart.width) > 1) chart.setSize({ width, height: chart.height });
  }
});

// `series`: {label, values, colour, width, dash, alpha, band: [low, high], shown in the legend?}
export function makeChart({
  x,
  series,
  height = 340,
  xLabel,
  yLabel,
  xLog = false,
  yLog = false,
  levels = [],
  xText = steps,
  yText = number,
  yBase = 10,
  label,
  onZoom,
  zoom,
}) {
  const box = h("div", { class: "chart", role: "img", "aria-label": label, tabindex: "0" });
  // Our own ticks: uPlot counts through a table of steps, which has an end.
  const axis = (text, format, { log, base, side }) => ({
    incrs: (_, place, low, high) => [Math.max(5, high - low)],
    splits: (u, place, low, high) =>
      tickValues(low, high, log, base, u.bbox[side] / (devicePixelRatio || 1) / (side === "width" ? 70 : 42)),
    filter: (_, marks) => marks,
    stroke: css("--soft"),
    grid: { stroke: css("--grid"), width: 1 },
    ticks: { stroke: css("--grid"), width: 1 },
    label: text,
    labelSize: 20,
    labelFont: "12px sans-serif",
    font: "11px sans-serif",
    size: side === "width" ? 44 : 62,
    values: (_, marks) => marks.map((one) => (one === null ? "" : format(one))),
  });
  const bands = [];
  const lines = [{ label: xLabel, value: (_, v) => (v === null ? "–" : xText(v)) }];
  for (const one of series) {
    if (one.band) {
      const quiet = { stroke: "transparent", width: 0, points: { show: false }, class: "quiet", label: "" };
      lines.push({ ...quiet }, { ...quiet });
      bands.push({ series: [lines.length - 2, lines.length - 1], fill: `${one.colour}26` });
    }
    lines.push({
      label: one.label ?? "",
      stroke: one.alpha ? `${one.colour}${one.alpha}` : one.colour,
      width: one.width ?? 1.6,
      dash: one.dash,
      points: { show: x.length < 60 && !one.alpha, size: 4, fill: one.colour },
      class: one.label ? "shown" : "quiet",
      value: (_, v) => (v === null || v === undefined ? "–" : yText(v)),
    });
  }
  const range = (log) => (u, low, high) => {
    const all = [low, high, ...levels.map((one) => one.value)].filter(
      (v) => v !== null && Number.isFinite(v) && (!log || v > 0),
    );
    if (!all.length) return [0, 1];
    let min = Math.min(...all),
      max = Math.max(...all);
    if (log) return [min * 0.9, max * 1.1];
    const room = (max / 2 - min / 2 || Math.abs(max) / 2 || 1) * 0.12;
    return [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
  };
  const options = {
    width: 600,
    height,
    legend: { live: true, markers: { width: 2 } },
    cursor: { drag: { x: true, y: false, setScale: true }, focus: { prox: 24 } },
    scales: {
      x: { time: false, distr: xLog ? 3 : 1, range: xRange(xLog, x) },
      y: { distr: yLog ? 3 : 1, range: range(yLog) },
    },
    axes: [
      axis(xLabel, xText, { log: xLog, base: 10, side: "width" }),
      axis(yLabel, yText, { log: yLog, base: yBase, side: "height" }),
    ],
    series: lines,
    bands,
    hooks: {
      draw: [
        (u) => {
          for (const level of levels) {
            const y = u.valToPos(level.value, "y", true),
              ratio = devicePixelRatio || 1;
            if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
            u.ctx.save();
            u.ctx.strokeStyle = u.ctx.fillStyle = css("--ink");
            u.ctx.lineWidth = 1.2 * ratio;
            u.ctx.setLineDash([4 * ratio, 4 * ratio]);
            u.ctx.beginPath();
            u.ctx.moveTo(u.bbox.left, y);
            u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
            u.ctx.stroke();
            u.ctx.font = `${11 * ratio}px sans-serif`;
            u.ctx.textAlign = "left";
            u.ctx.textBaseline = "alphabetic";
            u.ctx.fillText(level.label, u.bbox.left + 6 * ratio, y - 5 * ratio);
            u.ctx.restore();
          }
        },
      ],
      setSelect: [
        (u) => {
          if (u.select.width > 4 && onZoom)
            onZoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        },
      ],
    },
  };
  const chart = new uPlot(options, columns(x, series, yLog), box);
  box.chart = chart;
  observers.observe(box);
  if (zoom) chart.setScale("x", { min: zoom[0], max: zoom[1] });
  const whole = () => {
    chart.setData(chart.data, true);
    onZoom?.(null);
  };
  box.addEventListener("dblclick", whole);
  box.addEventListener("keydown", (event) => key(event, chart, whole, onZoom));
  return { box, chart, update: (x, next, whole) => chart.setData(columns(x, next, yLog), whole) };
}

// What uPlot draws: bands before their means. A logarithmic axis has no place for what is not above 0; a band that
// begins there comes from the foot of the axis.
function columns(x, series, log) {
  const parts = series.flatMap((one) => (one.band ? [one.band[1], one.band[0], one.values] : [one.values]));
  if (!log) return [x, ...parts];
  const above = (values) => values.map((v) => (v > 0 ? v : null));
  const foot = parts.reduce((least, values) => values.reduce((a, v) => (v > 0 && v < a ? v : a), least), Infinity);
  return [
    x,
    ...series.flatMap(({ band, values }) => {
      if (!band) return [above(values)];
      const low = band[0].map((v, n) => (v === null || !(band[1][n] > 0) ? null : Math.max(v, foot)));
      return [above(band[1]), low, above(values)];
    }),
  ];
}

// How many values of the lines are not above 0, and whether any is: what a logarithmic axis can show.
export function countForLog(series) {
  let hidden = 0,
    shown = 0;
  for (const { values } of series)
    for (const v of values) if (v !== null && v !== undefined) v > 0 ? shown++ : hidden++;
  return { hidden, shown };
}

const xRange = (log, x) => (u, low, high) => {
  if (low === null || high === null) return [0, 1];
  const first = log && !(low > 0) ? (x.find((v) => v > 0) ?? 1) : low;
  return high > first ? [first, high] : log ? [first / 2, first * 2] : [first - 1, first + 1];
};

// Values of bytes are round in their own unit.
function tickValues(low, high, log, base, room) {
  const target = Math.max(2, Math.floor(room));
  if (log) return logarithmic(low, high, target);
  const most = Math.max(Math.abs(low), Math.abs(high), 1),
    unit = base === 10 ? 1 : base ** Math.floor(Math.log(most) / Math.log(base));
  return linear(low / unit, high / unit, target).map((one) => one * unit);
}

// Arrows move the cursor, + and − zoom around it, 0 shows all.
function key(event, chart, whole, onZoom) {
  const x = chart.data[0],
    last = x.length - 1;
  if (last < 1) return;
  const at = chart.cursor.idx ?? last;
  const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -Math.ceil(last / 20), PageDown: Math.ceil(last / 20) }[
    event.key
  ];
  if (move !== undefined) {
    const to = Math.max(0, Math.min(last, at + move));
    chart.setCursor({ left: chart.valToPos(x[to], "x"), top: chart.bbox.height / (2 * (devicePixelRatio || 1)) });
  } else if (event.key === "+" || event.key === "-") {
    const { min, max } = chart.scales.x,
      factor = event.key === "+" ? 0.5 : 2,
      middle = x[at];
    const next = [
      Math.max(x[0], middle - ((max - min) * factor) / 2),
      Math.min(x[last], middle + ((max - min) * factor) / 2),
    ];
    chart.setScale("x", { min: next[0], max: next[1] });
    onZoom?.(next);
  } else if (event.key === "0") whole();
  else return;
  event.preventDefault();
}

export const chartHint = () => h("p", { class: "hint" }, t("chart.hint"));
