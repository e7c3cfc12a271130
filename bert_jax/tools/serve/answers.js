"use strict";
// Draws the answers of the API, each by the fields that it has. Texts become text nodes only.
const drawAnswer = (() => {
  function make(name, classes, ...content) {
    const item = document.createElement(name);
    if (classes) item.className = classes;
    item.append(...content.filter((part) => part !== null && part !== undefined));
    return item;
  }

  function percent(value) {
    if (value < 0.0001) return "< 0.01%";
    return `${(100 * value).toPrecision(value < 0.0995 ? 2 : 3)}%`;
  }

  // rows: [{name, value, best}], values from 0 to 1.
  function bars(rows, isLong) {
    const items = rows.map((row) => {
      const fill = make("span");
      fill.style.width = `${100 * row.value}%`;
      const track = make("span", "track", fill);
      const name = make("bdi", "name", row.name);
      return make("li", row.best ? "best" : "", name, track, make("span", "value", percent(row.value)));
    });
    return make("ul", isLong ? "bars long" : "bars", ...items);
  }

  const heading = (text) => make("h3", "", text);
  const quiet = (text) => make("p", "quiet", text);
  const shownPiece = (piece) => piece.replace(/^##|^\u2581|<\/w>$/g, "");

  function masks(prediction, input) {
    const best = prediction.masks.map((mask) => shownPiece(mask.candidates[0].token));
    let number = 0;
    const texts = [input.text_a, input.text_b].filter((text) => text);
    const shown = texts.map((text) => {
      const line = make("p", "reading");
      text.split("[MASK]").forEach((part, i) => {
        if (i) line.append(make("mark", `k${number % 6}`, best[number++]));
        line.append(part);
      });
      return line;
    });
    const lists = prediction.masks.flatMap((mask, i) => [
      ...(prediction.masks.length > 1 ? [heading(`[MASK] ${i + 1}`)] : []),
      bars(mask.candidates.map((c, place) => (
        {name: c.token, value: c.probability, best: place === 0}))),
    ]);
    return [...shown, ...lists];
  }

  function nextSentence(pair) {
    const isNext = pair.is_next >= 0.5;
    return [
      make("p", "big", isNext ? "It follows" : "It comes from elsewhere"),
      bars([
        {name: "follows", value: pair.is_next, best: isNext},
        {name: "elsewhere", value: pair.random_next, best: !isNext},
      ]),
    ];
  }

  function classes(prediction) {
    const chosen = prediction.labels || [prediction.label];
    const rows = Object.entries(prediction.probabilities).map(([name, value]) => (
      {name, value, best: chosen.includes(name)}));
    rows.sort((a, b) => b.value - a.value);
    return [make("p", "big", chosen.join(", ") || "None of the classes"), bars(rows)];
  }

  const color = (kinds, kind) => `k${kinds.indexOf(kind) % 6}`;

  // Offsets of the API count characters; strings of a script count UTF-16 units.
  function entities(prediction, input, drawing) {
    const text = [...input.text];
    const line = make("p", "reading");
    let place = 0;
    for (const entity of prediction.entities) {
      const kind = make("small", "", `${entity.type} ${percent(entity.probability)}`);
      const mark = make("mark", color(drawing.kinds, entity.type), entity.text, kind);
      line.append(text.slice(place, entity.start).join(""), mark);
      place = entity.end;
    }
    line.append(text.slice(place).join(""));
    const found = prediction.entities.length;
    return [line, quiet(found ? `${found} ${found === 1 ? "entity" : "entities"}` : "No entity was found.")];
  }

  function tags(prediction) {
    const items = prediction.words.map((word, i) => (
      make("li", "", make("bdi", "", word), make("small", "", prediction.tags[i]))));
    return [make("ul", "words", ...items)];
  }

  function answer(prediction, input) {
    const best = prediction.n_best[0];
    const text = [...input.context];
    const line = make("p", "reading passage");
    line.tabIndex = 0;
    if (prediction.answer && best) {
      const mark = make("mark", "k0", text.slice(best.start, best.end).join(""));
      line.append(text.slice(0, best.start).join(""), mark, text.slice(best.end).join(""));
      // A long passage is scrolled to the answer once it is on the page.
      requestAnimationFrame(() => {
        line.scrollTop = mark.offsetTop - line.offsetTop - line.clientHeight / 3;
      });
    } else {
      line.append(input.context);
    }
    const isBest = (i) => i === 0 && Boolean(prediction.answer);
    const rows = prediction.n_best.slice(0, 5).map((span, i) => (
      {name: span.text, value: span.probability, best: isBest(i)}));
    // With models that may find none, the rest of the probability is that of no answer.
    const none = prediction.n_best.reduce((rest, span) => rest - span.probability, 1);
    if (none > 1e-4) {
      const row = {name: "No answer", value: none, best: !prediction.answer};
      rows.splice(prediction.answer ? rows.length : 0, 0, row);
    }
    return [
      make("p", "big", prediction.answer || "No answer in the passage"),
      line,
      heading("Best parts of the passage"),
      bars(rows, true),
    ];
  }

  function choice(prediction, input) {
    const rows = prediction.probabilities.map((value, i) => (
      {name: input.endings[i], value, best: i === prediction.choice}));
    const before = [input.context, input.start].filter((text) => text).join(" ");
    const line = make("p", "reading", `${before} `, make("mark", "k0", prediction.ending));
    return [line, bars(rows, true)];
  }

  function tiles(rows) {
    const items = rows.filter(([, value]) => value !== null && value !== undefined).map(
      ([name, value]) => make("div", "", make("dt", "", name), make("dd", "", value)));
    return make("dl", "tiles", ...items);
  }

  const number = (value) => (
    value === null || value === undefined ? null
      : value.toLocaleString("en", {maximumFractionDigits: 3}));

  function probability(prediction) {
    return [tiles([
      ["perplexity", number(prediction.perplexity)],
      ["tokens", number(prediction.tokens)],
      ["log-probability", number(prediction.log_probability)],
      ["log-probability forward", number(prediction.forward_log_probability)],
      ["log-probability backward", number(prediction.backward_log_probability)],
    ])];
  }

  function similarity(values, inputs) {
    const first = make("thead", "", make("tr", "", make("td"), ...inputs.map((_, i) => {
      const cell = make("th", "", String(i + 1));
      cell.scope = "col";
      return cell;
    })));
    const rows = values.map((row, i) => {
      const name = make("th", "", `${i + 1}  ${inputs[i].text_a}`);
      name.scope = "row";
      return make("tr", "", name, ...row.map((value) => {
        const cell = make("td", "", value.toFixed(2));
        const share = Math.round(55 * Math.max(0, value));
        cell.style.background = `color-mix(in srgb, var(--c0) ${share}%, transparent)`;
        return cell;
      }));
    });
    const table = make("table", "", make("caption", "", "Similarity of each pair"), first,
      make("tbody", "", ...rows));
    const box = make("div", "grid", table);
    box.tabIndex = 0;
    return inputs.length === 2
      ? [make("p", "big", values[0][1].toFixed(3)), quiet("1: the same direction; 0: unrelated."), box]
      : [box, quiet("1: the same direction; 0: unrelated.")];
  }

  // What was added is marked, unless the tokenizer writes the beginning in another way.
  function continued(text, begin) {
    const start = begin.trim();
    if (!text.toLowerCase().startsWith(start.toLowerCase())) return make("p", "reading", text);
    const added = make("mark", "k0", text.slice(start.length));
    return make("p", "reading", text.slice(0, start.length), added);
  }

  // The page is at home in a frame, whose height is that of its content.
  function frame(page) {
    const item = make("iframe", "frame");
    item.title = "Attention";
    item.srcdoc = page;
    item.addEventListener("load", () => {
      const root = item.contentDocument.documentElement;
      const fit = () => { item.style.height = `${root.scrollHeight + 8}px`; };
      new ResizeObserver(fit).observe(item.contentDocument.body);
      // A link to a place in the frame would load the page around it there.
      item.contentDocument.addEventListener("click", (event) => {
        const link = event.target.closest("a[href^='#']");
        if (!link) return;
        event.preventDefault();
        item.contentDocument.querySelector(link.getAttribute("href")).scrollIntoView();
      });
      fit();
    });
    return [item];
  }

  function ofPrediction(prediction, input, drawing) {
    if (prediction.masks && prediction.masks.length) {
      return [...masks(prediction, input), ...pairOf(prediction)];
    }
    if (prediction.next_sentence) return nextSentence(prediction.next_sentence);
    if (prediction.entities) return entities(prediction, input, drawing);
    if (prediction.tags) return tags(prediction);
    if (prediction.n_best) return answer(prediction, input);
    if (prediction.ending !== undefined) return choice(prediction, input);
    if (prediction.value !== undefined) return [make("p", "big", number(prediction.value))];
    if (prediction.probabilities) return classes(prediction);
    if (prediction.perplexity !== undefined) return probability(prediction);
    return [];
  }

  function pairOf(prediction) {
    if (!prediction.next_sentence) return [];
    return [heading("Second text"), ...nextSentence(prediction.next_sentence).slice(1)];
  }

  function warning(prediction) {
    const {questions_truncated: isQuestion, tokens_cut_off: cut} = prediction.counts || {};
    if (!isQuestion && !cut) return [];
    const what = isQuestion ? "question" : "text";
    const rest = cut ? `: ${cut} ${cut === 1 ? "token was" : "tokens were"} cut off` : "";
    return [quiet(`The ${what} is longer than the model reads${rest}.`)];
  }

  // Returns elements for the answer to a request.
  return (answer, inputs, drawing) => {
    if (answer.similarity) return similarity(answer.similarity, inputs);
    if (answer.page) return frame(answer.page);
    if (answer.texts) return answer.texts.map((text, i) => continued(text, inputs[i].text_a));
    return (answer.predictions || []).flatMap((prediction, i) => (
      [...ofPrediction(prediction, inputs[i], drawing), ...warning(prediction)]));
  };
})();
