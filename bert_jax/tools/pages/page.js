"use strict";
// Shows values under the pointer, copies tables as CSV, and switches the horizontal axis.
(() => {
  const tip = document.getElementById("tip");

  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const box = tip.getBoundingClientRect();
    const left = Math.max(4, Math.min(x + 14, width - box.width - 4));
    const over = y - box.height - 14;
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${(over > 4 ? over : y + 18) + window.scrollY}px`;
  }

  function hideTip() {
    tip.hidden = true;
    document.querySelectorAll(".cross, .here").forEach((item) => item.remove());
  }

  // The points of a plot where they are drawn, and their values from the table below it, which has
  // them in the same order.
  function pointsOf(plot) {
    const group = plot.querySelector(".axis:not([hidden])"), axis = group.dataset.axis;
    const grid = plot.closest("figure").querySelector("table");
    const column = [...grid.rows[0].cells].findIndex((cell) => cell.textContent === axis);
    const places = [...group.querySelectorAll(".values")].flatMap((line) =>
      [...line.firstChild.getAttribute("d").matchAll(/[ML]([\d.]+) ([\d.]+)/g)]);
    return places.map(([, px, py], i) => {
      const cells = [...grid.tBodies[0].rows[i].cells].map((cell) => cell.textContent);
      const [x, y] = [cells[column], cells.at(-1)].map(Number);
      return {name: cells[0], axis, x, y, px: Number(px), py: Number(py)};
    });
  }

  function shownX({axis, x}) {
    if (axis !== "seconds") return `${axis} ${x.toLocaleString("en")}`;
    const all = Math.round(x);
    const two = (number) => String(number).padStart(2, "0");
    return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
  }

  function draw(plot, name, attributes) {
    const item = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) item.setAttribute(key, value);
    plot.append(item);
  }

  // Shows the points next to a place on the horizontal axis, in units of the picture.
  function pointAt(plot, x) {
    hideTip();
    const distance = (point) => Math.abs(point.px - x);
    const closer = (a, b) => (a && distance(a) <= distance(b) ? a : b);
    const found = new Map();  // the closest point of each line
    for (const point of pointsOf(plot)) found.set(point.name, closer(found.get(point.name), point));
    const nearest = [...found.values()].reduce(closer);
    const close = [...found.values()].filter((point) => Math.abs(point.px - nearest.px) < 12);
    const [top, bottom] = plot.dataset.plot.split(" ");
    draw(plot, "path", {class: "cross", d: `M${nearest.px} ${top}V${bottom}`});
    const texts = close.slice(0, 12).map((point) => {
      draw(plot, "circle", {
        class: `here ${point === nearest ? "c6" : "c0"}`, cx: point.px, cy: point.py, r: 3.5,
      });
      const shown = "percent" in plot.dataset ? `${(100 * point.y).toFixed(2)}%`
        : Number(point.y.toPrecision(5));
      return `${point.name}: ${shown}`;
    });
    plot.dataset.at = nearest.px;
    const box = plot.getBoundingClientRect();
    const scale = box.width / plot.viewBox.baseVal.width;
    const text = [shownX(nearest), ...texts].join("\n");
    showTip(text, box.left + nearest.px * scale, box.top + top * scale);
  }

  function move(event) {
    const target = event.target.closest("[data-tip]");
    if (target) {
      hideTip();
      showTip(target.dataset.tip, event.clientX, event.clientY);
      return;
    }
    const plot = event.target.closest("[data-plot]");
    if (!plot) return hideTip();
    const box = plot.getBoundingClientRect();
    pointAt(plot, (event.clientX - box.left) / box.width * plot.viewBox.baseVal.width);
  }

  document.addEventListener("pointermove", move);
  document.addEventListener("pointerdown", move);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
    const plot = event.target.closest && event.target.closest("[data-plot]");
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!plot || !step) return;
    event.preventDefault();
    const places = pointsOf(plot).map((point) => step * point.px).sort((a, b) => a - b);
    const here = "at" in plot.dataset ? step * plot.dataset.at : -Infinity;
    const next = places.find((place) => place > here);
    if (next !== undefined) pointAt(plot, step * next);
  });
  document.addEventListener("focusout", hideTip);

  document.addEventListener("change", (event) => {
    if (event.target.name !== "axis") return;
    for (const group of document.querySelectorAll("g.axis")) {
      const others = group.parentNode.querySelector(`[data-axis="${event.target.value}"]`);
      if (others) group.toggleAttribute("hidden", group.dataset.axis !== event.target.value);
    }
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [...button.parentNode.querySelector("table").rows].map((row) =>
      [...row.cells].map((cell) => quote(cell.textContent)).join(","));
    try {
      await navigator.clipboard.writeText(lines.join("\n") + "\n");
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not copied: select the table";
    }
    setTimeout(() => { button.textContent = "Copy CSV"; }, 1500);
  });
})();
