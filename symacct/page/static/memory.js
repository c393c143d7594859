"use strict";
// Memory: what is alive at the peak against the device's memory, and what is held.

(() => {
  const { number } = Symacct.exact;
  const { percent, quantity } = Symacct.words;
  const { at, element, figure, formula, put, setText } = Symacct.elements;

  /** Make the bar, its legend and the table of what is held. */
  function make(variant) {
    const { kinds, moments, held, refusal, peak } = variant.memory;
    const alive = kinds.filter((kind) => moments.some((moment) => kind in moment.kinds));
    const parts = new Map(alive.map((kind) => [kind, part(kind)]));
    const total = figure("peak/bytes");
    const legend = element("tbody", {}, ...[...parts.values()].map((each) => each.line));
    legend.append(
      element(
        "tr",
        { class: "sum" },
        element("th", { scope: "row" }, "peak"),
        element("td", { class: "number" }, total),
        element("td", {}),
      ),
    );
    at("peak-bar").replaceChildren(...[...parts.values()].map((each) => each.piece));
    at("peak-table").replaceChildren(legend);
    at("peak-formula").replaceChildren(formula(peak || "0"));
    at("memory-refusal").textContent = refusal;
    at("memory").classList.toggle("refused", Boolean(refusal));
    return { parts, total, held: heldTable(held) };
  }

  function part(kind) {
    const swatch = element("span", { class: "swatch", "data-kind": kind });
    const value = figure(`peak/${kind}`);
    const share = element("td", { class: "number share-of" });
    const line = element("tr", {}, element("th", { scope: "row" }, swatch, kind));
    line.append(element("td", { class: "number" }, value), share);
    return { line, value, share, piece: element("span", { class: "piece", "data-kind": kind }) };
  }

  function heldTable(held) {
    const rows = held.map((each) => {
      const value = figure(`memory/${each.name}/${each.unit}`);
      const name = each.unit === "count" ? `${each.name} (how many)` : each.name;
      const line = element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "number" }, value));
      line.append(formula(each.formula, "td"));
      return { line, value, place: each.value, unit: each.unit === "count" ? "" : "B" };
    });
    const heads = ["tensors", "bytes", "formula"].map((text, i) =>
      element("th", { scope: "col", class: i === 1 ? "number" : null }, text),
    );
    const body = element("tbody", {}, ...rows.map((row) => row.line));
    at("held-table").replaceChildren(element("thead", {}, element("tr", {}, ...heads)), body);
    return rows;
  }

  function update(made, view) {
    for (const { value, place, unit } of made.held) put(value, view.value(place), unit);
    const peak = view.peak;
    if (!peak) return;
    const all = number(peak.nbytes);
    const scale = Math.max(all, view.device.memory);
    for (const [kind, { value, share, piece, line }] of made.parts) {
      const nbytes = kind in peak.kinds ? view.value(peak.kinds[kind]) : 0n;
      put(value, nbytes, "B");
      setText(share, percent(all ? number(nbytes) / all : 0));
      line.classList.toggle("none", !number(nbytes));
      piece.style.width = `${(100 * number(nbytes)) / scale}%`;
      piece.title = `${kind}: ${quantity(nbytes, "B")}`;
    }
    put(made.total, peak.nbytes, "B");
    const isOver = all > view.device.memory;
    at("peak-bar").classList.toggle("over", isOver);
    at("peak-bar").style.setProperty("--room", `${(100 * view.device.memory) / scale}%`);
    setText(at("peak-words"), `${capital(Symacct.totals.fits(view, peak.nbytes))} (${view.device.name}).`);
    setText(at("peak-where"), `The peak is at ${peak.label}.`);
  }

  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

  Symacct.memory = { make, update };
})();
