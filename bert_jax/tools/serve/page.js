"use strict";
// Tabs, samples, and the way of a form to the server and back.
(() => {
  const titles = [...document.querySelectorAll("main > section > h2")];
  const tabs = [...document.querySelectorAll("nav a")];

  // The contents of the page become tabs: one section is shown at a time.
  function show() {
    const chosen = titles.find((title) => `#${title.id}` === location.hash) || titles[0];
    for (const title of titles) title.parentNode.hidden = title !== chosen;
    for (const tab of tabs) {
      if (tab.hash === `#${chosen.id}`) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }

  for (const tab of tabs) {
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", tab.hash);
      show();
    });
  }
  window.addEventListener("hashchange", show);
  show();

  function lines(text) {
    return text.split("\n").map((line) => line.trim()).filter((line) => line);
  }

  // One input; several for a form whose only field is a list.
  function inputsOf(form) {
    const boxes = [...form.querySelectorAll("textarea")];
    const isList = (box) => box.dataset.list !== undefined;
    if (boxes.length === 1 && isList(boxes[0])) {
      return lines(boxes[0].value).map((line) => ({[boxes[0].name]: line}));
    }
    const input = {};
    for (const box of boxes) {
      if (isList(box)) input[box.name] = lines(box.value);
      else if (box.value) input[box.name] = box.value;
    }
    return [input];
  }

  function raw(url, inputs, answer) {
    const details = document.createElement("details");
    details.className = "raw";
    const summary = document.createElement("summary");
    summary.textContent = "As JSON";
    details.append(summary);
    const shown = answer.page ? {page: `${answer.page.slice(0, 80)}…`} : answer;
    for (const [name, value] of [[`POST ${url}`, {inputs}], ["Answer", shown]]) {
      const title = document.createElement("h3");
      title.textContent = name;
      const text = document.createElement("pre");
      text.tabIndex = 0;
      text.textContent = JSON.stringify(value, null, 2);
      details.append(title, text);
    }
    return details;
  }

  function problem(message) {
    const box = document.createElement("p");
    box.className = "problem";
    box.setAttribute("role", "alert");
    box.textContent = message;
    return box;
  }

  const labelOf = (box) => `“${box.labels[0].firstChild.textContent}”`;

  // The first field that cannot be sent, and why: [] if there is none.
  function wrongField(form) {
    for (const box of form.querySelectorAll("textarea")) {
      const {optional, needs} = box.dataset;
      if (!box.value.trim() && optional === undefined) return [box, `${labelOf(box)} is empty.`];
      if (needs && !box.value.includes(needs)) return [box, `${labelOf(box)} has no ${needs}.`];
    }
    return [];
  }

  // Errors of the API name its fields; the page has labels, and lines of texts.
  function readable(message, form) {
    const boxes = [...form.querySelectorAll("textarea")];
    const named = (name) => boxes.find((box) => box.name === name);
    const isLines = boxes.length === 1 && boxes[0].dataset.list !== undefined;
    return message
      .replace(/^`inputs`/, labelOf(boxes[0]))
      .replace(/ has (\d+) elements;/, (_, n) => ` has ${n} ${n === "1" ? "line" : "lines"};`)
      .replace(/\binputs\[(\d+)\](?:\.(\w+))?(?:\[(\d+)\])?/g, (_, number, name, line) => {
        const text = labelOf(named(name) || boxes[0]);
        const place = isLines ? number : line;
        return place === undefined ? text : `${text}, line ${Number(place) + 1}`;
      })
      .replace(/`(\w+)`/g, (quoted, name) => (named(name) ? labelOf(named(name)) : quoted));
  }

  async function ask(form) {
    const url = form.dataset.url;
    const target = form.parentNode.querySelector(".answer");
    const [box, reason] = wrongField(form);
    if (box) {
      target.replaceChildren(problem(reason));
      form.querySelector(".state").textContent = "";
      box.focus();
      return;
    }
    const inputs = inputsOf(form);
    const button = form.querySelector(".primary");
    const state = form.querySelector(".state");
    button.disabled = true;
    state.textContent = "…";
    const start = performance.now();
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({inputs}),
      });
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}.`);
      const drawn = drawAnswer(answer, inputs, JSON.parse(form.dataset.drawing));
      target.replaceChildren(...drawn, raw(url, inputs, answer));
      state.textContent = `${Math.round(performance.now() - start)} ms`;
    } catch (error) {
      const isLost = error instanceof TypeError;
      target.replaceChildren(problem(
        isLost ? "The server does not answer." : readable(error.message, form)));
      state.textContent = "";
    }
    button.disabled = false;
  }

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(event.target);
  });

  document.addEventListener("keydown", (event) => {
    const form = event.target.closest && event.target.closest("form.ask");
    if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.sample");
    if (!button) return;
    const form = button.closest("form");
    for (const [name, value] of Object.entries(JSON.parse(button.dataset.sample))) {
      form.elements[name].value = Array.isArray(value) ? value.join("\n") : value;
    }
    form.requestSubmit();
  });
})();
