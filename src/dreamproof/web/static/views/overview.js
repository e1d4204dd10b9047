// All studies: state, progress, time left, money.

import { studyPath } from "../api.js";
import { h, refresher } from "../dom.js";
import { downloads } from "../download.js";
import { tablePicture } from "../pictures.js";
import { stateIcon } from "../states.js";
import { count, duration, moment, money, stateText, t } from "../text.js";

export function progressBar(counts, label) {
  const all = counts.declared || 1,
    parts = Object.entries(counts).filter(([name, n]) => name !== "declared" && n);
  return h(
    "div",
    {
      class: "progress",
      role: "img",
      "aria-label": `${label}: ${parts.map(([name, n]) => `${n} ${stateText(name)}`).join(", ")}`,
    },
    parts.map(([name, n]) =>
      h("span", {
        class: `fill s-${name}`,
        vars: { "--share": `${(100 * n) / all}%` },
        title: `${n} ${stateText(name)}`,
      }),
    ),
  );
}

export const shareText = (counts) => `${count(counts.proven)}/${count(counts.declared)}`;

// Nothing gets done while nothing runs, so then it is no time that is left.
export function leftLabel(state) {
  return t(state === "running" || state === "complete" ? "left" : "still_needed");
}

export function moneyText(found) {
  const spent = money(found.spent, found.currency);
  return found.budget ? t("money_of_budget", { spent, budget: money(found.budget, found.currency) }) : spent;
}

// While no evaluation was measured, the time left is at least that of training.
export const timeLeft = (one) =>
  one.complete
    ? t("nothing_left")
    : `${one.without_evaluations && one.seconds_left !== null ? "≥ " : ""}${duration(one.seconds_left)}`;

function card(one) {
  if (one.error)
    return h(
      "article",
      { class: "card", "data-study": one.study },
      h("h2", {}, one.name),
      studyState(one.state),
      h("p", { lang: "en" }, one.error.message),
      h("p", { class: "hint", lang: "en" }, one.error.hint),
    );
  const trained = shareText(one.train),
    evaluated = shareText(one.evaluate);
  return h(
    "article",
    { class: "card", "data-study": one.study },
    h(
      "h2",
      {},
      h("a", { href: studyPath(one.study), "data-key": one.study }, one.name),
      one.study !== one.name && h("small", {}, ` ${one.study}`),
    ),
    studyState(one.state),
    h("p", { class: "question" }, one.question),
    h(
      "dl",
      { class: "facts" },
      h("dt", {}, t("trained")),
      h("dd", {}, trained, progressBar(one.train, t("trained"))),
      one.evaluate.declared
        ? [h("dt", {}, t("evaluated")), h("dd", {}, evaluated, progressBar(one.evaluate, t("evaluated")))]
        : null,
      h("dt", {}, leftLabel(one.state)),
      h("dd", {}, timeLeft(one)),
      h("dt", {}, t("tab.money")),
      h("dd", {}, moneyText(one.money)),
      h("dt", {}, t("last_event")),
      h("dd", {}, moment(one.last_event)),
    ),
    h(
      "p",
      { class: "links" },
      ["decision", "curves", "timeline"].map((tab) =>
        h("a", { href: studyPath(one.study, `/${tab}`) }, t(`tab.${tab}`)),
      ),
    ),
  );
}

const ICONS = {
  complete: "proven",
  running: "running",
  killed: "dead",
  copied: "unproven",
  unsupervised: "running_not_ours",
  stopped: "stopped",
  waiting: "waiting",
  not_started: "missing",
  unreadable: "quarantined",
};

export function studyState(state) {
  return h(
    "p",
    { class: `study-state is-${state}` },
    stateIcon(ICONS[state]),
    h("span", {}, t(`study_state.${state}`)),
  );
}

// The same as rows, for the picture and for people who compare many studies.
function asTable(studies) {
  return h(
    "div",
    { class: "unseen", "aria-hidden": "true" },
    h(
      "table",
      {},
      h(
        "tr",
        {},
        [t("study"), t("column.state"), t("trained"), t("evaluated"), t("left"), t("tab.money")].map((text) =>
          h("th", {}, text),
        ),
      ),
      studies.map((one) =>
        h(
          "tr",
          {},
          (one.error
            ? [one.name, one.state]
            : [
                one.name,
                t(`study_state.${one.state}`),
                shareText(one.train),
                shareText(one.evaluate),
                timeLeft(one),
                moneyText(one.money),
              ]
          ).map((text) => h("td", {}, text)),
        ),
      ),
    ),
  );
}

export function open(context) {
  const list = h("div", { class: "cards" }),
    update = refresher(list);
  context.root.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, t("tab.overview")),
      downloads("studies", { csv: "/api/v1/studies?format=csv", png: () => tablePicture(list, t("tab.overview")) }),
    ),
    list,
  );
  return {
    async refresh() {
      const { studies } = await context.get("/studies");
      update(studies, () => [studies.map(card), asTable(studies)]);
    },
  };
}
