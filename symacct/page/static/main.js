"use strict";
// The page: what was chosen is worked out and shown, once a frame at most.

(() => {
  const { content, View, variantOf } = Symacct.model;
  const { at, blank, calm, element, fill, setText } = Symacct.elements;
  const { state, read, write, rewrite, written } = Symacct.state;
  const { controls, totals, memory, tables, timeline, roofline, graph } = Symacct;
  const RESTS = 250; // milliseconds
  const THEMES = ["", "light", "dark"];
  let made = null; // the parts of the page that are of one variant
  let view = null;
  let frame = 0;
  let stale = 0;

  /** Show the state: all numbers of one variant at its sizes. */
  function show(moving = null) {
    const begin = performance.now();
    if (!made || made.label !== state.dtype) build();
    controls.show(moving);
    const device = content.devices.find((each) => each.name === state.device);
    view = new View(state.dtype, state.sizes, device);
    banner();
    at("main").classList.toggle("broken", Boolean(view.broken));
    at("results").toggleAttribute("inert", Boolean(view.broken));
    if (view.broken) blank(at("results"));
    else {
      totals.update(made.totals, view);
      memory.update(made.memory, view);
      tables.update(made.tables, view);
    }
    charts();
    graph.update(view);
    Symacct.milliseconds = performance.now() - begin;
  }

  /** Draw the charts that can be seen; the others are drawn when they come into view. */
  function charts() {
    for (const chart of [timeline, roofline]) {
      if (!view || view.broken) continue;
      chart.isStale = !chart.isSeen;
      if (chart.isSeen) chart.update(view);
    }
    clearTimeout(stale);
    stale = setTimeout(drawStale, RESTS); // so that scrolling finds all of them drawn
  }

  function drawStale() {
    for (const chart of [timeline, roofline]) {
      if (chart.isStale && view && !view.broken) chart.update(view);
      chart.isStale = false;
    }
  }

  function watch() {
    const seen = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const chart = Symacct[target.dataset.chart];
          chart.isSeen = isIntersecting;
          if (isIntersecting && chart.isStale && !view.broken) chart.update(view);
          if (isIntersecting) chart.isStale = false;
        }
      },
      { rootMargin: "200px" },
    );
    for (const each of document.querySelectorAll("[data-chart]")) seen.observe(each);
  }

  /** Make what depends on the variant. */
  function build() {
    const variant = variantOf(state.dtype);
    const phases = [["step", "whole step"], ...variant.phaseNames.map((phase) => [phase, phase])];
    for (const menu of document.querySelectorAll("select[data-state=phase]")) fill(menu, phases);
    if (!phases.some(([phase]) => phase === state.phase)) state.phase = "step";
    made = {
      label: state.dtype,
      totals: totals.make(variant),
      memory: memory.make(variant),
      tables: tables.make(variant, changed),
    };
    timeline.make(variant);
    roofline.make(variant);
    graph.make(variant);
    rests(variant);
  }

  /** What the numbers rest on. */
  function rests(variant) {
    const lines = [...variant.footer, ...variant.notes];
    at("grounds").replaceChildren(...lines.map((line) => element("li", {}, line)));
  }

  /** What is wrong, if anything: sizes that break a condition, ops that have no rule. */
  function banner() {
    const said = [];
    if (view.broken) said.push(view.broken);
    if (view.variant.incomplete.length) {
      said.push(
        `Incomplete: no rule for ${view.variant.incomplete.join(", ")}. What these ops cost is in no figure below.`,
      );
    }
    const text = said.join("\n");
    if (at("banner").dataset.said === text) return;
    at("banner").dataset.said = text;
    at("banner").replaceChildren(...said.map((line) => element("p", {}, line)));
  }

  /** Something was chosen or moved: show it in the next frame, and write the address. */
  function changed(dragging, moving = null) {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      show(moving);
      write(dragging);
    });
  }

  // -- the page around -------------------------------------------------------------------

  function showTheme() {
    const root = document.documentElement;
    if (state.theme) root.dataset.theme = state.theme;
    else delete root.dataset.theme;
    setText(at("theme"), `colours: ${state.theme || "auto"}`);
  }

  /** Draw the charts anew, for another width or other colours. */
  function redraw() {
    for (const chart of [timeline, roofline]) {
      chart.drop();
      chart.isStale = true;
    }
    drawStale();
  }

  function themes() {
    at("theme").addEventListener("click", () => {
      state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
      showTheme();
      redraw();
      rewrite();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  /** Paper is light, has all sections open, and charts as wide as it is. */
  function printing() {
    const opened = [];
    let folded = "";
    window.addEventListener("beforeprint", () => {
      document.documentElement.dataset.theme = "light";
      for (const each of document.querySelectorAll("details:not([open])")) {
        opened.push(each);
        each.open = true;
      }
      folded = state.folded;
      state.folded = "";
      show();
      redraw();
    });
    window.addEventListener("afterprint", () => {
      for (const each of opened.splice(0)) each.open = false;
      state.folded = folded;
      show();
      showTheme();
      redraw();
    });
  }

  /** Links to sections keep the rest of the address. */
  function links() {
    for (const link of document.querySelectorAll("a[data-view]")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        state.view = link.dataset.view;
        write(false);
        scrollTo(state.view);
      });
    }
    at("skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("main").focus();
    });
    at("open-controls").addEventListener("click", () => {
      const isOpen = at("controls").classList.toggle("open");
      at("open-controls").setAttribute("aria-expanded", String(isOpen));
    });
  }

  function scrollTo(id) {
    const section = id && at(id);
    if (section) section.scrollIntoView({ behavior: calm() ? "auto" : "smooth" });
  }

  /** The address was changed by hand, or by going back. */
  function followed() {
    if (location.hash === written()) return;
    read();
    showTheme();
    show();
    scrollTo(state.view);
  }

  function resized() {
    let width = window.innerWidth;
    let timer = 0;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      clearTimeout(timer);
      timer = setTimeout(redraw, 100);
    });
  }

  function start() {
    read();
    showTheme();
    setText(at("version"), content.symacct);
    setText(at("inputs"), `(${content.inputs})`);
    controls.make(changed);
    graph.start();
    themes();
    printing();
    links();
    resized();
    window.addEventListener("popstate", followed);
    window.addEventListener("hashchange", followed);
    show();
    watch();
    if (location.hash) rewrite();
    if (state.view) at(state.view)?.scrollIntoView();
    Symacct.ready = true;
  }

  Object.defineProperty(Symacct, "layout", { get: graph.wanted });
  start();
})();
