"use strict";
// Tables of parts, sortable by any column: the tree of modules, and the ops.

(() => {
  const { WHOLE, formulaOf } = Symacct.model;
  const { number } = Symacct.exact;
  const { order } = Symacct.words;
  const { UNITS, element, figure, put, setFormula, setText } = Symacct.elements;
  const { state } = Symacct.state;
  const TITLES = { flops: "FLOP", pointwise: "pointwise", bytes: "bytes", seconds: "least time", kept: "kept" };
  const HINTS = {
    flops: "contractions, 2 per multiply-add",
    pointwise: "all other arithmetic, in FLOP",
    bytes: "read and written, as eager runs it",
    seconds: "on the device, each kernel at the ceiling it meets first",
    kept: "activation bytes made here that the backward pass needs",
  };

  /**
   * A table of parts.
   *
   * ``name``: of its figures. ``key``: of its order in the state. ``measures``: its columns. ``rows``: nodes with
   * ``all``, ``formulas``, and, in a tree, ``children`` and ``parent``. ``changed``: called when a person chose.
   */
  class Parts {
    constructor(table, { name, key, first, measures, rows, values, changed }) {
      Object.assign(this, { table, name, key, measures, rows, values, changed });
      this.isTree = rows.some((row) => row.children);
      this.cells = new Map(rows.map((row) => [row, this._row(row)]));
      this.body = element("tbody", {});
      this.heads = new Map();
      const head = element("tr", {}, ...["", ...measures].map((measure) => this._head(measure, first)));
      head.append(element("th", { scope: "col", class: "formula-column" }, "formula"));
      table.replaceChildren(element("thead", {}, head), this.body);
      if (this.isTree) this._treegrid();
    }

    _head(measure, first) {
      const button = element(
        "button",
        {
          type: "button",
          class: "sort",
          title: HINTS[measure] || null,
          onclick: () => this._sortBy(measure),
        },
        measure ? TITLES[measure] : first,
      );
      const head = element("th", { scope: "col", class: measure ? "number" : "name", "aria-sort": "none" }, button);
      this.heads.set(measure || "name", head);
      return head;
    }

    /** First the largest first, then the smallest, then as the model runs. */
    _sortBy(measure) {
      const name = measure || "name";
      const turns = measure ? [`${name}-`, `${name}+`, ""] : [`${name}+`, `${name}-`, ""];
      state[this.key] = turns[(turns.indexOf(state[this.key]) + 1) % turns.length];
      this.changed(false);
    }

    _row(row) {
      const label = element("span", { class: "label", title: row.name || null }, row.label);
      const name = element("th", { scope: "row", class: "name" });
      const cells = {
        row: element("tr", {}, name),
        name,
        figures: {},
        formula: element("td", { class: "formula math" }),
      };
      if (row.children) {
        name.style.setProperty("--depth", row.depth);
        const fold = element("button", {
          type: "button",
          class: "fold",
          tabindex: "-1",
          "aria-label": `what is in ${row.name}`,
          onclick: () => this._fold(row),
        });
        name.append(row.children.length ? fold : element("span", { class: "fold" }));
      }
      name.append(label);
      if (row.times > 1) name.append(element("span", { class: "times", title: "equal modules" }, `\u00d7${row.times}`));
      for (const measure of this.measures) {
        cells.figures[measure] = figure(`${this.name}/${row.name}/${measure}`);
        cells.row.append(element("td", { class: "number" }, cells.figures[measure]));
      }
      cells.row.append(cells.formula);
      if (!Object.keys(row.all).length) cells.row.classList.add("free");
      return cells;
    }

    // -- the tree ----------------------------------------------------------------------

    _treegrid() {
      this.table.setAttribute("role", "treegrid");
      for (const [row, { row: line }] of this.cells) {
        line.setAttribute("aria-level", row.depth + 1);
        line.setAttribute("tabindex", "-1");
        line.addEventListener("keydown", (event) => this._moved(event, row));
      }
      if (this.rows.length) this.cells.get(this.rows[0]).row.setAttribute("tabindex", "0");
    }

    get folded() {
      return new Set(state.folded ? state.folded.split(".").map(Number) : []);
    }

    _fold(row) {
      const folded = this.folded;
      if (!folded.delete(row.index)) folded.add(row.index);
      state.folded = [...folded].sort((a, b) => a - b).join(".");
      this.changed(false);
    }

    /** Arrow keys go through the rows, and open and close what is in one. */
    _moved(event, row) {
      if (event.target !== this.cells.get(row).row) return;
      const shown = [...this.body.children];
      const at = shown.indexOf(event.target);
      const isOpen = row.children.length > 0 && !this.folded.has(row.index);
      const next = { ArrowDown: shown[at + 1], ArrowUp: shown[at - 1], Home: shown[0], End: shown.at(-1) }[event.key];
      if (next) this._focus(event.target, next);
      else if (event.key === "ArrowRight" && row.children.length && !isOpen) this._fold(row);
      else if (event.key === "ArrowRight" && isOpen) this._focus(event.target, shown[at + 1]);
      else if (event.key === "ArrowLeft" && isOpen) this._fold(row);
      else if (event.key === "ArrowLeft" && row.parent) this._focus(event.target, this.cells.get(row.parent).row);
      else if ((event.key === "Enter" || event.key === " ") && row.children.length) this._fold(row);
      else return;
      event.preventDefault();
    }

    _focus(from, to) {
      from.setAttribute("tabindex", "-1");
      to.setAttribute("tabindex", "0");
      to.focus();
    }

    // -- values ------------------------------------------------------------------------

    /** Show all values, in the order that was chosen. */
    update(view, phase) {
      const total = this.values(view, phase);
      const found = new Map(this.rows.map((row) => [row, this.values(view, phase, row)]));
      for (const row of this.rows) this._values(row, found.get(row), total, phase);
      this._arrange(found);
    }

    _values(row, values, total, phase) {
      const cells = this.cells.get(row);
      for (const measure of this.measures) {
        const node = cells.figures[measure];
        put(node, values[measure], UNITS[measure], measure === "seconds" ? values.why : "");
        const all = total[measure] === null ? 0 : number(total[measure]);
        const share = all && values[measure] !== null ? number(values[measure]) / all : 0;
        node.style.setProperty("--part", `${(100 * Math.min(1, share)).toFixed(2)}%`);
        node.classList.toggle("zero", !number(values[measure] ?? 0));
      }
      if ("incomplete" in (row.formulas[WHOLE] || {})) cells.row.classList.add("incomplete");
      const html = formulaOf(row, phase, state.formula);
      setFormula(cells.formula, html);
      cells.formula.classList.toggle("zero", html === "0");
    }

    _arrange(found) {
      const [, by, way] = /^(\w+)([-+])$/.exec(state[this.key]) || [];
      for (const [name, head] of this.heads) {
        head.setAttribute("aria-sort", name !== by ? "none" : way === "-" ? "descending" : "ascending");
      }
      const value = (row) => (by === "name" ? row.name : (found.get(row)[by] ?? null));
      const sorted = (rows) => (by && (by === "name" || this.measures.includes(by)) ? [...rows].sort(compare) : rows);
      const compare = (a, b) => {
        const sign = order(value(a), value(b));
        return sign === null ? (value(a) === null ? 1 : -1) : way === "-" ? -sign : sign;
      };
      const folded = this.isTree ? this.folded : new Set();
      const lines = [];
      const walk = (rows) => {
        for (const row of sorted(rows)) {
          const line = this.cells.get(row).row;
          lines.push(line);
          if (!row.children) continue;
          const isOpen = row.children.length > 0 && !folded.has(row.index);
          if (row.children.length) line.setAttribute("aria-expanded", String(isOpen));
          if (isOpen) walk(row.children);
        }
      };
      walk(this.isTree ? this.rows.filter((row) => !row.parent) : this.rows);
      if (lines.length !== this.body.children.length || lines.some((line, i) => line !== this.body.children[i])) {
        this.body.replaceChildren(...lines);
      }
    }
  }

  /** Make the two tables of a variant. */
  function make(variant, changed) {
    const sums = (view, phase, row) => view.sums(row ? row.all[phase] : variant.whole[phase]);
    const all = ["flops", "pointwise", "bytes", "seconds"];
    const isKept = variant.modules.some((row) => row.kept >= 0) && variant.phaseNames.includes("backward");
    const modules = new Parts(Symacct.elements.at("module-table"), {
      name: "module",
      key: "sort",
      first: "module",
      measures: isKept ? [...all, "kept"] : all,
      rows: variant.modules,
      values: (view, phase, row) => ({ ...sums(view, phase, row), kept: row ? view.kept(row) : keptOf(view) }),
      changed,
    });
    const ops = new Parts(Symacct.elements.at("op-table"), {
      name: "op",
      key: "ops",
      first: "op",
      measures: all,
      rows: variant.ops,
      values: sums,
      changed,
    });
    const free = Symacct.elements.at("free");
    free.onchange = () => ops.table.classList.toggle("all", free.checked);
    return { modules, ops };
  }

  function keptOf(view) {
    const roots = view.variant.modules.filter((row) => !row.parent);
    return roots.reduce((sum, row) => Symacct.exact.add(sum, view.kept(row)), 0n);
  }

  /** Show both tables for the phase that was chosen. */
  function update(tables, view) {
    for (const node of document.querySelectorAll(".phase-name")) setText(node, state.phase);
    tables.modules.update(view, state.phase);
    tables.ops.update(view, state.phase);
  }

  Symacct.tables = { make, update };
})();
