"use strict";
// Draws attention: a cell for each head, and one head as lines between tokens or as a matrix.
(() => {
  const source = document.getElementById("attention-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const {layers, heads, statistics, values} = data;
  const byId = (id) => document.getElementById(id);
  const state = {
    layer: data.start[0], head: data.start[1], show: "attention", of: Object.keys(values)[0],
    view: "lines", unit: "words", way: "all", special: true, scale: false,
    pinned: new Set(), cursor: [0, 0],
  };
  if (!data.tokens) state.show = statistics[0].key;

  // ---------------------------------------------------------------- the numbers

  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const digitOf = new Uint8Array(128);
  for (let i = 0; i < 64; i++) digitOf[digits.charCodeAt(i)] = i;

  function decode(text) {
    const weights = new Float32Array(text.length / 2);
    for (let i = 0; i < weights.length; i++) {
      const high = digitOf[text.charCodeAt(2 * i)], low = digitOf[text.charCodeAt(2 * i + 1)];
      weights[i] = (64 * high + low) / 1000;
    }
    return weights;
  }

  const count = data.tokens ? data.tokens.length : 0;
  const weights = data.tokens ? decode(data.weights) : null;

  // What is drawn a row for: {name, start, stop, segment} of words or tokens.
  function shownUnits() {
    const spans = state.unit === "words" ? data.spans : data.tokens.map((_, i) => [i, i + 1]);
    const names = state.unit === "words" ? data.words : data.tokens;
    const units = spans.map(([start, stop], i) => (
      {name: names[i], start, stop, segment: data.segments[start], special: data.special[start]}));
    return state.special ? units : units.filter((unit) => !unit.special);
  }

  function isShown(from, to) {
    return state.way === "all" || state.way === `${from.segment}${to.segment}`;
  }

  // Between units: the sum over what is attended to, the mean over what attends.
  function shownWeights(layer, head, units) {
    const begin = (layer * heads + head) * count * count;
    const table = new Float32Array(units.length * units.length);
    let most = 0;
    units.forEach((from, i) => units.forEach((to, j) => {
      if (!isShown(from, to)) return;
      let sum = 0;
      for (let a = from.start; a < from.stop; a++) {
        for (let b = to.start; b < to.stop; b++) sum += weights[begin + a * count + b];
      }
      const value = sum / (from.stop - from.start);
      table[i * units.length + j] = value;
      most = Math.max(most, value);
    }));
    return {table, most: state.scale && most > 0 ? most : 1};
  }

  // How dark a weight is: small ones are visible too.
  const level = (value, most) => Math.sqrt(Math.min(1, value / most));
  const shown = (value) => value.toFixed(3);

  function statisticOf(key, layer, head) {
    const row = statistics.findIndex((statistic) => statistic.key === key);
    return values[state.of][row][layer * heads + head];
  }

  // ---------------------------------------------------------------- the grid of all heads

  function make(name, attributes = {}, ...children) {
    const isDrawn = ["svg", "g", "path", "rect", "text", "title"].includes(name);
    const item = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) item.setAttribute(key, value);
    item.append(...children);
    return item;
  }

  const buttons = [];
  function buildGrid() {
    const grid = make("table", {class: "heads"});
    const top = make("tr", {}, make("th", {class: "side"}, make("span", {"aria-hidden": "true"}, "")));
    for (let head = 0; head < heads; head++) top.append(make("th", {scope: "col"}, `${head + 1}`));
    grid.append(make("caption", {}, "All layers, from above, and heads"), make("thead", {}, top));
    const body = make("tbody");
    for (let layer = 0; layer < layers; layer++) {
      const row = make("tr", {}, make("th", {scope: "row", class: "side"}, `${layer + 1}`));
      for (let head = 0; head < heads; head++) {
        const button = make("button", {type: "button", "data-place": `${layer},${head}`});
        buttons.push(button);
        row.append(make("td", {}, button));
      }
      body.append(row);
    }
    grid.append(body);
    byId("grid").append(grid);
    grid.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) choose(...button.dataset.place.split(",").map(Number));
    });
    grid.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
      if (!step[event.key]) return;
      event.preventDefault();
      const [down, right] = step[event.key];
      const layer = Math.max(0, Math.min(layers - 1, state.layer + down));
      const head = Math.max(0, Math.min(heads - 1, state.head + right));
      choose(layer, head);
      buttons[layer * heads + head].focus();
    });
  }

  function color() {
    const hex = getComputedStyle(document.documentElement).getPropertyValue("--c0").trim();
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function paint(canvas, layer, head, units, rgb) {
    const {table, most} = shownWeights(layer, head, units);
    canvas.width = canvas.height = Math.max(1, units.length);
    canvas.style.imageRendering = units.length < 60 ? "pixelated" : "auto";
    const image = new ImageData(canvas.width, canvas.height);
    table.forEach((value, i) => image.data.set([...rgb, 255 * level(value, most)], 4 * i));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  function drawGrid() {
    const rgb = color(), isPicture = state.show === "attention";
    const units = isPicture ? shownUnits() : [];
    const row = statistics.findIndex((statistic) => statistic.key === state.show);
    const all = isPicture ? [0, 1] : values[state.of][row];
    const low = Math.min(0, ...all), high = Math.max(...all) || 1;
    buttons.forEach((button, i) => {
      const [layer, head] = [Math.floor(i / heads), i % heads];
      let label = `Layer ${layer + 1}, head ${head + 1}`;
      button.style.background = "";
      if (isPicture) {
        if (!button.firstChild) button.append(make("canvas"));
        paint(button.firstChild, layer, head, units, rgb);
      } else {
        button.replaceChildren();
        const part = (all[i] - low) / (high - low);
        button.style.background = `rgb(${rgb.join(" ")} / ${(100 * part).toFixed(1)}%)`;
        label += `: ${shown(all[i])}`;
      }
      button.setAttribute("aria-label", label);
      button.dataset.tip = label;
    });
    const steps = [0, 0.1, 0.25, 0.5, 0.75, 1];
    const dark = (part) => (isPicture ? Math.sqrt(part) : part);
    const stops = steps.map((part) => `rgb(${rgb.join(" ")} / ${dark(part)}) ${100 * part}%`);
    const bar = make("i");
    bar.style.background = `linear-gradient(to right, ${stops})`;
    const statistic = statistics[row];
    const ends = isPicture ? ["0", state.scale ? "the strongest of a head" : "1"]
      : [shown(low), `${shown(high)} ${statistic.unit}`];
    const what = isPicture ? "Rows attend to columns." : "";
    byId("ramp").replaceChildren(ends[0], bar, ends[1], make("span", {}, what));
    markChosen();
  }

  function markChosen() {
    buttons.forEach((button, i) => {
      const isChosen = i === state.layer * heads + state.head;
      button.setAttribute("aria-pressed", isChosen);
      button.tabIndex = isChosen ? 0 : -1;
    });
  }

  function choose(layer, head) {
    Object.assign(state, {layer, head});
    markChosen();
    drawHead();
  }

  // ---------------------------------------------------------------- one head

  const ROW = 22, LEAST = 0.005;

  function drawHead() {
    if (!data.tokens) return;
    byId("head-title").textContent = `Layer ${state.layer + 1}, head ${state.head + 1}`;
    byId("head-values").textContent = statistics.map(({key, unit}) =>
      `${key} ${shown(statisticOf(key, state.layer, state.head))} ${unit}`.trim()).join(" · ");
    const units = shownUnits();
    const {table, most} = shownWeights(state.layer, state.head, units);
    const box = byId("drawing");
    const focused = document.activeElement && document.activeElement.dataset
      ? document.activeElement.dataset.token : undefined;
    const head = {units, table, most, width: Math.max(280, box.clientWidth)};
    state.pinned = new Set([...state.pinned].filter((i) => i < units.length));
    (state.view === "lines" ? drawLines : drawMatrix)(box, head);
    if (focused) box.querySelector(`[data-token="${focused}"]`)?.focus();
  }

  const cut = (name, letters) => (name.length > letters ? `${name.slice(0, letters - 1)}…` : name);

  function drawLines(box, {units, table, most, width}) {
    const n = units.length, column = Math.min(150, Math.round(width * 0.32));
    const letters = Math.floor((column - 12) / 7.4);
    const picture = make("svg", {
      class: "drawing", width, height: ROW * (n + 1) + 4, role: "group",
      "aria-label": "Attention from the tokens on the left to those on the right",
    });
    picture.append(
      make("text", {class: "quiet", x: column - 6, y: 13, "text-anchor": "end"}, "attends"),
      make("text", {class: "quiet", x: width - column + 6, y: 13}, "to"));
    const middle = (i) => ROW * (i + 1) + ROW / 2;
    const arcs = make("g");
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        const value = table[i * n + j];
        if (value < LEAST) continue;
        const [x, y, far, end] = [column, middle(i), width - column, middle(j)];
        arcs.append(make("path", {
          class: "arc", "data-from": i, "data-to": j, "stroke-width": (0.6 + 3 * value / most).toFixed(2),
          "stroke-opacity": level(value, most).toFixed(3),
          d: `M${x} ${y}C${(x + far) / 2} ${y} ${(x + far) / 2} ${end} ${far} ${end}`,
        }));
      }
    }
    picture.append(arcs);
    const sides = [[], []];
    sides.forEach((tokens, side) => units.forEach((unit, i) => {
      const x = side ? width - column + 2 : 1;
      const place = {x, y: ROW * (i + 1) + 1, width: column - 3, height: ROW - 2, rx: 2};
      const token = make("g", {
        class: "token", role: "button", "aria-pressed": "false", "data-token": `${side},${i}`,
        tabindex: side === 0 && i === 0 ? 0 : -1,
        "aria-label": `${side ? "to" : "from"} ${unit.name}`,
      }, make("rect", {...place, class: "heat", "fill-opacity": 0}), make("rect", {...place, class: "edge"}),
      make("text", {
        x: side ? x + 6 : column - 6, y: middle(i) + 4.5, "text-anchor": side ? "start" : "end",
      }, cut(unit.name, letters)));
      if (unit.name.length > letters) token.dataset.tip = unit.name;
      tokens.push(token);
      picture.append(token);
    }));

    // What is looked at: [side, number], or null for all that is pinned, or everything.
    function highlight(at) {
      const isOn = (from, to) => {
        if (at) return at[0] ? to === at[1] : from === at[1];
        return !state.pinned.size || state.pinned.has(from);
      };
      for (const arc of arcs.children) {
        arc.classList.toggle("off", !isOn(Number(arc.dataset.from), Number(arc.dataset.to)));
      }
      const isBack = at && at[0] === 1;
      const ends = isBack ? [at[1]] : at ? [at[1]] : state.pinned.size ? [...state.pinned] : units.map((_, i) => i);
      const means = units.map((_, k) => ends.reduce((sum, i) =>
        sum + (isBack ? table[k * n + i] : table[i * n + k]), 0) / ends.length);
      sides.forEach((tokens, side) => tokens.forEach((token, k) => {
        const isHeated = side === (isBack ? 0 : 1);
        token.firstChild.setAttribute("fill-opacity", isHeated ? 0.45 * level(means[k], most) : 0);
        token.setAttribute("aria-pressed", side === 0 && state.pinned.has(k));
      }));
      const order = means.map((_, k) => k).sort((a, b) => means[b] - means[a]).slice(0, 6);
      const list = order.filter((k) => means[k] >= LEAST / 5)
        .map((k) => `${units[k].name} ${shown(means[k])}`).join(",  ");
      const who = at || state.pinned.size ? ends.map((i) => units[i].name).join(" + ") : "All, on average";
      const verb = isBack ? " is attended to by  " : at || (state.pinned.size === 1) ? " attends to  " : " attend to  ";
      byId("readout").replaceChildren(make("b", {}, who), verb, list || "nothing that is shown");
    }

    const tokenOf = (event) => {
      const token = event.target.closest(".token");
      return token && token.dataset.token.split(",").map(Number);
    };
    picture.addEventListener("pointerover", (event) => highlight(tokenOf(event)));
    picture.addEventListener("pointerleave", () => highlight(null));
    picture.addEventListener("focusin", (event) => {
      if (event.target.matches(":focus-visible")) highlight(tokenOf(event));
    });
    picture.addEventListener("focusout", () => highlight(null));
    function toggle(at) {
      if (!at || at[0]) return;
      if (!state.pinned.delete(at[1])) state.pinned.add(at[1]);
      highlight(at);
    }
    picture.addEventListener("click", (event) => toggle(tokenOf(event)));
    picture.addEventListener("keydown", (event) => {
      const at = tokenOf(event);
      if (!at) return;
      const move = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]}[event.key];
      if (move) {
        const side = Math.max(0, Math.min(1, at[0] + move[0]));
        const next = Math.max(0, Math.min(n - 1, at[1] + move[1]));
        sides.flat().forEach((token) => { token.tabIndex = -1; });
        sides[side][next].tabIndex = 0;
        sides[side][next].focus();
      } else if (event.key === "Enter" || event.key === " ") toggle(at);
      else if (event.key === "Escape") { state.pinned.clear(); highlight(at); }
      else return;
      event.preventDefault();
    });
    box.replaceChildren(picture);
    highlight(null);
  }

  function drawMatrix(box, {units, table, most, width}) {
    const n = units.length, longest = Math.max(1, ...units.map((unit) => Math.min(12, unit.name.length)));
    const label = 12 + 7 * longest;
    const size = Math.max(10, Math.min(26, Math.floor((width - label - 2) / Math.max(1, n))));
    const font = `font-size: ${Math.min(13, size + 1)}px`;
    const picture = make("svg", {
      class: "drawing", width: label + n * size + 2, height: label + n * size + 2, role: "group",
      tabindex: 0, "aria-label": "Attention of each row to each column; the arrow keys move",
    });
    units.forEach((unit, i) => {
      const at = label + (i + 0.5) * size, name = cut(unit.name, 12);
      picture.append(
        make("text", {x: label - 5, y: at + 4, "text-anchor": "end", style: font}, name),
        make("text", {transform: `translate(${at + 4} ${label - 5}) rotate(-90)`, style: font}, name));
    });
    // One path for each of 20 levels.
    const paths = Array.from({length: 21}, () => "");
    table.forEach((value, k) => {
      const x = label + (k % n) * size, y = label + Math.floor(k / n) * size;
      paths[Math.round(20 * level(value, most))] += `M${x} ${y}h${size}v${size}h${-size}z`;
    });
    paths.forEach((d, i) => {
      if (i && d) picture.append(make("path", {class: "cells", d, "fill-opacity": i / 20}));
    });
    const frame = make("rect", {class: "frame", x: label, y: label, width: n * size, height: n * size});
    const cursor = make("rect", {class: "cursor", width: size, height: size});
    picture.append(frame, cursor);

    function show(i, j) {
      state.cursor = [Math.max(0, Math.min(n - 1, i)), Math.max(0, Math.min(n - 1, j))];
      const [row, column] = state.cursor;
      cursor.setAttribute("x", label + column * size);
      cursor.setAttribute("y", label + row * size);
      const value = shown(table[row * n + column]);
      byId("readout").replaceChildren(
        make("b", {}, units[row].name), " attends to ", make("b", {}, units[column].name), `  ${value}`);
    }
    frame.addEventListener("pointermove", (event) => {
      const area = picture.getBoundingClientRect();
      show(Math.floor((event.clientY - area.top - label) / size),
        Math.floor((event.clientX - area.left - label) / size));
    });
    picture.addEventListener("keydown", (event) => {
      const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
      if (!step) return;
      event.preventDefault();
      show(state.cursor[0] + step[0], state.cursor[1] + step[1]);
    });
    box.replaceChildren(picture);
    if (n) show(...state.cursor);
  }

  // ---------------------------------------------------------------- the choices

  buildGrid();
  byId("attention").addEventListener("change", (event) => {
    const {name, type, checked, value} = event.target;
    state[name] = type === "checkbox" ? checked : value;
    if (name === "unit" || name === "special") state.pinned.clear();
    if (name !== "view") drawGrid();
    drawHead();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-head]");
    if (link) choose(...link.dataset.head.split(",").map(Number));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawGrid);
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) < 1) return;
    width = entry.contentRect.width;
    drawHead();
  }).observe(byId("attention"));
  drawGrid();
  drawHead();
})();
