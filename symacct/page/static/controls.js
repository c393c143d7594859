"use strict";
// The controls: a slider and an exact box for every dim, menus of devices and dtypes.

(() => {
  const { content, variantOf } = Symacct.model;
  const { sizeOf, quantity, grouped } = Symacct.words;
  const { at, element, fill, setText } = Symacct.elements;
  const { state } = Symacct.state;
  const STEPS = 1000; // of a slider
  const rows = new Map(); // by dim: {dim, box, slide, said}

  /** Make the controls; ``changed(dragging)`` is called whenever one moved. */
  function make(changed) {
    fill(at("device"), byVendor());
    fill(
      at("dtype"),
      content.variants.map((each) => [each.label, shownLabel(each), each.refusal]),
    );
    for (const menu of document.querySelectorAll("select[data-state]")) {
      menu.addEventListener("change", () => {
        state[menu.dataset.state] = menu.value;
        changed(false);
      });
    }
    for (const name of state.sizes.keys()) at("sizes").append(sizeControl(name, changed));
    const refused = content.variants.filter((each) => each.refusal);
    at("refused").replaceChildren(
      ...refused.map((each) => element("p", { class: "said" }, `${each.label}: ${each.refusal}`)),
    );
  }

  const shownLabel = (each) => (each.refusal ? `${each.label} (refused)` : each.label);

  function byVendor() {
    const groups = new Map();
    for (const { name, vendor } of content.devices) {
      const label = vendor || "other";
      if (!groups.has(label)) groups.set(label, []);
      groups.get(label).push([name, name]);
    }
    return [...groups].map(([label, options]) => ({ label, options }));
  }

  function sizeControl(name, changed) {
    const box = element("input", {
      id: `size-${name}`,
      type: "text",
      inputmode: "numeric",
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": `said-${name}`,
    });
    const slide = element("input", {
      id: `slide-${name}`,
      type: "range",
      min: "0",
      max: String(STEPS),
      step: "1",
      "aria-label": `${name}, by a slider`,
    });
    const said = element("p", { id: `said-${name}`, class: "said", "aria-live": "polite" });
    const row = { name, box, slide, said };
    rows.set(name, row);
    box.addEventListener("input", () => typed(row, changed, true));
    box.addEventListener("change", () => typed(row, changed, false));
    slide.addEventListener("input", () => slid(row, changed, true));
    slide.addEventListener("change", () => slid(row, changed, false));
    slide.addEventListener("keyup", (event) => event.key.startsWith("Arrow") && changed(false));
    slide.addEventListener("keydown", (event) => stepped(event, row, changed));
    return element("div", { class: "size" }, element("label", { for: box.id }, name), box, slide, said);
  }

  /** Take what was typed, or say at the box why it is no size; the page then stays as it was. */
  function typed(row, changed, dragging) {
    try {
      const size = sizeOf(row.box.value);
      mark(row, "");
      state.sizes.set(row.name, size);
      if (!dragging) row.box.value = String(size);
      changed(dragging, row.box);
    } catch (error) {
      mark(row, error.message);
    }
  }

  function mark(row, message) {
    setText(row.said, message);
    row.box.toggleAttribute("aria-invalid", Boolean(message));
    if (message) row.box.setAttribute("aria-invalid", "true");
  }

  function slid(row, changed, dragging) {
    state.sizes.set(row.name, sizeAt(row, Number(row.slide.value)));
    changed(dragging, row.slide);
  }

  /** An arrow key goes to the next size that the slider has, which may be many of its steps away. */
  function stepped(event, row, changed) {
    const way = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    const now = state.sizes.get(row.name);
    for (let i = Number(row.slide.value) + way; i >= 0 && i <= STEPS; i += way) {
      const size = sizeAt(row, i);
      if (way > 0 ? size > now : size < now) {
        state.sizes.set(row.name, size);
        return changed(true);
      }
    }
  }

  const rangeOf = (row) => variantOf(state.dtype).dims.find((dim) => dim.name === row.name);

  /** The size at a slider's place: beyond 16 one with four bits (4096, 4608, 5120, ...), as people choose them. */
  function sizeAt(row, place) {
    const { least, most } = rangeOf(row);
    const size = least * (most / least) ** (place / STEPS);
    const grain = 2 ** Math.max(0, Math.floor(Math.log2(size)) - 3);
    return BigInt(Math.min(most, Math.max(least, Math.round(size / grain) * grain)));
  }

  function placeOf(row, size) {
    const { least, most } = rangeOf(row);
    return Math.round((STEPS * Math.log(Math.max(Number(size), least) / least)) / Math.log(most / least));
  }

  /** Show the state in the controls; the one that is being moved is left alone. */
  function show(moving = null) {
    for (const row of rows.values()) {
      const size = state.sizes.get(row.name);
      if (row.box !== moving) {
        row.box.value = String(size);
        mark(row, "");
      }
      if (row.slide !== moving) row.slide.value = String(Math.min(STEPS, placeOf(row, size)));
      row.slide.setAttribute("aria-valuetext", String(size));
      row.slide.style.setProperty("--at", `${Number(row.slide.value) / (STEPS / 100)}%`);
    }
    for (const menu of document.querySelectorAll("select[data-state]")) menu.value = state[menu.dataset.state];
    showDevice(content.devices.find((each) => each.name === state.device));
    const words = [...state.sizes].map(([name, size]) => `${name}=${grouped(String(size), ",")}`);
    setText(at("given"), [...words, state.device, state.dtype].join(", "));
  }

  function showDevice(device) {
    const gib = Number((device.memory / 2 ** 30).toFixed(1));
    const vector = device.vector ? `, ${quantity(device.vector, "FLOP/s")} vector` : ", vector peak not known";
    setText(at("device-facts"), `${gib} GiB at ${quantity(device.bandwidth, "B/s")}${vector}`);
    at("device-facts").title = device.source;
  }

  Symacct.controls = { make, show };
})();
