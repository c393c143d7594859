"use strict";
// Elements of the page, and the figures in them.

(() => {
  const { NOTHING, digits, full, shown } = Symacct.words;
  const UNITS = {
    flops: "FLOP",
    pointwise: "FLOP",
    bytes: "B",
    seconds: "s",
    kept: "B",
    activation_bytes: "B",
    intensity: "FLOP/B",
  };

  /** The element of that id. */
  const at = (id) => document.getElementById(id);

  /** A new element with attributes (null and false: left out) and children (strings are text). */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  /** An element with one of the formulas that Python wrote, which are HTML. */
  function formula(html, tag = "span") {
    const made = element(tag, { class: "math" });
    made.innerHTML = html;
    return made;
  }

  /** Write a formula into an element, unless it is there already. */
  function setFormula(node, html) {
    if (node.formula === html) return;
    node.formula = html;
    node.innerHTML = html;
  }

  const setText = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };

  /** A new element for a number, by the name that it has on the page. */
  const figure = (name, tag = "span") => element(tag, { "data-figure": name, class: "figure" }, NOTHING);

  /** Show a number in its element: short, with all digits in the tooltip. ``why``: said where there is none. */
  function put(node, value, unit, why = "") {
    const key = value === null ? `none ${why}` : digits(value);
    if (node.dataset.value === key && node.unit === unit) return;
    node.unit = unit;
    node.textContent = shown(value, unit);
    node.title = value === null ? why : full(value, unit);
    if (value === null) delete node.dataset.value;
    else node.dataset.value = key;
  }

  /** Take away every number below an element: what may not be shown. */
  function blank(root) {
    for (const node of root.querySelectorAll("[data-figure]")) {
      delete node.dataset.value;
      node.title = "";
      setText(node, NOTHING);
    }
  }

  /** Options of a menu: [value, text] each, or {label, options} for a group. */
  function fill(select, entries) {
    const option = ([value, text, refusal]) =>
      element("option", { value, disabled: Boolean(refusal), title: refusal || null }, text);
    select.replaceChildren(
      ...entries.map((each) =>
        Array.isArray(each) ? option(each) : element("optgroup", { label: each.label }, ...each.options.map(option)),
      ),
    );
  }

  /** What a colour variable is now, for what is drawn on a canvas. */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  Symacct.elements = {
    UNITS,
    at,
    element,
    formula,
    setFormula,
    setText,
    figure,
    put,
    blank,
    fill,
    colour,
    calm,
  };
})();
