"use strict";
// Where the graph and its texts stand: how large at first, what is in the middle, the wheel.

(() => {
  const { at } = Symacct.elements;
  const PIXELS = 1.1; // of a point of Graphviz, so that names have 14
  const LARGEST = 1.6;
  const EDGE = 12; // pixels above a graph that is taller than its room

  /** Show what is too small to read as large as text is, from its top on; and what is small no larger than that. */
  function readable(zoom) {
    const all = zoom.getSizes().realZoom;
    if (all < PIXELS) zoom.zoomBy(PIXELS / all);
    if (all > LARGEST) zoom.zoomBy(LARGEST / all);
    const { width, height, realZoom, viewBox } = zoom.getSizes();
    const tall = viewBox.height * realZoom > height;
    zoom.pan({
      x: (width - viewBox.width * realZoom) / 2,
      y: tall ? EDGE : (height - viewBox.height * realZoom) / 2,
    });
  }

  /** Bring a node to the middle. */
  function centre(zoom, group) {
    const box = group.getBoundingClientRect();
    const room = at("graph-drawing").getBoundingClientRect();
    zoom.panBy({
      x: room.left + room.width / 2 - box.left - box.width / 2,
      y: room.top + room.height / 2 - box.top - box.height / 2,
    });
  }

  /** Put lines into the middle of their shape: Graphviz placed texts of other lengths, in a font of other widths. */
  function centred(group) {
    const shape = group.querySelector("polygon, path, ellipse");
    if (!shape) return;
    const { x, width } = shape.getBBox();
    const lines = [...group.querySelectorAll("text")];
    for (const line of lines) {
      const height = line.getAttribute("y");
      if (lines.some((other) => other !== line && other.getAttribute("y") === height)) continue; // one line in parts
      line.setAttribute("x", String(x + width / 2));
      line.setAttribute("text-anchor", "middle");
    }
  }

  /** Make it larger or smaller, around the pointer. */
  function wheel(zoom, event) {
    if (!zoom || !(event.ctrlKey || event.metaKey)) return; // a plain wheel scrolls the page
    event.preventDefault();
    const room = at("graph-drawing").getBoundingClientRect();
    zoom.zoomAtPointBy(event.deltaY < 0 ? 1.2 : 1 / 1.2, {
      x: event.clientX - room.left,
      y: event.clientY - room.top,
    });
  }

  Symacct.placing = { readable, centre, centred, wheel };
})();
