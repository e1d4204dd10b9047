// Texts in the language of the reader, and numbers, times and money as text.

import { h } from "./dom.js";

export const LANGUAGES = { en: "English", "zh-Hans": "简体中文", "zh-Hant": "繁體中文" };
let entries = {};
export let language = "en";

function wanted() {
  const kept = localStorage.getItem("language");
  if (kept in LANGUAGES) return kept;
  for (const tag of navigator.languages || []) {
    const lower = tag.toLowerCase();
    if (/^zh-(hant|tw|hk|mo)/.test(lower)) return "zh-Hant";
    if (lower.startsWith("zh")) return "zh-Hans";
    if (lower.startsWith("en")) return "en";
  }
  return "en";
}

export async function loadTexts(chosen) {
  if (chosen) localStorage.setItem("language", chosen);
  language = wanted();
  entries = await (await fetch(`/static/texts/${language}.json`)).json();
  document.documentElement.lang = language;
}

export function t(key, values = {}) {
  const text = entries[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export const orItself = (prefix, name) => entries[`${prefix}.${name}`] ?? name;
export const causeText = (cause) => orItself("cause", cause);
export const stateText = (state) => orItself("state", state);

// Sentences that the program recorded in English, in the language of the reader: the same forms as in the reports.
export function recorded(text) {
  if (language === "en") return text;
  for (const { key, pattern } of forms()) {
    const found = pattern.exec(text);
    if (found)
      return t(
        key,
        Object.fromEntries(Object.entries(found.groups ?? {}).map(([name, part]) => [name, local(name, part)])),
      );
  }
  return text;
}

const local = (name, part) =>
  name === "cause"
    ? causeText(part)
    : name === "time" || name === "limit"
      ? part.replace(/(?<=\d )(d|h|min|s)\b/g, (unit) => t(`unit.${unit}`))
      : recorded(part);

let known = { of: null, found: [] };

// The longest form first, so that one that contains another is found.
function forms() {
  if (known.of !== entries)
    known = {
      of: entries,
      found: Object.entries(entries)
        .filter(([key]) => key.startsWith("form."))
        .sort((a, b) => b[1].length - a[1].length)
        .map(([key, text]) => ({ key: key.slice(5), pattern: patternOf(text) })),
    };
  return known.found;
}

// What is counted is a number, so that "breaker: 7" is none.
const partOf = (name) => (["count", "times", "steps", "updates"].includes(name) ? "[\\d,.]+" : "[^]+?");
const patternOf = (text) =>
  new RegExp(
    `^${text.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, (_, name) => `(?<${name}>${partOf(name)})`)}$`,
  );

// As an element; what stays in English says so to a screen reader.
export const said = (text) => {
  const own = recorded(text);
  return h("span", { lang: own === text && language !== "en" ? "en" : null }, own);
};

// The middle of a long name is left out: its end may say the seed.
export const shortened = (name, most) => (name.length > most ? `${name.slice(0, most - 13)}…${name.slice(-12)}` : name);

const DASH = "–";

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  const whole = Math.round(seconds),
    unit = (name) => t(`unit.${name}`);
  if (whole < 60) return `${seconds < 10 ? seconds.toFixed(1) : whole} ${unit("s")}`;
  if (whole < 3600) return `${Math.floor(whole / 60)} ${unit("min")} ${whole % 60} ${unit("s")}`;
  if (whole < 86400)
    return `${Math.floor(whole / 3600)} ${unit("h")} ${Math.floor((whole % 3600) / 60)} ${unit("min")}`;
  return `${Math.floor(whole / 86400)} ${unit("d")} ${Math.floor((whole % 86400) / 3600)} ${unit("h")}`;
}

export function bytes(count) {
  if (count === null || count === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"],
    power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.abs(count) || 1) / 10))),
    size = count / 1024 ** power;
  return `${power ? size.toFixed(Number.isInteger(size * 10) ? 1 : 2) : Math.round(size)} ${units[power]}`;
}

const SIGNS = { CNY: "¥", USD: "$", EUR: "€", GBP: "£", JPY: "JP¥" };

export function money(amount, currency) {
  if (amount === null || amount === undefined) return DASH;
  if (SIGNS[currency]) return `${SIGNS[currency]}${amount.toFixed(2)}`;
  return currency ? `${amount.toFixed(2)} ${currency}` : amount.toFixed(2); // a study need not declare one
}

export const count = (value) => (value === null || value === undefined ? DASH : Math.round(value).toLocaleString("en"));

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4))
    return value
      .toExponential(3)
      .replace(/\.?0*e\+?/, "e")
      .replaceAll("-", "−");
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 4 }).replace("-", "−");
}

// A mean and its spread, both to the spread's second digit.
export function withSpread(mean, spread) {
  if (!(spread > 0)) return number(mean);
  const digits = Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(spread))));
  const fixed = (value) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${fixed(mean).replace("-", "−")} ± ${fixed(spread)}`;
}

export function steps(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  const [factor, unit] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  return `${Number((value / factor).toPrecision(4))}${unit}`;
}

// All times are in UTC, as in the reports: readers of one study may sit in several zones.
export const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);
export const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
export const bareMoment = (seconds) => (seconds ? `${day(seconds)} ${clock(seconds)}` : DASH);
export const moment = (seconds) => (seconds ? `${bareMoment(seconds)} UTC` : DASH);
