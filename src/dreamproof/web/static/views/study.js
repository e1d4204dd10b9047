// One study: what it asks, how it stands, and its matrix of cells.

import { cellPath, studyPath } from "../api.js";
import { h, refresher, replace, s, table } from "../dom.js";
import { downloads } from "../download.js";
import { legendOf, svgPicture } from "../pictures.js";
import { causeLooks, causeMark, stateIcon, stateMark, statePath } from "../states.js";
import {
  bytes,
  causeText,
  count,
  duration,
  moment,
  number,
  orItself,
  recorded,
  said,
  shortened,
  stateText,
  t,
} from "../text.js";
import { leftLabel, moneyText, progressBar, shareText, studyState, timeLeft } from "./overview.js";

const rows = (object) => Object.entries(object);

function facts(data) {
  const { overview } = data,
    holder = overview.supervisor;
  return [
    h("div", { class: "head" }, h("h1", {}, data.name), studyState(data.state)),
    h("p", { class: "question" }, data.question),
    data.state === "killed" &&
      h(
        "div",
        { class: "stamp block", role: "alert" },
        h("b", {}, t("killed.title")),
        t("killed.text", { moment: moment(data.last_supervisor_event) }),
        " ",
        h("code", {}, `dreamproof run ${data.folder}`),
      ),
    data.state === "copied" && h("div", { class: "stamp note" }, h("b", {}, t("study_state.copied")), t("copied.text")),
    h(
      "dl",
      { class: "facts wide" },
      h("dt", {}, t("trained")),
      h("dd", {}, shareText(overview.train), progressBar(overview.train, t("trained"))),
      overview.evaluate.declared
        ? [
            h("dt", {}, t("evaluated")),
            h("dd", {}, shareText(overview.evaluate), progressBar(overview.evaluate, t("evaluated"))),
          ]
        : null,
      h("dt", {}, leftLabel(data.state)),
      h("dd", {}, timeLeft(overview)),
      h("dt", {}, t("tab.money")),
      h("dd", {}, moneyText(data.money)),
      h("dt", {}, t("supervisor")),
      h(
        "dd",
        {},
        holder ? t("supervisor_process", { process: holder.process_id, host: holder.host }) : t("supervisor_none"),
      ),
      h("dt", {}, t("folder")),
      h("dd", {}, h("code", {}, data.folder)),
    ),
    overview.notices.length
      ? h(
          "ul",
          { class: "notices" },
          overview.notices.map((text) => h("li", {}, said(text))),
        )
      : null,
  ];
}

function runningTable(data, study) {
  const running = data.overview.running;
  if (!running.length) return null;
  const header = ["cell", "work", "agent_steps", "rate", "left", "metric", "gpu", "progress_age", "state"].map((key) =>
    t(`column.${key}`),
  );
  return [
    h("h2", {}, t("running_now")),
    table(
      t("running_now"),
      header,
      running.map((one) => [
        h("a", { href: cellPath(study, one.cell), "data-key": `run-${one.cell}` }, one.cell),
        orItself("phase", one.phase),
        `${count(one.agent_steps)} / ${count(one.declared_agent_steps)}`,
        one.agent_steps_per_second ? `${number(one.agent_steps_per_second)}/s` : "–",
        duration(one.seconds_left),
        number(one.metric),
        one.gpu_percent === null ? "–" : `${Math.round(one.gpu_percent)} % · ${bytes(one.gpu_bytes)}`,
        duration(one.progress_age_seconds),
        h(
          "span",
          { class: `live ${one.liveness}`, title: one.reason && recorded(one.reason) },
          stateText(one.liveness),
        ),
      ]),
      { right: [2, 3, 4, 5, 6, 7] },
    ),
  ];
}

function problems(data, study) {
  const { overview } = data;
  const lists = [
    ["stopped", overview.stopped],
    ["quarantined", overview.quarantined],
    ["not_saved", overview.not_saved],
    ["unproven", overview.unproven],
  ];
  return lists
    .filter(([, found]) => rows(found).length)
    .map(([state, found]) =>
      h(
        "details",
        { open: rows(found).length < 6 },
        h("summary", {}, stateMark(state), ` ${rows(found).length}`),
        h(
          "ul",
          {},
          rows(found)
            .slice(0, 200)
            .map(([cell, why]) => h("li", {}, h("a", { href: cellPath(study, cell) }, cell), ": ", said(why))),
        ),
      ),
    );
}

// The matrix as one grid: a row per arm, a column per seed; arrow keys move, Enter opens.
class Matrix {
  constructor(context) {
    this.context = context;
    this.node = h("div", { class: "matrix-box scroll", tabindex: "-1" });
    this.legend = h("div", { class: "legend" });
    this.cells = new Map();
    this.shape = null;
  }

