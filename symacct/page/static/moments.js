"use strict";
// The moments of a timeline at sizes, and what is alive at each of them.

(() => {
  const { number } = Symacct.exact;
  const POINTS = 4000; // of a drawing; symacct.plot has as many
  const MOST = 200000; // moments that are gone through while a slider moves

  /** The changes before each moment of a segment, by row, for the layer that is ``i`` moments in. */
  function changesAt(segment, i, count) {
    if (segment.count < 0) return segment.changes;
    const rows = segment.ops.length;
    return i < rows ? segment.first : i + rows >= count ? segment.last : segment.changes;
  }

  const lengthOf = (segment, view) => (segment.count < 0 ? segment.ops.length : Number(view.value(segment.count)));

  /**
   * A timeline at sizes: bytes alive by kind at each moment (``alive``, arrays in the order of the kinds), their sums
   * (``totals``), and each moment's texts (``ops``, ``paths``, ``phases``); only ``count`` where there are too many.
   */
  function momentsOf(view, timeline) {
    const count = timeline.segments.reduce((sum, segment) => sum + lengthOf(segment, view), 0);
    if (count > MOST) return { timeline, count, isTooLong: true };
    const kinds = view.variant.memory.kinds.length;
    const sizes = timeline.classes.map(([, place]) => number(view.value(place) ?? 0n));
    const now = new Float64Array(kinds);
    const made = {
      timeline,
      count,
      alive: Array.from({ length: kinds }, () => new Float64Array(count)),
      totals: new Float64Array(count),
      ops: new Uint32Array(count),
      paths: new Uint32Array(count),
      phases: new Uint32Array(count),
    };
    apply(timeline.start, timeline.classes, sizes, now, view);
    let moment = 0;
    for (const segment of timeline.segments) {
      const length = lengthOf(segment, view);
      for (let i = 0; i < length; i++, moment++) {
        const row = i % segment.ops.length;
        apply(changesAt(segment, i, length)[row], timeline.classes, sizes, now, view);
        let total = 0;
        for (let k = 0; k < kinds; k++) total += made.alive[k][moment] = now[k];
        made.totals[moment] = total;
        made.ops[moment] = segment.ops[row];
        made.paths[moment] = segment.paths[row];
        made.phases[moment] = segment.phases[row];
      }
    }
    return made;
  }

  /** Add to what is alive a flat list: class, how many more; 0 says that the next is the place of how many. */
  function apply(flat, classes, sizes, now, view) {
    for (let i = 0; i < flat.length; i += 2) {
      let more = flat[i + 1];
      if (more === 0) {
        more = number(view.value(flat[i + 2]));
        now[classes[flat[i]][0]] += more * sizes[flat[i]];
        i += 1;
      } else now[classes[flat[i]][0]] += more * sizes[flat[i]];
    }
  }

  /** The moments to draw: all, or where there are many the lowest and the highest of every half pixel. */
  function decimated(totals) {
    const count = totals.length;
    if (count <= POINTS) return Array.from({ length: count }, (_, i) => i);
    const kept = new Set([0, count - 1]);
    const parts = POINTS / 2;
    for (let part = 0; part < parts; part++) {
      const begin = Math.floor((part * count) / parts);
      const end = Math.floor(((part + 1) * count) / parts);
      let low = begin;
      let high = begin;
      for (let i = begin; i < end; i++) {
        if (totals[i] < totals[low]) low = i;
        if (totals[i] > totals[high]) high = i;
      }
      kept.add(low).add(high);
    }
    return [...kept].sort((a, b) => a - b);
  }

  /** Spans of equal phases in a row: [phase, begin, end]; what runs again belongs to the backward pass. */
  function spans({ phases, timeline: { texts } }) {
    const name = (i) => (texts[phases[i]] === "recompute" ? "backward" : texts[phases[i]]);
    const found = [];
    for (let i = 0; i < phases.length; i++) {
      const phase = name(i === 0 && phases.length > 1 ? 1 : i); // the start comes before the first node
      if (found.length && found.at(-1)[0] === phase) found.at(-1)[2] = i + 1;
      else found.push([phase, i, i + 1]);
    }
    return found;
  }

  Symacct.moments = { momentsOf, decimated, spans };
})();
