"use strict";
// The roofline: ceilings of the device, and a point for each module or op.

(() => {
  const { deepest, worked, decadesOf } = Symacct.roofs;
  const { quantity, duration, percent, NOTHING } = Symacct.words;
  const { at, colour, fill, setText, UNITS } = Symacct.elements;
  const { state } = Symacct.state;
  const HEIGHT = 380;
  const REACH = 22; // pixels from a point at which it is named
  const LIFT = 14; // pixels from a ceiling to its name, which is above the points on it
  const NAMED = 7; // points with names on the chart
  let chart = null;
  let shown = null; // what it shows, by `worked`

  function options(width) {
    const axis = {
      stroke: colour("--ink-soft"),
      font: "12px system-ui",
      labelFont: "12px system-ui",
      labelSize: 20,
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line") },
    };
    const decades = (axis_) => () => decadesOf(shown.box[axis_]);
    const all = (_, ticks) => ticks; // all decades have names, however narrow the chart
    const tick = (unit) => (_, ticks) => ticks.map((v) => quantity(v, unit));
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
      scales: {
        x: { time: false, distr: 3, range: () => shown.box.x },
        y: { distr: 3, range: () => shown.box.y },
      },
      axes: [
        { ...axis, label: "intensity, FLOP per byte", splits: decades("x"), filter: all, values: tick(""), size: 34 },
        { ...axis, splits: decades("y"), filter: all, values: tick("FLOP/s"), size: 96 },
      ],
      cursor: { drag: { x: false, y: false }, points: { show: false }, x: false, y: false },
      hooks: { drawAxes: [drawCeilings], draw: [drawPoints], setCursor: [hovered] },
    };
  }

  function line(plot, from, to) {
    plot.ctx.beginPath();
    plot.ctx.moveTo(plot.valToPos(from[0], "x", true), plot.valToPos(from[1], "y", true));
    plot.ctx.lineTo(plot.valToPos(to[0], "x", true), plot.valToPos(to[1], "y", true));
    plot.ctx.stroke();
  }

  function drawCeilings(plot) {
    const { ctx, bbox } = plot;
    const { ceilings, device, box } = shown;
    const size = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${12 * size}px system-ui`;
    ctx.lineWidth = 1.75 * size;
    ctx.strokeStyle = colour("--name");
    ctx.fillStyle = colour("--name");
    const highest = Math.max(0, ...ceilings.map((c) => c.rate)) || box.y[1];
    line(plot, [box.x[0], box.x[0] * device.bandwidth], [highest / device.bandwidth, highest]);
    slopeName(plot, `${quantity(device.bandwidth, "B/s")}`);
    ctx.textAlign = "right";
    ctx.textBaseline = "bottom";
    for (const { name, rate } of ceilings) {
      ctx.setLineDash(name === "vector" ? [6 * size, 4 * size] : []);
      line(plot, [rate / device.bandwidth, rate], [box.x[1], rate]);
      const y = plot.valToPos(rate, "y", true);
      ctx.fillText(`${name} ${quantity(rate, "FLOP/s")}`, bbox.left + bbox.width - 8 * size, y - LIFT * size);
    }
    ctx.restore();
  }

  /** The bandwidth, written along its slope. */
  function slopeName(plot, text) {
    const { ctx } = plot;
    const { box, device } = shown;
    const at_ = (x) => [plot.valToPos(x, "x", true), plot.valToPos(x * device.bandwidth, "y", true)];
    const [x0, y0] = at_(box.x[0] * 2.5);
    const [x1, y1] = at_(box.x[0] * 25);
    ctx.save();
    ctx.translate(x0, y0);
    ctx.rotate(Math.atan2(y1 - y0, x1 - x0));
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    ctx.fillText(text, 4 * devicePixelRatio, -6 * devicePixelRatio);
    ctx.restore();
  }

  /** The larger a point the more of the time it takes. */
  const radius = (point) =>
    3.5 + 9 * Math.sqrt(point.sum.seconds / (shown.whole.seconds || shown.points[0].sum.seconds));

  function drawPoints(plot) {
    const { ctx } = plot;
    const size = devicePixelRatio;
    ctx.save();
    ctx.lineWidth = 1.25 * size;
    for (const point of [...shown.points]) {
      const [x, y] = [plot.valToPos(point.x, "x", true), plot.valToPos(point.y, "y", true)];
      ctx.fillStyle = colour("--point");
      ctx.strokeStyle = colour("--page");
      ctx.globalAlpha = 0.8;
      ctx.beginPath();
      ctx.arc(x, y, radius(point) * size, 0, 2 * Math.PI);
      ctx.fill();
      ctx.globalAlpha = 1;
      ctx.stroke();
    }
    drawNames(plot);
    ctx.restore();
  }

  /** The names of the slowest points, below them, where no other name is. */
  function drawNames(plot) {
    const { ctx, bbox } = plot;
    const size = devicePixelRatio;
    const taken = [];
    ctx.font = `${12 * size}px system-ui`;
    ctx.fillStyle = colour("--ink");
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    for (const point of shown.points.slice(0, NAMED)) {
      const text = point.name.length > 32 ? `\u2026${point.name.slice(-31)}` : point.name;
      const wide = ctx.measureText(text).width;
      const x = Math.min(plot.valToPos(point.x, "x", true) - wide / 2, bbox.left + bbox.width - wide - 4 * size);
      const y = plot.valToPos(point.y, "y", true) + (radius(point) + 3) * size;
      const box = [x, y, x + wide, y + 14 * size];
      const isFree = taken.every((o) => box[2] < o[0] || o[2] < box[0] || box[3] < o[1] || o[3] < box[1]);
      if (!isFree || box[3] > bbox.top + bbox.height || x < bbox.left) continue;
      taken.push(box);
      ctx.fillText(text, x, y);
    }
  }

  function hovered(plot) {
    const { left, top } = plot.cursor;
    let best = null;
    let least = Infinity;
    for (const point of shown.points) {
      const away = Math.hypot(plot.valToPos(point.x, "x") - left, plot.valToPos(point.y, "y") - top) - radius(point);
      if (left >= 0 && away < REACH && away < least) [best, least] = [point, away];
    }
    say(best);
  }

  function say(point) {
    setText(at("roofline-where"), point ? inWords(point) : summary());
  }

  function inWords({ name, sum }) {
    const all = shown.whole.seconds ? ` (${percent(sum.seconds / shown.whole.seconds)} of the time)` : "";
    const rate = quantity(sum.arithmetic / sum.seconds, "FLOP/s");
    const takes = `${duration(sum.seconds)}${all}, limited by ${sum.limit}`;
    return `${name}: ${quantity(sum.intensity, UNITS.intensity)}, at most ${rate}, ${takes}`;
  }

  function summary() {
    const { points, hidden, whole } = shown;
    if (whole.why) return `${whole.why}: what multiplies in it has no time and no point.`;
    const more = hidden ? ` Not drawn, since without arithmetic: ${hidden}.` : "";
    return points.length
      ? `The larger a point, the more of the time it takes. Point at one to read it.${more}`
      : NOTHING;
  }

  /** Make the menu of depths for a variant. */
  function make(variant) {
    const top = deepest(variant);
    fill(
      at("depth"),
      Array.from({ length: top + 1 }, (_, i) => [
        i === top ? "" : String(i),
        i === top ? `all (${i + 1})` : String(i + 1),
      ]),
    );
    if (Number(state.depth) >= top) state.depth = "";
    drop();
  }

  /** Take the chart away; the next update draws it anew. */
  function drop() {
    if (chart) chart.destroy();
    chart = null;
  }

  function update(view) {
    shown = worked(view);
    at("depth").value = state.depth;
    at("depth-choice").hidden = state.points === "ops";
    // uPlot draws the axes; the points are drawn by `drawPoints`, each as large as its time.
    const data = [shown.box.x, shown.box.y];
    if (chart) chart.setData(data);
    else chart = new uPlot(options(at("roofline-chart").clientWidth), data, at("roofline-chart"));
    say(null);
  }

  Symacct.roofline = { make, update, drop };
})();