  update(data, condition) {
    this.data = data;
    const letters = condition ? (data.evaluate[condition] ?? data.train) : data.train;
    const shape = JSON.stringify([data.arms.map((arm) => arm.name), data.seeds]);
    this.causes = causeLooks(condition ? [] : Object.values(data.causes), data.cause_colours);
    if (shape !== this.shape) this.build(data);
    this.shape = shape;
    data.arms.forEach((arm, row) =>
      data.seeds.forEach((seed, column) =>
        this.paint(`${arm.name}/${seed}`, data.codes[letters[row][column]], condition),
      ),
    );
    this.drawLegend(data, letters, condition);
  }

  build(data) {
    this.cells.clear();
    const many = data.seeds.length > 30;
    const head = h(
      "tr",
      {},
      h("td", {}),
      data.seeds.map((seed) => h("th", { scope: "col" }, many && seed % 10 ? "" : seed)),
    );
    const body = data.arms.map((arm, row) =>
      h(
        "tr",
        {},
        h("th", { scope: "row", title: arm.name }, arm.name),
        data.seeds.map((seed, column) => {
          const cell = `${arm.name}/${seed}`;
          const link = h("a", {
            href: cellPath(this.context.place.study, cell),
            "data-cell": cell,
            tabindex: row || column ? "-1" : "0",
          });
          this.cells.set(cell, { link, row, column, look: null, share: null });
          return h("td", {}, link);
        }),
      ),
    );
    replace(
      this.node,
      h(
        "table",
        {
          class: `matrix${many ? " many" : ""}`,
          role: "grid",
          "aria-label": t("matrix.label"),
          onkeydown: (event) => this.key(event),
          onmouseover: (event) => {
            if (event.target.ariaLabel) event.target.title = event.target.ariaLabel;
          },
        },
        h("thead", {}, head),
        h("tbody", {}, body),
      ),
    );
  }

  paint(cell, state, condition) {
    const one = this.cells.get(cell),
      cause = condition ? null : this.data.causes[cell],
      run = this.data.running[cell];
    const badge = cause && state !== "proven" ? this.causes.get(cause) : null;
    const share = run && run.work === "train" && !condition ? run.agent_steps / run.of : null;
    const liveness = run && state === "running" && run.liveness === "stalled" ? " stalled" : "";
    const look = `s-${state}${badge ? ` cause c${badge.place}` : ""}${liveness}`;
    const spoken = [
      cell,
      stateText(liveness ? "stalled" : state),
      cause && cause !== "completed" && causeText(cause),
      share !== null && `${Math.round(100 * share)} %`,
    ]
      .filter(Boolean)
      .join(", ");
    if (one.look !== look) {
      one.link.className = look;
      one.look = look;
      if (badge) one.link.style.setProperty("--cause", badge.colour);
    }
    if (one.spoken !== spoken) {
      one.link.setAttribute("aria-label", spoken);
      one.spoken = spoken;
    }
    if (one.share !== share) {
      one.link.style.setProperty("--done", share === null ? "0%" : `${100 * share}%`);
      one.share = share;
    }
  }

  drawLegend(data, letters, condition) {
    const counts = {};
    for (const row of letters)
      for (const letter of row) counts[data.codes[letter]] = (counts[data.codes[letter]] ?? 0) + 1;
    const stalled = this.node.querySelectorAll("a.stalled").length;
    if (stalled) Object.assign(counts, { running: counts.running - stalled, stalled });
    const died = {};
    if (!condition)
      for (const [cell, cause] of Object.entries(data.causes)) {
        const at = this.cells.get(cell);
        if (at && !at.look.startsWith("s-proven")) died[cause] = (died[cause] ?? 0) + 1;
      }
    replace(
      this.legend,
      [...Object.values(data.codes), "stalled"]
        .filter((state) => counts[state])
        .map((state) => h("span", { class: "item" }, stateMark(state), h("b", {}, counts[state]))),
      Object.keys(died)
        .sort()
        .map((cause) => h("span", { class: "item" }, causeMark(cause, this.causes), h("b", {}, died[cause]))),
    );
  }

  key(event) {
    const all = event.ctrlKey || event.metaKey ? 1e6 : 0,
      moves = {
        ArrowUp: [-1, 0],
        ArrowDown: [1, 0],
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
        Home: [-all, -1e6],
        End: [all, 1e6],
        PageUp: [-10, 0],
        PageDown: [10, 0],
      };
    const at = this.cells.get(document.activeElement?.getAttribute("data-cell")),
      move = moves[event.key];
    if (!at || !move) return;
    event.preventDefault();
    const row = Math.max(0, Math.min(this.data.arms.length - 1, at.row + move[0])),
      column = Math.max(0, Math.min(this.data.seeds.length - 1, at.column + move[1]));
    this.moveTo(`${this.data.arms[row].name}/${this.data.seeds[column]}`);
  }

