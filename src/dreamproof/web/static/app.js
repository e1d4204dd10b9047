// The frame of every page: address, navigation, language, appearance, and the view that is shown.

import { ApiError, exchangeToken, get, signIn, studyPath } from "./api.js";
import { NARROW, h, replace } from "./dom.js";
import { onChange, start as follow } from "./live.js";
import { LANGUAGES, language, loadTexts, t } from "./text.js";
import * as overview from "./views/overview.js";
import * as study from "./views/study.js";
import * as cell from "./views/cell.js";
import * as curves from "./views/curves.js";
import * as conditions from "./views/conditions.js";
import * as timeline from "./views/timeline.js";
import * as money from "./views/money.js";
import * as decision from "./views/decision.js";
import * as ledger from "./views/ledger.js";

const TABS = { "": study, curves, conditions, timeline, money, decision, ledger };
const MIN_REFRESH_MS = 900;

function route() {
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  if (!parts.length) return { view: overview, name: "overview" };
  if (parts[0] !== "studies" || !parts[1]) return null;
  if (parts[2] === "cells" && parts.length === 5)
    return { view: cell, name: "cell", study: parts[1], cell: `${parts[3]}/${parts[4]}` };
  const tab = parts[2] ?? "";
  return tab in TABS && parts.length <= 3 ? { view: TABS[tab], name: tab || "study", tab, study: parts[1] } : null;
}

const header = h("header", {}),
  main = h("main", { id: "main", tabindex: "-1" }),
  status = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
let shown = null;

export function go(address, { replaced = false } = {}) {
  history[replaced ? "replaceState" : "pushState"](null, "", address);
  show();
}

