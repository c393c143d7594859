"use strict";
// What is known of the node of the graph that was chosen: its costs with their formulas, shapes, ops, source, path.

(() => {
  const { content } = Symacct.model;
  const { shown, percent, full } = Symacct.words;
  const { UNITS, at, element, formula } = Symacct.elements;
  const { state } = Symacct.state;
  const COSTS = {
    flops: "FLOP",
    pointwise: "pointwise",
    bytes: "bytes read and written",
    activation_bytes: "activation bytes kept",
    seconds: "least time",
  };

  /** Show a node in the panel; ``costOf(node, cost)`` gives its {value, why}. */
  function describe(node, costOf) {
    const { box } = node;
    const list = element("dl");
    for (const [name, text] of facts(box)) {
      if (text) list.append(element("dt", {}, name), element("dd", {}, text));
    }
    for (const [cost, name] of Object.entries(COSTS)) {
      list.append(element("dt", {}, name), costLine(node, cost, costOf(node, cost)));
    }
    at("graph-node").replaceChildren(element("h3", {}, box.label || "(top level)"), list);
  }

  function facts(box) {
    return [
      ["module", box.path || "(top level)"],
      ["equal ones", String(box.times ?? 1) === "1" ? "" : String(box.times)],
      ["ops", listed(box.ops)],
      ["shape", listed(box.shape)],
      ["source", listed((box.sources || []).map(textOf))],
      ["incomplete", box.incomplete ? "an op without a rule" : ""],
    ];
  }

  /** A cost's value, its formula, and its share if it is the one that is drawn. */
  function costLine(node, cost, { value, why }) {
    const unit = UNITS[cost];
    const digits = element(
      "span",
      { class: "figure", title: value === null ? why : full(value, unit) },
      shown(value, unit),
    );
    const line = element("dd", {}, digits, why ? ` ${why}` : "");
    if (cost in node.box.formulas) line.append(formula(textOf(node.box.formulas[cost]), "div"));
    if (cost === state.cost) line.append(element("div", { class: "words" }, `${percent(node.share)} of what is drawn`));
    return line;
  }

  /** A text of the page by its number. */
  const textOf = (place) => (typeof place === "number" ? content.texts[place] : place);

  /** A text, or several with commas. */
  const listed = (what) => (Array.isArray(what) ? what.join(", ") : String(what ?? ""));

  Symacct.panel = { describe, listed };
})();
