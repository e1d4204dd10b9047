// Texts in the language of the reader, and numbers, times and money as text.

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

export const has = (key) => key in entries;
export const orItself = (prefix, name) => entries[`${prefix}.${name}`] ?? name;
export const causeText = (cause) => orItself("cause", cause);
export const stateText = (state) => orItself("state", state);

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
  let size = count;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(size) < 1024) return unit === "B" ? `${Math.round(size)} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
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
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(3).replace("-", "−");
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 6 : 4 }).replace("-", "−");
}

export function steps(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  const [factor, unit] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  return `${Number((value / factor).toPrecision(4))}${unit}`;
}

export function moment(seconds) {
  if (!seconds) return DASH;
  const d = new Date(seconds * 1000),
    two = (n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
