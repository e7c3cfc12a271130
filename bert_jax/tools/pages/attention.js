"use strict";
// Draws attention: a cell for each head, and one head as lines between tokens or as a matrix.
(() => {
  const source = document.getElementById("attention-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const {layers, heads, units, values} = data;
  const {make, level, shown, arrowOf, limited, drawLines, drawMatrix} = attentionViews;
  const byId = (id) => document.getElementById(id);
  const state = {
    layer: data.start[0], head: data.start[1], show: "attention", of: Object.keys(values)[0],
    view: "lines", unit: "words", way: "all", special: true, scale: false,
    pinned: new Set(), cursor: [0, 0],
  };
  if (!data.tokens) state.show = Object.keys(units)[0];

  // ---------------------------------------------------------------- the numbers

  const count = data.tokens ? data.tokens.length : 0;
  const letters = atob(data.weights || "");
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const weights = new Uint16Array(bytes.buffer);  // thousandths

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
        table[k] = sum / 1000 / (from.stop - from.start);
        most = Math.max(most, table[k++]);
      }
    }
    return {table, most: state.scale && most > 0 ? most : 1};
  }

  // ---------------------------------------------------------------- the grid of all heads

  const buttons = [];
  function buildGrid() {
    const numbers = (size) => Array.from({length: size}, (_, i) => i);
    const grid = make("table", {class: "heads", style: `max-width: ${80 * heads + 24}px`},
      make("caption", {}, "All layers, from above, and heads"),
      make("thead", {}, make("tr", {}, make("td", {class: "side"}),
        ...numbers(heads).map((head) => make("th", {scope: "col"}, `${head + 1}`)))),
      make("tbody", {}, ...numbers(layers).map((layer) =>
        make("tr", {}, make("th", {scope: "row", class: "side"}, `${layer + 1}`),
          ...numbers(heads).map((head) => {
            buttons.push(make("button", {type: "button", "data-place": `${layer},${head}`}));
            return make("td", {}, buttons.at(-1));
          })))));
    byId("grid").append(grid);
    grid.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) choose(...button.dataset.place.split(",").map(Number));
    });
    grid.addEventListener("keydown", (event) => {
      const arrow = arrowOf(event);
      if (!arrow) return;
      const layer = limited(state.layer + arrow[0], layers), head = limited(state.head + arrow[1], heads);
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
    const all = isPicture ? [0, 1] : values[state.of][state.show];
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
    const ends = isPicture ? ["0", state.scale ? "the strongest of a head" : "1"]
      : [shown(low), `${shown(high)} ${units[state.show]}`];
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
    const number = state.layer * heads + state.head;
    byId("head-values").textContent = Object.entries(units).map(([name, unit]) =>
      `${name} ${shown(values[state.of][name][number])} ${unit}`.trim()).join(" · ");
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
