"use strict";
// Shows values under the pointer, copies tables as CSV, and switches the horizontal axis.
(() => {
  const tip = document.getElementById("tip");
  const svgName = "http://www.w3.org/2000/svg";

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

  // The points of each line of a plot, from the table below it: [{name, x: {axis: place}, y}].
  const known = new Map();
  function linesOf(plot) {
    if (known.has(plot)) return known.get(plot);
    const grid = plot.closest("figure").querySelector("table");
    const roles = [...grid.tHead.rows[0].cells].map((cell) => cell.dataset.role || "");
    const lines = new Map();
    for (const row of grid.tBodies[0].rows) {
      const point = {x: {}};
      let name = "";
      roles.forEach((role, i) => {
        const text = row.cells[i].textContent;
        if (role === "line") name = text;
        else if (role === "y") point.y = Number(text);
        else if (role.startsWith("x ")) point.x[role.slice(2)] = Number(text);
      });
      if (!lines.has(name)) lines.set(name, []);
      lines.get(name).push(point);
    }
    known.set(plot, lines);
    return lines;
  }

  const round = (value) => String(Number(value.toPrecision(5)));

  function shownX(axis, value) {
    if (axis !== "seconds") return `${axis} ${value.toLocaleString("en")}`;
    const all = Math.round(value);
    const two = (number) => String(number).padStart(2, "0");
    return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
  }

  function axisOf(plot) {
    return plot.querySelector(".axis:not([hidden])").dataset.axis;
  }

  function place(frame, axis, point) {
    const [left, right, top, bottom] = frame.box;
    const map = frame.log ? Math.log : (value) => value;
    const across = frame.x_log ? Math.log : (value) => value;
    const [low, high] = frame.y.map(map);
    const [first, last] = frame.x[axis].map(across);
    return [
      left + (across(point.x[axis]) - first) / (last - first) * (right - left),
      bottom - (map(point.y) - low) / (high - low) * (bottom - top),
    ];
  }

  // Shows the points next to a place on the horizontal axis, in units of the picture.
  function pointAt(plot, x) {
    hideTip();
    const frame = JSON.parse(plot.dataset.plot);
    const axis = axisOf(plot);
    const found = [];
    for (const [name, points] of linesOf(plot)) {
      let best = null;
      for (const point of points) {
        const [px, py] = place(frame, axis, point);
        if (!best || Math.abs(px - x) < Math.abs(best.px - x)) best = {name, point, px, py};
      }
      found.push(best);
    }
    const distance = (item) => Math.abs(item.px - x);
    const nearest = found.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    const close = found.filter((item) => Math.abs(item.px - nearest.px) < 12).slice(0, 12);
    const cross = document.createElementNS(svgName, "path");
    cross.setAttribute("class", "cross");
    cross.setAttribute("d", `M${nearest.px} ${frame.box[2]}V${frame.box[3]}`);
    plot.append(cross);
    const texts = close.map((item) => {
      const dot = document.createElementNS(svgName, "circle");
      dot.setAttribute("class", `here ${item === nearest ? "c6" : "c0"}`);
      dot.setAttribute("cx", item.px);
      dot.setAttribute("cy", item.py);
      dot.setAttribute("r", 3.5);
      plot.append(dot);
      const value = item.point.y;
      const shown = frame.percent ? `${(100 * value).toFixed(2)}%` : round(value);
      return `${item.name}: ${shown}`;
    });
    plot.dataset.at = nearest.px;
    const box = plot.getBoundingClientRect();
    const scale = box.width / plot.viewBox.baseVal.width;
    const text = [shownX(axis, nearest.point.x[axis]), ...texts].join("\n");
    showTip(text, box.left + nearest.px * scale, box.top + frame.box[2] * scale);
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
    const frame = JSON.parse(plot.dataset.plot);
    const axis = axisOf(plot);
    const places = [...linesOf(plot).values()].flat().map((p) => place(frame, axis, p)[0]);
    places.sort((a, b) => a - b);
    const here = Number(plot.dataset.at || (step > 0 ? -1 : 1e9));
    const next = step > 0 ? places.find((p) => p > here + 0.01)
      : places.reverse().find((p) => p < here - 0.01);
    if (next !== undefined) pointAt(plot, next);
  });
  document.addEventListener("focusout", hideTip);

  document.addEventListener("change", (event) => {
    if (event.target.name !== "axis") return;
    for (const group of document.querySelectorAll("g.axis")) {
      const others = group.parentNode.querySelector(`[data-axis="${event.target.value}"]`);
      if (others) group.toggleAttribute("hidden", group.dataset.axis !== event.target.value);
    }
  });

  function csv(grid) {
    const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [...grid.rows].map((row) =>
      [...row.cells].map((cell) => quote(cell.textContent)).join(","));
    return lines.join("\n") + "\n";
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const text = csv(button.parentNode.querySelector("table"));
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {  // a file opened from a disk may not have the clipboard
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "Copied" : "Not copied: select the table";
    setTimeout(() => { button.textContent = "Copy CSV"; }, 1500);
  });
})();
