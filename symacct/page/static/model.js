"use strict";
// What a page knows, and its values at sizes: kernels add up to parts, parts have times on a device.

(() => {
  const { exact, add, multiply, compare, number, floor, mod, max, min } = Symacct.exact;
  const WHOLE = "step"; // all phases together
  const LIMITS = ["compute", "vector", "memory"];
  const RELATIONS = {
    "==": (sign) => sign === 0,
    "!=": (sign) => sign !== 0,
    "<": (sign) => sign < 0,
    "<=": (sign) => sign <= 0,
    ">": (sign) => sign > 0,
    ">=": (sign) => sign >= 0,
  };

  const content = JSON.parse(document.getElementById("content").textContent);
  const prepared = new Map();

  /** A variant with its program compiled and the runs of every row gathered; made when it is first wanted. */
  function variantOf(label) {
    if (!prepared.has(label)) prepared.set(label, prepare(content.variants.find((each) => each.label === label)));
    return prepared.get(label);
  }

  function prepare(variant) {
    const run = new Function("s", "floor", "mod", "max", "min", `"use strict";${variant.program}`);
    const phases = content.phases.filter((phase) => variant.phases.some((row) => row.name === phase && used(row)));
    const modules = tree(variant.modules);
    const whole = gather(variant.phases.map((row) => row.runs));
    return {
      ...variant,
      run,
      phaseNames: phases,
      modules,
      whole,
      phases: variant.phases.filter(used).map((row) => ({ ...row, all: gather([row.runs]) })),
      ops: variant.ops.map((row) => ({ ...row, all: gather([row.runs]) })),
      graphs: variant.graphs || content.graphs || [],
    };
  }

  const used = (row) => Object.keys(row.runs).length > 0 || Object.keys(row.formulas).length > 0;

  /** Modules with their children, and with all runs and kept bytes of what is inside. */
  function tree(rows) {
    const nodes = rows.map((row, index) => ({ ...row, index, children: [], parent: null, inside: [row] }));
    const byName = new Map(nodes.map((node) => [node.name, node]));
    for (const node of nodes) {
      // A class of modules may have dots in its name, so the parent is the longest path that it goes on from.
      let cut = node.name.lastIndexOf(".");
      while (cut > 0 && !byName.has(node.name.slice(0, cut))) cut = node.name.lastIndexOf(".", cut - 1);
      node.parent = cut > 0 ? byName.get(node.name.slice(0, cut)) : null;
      if (node.parent) node.parent.children.push(node);
      for (let above = node.parent; above; above = above.parent) above.inside.push(rows[node.index]);
    }
    for (const node of nodes) node.all = gather(node.inside.map((row) => row.runs));
    return nodes;
  }

  /** Runs of several rows by phase and as a whole, equal kernels added: lists of [kernel, times, place of times]. */
  function gather(many) {
    const found = {};
    for (const runs of many) {
      for (const [phase, list] of Object.entries(runs)) {
        for (const name of [phase, WHOLE]) {
          const into = (found[name] ||= new Map());
          for (const [kernel, times, place] of list) {
            const key = place === undefined ? kernel : `${kernel}@${place}`;
            const had = into.get(key);
            if (had) had[1] += place === undefined ? BigInt(times) : 1n;
            else into.set(key, [kernel, place === undefined ? BigInt(times) : 1n, place]);
          }
        }
      }
    }
    return Object.fromEntries(Object.entries(found).map(([phase, map]) => [phase, [...map.values()]]));
  }

  /** All values at some sizes (a Map of BigInts) on a device. */
  class View {
    constructor(label, sizes, device) {
      this.variant = variantOf(label);
      this.sizes = sizes;
      this.device = device;
      this.kernels = [];
      this.found = new Map();
      this.broken = this._problem();
    }

    /** Which condition the sizes break, in Python's words; "" where the formulas hold. */
    _problem() {
      try {
        const sizes = this.variant.dims.map((dim) => this.sizes.get(dim.name));
        this.flat = this.variant.run(sizes, floor, mod, max, min);
      } catch (error) {
        return `${this.given()}: the formulas have no value at these sizes (${error.message})`;
      }
      for (const { text, names, left, relation, right } of this.variant.conditions) {
        if (!RELATIONS[relation](compare(this.value(left), this.value(right)))) {
          const named = this.given(new Set(names));
          return `${named}: the traced program relied on ${text}, so its formulas do not hold at these sizes`;
        }
      }
      const low = this.variant.dims.find((dim) => this.sizes.get(dim.name) < BigInt(dim.least));
      return low ? `${this.given(new Set([low.name]))}: the formulas hold from ${low.name}=${low.least} on` : "";
    }

    /** Sizes in words: those of some dims, else all. */
    given(names = null) {
      const wanted = this.variant.dims.map((dim) => dim.name).filter((name) => !names || names.has(name));
      if (names) wanted.sort();
      return wanted.map((name) => `${name}=${this.sizes.get(name)}`).join(", ");
    }

    /** The exact number at a place; null where there is no rule. */
    value(place) {
      return place < 0 ? null : exact(this.flat[2 * place], this.flat[2 * place + 1]);
    }

    /** FLOP, pointwise, bytes, and the seconds at each ceiling, of a kernel. */
    kernel(k) {
      return (this.kernels[k] ||= this._kernel(this.variant.kernels[k]));
    }

    _kernel(row) {
      const made = {
        flops: 0n,
        pointwise: this.value(row.pointwise) ?? 0n,
        bytes: this.value(row.bytes) ?? 0n,
        dtypes: Object.keys(row.flops),
        compute: 0,
        missing: "",
      };
      for (const [dtype, place] of Object.entries(row.flops)) {
        const flops = this.value(place);
        made.flops = add(made.flops, flops);
        const peak = this.device.peaks[dtype];
        if (peak) made.compute += number(flops) / peak;
        else made.missing = dtype;
      }
      made.vector = this.device.vector ? number(made.pointwise) / this.device.vector : 0;
      made.memory = number(made.bytes) / this.device.bandwidth;
      made.seconds = Math.max(made.compute, made.vector, made.memory);
      return made;
    }

    /** The sums of some runs; those of one list are worked out once. */
    sums(runs) {
      if (!runs) return EMPTY;
      if (!this.found.has(runs)) this.found.set(runs, this._sums(runs));
      return this.found.get(runs);
    }

    _sums(runs) {
      const sum = { flops: 0n, pointwise: 0n, bytes: 0n, seconds: 0, compute: 0, vector: 0, memory: 0 };
      const missing = new Set();
      const dtypes = new Set();
      for (const [k, count, place] of runs) {
        const kernel = this.kernel(k);
        const times = place === undefined ? count : multiply(count, this.value(place));
        for (const measure of ["flops", "pointwise", "bytes"]) {
          if (kernel[measure] !== 0n) sum[measure] = add(sum[measure], multiply(times, kernel[measure]));
        }
        const often = number(times);
        for (const measure of ["seconds", ...LIMITS]) sum[measure] += kernel[measure] * often;
        if (kernel.missing) missing.add(kernel.missing);
        for (const dtype of kernel.dtypes) dtypes.add(dtype);
      }
      return this._judged(sum, [...missing].sort(), [...dtypes].sort());
    }

    /** Sums with what follows from them: a time only where the device has every peak. */
    _judged(sum, missing, dtypes) {
      const arithmetic = number(add(sum.flops, sum.pointwise));
      const why = missing.length ? `${this.device.name} has no peak for ${missing.join(", ")}` : "";
      const limit = LIMITS.reduce((a, b) => (sum[b] > sum[a] ? b : a));
      return {
        ...sum,
        dtypes,
        why,
        arithmetic,
        seconds: why ? null : sum.seconds,
        limit: why || !sum[limit] ? "" : limit,
        intensity: sum.bytes === 0n ? null : arithmetic / number(sum.bytes),
      };
    }

    /** The activation bytes that were made in a module and in what is inside it. */
    kept(node) {
      return node.inside.reduce((sum, row) => add(sum, this.value(row.kept) ?? 0n), 0n);
    }

    /** The moment of the peak: its bytes, those by kind, and where it is; null where memory is not known. */
    get peak() {
      return (this._peak ??= this.variant.memory.moments
        .map((moment) => ({ ...moment, nbytes: this.value(moment.bytes) }))
        .reduce((a, b) => (a && compare(a.nbytes, b.nbytes) >= 0 ? a : b), null));
    }
  }

  const EMPTY = {
    flops: 0n,
    pointwise: 0n,
    bytes: 0n,
    seconds: 0,
    compute: 0,
    vector: 0,
    memory: 0,
    dtypes: [],
    why: "",
    arithmetic: 0,
    limit: "",
    intensity: null,
  };

  /** The formula of a row's measure in a phase, HTML: "0" where it has none there. */
  function formulaOf(row, phase, measure) {
    const { formulas } = row;
    if (phase === WHOLE) return formulas[WHOLE]?.[measure] ?? "0";
    if (formulas[phase]) return formulas[phase][measure] ?? "0";
    const alone = Object.keys(row.all).every((name) => name === phase || name === WHOLE);
    return alone && row.all[phase] ? (formulas[WHOLE]?.[measure] ?? "0") : "0";
  }

  Symacct.model = { WHOLE, LIMITS, content, variantOf, View, formulaOf };
})();