  // One cell of the grid is reached by Tab: the one that had the focus last.
  moveTo(cell) {
    for (const one of this.node.querySelectorAll("a[tabindex='0']")) one.tabIndex = -1;
    const { link } = this.cells.get(cell);
    link.tabIndex = 0;
    link.focus();
  }

  // The same as a drawing, for the picture.
  picture(condition) {
    const { arms, seeds, codes } = this.data,
      letters = condition ? this.data.evaluate[condition] : this.data.train,
      side = 22,
      left = 150,
      top = 30;
    const style = getComputedStyle(document.body),
      ink = style.color;
    const svg = s(
      "svg",
      {
        class: "drawing",
        width: left + seeds.length * side + 20,
        height: top + arms.length * side + 20,
        viewBox: `0 0 ${left + seeds.length * side + 20} ${top + arms.length * side + 20}`,
      },
      seeds.map((seed, column) =>
        s(
          "text",
          { x: left + (column + 0.5) * side, y: top - 8, "text-anchor": "middle", "font-size": 11, fill: ink },
          seed,
        ),
      ),
      arms.map((arm, row) => [
        s(
          "text",
          { x: left - 8, y: top + (row + 0.68) * side, "text-anchor": "end", "font-size": 12, fill: ink },
          shortened(arm.name, 22),
        ),
        seeds.map((seed, column) => {
          const state = codes[letters[row][column]];
          return s(
            "g",
            { class: `icon s-${state}`, transform: `translate(${left + column * side + 2} ${top + row * side + 2})` },
            s("rect", { width: 18, height: 18, rx: 3 }),
            s("path", { d: statePath(state), transform: "translate(1 1)" }),
          );
        }),
      ]),
    );
    document.body.append(svg);
    const title = [this.context.place.study, condition || t("matrix.title")].join(" · ");
    return svgPicture([svg], { title, legend: legendOf(this.legend) }).finally(() => svg.remove());
  }
}

// The cell of each study that was opened last: where the focus returns on the way back.
const left = new Map();

export function open(context) {
  const { study } = context.place,
    top = h("section", {}),
    now = h("section", {}),
    bad = h("section", {});
  const updateTop = refresher(top),
    updateNow = refresher(now),
    updateBad = refresher(bad);
  const matrix = new Matrix(context),
    choice = h("div", { class: "controls" }),
    updateChoice = refresher(choice);
  const condition = () => context.query().get("condition") ?? "";
  context.root.append(
    top,
    h(
      "div",
      { class: "head" },
      h("h2", {}, t("matrix.title")),
      downloads(`${study}-cells`, {
        csv: `/api/v1${studyPath(study, "/status")}?format=csv`,
        png: () => matrix.picture(condition()),
      }),
    ),
    choice,
    matrix.node,
    matrix.legend,
    now,
    bad,
  );
  let back = context.returning ? left.get(study) : null;
  return {
    close() {
      const cell = document.activeElement?.getAttribute("data-cell");
      if (cell) left.set(study, cell);
    },
    async refresh() {
      const [data, cells] = await Promise.all([
        context.get(studyPath(study, "/overview")),
        context.get(studyPath(study, "/matrix")),
      ]);
      updateTop(
        [
          data.name,
          data.question,
          data.state,
          data.presence,
          data.overview.train,
          data.overview.evaluate,
          timeLeft(data.overview),
          moneyText(data.money),
          data.overview.notices,
        ],
        () => facts(data),
      );
      updateChoice([cells.conditions, condition()], () =>
        cells.conditions.length
          ? h(
              "div",
              { class: "segments", role: "group", "aria-label": t("matrix.what") },
              ["", ...cells.conditions.map((one) => one.name)].map((name) =>
                h(
                  "button",
                  {
                    type: "button",
                    "aria-pressed": String(name === condition()),
                    "data-key": `c-${name}`,
                    onclick: () => context.setQuery({ condition: name }),
                  },
                  name || t("axis.train"),
                ),
              ),
            )
          : null,
      );
      matrix.update(cells, cells.conditions.some((one) => one.name === condition()) ? condition() : "");
      if (back && matrix.cells.has(back)) matrix.moveTo(back);
      back = null;
      updateNow(
        data.overview.running.map((one) => ({ ...one, wall_seconds: 0, money: 0 })),
        () => runningTable(data, study),
      );
      updateBad(
        [data.overview.stopped, data.overview.quarantined, data.overview.not_saved, data.overview.unproven],
        () => problems(data, study),
      );
    },
  };
}
