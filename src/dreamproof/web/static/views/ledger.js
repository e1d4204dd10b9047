// The ledger: every event, newest first, with filters that stand in the address.

import { cellPath, studyPath } from "../api.js";
import { h, refresher, table } from "../dom.js";
import { downloads } from "../download.js";
import { tablePicture } from "../pictures.js";
import { bareMoment, t } from "../text.js";

const EVENTS = [
  "study_declared",
  "declaration_changed",
  "supervisor_started",
  "supervisor_ended",
  "supervisor_lost",
  "attempt_started",
  "attempt_placed",
  "attempt_ended",
  "liveness_changed",
  "remedy",
  "train_proven",
  "eval_proven",
  "proof_lost",
  "cell_stopped",
  "cell_reopened",
  "cell_quarantined",
  "cell_released",
  "replica_frozen",
  "imported",
  "unproven",
  "false_alarm",
  "breaker_tripped",
  "budget_reached",
  "notified",
  "report_written",
  "shutdown_planned",
  "shutdown_done",
  "shutdown_failed",
];
const PLAIN = ["n", "t", "m", "s", "boot", "event", "hash", "prev", "cell", "cells", "attempt"];
const PAGE = 100,
  SUMMARY = 120;

const inWords = ([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`;
const shortened = (text) => (text.length > SUMMARY ? `${text.slice(0, SUMMARY)}…` : text);

function row(one, study) {
  const cells = one.cells ?? (one.cell ? [one.cell] : []);
  const rest = Object.entries(one).filter(([key, value]) => !PLAIN.includes(key) && value !== null && value !== "");
  const short = one.cause ?? one.reason ?? one.state ?? one.condition ?? one.action ?? rest.map(inWords).join(", ");
  return [
    one.n,
    bareMoment(one.t),
    h("code", {}, one.event),
    [
      cells.slice(0, 3).map((cell) => [h("a", { href: cellPath(study, cell) }, cell), " "]),
      cells.length > 3 ? `+${cells.length - 3}` : "",
    ],
    one.attempt ?? "",
    h(
      "details",
      {},
      h("summary", {}, shortened(String(short)) || "…"),
      h("pre", {}, JSON.stringify(Object.fromEntries(rest), null, 1)),
      h("p", { class: "hint" }, h("code", {}, one.hash)),
    ),
  ];
}

export function open(context) {
  const { study } = context.place,
    controls = h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }),
    node = h("div", {}),
    update = refresher(node),
    updateControls = refresher(controls);
  const names = ["event", "cell", "text"];
  let older = [],
    filters = "",
    timer = null;
  const address = (more = {}) => {
    const found = new URLSearchParams();
    for (const name of names) if (context.query().get(name)) found.set(name, context.query().get(name));
    for (const [name, value] of Object.entries(more)) found.set(name, value);
    return studyPath(study, `/ledger?${found}`);
  };
  const type = (name) => (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => context.setQuery({ [name]: event.target.value.trim() }), 300);
  };
  const link = downloads(`${study}-ledger`, {
    csv: "#",
    png: () => tablePicture(node, `${study} · ${t("tab.ledger")}`),
  });
  context.root.append(h("div", { class: "head" }, h("h1", {}, t("tab.ledger")), link), controls, node);
  const input = (name, list) =>
    h(
      "label",
      {},
      t(`column.${name}`),
      " ",
      h("input", {
        type: "search",
        name,
        "data-key": name,
        value: context.query().get(name) ?? "",
        list,
        oninput: type(name),
      }),
    );
  const draw = (events, data) => [
    h("p", { class: "hint" }, t("ledger_count", { shown: events.length, total: data.total })),
    table(
      t("tab.ledger"),
      ["#", `${t("moment")} (UTC)`, t("column.event"), t("cells"), t("attempt"), t("details")],
      events.map((one) => row(one, study)),
      { right: [0], classes: "ledger-table" },
    ),
    data.more
      ? h(
          "button",
          {
            type: "button",
            "data-key": "older",
            onclick: async () => {
              const last = events.at(-1).n;
              const next = await context.get(address({ before: last, limit: PAGE }));
              older = [...older, ...next.events];
              update([events.length, older.length, last], () => draw([...events, ...next.events], next));
            },
          },
          t("older"),
        )
      : null,
  ];
  return {
    async refresh() {
      updateControls("once", () => [
        input("event", "events"),
        h(
          "datalist",
          { id: "events" },
          EVENTS.map((name) => h("option", { value: name })),
        ),
        input("cell"),
        input("text"),
      ]);
      if (filters !== address()) {
        older = [];
        filters = address();
      }
      const data = await context.get(address({ limit: PAGE }));
      link.querySelector("a").href = `/api/v1${address({ format: "csv" })}`;
      const first = data.events.at(-1)?.n ?? 0,
        events = [...data.events, ...older.filter((one) => one.n < first)];
      update([filters, data.events[0]?.hash, data.total, events.length], () =>
        draw(events, older.length ? { ...data, more: events.at(-1).n > 1 } : data),
      );
    },
    close() {
      clearTimeout(timer);
    },
  };
}
