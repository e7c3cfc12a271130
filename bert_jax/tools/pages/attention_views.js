"use strict";
// Two views of one head: lines between tokens, and a matrix. Both write to `readout` what is looked
// at. `state` has the numbers of the tokens that are chosen (`pinned`) and the cell (`cursor`).
const attentionViews = (() => {
  const ROW = 22, LEAST = 0.0045;  // what is shown as 0.005

  // How dark a weight is: small ones are visible too.
  const level = (value, most) => Math.sqrt(Math.min(1, value / most));
  const shown = (value) => value.toFixed(3);

  function make(name, attributes = {}, ...children) {
    const isDrawn = ["svg", "g", "path", "rect", "text", "title"].includes(name);
    const item = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) item.setAttribute(key, value);
    item.append(...children);
    return item;
  }

  // [down, right] of an arrow key, which then does not scroll.
  function arrowOf(event) {
    const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
    if (steps[event.key]) event.preventDefault();
    return steps[event.key];
  }
  const limited = (number, count) => Math.max(0, Math.min(count - 1, number));

  const share = (name, value) => make("span", {class: "share"}, make("b", {}, name), ` ${shown(value)} `);
  const cut = (name, letters) => (name.length > letters ? `${name.slice(0, letters - 1)}…` : name);

  function drawLines(box, readout, state, {sides, table, most, width}) {
    const [rows, columns] = sides, n = columns.length;
    const column = Math.min(150, Math.round(width * 0.32));
    const letters = Math.floor((column - 12) / 7.4);
    const picture = make("svg", {
      class: "drawing", width, height: ROW * (Math.max(rows.length, n) + 1) + 4, role: "group",
      "aria-label": "Attention from the tokens on the left to those on the right",
    });
    picture.append(
      make("text", {class: "quiet", x: column - 6, y: 13, "text-anchor": "end"}, "attends"),
      make("text", {class: "quiet", x: width - column + 6, y: 13}, "to"));
    const middle = (i) => ROW * (i + 1) + ROW / 2;
    const arcs = make("g");
    for (let i = 0; i < rows.length; i++) {
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
    const tokens = sides.map((units, side) => units.map((unit, i) => {
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
      picture.append(token);
      return token;
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
      const isBack = Boolean(at && at[0]);
      const pinned = state.pinned.size ? [...state.pinned] : rows.map((_, i) => i);
      const ends = at ? [at[1]] : pinned;
      const others = isBack ? rows : columns;
      const means = others.map((_, k) => ends.reduce((sum, i) =>
        sum + (isBack ? table[k * n + i] : table[i * n + k]), 0) / Math.max(1, ends.length));
      tokens.forEach((ofSide, side) => ofSide.forEach((token, k) => {
        const isHeated = side === (isBack ? 0 : 1);
        token.firstChild.setAttribute("fill-opacity", isHeated ? 0.45 * level(means[k], most) : 0);
        token.setAttribute("aria-pressed", side === 0 && state.pinned.has(k));
      }));
      const order = means.map((_, k) => k).sort((a, b) => means[b] - means[a]).slice(0, 6);
      const list = order.filter((k) => means[k] >= LEAST / 5).map((k) => share(others[k].name, means[k]));
      const isAll = !at && !state.pinned.size;
      const who = isAll ? "All, on average," : ends.map((i) => sides[isBack ? 1 : 0][i].name).join(" + ");
      const verb = isBack ? " is attended to by " : ends.length > 1 ? " attend to " : " attends to ";
      readout.replaceChildren(
        make("b", {}, who), verb, ...(list.length ? list : ["nothing that is shown"]));
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
      const arrow = arrowOf(event);
      if (arrow) {
        const side = limited(at[0] + arrow[1], 2);
        const next = tokens[side][limited(at[1] + arrow[0], tokens[side].length)];
        tokens.flat().forEach((token) => { token.tabIndex = token === next ? 0 : -1; });
        next.focus();
        return;
      }
      if (event.key === "Enter" || event.key === " ") toggle(at);
      else if (event.key === "Escape") { state.pinned.clear(); highlight(at); }
      else return;
      event.preventDefault();
    });
    box.replaceChildren(picture);
    highlight(null);
  }

  function drawMatrix(box, readout, state, {sides, table, most, width}) {
    const [rows, columns] = sides, n = columns.length;
    const longest = Math.max(1, ...sides.flat().map((unit) => Math.min(12, unit.name.length)));
    const label = 12 + 7 * longest;
    const size = Math.max(11, Math.min(26, Math.floor((width - label - 2) / Math.max(1, n))));
    const font = `font-size: ${Math.min(13, size - 1)}px`;
    const picture = make("svg", {
      class: "drawing", width: label + n * size + 2, height: label + rows.length * size + 2,
      role: "group", tabindex: 0, "aria-label": "Attention of each row to each column; the arrow keys move",
    });
    rows.forEach((unit, i) => picture.append(make("text", {
      x: label - 5, y: label + (i + 0.5) * size + 4, "text-anchor": "end", style: font,
    }, cut(unit.name, 12))));
    columns.forEach((unit, i) => picture.append(make("text", {
      transform: `translate(${label + (i + 0.5) * size + 4} ${label - 5}) rotate(-90)`, style: font,
    }, cut(unit.name, 12))));
    // One path for each of 20 levels.
    const paths = Array.from({length: 21}, () => "");
    table.forEach((value, k) => {
      const x = label + (k % n) * size, y = label + Math.floor(k / n) * size;
      paths[Math.round(20 * level(value, most))] += `M${x} ${y}h${size}v${size}h${-size}z`;
    });
    paths.forEach((d, i) => {
      if (i && d) picture.append(make("path", {class: "cells", d, "fill-opacity": i / 20}));
    });
    const frame = make("rect", {class: "frame", x: label, y: label, width: n * size, height: rows.length * size});
    const cursor = make("rect", {class: "cursor", width: size, height: size});
    picture.append(frame, cursor);

    function show(i, j) {
      state.cursor = [limited(i, rows.length), limited(j, n)];
      const [row, column] = state.cursor;
      cursor.setAttribute("x", label + column * size);
      cursor.setAttribute("y", label + row * size);
      readout.replaceChildren(
        make("b", {}, rows[row].name), " attends to ", share(columns[column].name, table[row * n + column]));
    }
    frame.addEventListener("pointermove", (event) => {
      const area = picture.getBoundingClientRect();
      show(Math.floor((event.clientY - area.top - label) / size),
        Math.floor((event.clientX - area.left - label) / size));
    });
    picture.addEventListener("keydown", (event) => {
      const arrow = arrowOf(event);
      if (arrow) show(state.cursor[0] + arrow[0], state.cursor[1] + arrow[1]);
    });
    box.replaceChildren(picture);
    if (table.length) show(...state.cursor);
  }

  return {make, level, shown, arrowOf, limited, drawLines, drawMatrix};
})();
