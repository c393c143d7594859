"use strict";
// Totals as cards, and by phase, with their formulas.

(() => {
  const { WHOLE, formulaOf } = Symacct.model;
  const { subtract, number, compare } = Symacct.exact;
  const { quantity, duration, percent } = Symacct.words;
  const { UNITS, at, element, figure, formula, put, setText } = Symacct.elements;
  const MEASURES = ["flops", "pointwise", "bytes", "seconds", "intensity"];
  const TITLES = {
    flops: "FLOP",
    pointwise: "pointwise",
    bytes: "bytes",
    seconds: "least time",
    intensity: "intensity",
  };

  // -- cards ---------------------------------------------------------------------------

  /** A card: what it is, its figure, a line of words below, and a formula. */
  function card(name, title, html = "") {
    const made = { value: figure(`total/${name}`), words: element("p", { class: "words" }, "") };
    const shown = html ? formula(html, "p") : null;
    if (shown) shown.tabIndex = 0; // a long one scrolls
    made.root = element("div", { class: "card" }, element("h3", {}, title), made.value, made.words, shown);
    return made;
  }

  /** Make cards and the table of phases for a variant. */
  function make(variant) {
    const total = { formulas: variant.total, all: variant.whole };
    const params = variant.memory.held.find((each) => each.name === "parameters" && each.unit === "count");
    const cards = {
      flops: card("flops", "FLOP", formulaOf(total, WHOLE, "flops")),
      bytes: card("bytes", "bytes", formulaOf(total, WHOLE, "bytes")),
      parameters: card("parameters", "parameters", params ? params.formula : "0"),
      peak: card("peak", "peak memory", variant.memory.peak),
      seconds: card("seconds", "least time"),
      intensity: card("intensity", "intensity"),
    };
    at("cards").replaceChildren(...Object.values(cards).map((each) => each.root));
    return { cards, params, rows: phaseTable(variant, total) };
  }

  function updateCards({ cards, params }, view) {
    const sum = view.sums(view.variant.whole[WHOLE]);
    put(cards.flops.value, sum.flops, "FLOP");
    setText(cards.flops.words, `and ${quantity(sum.pointwise, "FLOP")} pointwise`);
    put(cards.bytes.value, sum.bytes, "B");
    setText(
      cards.bytes.words,
      sum.bytes === 0n ? "" : `${duration(sum.memory)} at ${quantity(view.device.bandwidth, "B/s")}`,
    );
    put(cards.parameters.value, params ? view.value(params.value) : 0n, "");
    put(cards.seconds.value, sum.seconds, "s", sum.why);
    setText(cards.seconds.words, sum.why || (sum.limit ? `limited by ${sum.limit}` : "nothing runs"));
    put(cards.intensity.value, sum.intensity, UNITS.intensity);
    setText(cards.intensity.words, ridges(view, sum));
    updatePeak(cards.peak, view);
  }

  /** Where compute begins to limit: the ridge point of each dtype. */
  function ridges(view, sum) {
    const known = sum.dtypes.filter((dtype) => view.device.peaks[dtype]);
    const words = known.map((dtype) => `${quantity(view.device.peaks[dtype] / view.device.bandwidth)} in ${dtype}`);
    return words.length ? `ridge point ${words.join(", ")}` : "";
  }

  function updatePeak(shown, view) {
    const peak = view.peak;
    put(shown.value, peak ? peak.nbytes : null, "B", view.variant.memory.refusal);
    setText(shown.words, peak ? fits(view, peak.nbytes) : view.variant.memory.refusal);
    shown.root.classList.toggle("over", Boolean(peak) && compare(peak.nbytes, BigInt(view.device.memory)) > 0);
  }

  /** Whether so many bytes fit on the device, and by how much. */
  function fits(view, nbytes) {
    const left = subtract(BigInt(view.device.memory), nbytes);
    const has = quantity(view.device.memory, "B");
    if (compare(left, 0n) < 0) return `does not fit in ${has}: ${quantity(-number(left), "B")} too much`;
    return `fits in ${has}: ${percent(number(nbytes) / view.device.memory)} of it`;
  }

  // -- phases --------------------------------------------------------------------------

  function phaseTable(variant, total) {
    const names = ["phase", ...MEASURES.map((each) => TITLES[each])];
    const heads = [...names, "limited by"].map((text, i) =>
      element("th", { scope: "col", class: i && i <= MEASURES.length ? "number" : null }, text),
    );
    const rows = [{ name: WHOLE, all: { [WHOLE]: variant.whole[WHOLE] } }, ...variant.phases].map(phaseRow);
    const body = element("tbody", {});
    rows.forEach((row, i) => body.append(row.line, formulasOf(row, i ? variant.phases[i - 1] : total)));
    at("phase-table").replaceChildren(element("thead", {}, element("tr", {}, ...heads)), body);
    return rows;
  }

  function phaseRow({ name, all }) {
    const figures = Object.fromEntries(MEASURES.map((measure) => [measure, figure(`phase/${name}/${measure}`)]));
    const limit = element("td", {});
    const button = element("button", { type: "button", class: "fold", "aria-label": `formulas of ${name}` });
    const line = element("tr", { class: "phase" }, element("th", { scope: "row", class: "name" }, button, name));
    line.append(...MEASURES.map((each) => element("td", { class: "number" }, figures[each])), limit);
    return { name, runs: all[WHOLE], figures, limit, line, button };
  }

  /** A line below a phase with its formulas, which its button opens. */
  function formulasOf(row, source) {
    const list = element("dl", { class: "formulas" });
    for (const measure of ["flops", "pointwise", "bytes"]) {
      list.append(element("dt", {}, TITLES[measure]), formula(formulaOf(source, WHOLE, measure), "dd"));
    }
    const line = element("tr", { class: "more", hidden: row.name !== WHOLE }, element("td", { colspan: "7" }, list));
    const say = () => row.button.setAttribute("aria-expanded", String(!line.hidden));
    row.button.addEventListener("click", () => {
      line.hidden = !line.hidden;
      say();
    });
    say();
    return line;
  }

  function update(made, view) {
    updateCards(made, view);
    const whole = view.sums(view.variant.whole[WHOLE]);
    for (const { runs, figures, limit } of made.rows) {
      const sum = view.sums(runs);
      for (const measure of MEASURES) {
        put(figures[measure], sum[measure], UNITS[measure], measure === "seconds" ? sum.why : "");
        const share =
          measure === "intensity" || !number(whole[measure] ?? 0) ? 0 : number(sum[measure]) / number(whole[measure]);
        figures[measure].style.setProperty("--part", `${(100 * share).toFixed(2)}%`);
      }
      setText(limit, sum.limit || (sum.why ? "no peak" : ""));
      limit.title = sum.why;
    }
  }

  Symacct.totals = { make, update, fits };
})();
