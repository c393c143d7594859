"use strict";
// What is alive while a step runs, stacked by kind.

(() => {
  const { momentsOf, decimated, spans } = Symacct.moments;
  const { quantity, grouped } = Symacct.words;
  const { at, colour, element, setText, fill } = Symacct.elements;
  const { state } = Symacct.state;
  const HEIGHT = 300;
  let chart = null;
  let shown = null; // the moments that the chart shows, of them those that are drawn (``kept``), and the kinds

  function worked(view) {
    const { timelines, kinds } = view.variant.memory;
    const made = momentsOf(view, timelines.find((each) => each.step === state.step) || timelines[0]);
    if (made.isTooLong) return made;
    const highest = made.totals.reduce((best, total, i) => (total > made.totals[best] ? i : best), 0);
    const used = kinds.map((_, k) => k).filter((k) => made.alive[k].some((nbytes) => nbytes > 0));
    return { ...made, kinds, used, highest, kept: decimated(made.totals) };
  }

  /** Columns for uPlot: positions, then for each kind, from the top of the stack down, the sum up to it. */
  function columns({ used, alive: found, kept, totals }) {
    const upto = new Array(kept.length).fill(0);
    const layers = used.map((k) => kept.map((moment, i) => (upto[i] += found[k][moment])));
    const ended = (values) => [...values, values.at(-1)];
    return [[...kept, totals.length], ...layers.reverse().map(ended)];
  }

  function options(width, { kinds, used }) {
    const ink = colour("--ink-soft");
    const axis = { stroke: ink, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const series = [...used].reverse().map((k) => ({
      label: kinds[k],
      fill: colour(`--kind-${kinds[k].replace(" ", "-")}`),
      width: 0,
      paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
    }));
    if (series.length) Object.assign(series[0], { stroke: colour("--ink"), width: 0.5 });
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      scales: {
        x: { time: false, range: (_, low, top) => [low, top] },
        y: { range: () => [0, 1.25 * shown.totals[shown.highest] || 1] },
      },
      series: [{}, ...series],
      axes: [
        {
          ...axis,
          label: "nodes, in the order in which they ran",
          labelSize: 20,
          font: "12px system-ui",
          labelFont: "12px system-ui",
          size: 34,
        },
        {
          ...axis,
          size: 76,
          font: "12px system-ui",
          values: (_, ticks) => ticks.map((y) => (y ? quantity(y, "B") : "0")),
        },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
      hooks: { drawAxes: [shades], draw: [mark], setCursor: [hovered] },
    };
  }

  function shades(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${12 * devicePixelRatio}px system-ui`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    let taken = -Infinity;
    for (const [phase, begin, end] of spans(shown)) {
      const left = Math.max(bbox.left, plot.valToPos(begin, "x", true));
      const right = Math.min(bbox.left + bbox.width, plot.valToPos(end, "x", true));
      if (right <= left) continue;
      ctx.fillStyle = colour("--shade");
      if (phase === "backward") ctx.fillRect(left, bbox.top, right - left, bbox.height);
      const wide = ctx.measureText(phase).width;
      ctx.fillStyle = colour("--ink-soft");
      if (right - left > wide + 8 && left > taken) {
        ctx.fillText(phase, left + 6, bbox.top + 5);
        taken = left + wide;
      }
    }
    ctx.restore();
  }

  /** A dot on the peak, with its bytes. */
  function mark(plot) {
    const { ctx, bbox } = plot;
    const x = plot.valToPos(shown.highest + 0.5, "x", true);
    const y = plot.valToPos(shown.totals[shown.highest], "y", true);
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    const size = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = colour("--ink");
    ctx.strokeStyle = colour("--page");
    ctx.lineWidth = 1.5 * size;
    ctx.beginPath();
    ctx.arc(x, y, 4.5 * size, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
    ctx.font = `600 ${12 * size}px system-ui`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    const text = `peak ${quantity(shown.totals[shown.highest], "B")}`;
    const wide = ctx.measureText(text).width;
    ctx.fillText(text, x + 8 * size + wide > bbox.left + bbox.width ? x - wide - 8 * size : x + 8 * size, y - 5 * size);
    ctx.restore();
  }

  function hovered(plot) {
    if (plot.cursor.left < 0) return say(shown.highest);
    const moment = Math.floor(plot.posToVal(plot.cursor.left, "x"));
    say(Math.max(0, Math.min(shown.totals.length - 1, moment)));
  }

  /** Say in words what is alive at a moment. */
  function say(moment) {
    const { timeline, kinds, used, alive: found, totals, highest } = shown;
    const [op, path, phase] = ["ops", "paths", "phases"].map((key) => timeline.texts[shown[key][moment]]);
    const where = op ? `${op} in ${path || "the top level"} (${phase})` : "before the first op";
    const first = moment === highest ? "Peak" : `Node ${moment}`;
    setText(at("timeline-where"), `${first}: ${quantity(totals[moment], "B")}, ${where}`);
    const parts = used
      .filter((k) => found[k][moment] > 0)
      .map((k) =>
        element(
          "span",
          {},
          element("span", { class: "swatch", "data-kind": kinds[k] }),
          `${kinds[k]} ${quantity(found[k][moment], "B")}`,
        ),
      );
    at("timeline-kinds").replaceChildren(...parts);
  }

  /** Make the menu of steps for a variant, and hide what a depth that is a dim does not have. */
  function make(variant) {
    const { timelines } = variant.memory;
    at("timeline").hidden = timelines.length === 0;
    at("step-choice").hidden = timelines.length < 2;
    fill(
      at("step"),
      timelines.map(({ step }) => [step, step === "only" ? "the step" : `${step} step`]),
    );
    if (!timelines.some(({ step }) => step === state.step)) state.step = "";
    at("step").value = state.step || timelines[0]?.step || "";
    drop();
  }

  /** Take the chart away; the next update draws it anew. */
  function drop() {
    if (chart) chart.destroy();
    chart = null;
  }

  function update(view) {
    if (!view.variant.memory.timelines.length) return;
    at("step").value = state.step || view.variant.memory.timelines[0].step;
    const before = shown;
    shown = worked(view);
    if (shown.isTooLong) {
      drop();
      setText(at("timeline-where"), `${grouped(String(shown.count))} nodes are too many to draw.`);
      return at("timeline-kinds").replaceChildren();
    }
    const isSame = chart && before.timeline === shown.timeline && String(before.used) === String(shown.used);
    if (isSame) chart.setData(columns(shown));
    else {
      drop();
      const room = at("timeline-chart");
      chart = new uPlot(options(room.clientWidth, shown), columns(shown), room);
    }
    say(shown.highest);
  }

  Symacct.timeline = { make, update, drop };
})();
