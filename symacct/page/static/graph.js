"use strict";
// The graph: laid out by Graphviz, coloured by cost, with pan, zoom, search, and a panel for the node that was chosen.

(() => {
  const { WHOLE } = Symacct.model;
  const { number } = Symacct.exact;
  const { shown, percent, digits } = Symacct.words;
  const { UNITS, at, element, fill, setText } = Symacct.elements;
  const { describe, listed } = Symacct.panel;
  const { readable, centre, centred, wheel } = Symacct.placing;
  const { state } = Symacct.state;
  const PLACEHOLDER = "000.0"; // of the line that waits for a value, as symacct.drawing has it
  const [THIN, THICK, DECADE] = [0.6, 3.4, 0.8]; // of lines, as symacct.drawing.dot has them
  const COSTS = {
    flops: "FLOP",
    bytes: "bytes",
    activation_bytes: "activations",
    pointwise: "pointwise",
    seconds: "least time",
  };
  let variant = null;
  let view = null;
  let drawn = null; // {graph, svg, nodes, zoom}
  let chosen = "";
  let viz = null; // a promise of Graphviz, once it is wanted
  let drawing = null; // a promise of the graph that is being drawn
  let isWanted = false;

  // -- drawing -------------------------------------------------------------------------

  /** Graphviz, whose megabyte is read only now. */
  function graphviz() {
    viz ||= unpacked("viz-source").then((source) => {
      const script = element("script");
      script.textContent = source;
      document.head.append(script);
      return Viz.instance();
    });
    return viz;
  }

  /** What the page has in base64, deflated. */
  function unpacked(id) {
    const packed = Uint8Array.from(atob(at(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  /** Draw the graph that is chosen, if it is not drawn; a promise of it. */
  function wanted() {
    isWanted = true;
    const graph = current();
    if (!graph) return Promise.resolve(null);
    if (!drawing || drawing.graph !== graph) {
      drawing = graphviz()
        .then((made) => draw(graph, made))
        .catch((error) => failed(error));
      drawing.graph = graph;
    }
    return drawing;
  }

  /** The graph of the menu; before anything was chosen the one that Python finds readable. */
  function current() {
    if (!variant) return null;
    const { graphs } = variant;
    return graphs.find((each) => keyOf(each) === state.graph) || graphs.find((each) => each.chosen) || graphs[0];
  }

  /** What a graph is called in the address: "forward-ops". */
  const keyOf = ({ phase, depth }) => `${phase || WHOLE}-${depth}`;

  /** What a graph is called in the menu. */
  function nameOf({ phase, depth }) {
    const fine = depth === "ops" ? "op by op" : `modules to depth ${depth}`;
    return `${phase || "whole step"}, ${fine}`;
  }

  function failed(error) {
    setText(at("graph-said"), `The graph could not be drawn: ${error.message}`);
  }

  function draw(graph, made) {
    if (graph !== current()) return wanted();
    const svg = laidOut(made, graph.dot);
    for (const attribute of ["width", "height"]) svg.setAttribute(attribute, "100%");
    svg.querySelectorAll("title").forEach((title) => title.remove()); // the names of nodes in DOT
    at("graph-drawing").replaceChildren(svg);
    const nodes = new Map();
    for (const [id, box] of Object.entries(graph.boxes)) {
      const group = svg.getElementById(id);
      if (group) nodes.set(id, dressed(group, id, box));
    }
    const zoom = svgPanZoom(svg, {
      mouseWheelZoomEnabled: false,
      dblClickZoomEnabled: false,
      minZoom: 0.05,
      maxZoom: 40,
      fit: true,
      center: true,
    });
    const lines = (i) => svg.getElementById(`e${i}`)?.querySelectorAll("path") ?? [];
    const edges = new Map((graph.edges || []).map((_, i) => [i, lines(i)]));
    drawn = { graph, svg, nodes, edges, zoom };
    readable(zoom);
    choose("");
    paint();
    search();
    setText(at("graph-notes"), (graph.notes || []).join(" "));
    return drawn;
  }

  /** The drawing; lines with right angles, which Graphviz cannot always find, become curves where it fails. */
  function laidOut(made, dot) {
    try {
      return made.renderSVGElement(dot);
    } catch {
      return made.renderSVGElement(dot.replace("splines=ortho", "splines=spline"));
    }
  }

  /** A node's group made into a button, and its figure found: the last line of its label. */
  function dressed(group, id, box) {
    const last = [...group.querySelectorAll("text")].at(-1);
    const value = last?.textContent.includes(PLACEHOLDER) ? last : null; // inputs have none
    group.classList.add("box");
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "button");
    if (value) value.classList.add("value");
    centred(group);
    const pick = () => choose(id);
    group.addEventListener("click", pick);
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pick();
    });
    const runs = (box.runs || []).map(([k, times, place]) => [k, place === undefined ? BigInt(times) : 1n, place]);
    return { id, box, group, value, runs };
  }

  // -- values --------------------------------------------------------------------------

  function costOf(node, cost) {
    if (cost === "activation_bytes") return { value: view.value(node.box.kept ?? -1) ?? 0n, why: "" };
    const sum = view.sums(node.runs);
    return { value: sum[cost], why: cost === "seconds" ? sum.why : "" };
  }

  /** Write the values, fill each shape by its share of all, and draw lines as wide as their bytes are many. */
  function paint() {
    if (!drawn || !view || view.broken) return;
    const found = [...drawn.nodes.values()].map((node) => [node, costOf(node, state.cost)]);
    const all = found.reduce((sum, [, { value }]) => sum + (value === null ? 0 : number(value)), 0);
    for (const [node, { value, why }] of found) {
      node.share = all && value !== null ? number(value) / all : 0;
      if (node.value) write(node, value, why);
      node.group.style.setProperty("--share", `${(100 * Math.sqrt(node.share)).toFixed(1)}%`);
      node.group.setAttribute("aria-label", `${textOf(node.group)}, ${percent(node.share)}`);
    }
    paintEdges();
    if (chosen) describe(drawn.nodes.get(chosen), costOf);
  }

  function write({ id, value: line, share }, value, why) {
    line.setAttribute("data-figure", `graph/${id}/${state.cost}`);
    if (value === null) line.removeAttribute("data-value");
    else line.setAttribute("data-value", digits(value));
    if (value === null) setText(line, why);
    else setText(line, number(value) ? `${shown(value, UNITS[state.cost])}  ${percent(share)}` : "0");
  }

  function paintEdges() {
    const moved = (drawn.graph.edges || []).map((place) => number(view.value(place) ?? 0n));
    const most = moved.reduce((a, b) => Math.max(a, b), 1);
    moved.forEach((nbytes, i) => {
      const width = Math.max(THIN, THICK - DECADE * Math.log10(most / Math.max(1, nbytes)));
      for (const path of drawn.edges.get(i)) path.style.strokeWidth = width.toFixed(2);
    });
  }

  const textOf = (group) => [...group.querySelectorAll("text")].map((line) => line.textContent).join(" ");

  // -- the panel -----------------------------------------------------------------------

  /** Choose a node by its id, or none by "". */
  function choose(id) {
    chosen = id;
    for (const [other, node] of drawn.nodes) node.group.classList.toggle("chosen", other === id);
    at("graph-panel").hidden = !id;
    if (id) describe(drawn.nodes.get(id), costOf);
  }

  // -- search and zoom -----------------------------------------------------------------

  /** Dim all that the words do not match, and bring the first that does to the middle. */
  function search() {
    if (!drawn) return;
    const words = at("graph-search").value.trim().toLowerCase();
    const matches = [...drawn.nodes.values()].filter(
      ({ box }) => words && `${box.label} ${box.path} ${listed(box.ops || "")}`.toLowerCase().includes(words),
    );
    for (const node of drawn.nodes.values())
      node.group.classList.toggle("unmatched", Boolean(words) && !matches.includes(node));
    setText(
      at("graph-said"),
      words ? (matches.length ? `${matches.length} of ${drawn.nodes.size}` : "nothing matches") : "",
    );
    if (matches.length) centre(drawn.zoom, matches[0].group);
  }

  /** What happens once: the search box, the buttons, and drawing when the graph comes near the window. */
  function start() {
    at("graph-search").addEventListener("input", search);
    at("graph-close").addEventListener("click", () => choose(""));
    at("graph-drawing").addEventListener("wheel", (event) => wheel(drawn?.zoom, event), { passive: false });
    at("graph-in").addEventListener("click", () => drawn && drawn.zoom.zoomBy(1.4));
    at("graph-out").addEventListener("click", () => drawn && drawn.zoom.zoomBy(1 / 1.4));
    at("graph-fit").addEventListener("click", () => drawn && drawn.zoom.resize().fit().center());
    const near = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && wanted(), {
      rootMargin: "400px",
    });
    near.observe(at("graph-drawing"));
  }

  function make(made) {
    variant = made;
    drawn = null;
    drawing = null;
    at("graph").hidden = variant.graphs.length === 0;
    at("graph-link").hidden = variant.graphs.length === 0;
    at("graph-drawing").replaceChildren();
    at("graph-panel").hidden = true;
    fill(
      at("graph-which"),
      variant.graphs.map((each) => [keyOf(each), nameOf(each)]),
    );
    fill(at("cost"), Object.entries(COSTS));
    if (!variant.graphs.some((each) => keyOf(each) === state.graph)) state.graph = "";
    if (!(state.cost in COSTS)) state.cost = "flops";
  }

  function update(now) {
    view = now;
    at("graph-which").value = variant.graphs.length ? keyOf(current()) : "";
    at("cost").value = state.cost;
    if (isWanted && drawn?.graph !== current()) wanted();
    else paint();
  }

  Symacct.graph = { start, make, update, wanted };
})();
