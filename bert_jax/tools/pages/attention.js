"use strict";
// Draws attention: a cell for each head, and one head as lines between tokens or as a matrix.
(() => {
  const source = document.getElementById("attention-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const {layers, heads, statistics, values} = data;
  const {make, level, shown, drawLines, drawMatrix} = attentionViews;
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

  // Words or tokens of a segment, of both for "": {name, start, stop}.
  function unitsOf(segment) {
    const isWords = state.unit === "words";
    const spans = isWords ? data.spans : data.tokens.map((_, i) => [i, i + 1]);
    return spans
      .map(([start, stop], i) => ({name: (isWords ? data.words : data.tokens)[i], start, stop}))
      .filter(({start}) => state.special || !data.special[start])
      .filter(({start}) => segment === "" || String(data.segments[start]) === segment);
  }

  // What attends, and what is attended to.
  function shownSides() {
    const [from, to] = state.way === "all" ? ["", ""] : state.way;
    return [unitsOf(from), unitsOf(to)];
  }

  // Between words: the sum over what is attended to, the mean over what attends.
  function shownWeights(layer, head, [rows, columns]) {
    const begin = (layer * heads + head) * count * count;
    const table = new Float32Array(rows.length * columns.length);
    let k = 0, most = 0;
    for (const from of rows) {
      for (const to of columns) {
        let sum = 0;
        for (let a = from.start; a < from.stop; a++) {
          for (let b = to.start; b < to.stop; b++) sum += weights[begin + a * count + b];
        }
        table[k] = sum / (from.stop - from.start);
        most = Math.max(most, table[k++]);
      }
    }
    return {table, most: state.scale && most > 0 ? most : 1};
  }

  function statisticOf(key, layer, head) {
    const row = statistics.findIndex((statistic) => statistic.key === key);
    return values[state.of][row][layer * heads + head];
  }

  // ---------------------------------------------------------------- the grid of all heads

  const buttons = [];
  function buildGrid() {
    const grid = make("table", {class: "heads", style: `max-width: ${80 * heads + 24}px`});
    const top = make("tr", {}, make("td", {class: "side"}));
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

  function paint(canvas, layer, head, sides, rgb) {
    const {table, most} = shownWeights(layer, head, sides);
    canvas.width = Math.max(1, sides[1].length);
    canvas.height = Math.max(1, sides[0].length);
    canvas.style.imageRendering = canvas.width < 60 ? "pixelated" : "auto";
    const image = new ImageData(canvas.width, canvas.height);
    table.forEach((value, i) => image.data.set([...rgb, 255 * level(value, most)], 4 * i));
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  function drawGrid() {
    const rgb = color(), isPicture = state.show === "attention";
    const sides = isPicture ? shownSides() : [];
    const row = statistics.findIndex((statistic) => statistic.key === state.show);
    const all = isPicture ? [0, 1] : values[state.of][row];
    const low = Math.min(0, ...all), high = Math.max(...all) || 1;
    buttons.forEach((button, i) => {
      const [layer, head] = [Math.floor(i / heads), i % heads];
      let label = `Layer ${layer + 1}, head ${head + 1}`;
      button.style.background = "";
      if (isPicture) {
        if (!button.firstChild) button.append(make("canvas"));
        paint(button.firstChild, layer, head, sides, rgb);
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
    const what = `Layers downwards, heads across${isPicture ? "; in a cell, rows attend to columns" : ""}.`;
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

  function drawHead() {
    if (!data.tokens) return;
    byId("head").textContent = `Layer ${state.layer + 1}, head ${state.head + 1}`;
    byId("head-values").textContent = statistics.map(({key, unit}) =>
      `${key} ${shown(statisticOf(key, state.layer, state.head))} ${unit}`.trim()).join(" · ");
    const sides = shownSides();
    const box = byId("drawing");
    state.pinned = new Set([...state.pinned].filter((i) => i < sides[0].length));
    const shape = {sides, ...shownWeights(state.layer, state.head, sides)};
    const width = Math.max(280, box.clientWidth);
    (state.view === "lines" ? drawLines : drawMatrix)(box, byId("readout"), state, {...shape, width});
  }

  // ---------------------------------------------------------------- the choices

  buildGrid();
  byId("attention").addEventListener("change", (event) => {
    const {name, type, checked, value} = event.target;
    state[name] = type === "checkbox" ? checked : value;
    if (["unit", "special", "way"].includes(name)) Object.assign(state, {pinned: new Set(), cursor: [0, 0]});
    if (name !== "view") drawGrid();
    drawHead();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-head]");
    if (link) choose(...link.dataset.head.split(",").map(Number));
  });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", drawGrid);
  }
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) < 1) return;
    width = entry.contentRect.width;
    drawHead();
  }).observe(byId("attention"));
  drawGrid();
  drawHead();
})();
