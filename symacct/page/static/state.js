"use strict";
// What a person has chosen, kept in the address, so that a link shows the same view.

(() => {
  const { content } = Symacct.model;
  const { sizeOf } = Symacct.words;
  const first = content.variants.find((each) => !each.refusal);
  const RESTS = 120; // milliseconds
  const CHOICES = {
    device: content.device,
    dtype: first.label,
    phase: "step",
    formula: "flops",
    sort: "",
    ops: "seconds-",
    folded: "",
    depth: "",
    points: "modules",
    step: "",
    graph: "",
    cost: "flops",
    theme: "",
    view: "",
  };

  /** What the page starts with. */
  const initial = () => ({
    ...CHOICES,
    sizes: new Map(content.sizes.map(([name, size]) => [name, BigInt(size)])),
  });

  const state = initial();
  let pending = 0;
  let isDragging = false; // whether the last entry of the history is of a move that goes on

  // A dim may be called as one of the choices is.
  const keyOf = (name) => (name in CHOICES ? `size:${name}` : name);

  /** The address' part after "#": all sizes, device and dtype, and of the rest what is not as at first. */
  function written() {
    const words = new URLSearchParams();
    for (const [name, size] of state.sizes) words.set(keyOf(name), String(size));
    for (const [name, usual] of Object.entries(CHOICES)) {
      if (name === "device" || name === "dtype" || state[name] !== usual) words.set(name, state[name]);
    }
    return `#${words}`;
  }

  /** Take the state from the address; what it does not say, or says wrongly, is as at first. */
  function read() {
    const words = new URLSearchParams(location.hash.slice(1));
    clearTimeout(pending);
    isDragging = false;
    Object.assign(state, initial());
    for (const name of state.sizes.keys()) {
      try {
        if (words.has(keyOf(name))) state.sizes.set(name, sizeOf(words.get(keyOf(name))));
      } catch {
        // An address that someone cut short still opens, at the sizes that it does not name.
      }
    }
    for (const name of Object.keys(CHOICES)) if (words.has(name)) state[name] = words.get(name);
    if (!content.devices.some((each) => each.name === state.device)) state.device = content.device;
    if (!content.variants.some((each) => each.label === state.dtype && !each.refusal)) state.dtype = first.label;
  }

  /**
   * Write the address: a new entry of the history for each choice, and one for all of a drag.
   *
   * Where something is being dragged to is written when it rests, since browsers take many milliseconds for each.
   */
  function write(dragging) {
    clearTimeout(pending);
    if (!isDragging) put("pushState");
    else if (dragging) pending = setTimeout(rewrite, RESTS);
    else rewrite();
    isDragging = dragging;
  }

  /** Write the address in place of what it was. */
  const rewrite = () => put("replaceState");

  function put(how) {
    if (location.hash !== written()) history[how](null, "", written());
  }

  Symacct.state = { state, read, write, rewrite, written };
})();
