// How states and causes look: a colour and a shape each, the colours of the reports.

import { h, s } from "./dom.js";
import { causeText, stateText } from "./text.js";

// In a box of 16 by 16.
export const SHAPES = {
  proven: "M3.5 8.5l3 3 6-7",
  running: "M5.5 3.5l7 4.5-7 4.5z",
  stalled: "M5.8 4.5v7M10.2 4.5v7",
  running_not_ours: "M5.5 3.5l7 4.5-7 4.5z",
  dead: "M4 4l8 8M12 4l-8 8",
  waiting: "M8 4v4l3 2",
  reported: "M4 8.5l2.5 2.5 5.5-6M3 13.5h10",
  not_saved: "M4.5 11.5l7-7M8 3a5 5 0 1 0 .01 0z",
  stopped: "M4.5 4.5h7v7h-7z",
  quarantined: "M8 3v6M8 11.5v1.5",
  unproven: "M5.5 6a2.5 2.5 0 1 1 3.4 2.3q-.9.4-.9 1.4M8 12v1",
  missing: "M6.5 8h3",
};
// Filled for the first six causes of a study, hollow for further ones.
const CAUSE_SHAPES = [
  "M8 2l6 12H2z",
  "M8 2a6 6 0 1 0 .01 0z",
  "M8 1l7 7-7 7-7-7z",
  "M2 2h12v12H2z",
  "M6 1h4v5h5v4h-5v5H6v-5H1V6h5z",
  "M1 5h14l-7 10z",
];

export const statePath = (state) => SHAPES[state] ?? SHAPES.unproven;

export function stateMark(state, label = stateText(state)) {
  return h("span", { class: "state" }, stateIcon(state), h("span", {}, label));
}

export function stateIcon(state, size = 16) {
  return s(
    "svg",
    { class: `icon s-${state}`, viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    s("rect", { x: 0.5, y: 0.5, width: 15, height: 15, rx: 2.5 }),
    s("path", { d: statePath(state) }),
  );
}

// Shapes by the order in which causes are first seen, so that each of a study has its own.
export function causeLooks(causes, colours) {
  const looks = new Map();
  [...new Set(causes)].sort().forEach((cause, place) =>
    looks.set(cause, {
      path: CAUSE_SHAPES[place % CAUSE_SHAPES.length],
      place: place % CAUSE_SHAPES.length,
      hollow: place >= CAUSE_SHAPES.length,
      colour: colours[cause] ?? "#b5475a",
    }),
  );
  return looks;
}

export function causeMark(cause, looks, label = causeText(cause)) {
  const look = looks?.get(cause);
  const icon =
    look && s("svg", { viewBox: "0 0 16 16", width: 11, height: 11, "aria-hidden": "true" }, causeShape(look));
  return h("span", { class: "state" }, icon, h("span", {}, label));
}

export const causeShape = ({ path, colour, hollow }, attributes = {}) =>
  s("path", {
    d: path,
    fill: hollow ? "none" : colour,
    stroke: hollow ? colour : "none",
    "stroke-width": 2.4,
    ...attributes,
  });