function preferred() {
  return document.documentElement.dataset.theme ?? "auto";
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

function select(label, options, chosen, onchange) {
  return h(
    "label",
    { class: "choice" },
    h("span", { class: "unseen" }, label),
    h(
      "select",
      { "aria-label": label, onchange: (event) => onchange(event.target.value) },
      Object.entries(options).map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
    ),
  );
}

function drawHeader(place) {
  const link = (address, text, current) => h("a", { href: address, "aria-current": current ? "page" : null }, text);
  const tabs =
    place?.study &&
    Object.keys(TABS).map((tab) =>
      link(studyPath(place.study, tab && `/${tab}`), t(`tab.${tab || "study"}`), place.tab === tab),
    );
  replace(
    header,
    h("a", { class: "skip", href: "#main" }, t("skip")),
    h(
      "div",
      { class: "bar" },
      h(
        "a",
        { class: "brand", href: "/" },
        h("img", { src: "/static/icon.svg", alt: "", width: 20, height: 20 }),
        "dreamproof",
      ),
      place?.study && h("a", { class: "study-link", href: studyPath(place.study) }, place.study),
      h("span", { class: "grow" }),
      h("span", { class: "connection", id: "connection", "data-connected": "" }),
      select(t("choose.language"), LANGUAGES, language, async (value) => {
        await loadTexts(value);
        show(true);
      }),
      select(
        t("choose.theme"),
        { auto: t("theme.auto"), light: t("theme.light"), dark: t("theme.dark") },
        preferred(),
        (value) => {
          setTheme(value);
          show(true);
        },
      ),
    ),
    tabs && h("nav", { class: "tabs", "aria-label": t("nav") }, tabs),
  );
  const current = header.querySelector(".tabs [aria-current]");
  if (current) current.parentNode.scrollLeft = current.offsetLeft + current.offsetWidth / 2 - innerWidth / 2;
  drawConnection();
}

// Nothing is connected, so nothing can be lost.
const isSigningIn = () => main.querySelector("form.token") !== null;

let connected = null;
function drawConnection() {
  const node = document.getElementById("connection");
  if (!node) return;
  const name = isSigningIn() || connected === null ? "" : connected ? "live" : "lost";
  node.className = `connection ${name}`;
  replace(node, name && t(`connection.${name}`));
}

// Shows the view of the present address; the same view with another query is only refreshed.
async function show(again = false, returning = false) {
  const place = route();
  const same =
    !again &&
    shown &&
    place &&
    shown.place.view === place.view &&
    shown.place.study === place.study &&
    shown.place.cell === place.cell;
  if (same) {
    shown.place = place;
    shown.handle.changed?.();
    refresh();
    return;
  }
  shown?.handle.close?.();
  clearTimeout(shown?.timer);
  drawHeader(place);
  const root = h("div", { class: `view ${place?.name ?? ""}` });
  replace(main, root);
  document.title = ["dreamproof", place?.study, place?.cell ?? (place && t(`tab.${place.name}`))]
    .filter(Boolean)
    .reverse()
    .join(" · ");
  if (!place) {
    shown = null;
    root.dataset.ready = "1";
    replace(root, h("h1", {}, t("not_found")), h("p", {}, h("a", { href: "/" }, t("tab.overview"))));
    return;
  }
  const mine = (shown = { place, root, timer: null, last: 0, busy: false, again: false, drawn: false, handle: {} });
  const context = {
    root,
    go,
    get: (path) => fetchFor(mine, path),
    announce: (text) => {
      status.textContent = text;
    },
    returning,
    get place() {
      return mine.place;
    },
    query: () => new URLSearchParams(location.search),
    setQuery: (changes, { push = false } = {}) => {
      const query = new URLSearchParams(location.search);
      for (const [key, value] of Object.entries(changes))
        if (value === null || value === "" || value === undefined) query.delete(key);
        else query.set(key, value);
      const text = query.toString();
      history[push ? "pushState" : "replaceState"](null, "", location.pathname + (text ? `?${text}` : ""));
      refresh();
    },
  };
  mine.handle = place.view.open(context);
  await refresh();
}

async function fetchFor(mine, path) {
  const { data, freshAfter } = await get(path);
  if (freshAfter !== null) later(mine, freshAfter * 1000 + 100);
  return data;
}

function later(mine, milliseconds) {
  clearTimeout(mine.timer);
  mine.timer = setTimeout(() => mine === shown && refresh(), milliseconds);
}

// At most one request at a time and about one a second, whatever number of changes arrive.
async function refresh() {
  const mine = shown;
  if (!mine) return;
  if (mine.busy) {
    mine.again = true;
    return;
  }
  mine.busy = true;
  mine.last = performance.now();
  try {
    await mine.handle.refresh();
    mine.drawn = true;
    mine.root.classList.remove("bare");
    mine.root.querySelector(".failed")?.remove();
  } catch (error) {
    if (mine === shown) failed(mine, error);
  } finally {
    mine.busy = false;
    mine.root.dataset.ready = "1";
    if (mine.again && mine === shown) {
      mine.again = false;
      later(mine, MIN_REFRESH_MS);
    }
  }
}

function failed(mine, error) {
  mine.root.querySelector(".failed")?.remove();
  if (error instanceof ApiError && error.status === 401) {
    replace(mine.root, signInForm());
    drawConnection();
    return;
  }
  mine.root.classList.toggle("bare", !mine.drawn); // headings without anything below them say nothing
  const lost = error.status === 0;
  if (!(error instanceof ApiError)) console.error(error);
  mine.root.prepend(
    h(
      "div",
      { class: "stamp block failed", role: "alert" },
      h("b", {}, t(lost ? "connection.lost" : "error")),
      h("span", { lang: "en" }, error.message),
      error.hint && h("p", { lang: "en" }, error.hint),
    ),
  );
  if (lost) later(mine, 3000);
}

function signInForm() {
  const field = h("input", { type: "password", autocomplete: "off", id: "token" });
  const wrong = h("p", { role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    if (await signIn(field.value.trim())) {
      follow();
      show(true);
    } else replace(wrong, t("token.wrong"));
  };
  return h(
    "form",
    { class: "token", onsubmit: submit },
    h("h1", {}, t("token.title")),
    h("p", {}, t("token.hint")),
    h("label", { for: "token" }, t("token.label")),
    field,
    h("button", { type: "submit" }, t("token.open")),
    wrong,
  );
}

function onEvent(event) {
  if (event.kind === "connection") {
    connected = event.connected;
    drawConnection();
    if (!isSigningIn()) status.textContent = t(connected ? "connection.live" : "connection.lost");
    return;
  }
  const mine = shown;
  if (!mine || (mine.place.study && !(mine.place.study in event.studies))) return;
  const rest = MIN_REFRESH_MS - (performance.now() - mine.last);
  if (rest <= 0) refresh();
  else if (mine.busy) mine.again = true;
  else later(mine, rest);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (
    !link ||
    event.defaultPrevented ||
    event.button ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    link.hasAttribute("download") ||
    link.target
  )
    return;
  const address = new URL(link.href, location.href);
  if (
    address.origin !== location.origin ||
    address.pathname.startsWith("/api/") ||
    address.pathname.startsWith("/static/")
  )
    return;
  if (address.hash && address.pathname === location.pathname) {
    if (address.hash === "#main") {
      event.preventDefault();
      main.focus();
    }
    return;
  }
  event.preventDefault();
  if (address.href !== location.href) go(address.pathname + address.search);
  window.scrollTo(0, 0);
});
addEventListener("popstate", () => show(false, true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(true));
matchMedia(NARROW).addEventListener("change", () => refresh());

const kept = localStorage.getItem("theme");
if (kept === "light" || kept === "dark") setTheme(kept);
await Promise.all([loadTexts(), exchangeToken()]);
document.body.append(header, main, status);
onChange(onEvent);
follow();
await show();
