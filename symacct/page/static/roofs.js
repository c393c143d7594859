"use strict";
// What a roofline shows: the parts with their intensity and their rate, the ceilings, and the range of both.

(() => {
  const { WHOLE } = Symacct.model;
  const { state } = Symacct.state;

  /** The parts that are drawn: ops, or the modules of one depth with those above that go no deeper. */
  function parts(variant) {
    if (state.points === "ops") return variant.ops.map((row) => [row.label, row]);
    const depth = Number(state.depth || deepest(variant));
    return variant.modules
      .filter((row) => row.depth === depth || (row.depth < depth && !row.children.length))
      .map((row) => [row.name || row.label, row]);
  }

  const deepest = (variant) => Math.max(0, ...variant.modules.map((row) => row.depth));

  /** Points (name, sums, intensity ``x``, rate ``y``), slowest first, ceilings, and the axes' ranges (``box``). */
  function worked(view) {
    const { device, variant } = view;
    const points = [];
    let hidden = 0;
    for (const [name, row] of parts(variant)) {
      const sum = view.sums(row.all[state.phase]);
      if (sum.arithmetic > 0 && sum.seconds > 0 && sum.intensity !== null) {
        points.push({ name, sum, x: sum.intensity, y: sum.arithmetic / sum.seconds });
      } else if (sum.bytes !== 0n) hidden += 1;
    }
    points.sort((a, b) => b.sum.seconds - a.sum.seconds);
    const dtypes = view.sums(variant.whole[WHOLE]).dtypes.filter((dtype) => device.peaks[dtype]);
    const ceilings = ceilingsOf(
      dtypes.map((dtype) => [dtype, device.peaks[dtype]]),
      device.vector,
    );
    return {
      points,
      hidden,
      ceilings,
      device,
      whole: view.sums(variant.whole[state.phase]),
      box: bounds(points, ceilings, device),
    };
  }

  /** The horizontal lines, each with the names of all that have its rate. */
  function ceilingsOf(peaks, vector) {
    const found = new Map();
    for (const [name, rate] of [...peaks, ["vector", vector]]) {
      if (rate) found.set(rate, { rate, name: found.has(rate) ? `${found.get(rate).name}, ${name}` : name });
    }
    return [...found.values()];
  }

  /** The decades that hold all points, and the ridge points of all ceilings. */
  function bounds(points, ceilings, device) {
    const xs = [...points.map((p) => p.x), ...ceilings.map((c) => c.rate / device.bandwidth), 1];
    const top = Math.max(...ceilings.map((c) => c.rate), ...points.map((p) => p.y), device.bandwidth);
    const left = 10 ** Math.floor(Math.log10(Math.min(...xs)) - 0.2);
    const right = 10 ** Math.ceil(Math.log10(Math.max(...xs)) + 0.2);
    const low = Math.min(...points.map((p) => p.y), left * device.bandwidth);
    return { x: [left, right], y: [10 ** Math.floor(Math.log10(low)), 3 * top] }; // above there is room for names
  }

  /** The powers of ten in a range. */
  function decadesOf([low, high]) {
    const first = Math.ceil(Math.log10(low) - 1e-9);
    const last = Math.floor(Math.log10(high) + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => Number(`1e${first + i}`));
  }

  Symacct.roofs = { deepest, worked, decadesOf };
})();
