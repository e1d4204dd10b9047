// Elements from data. Every text becomes a text node, so nothing that a study holds is ever markup.

export const NARROW = "(max-width: 640px)";
export const isNarrow = () => matchMedia(NARROW).matches;
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const replace = (node, ...children) => {
  node.replaceChildren();
  return add(node, children);
};

// A table with a caption for screen readers; cells are texts or nodes, `right` names columns of numbers. On a phone
// the rows of one that "folds" become lists, each value with its label.
export function table(caption, header, rows, { right = [], classes = "" } = {}) {
  const side = (place) => (right.includes(place) ? "right" : null);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { class: `${classes} ${header.length > 3 ? "folds" : ""}`.trim() || null },
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          header.map((text, n) => h("th", { scope: "col", class: side(n) }, text)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            row.map((cell, n) => h("td", { class: side(n), "data-label": header[n] }, cell)),
          ),
        ),
      ),
    ),
  );
}

// Replaces the children of a node only where the data changed, so that focus and scrolling stay.
export function refresher(node) {
  let before = null;
  return (data, draw) => {
    const now = JSON.stringify(data);
    if (now === before) return;
    before = now;
    const focused = node.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
    const scrolled = [...node.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
    replace(node, draw(data));
    [...node.querySelectorAll(".scroll")].forEach((one, n) => {
      if (scrolled[n]) [one.scrollLeft, one.scrollTop] = scrolled[n];
    });
    if (focused)
      [...node.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === focused)?.focus();
  };
}
