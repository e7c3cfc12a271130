"""The page in a browser: every kind of answer, errors, small screens, and accessibility."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import uvicorn

from bert_jax.data.labelled.examples import ChoiceExample, Question, TaggedExample, TextExample
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.span import Span
from bert_jax.tasks.tagging import Tagging
from bert_jax.tools.pages.attention import Origin, attention_page
from bert_jax.tools.serve.app import make_app
from bert_jax.tools.serve.batching import Batcher, Computation
from bert_jax.tools.serve.endpoints import Endpoint, similarities
from bert_jax.tools.serve.forms import (
    _FORMS,
    ATTENTION,
    SIMILARITY,
    _masks,
    _whole_texts,
    text_form,
)
from bert_jax.tools.serve.guard import Guard
from bert_jax.tools.serve.server import open_socket
from bert_jax.tools.serve.starting import Starting
from tests.tools.pages.attention_arrays import make_arrays

# What a page shows of it must be text, never markup.
EVIL = "<img src=x onerror=alert(1)>"


def _masks_of(text):
    if text.text_b is not None:
        return {"next_sentence": {"is_next": 0.9, "random_next": 0.1}, "masks": []}
    words = [("capital", 0.6), ("##ity", 0.3), (EVIL, 0.2)]
    candidates = [{"token": word, "probability": value} for word, value in words]
    masks = [{"position": i, "candidates": candidates} for i in range(text.text_a.count("[MASK]"))]
    return {"next_sentence": None, "masks": masks}


def _tags(example):
    entities = [
        {"type": kind, "text": name, "start": start, "end": start + len(name), "probability": 0.9}
        for kind, name in (("PER", "Marie Curie"), ("LOC", "Warsaw"))
        if (start := example.text.find(name)) >= 0
    ]
    tags = ["O"] * len(example.words)
    return {"words": list(example.words), "tags": tags, "entities": entities}


def _answer(question):
    start, given = question.context.find("Warsaw"), question.question
    span = {"text": "Warsaw", "start": start, "end": start + 6, "score": 1.0, "probability": 0.8}
    return {
        "answer": "Warsaw" if "Where" in given else "",
        "n_best": [span, {**span, "text": EVIL, "probability": 0.15}],
        "counts": {"questions_truncated": int(len(given) > 99)},
    }


def _attention(text):
    texts = (text.text_a, *([text.text_b] if text.text_b else []))
    return attention_page(Origin("run", "bert for pretraining", texts), make_arrays())


def _classes(example):
    if example.text_a == "defect":
        raise KeyError("a secret")
    return {"label": "good", "probabilities": {"bad": 0.02, "good": 0.975, EVIL: 0.005}}


def endpoint(name, form, make, respond=lambda found: {"predictions": found}, **sizes):
    """An endpoint whose results are made by a function of an example."""
    computation = Computation(lambda e: e, lambda es: list(map(make, es)), lambda e: [])
    return Endpoint(name, "", form, computation, respond, **sizes)


def make_service():
    """All kinds of answers on one page, which no model has; the forms are the real ones."""
    entities = Tagging(labels=("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"))
    plain = Tagging(entities=False, labels=("NOUN", "VERB"))
    number = Classification(problem_type="regression", text_b="text_b")
    tags = {"words": ["cats"], "tags": ["NOUN"]}
    choice = {"choice": 1, "ending": "the oven sings.", "probabilities": [0.2, 0.7, 0.1]}
    text = {"tokens": 5, "log_probability": -12.5, "perplexity": 12.1825}
    vector = lambda e: np.array([1.0, len(e.text_a) / 50], np.float32)  # noqa: E731
    pages = lambda found: {"page": found[0]}  # noqa: E731
    similar, attention = text_form(SIMILARITY), text_form(ATTENTION, is_pair=True)
    endpoints = [
        endpoint("masks", _masks(Pretraining()), _masks_of),
        endpoint("classes", _FORMS[TextExample](Classification()), _classes),
        endpoint("value", _FORMS[TextExample](number), lambda _: {"value": 3.14159}),
        endpoint("entities", _FORMS[TaggedExample](entities), _tags),
        endpoint("tags", _FORMS[TaggedExample](plain), lambda _: tags),
        endpoint("questions", _FORMS[Question](Span()), _answer),
        endpoint("endings", _FORMS[ChoiceExample](MultipleChoice()), lambda _: choice),
        endpoint("text", _whole_texts(False), lambda _: text),
        endpoint("similarity", similar, vector, similarities, min_inputs=2),
        endpoint("attention", attention, _attention, pages),
    ]
    missing = {"generate": f"It has no head, {EVIL}."}
    return SimpleNamespace(name="quickstart", about="bert", endpoints=endpoints, missing=missing)


@pytest.fixture(scope="module")
def guard():
    """The application that the server has."""
    return Guard(make_app(make_service(), Batcher(256), 0), 0, is_local=True)


@pytest.fixture(scope="module")
def address(guard):
    """Of a server in a thread."""
    opened = open_socket("127.0.0.1", 0)
    config = uvicorn.Config(guard, lifespan="off", ws="none", log_config=None, log_level="critical")
    server, url = uvicorn.Server(config), f"http://127.0.0.1:{opened.getsockname()[1]}"
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield url
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def page(visit, address):
    """The page, opened."""
    return visit(f"{address}/")


def ask(page, title, sample=0):
    """Shows a tab, asks with one of its samples, and returns the answer's element."""
    page.click(f"nav a:text-is('{title}')")
    section = page.locator("main > section:visible")
    assert section.count() == 1 and section.locator("h2").inner_text() == title
    section.locator(".answer").evaluate("answer => answer.replaceChildren()")
    section.locator("button.sample").nth(sample).click()
    section.locator("details.raw, .problem").first.wait_for()
    return section.locator(".answer")


def say(page, **fields):
    """Fills fields of the tab that is shown, asks, and returns the answer's element."""
    section = page.locator("main > section:visible")
    for name, text in fields.items():
        section.locator(f"textarea[name={name}]").fill(text)
    section.locator(".answer").evaluate("answer => answer.replaceChildren()")
    section.locator("button.primary").click()
    section.locator("details.raw, .problem").first.wait_for()
    return section.locator(".answer")


def bars(answer):
    """(name, value, whether it is the best) of each bar."""
    return [
        (
            *item.locator(".name, .value").all_inner_texts(),
            "best" in (item.get_attribute("class") or ""),
        )
        for item in answer.locator(".bars li").all()
    ]


def test_masks_and_next_sentences(page):
    answer = ask(page, "Fill masks")
    assert answer.locator(".reading").inner_text() == "The capital of the list is returned."
    assert answer.locator("mark").all_inner_texts() == ["capital"]
    assert "null" not in answer.inner_text()
    assert bars(answer) == [
        ("capital", "60.0%", True),
        ("##ity", "30.0%", False),
        (EVIL, "20.0%", False),
    ]
    answer = ask(page, "Fill masks", 1)
    assert answer.locator("mark").count() == 2 and answer.locator("h3:visible").count() == 2
    answer = ask(page, "Next sentence")
    assert answer.locator(".big").inner_text() == "It follows"
    assert bars(answer) == [("follows", "90.0%", True), ("elsewhere", "10.0%", False)]


def test_questions(page):
    answer = ask(page, "Questions")
    assert answer.locator("mark").inner_text() == "Warsaw"
    assert answer.locator(".reading").inner_text().startswith("Marie Curie was born in Warsaw in")
    # The probability that the spans leave is that of no answer.
    found = [("Warsaw", "80.0%"), (EVIL, "15.0%"), ("No answer", "5.0%")]
    assert bars(answer) == [(*found[0], True), (*found[1], False), (*found[2], False)]
    assert "longer" not in answer.inner_text()
    answer = ask(page, "Questions", 1)
    assert bars(answer)[:2] == [(*found[2], True), (*found[0], False)]
    assert answer.locator(".big").inner_text() == "No answer in the passage"
    assert answer.locator("mark").count() == 0
    answer = say(page, question="Where? " * 30)
    assert "The question is longer than the model reads." in answer.inner_text()
    # Characters outside of the basic plane are one character of the API's offsets.
    answer = say(page, context="\U0001f40e\U0001f40e She saw Warsaw.", question="Where?")
    assert answer.locator("mark").inner_text() == "Warsaw"


def test_an_error_is_shown_and_goes_away(page):
    page.click("nav a:text-is('Fill masks')")
    assert say(page, text_a="").locator("[role=alert]").inner_text() == "“Text” is empty."
    assert say(page, text_a="Nothing.").inner_text() == "“Text” has no [MASK]."
    assert page.evaluate("document.activeElement.name") == "text_a"
    # Of the server, in the page's words.
    found = say(page, text_a="[MASK] " * 9)
    assert found.inner_text() == "“Text” has 9 [MASK]; at most 8 are allowed."
    assert ask(page, "Fill masks").locator(".problem").count() == 0
    page.click("nav a:text-is('Endings')")
    found = say(page, context="The cook", endings="one")
    assert found.inner_text() == "“Endings” has 1 line; allowed: 2 to 8."
    page.click("nav a:text-is('Classify')")
    assert "The server failed on this request" in say(page, text_a="defect").inner_text()


def test_the_page_waits_until_the_model_is_ready(visit, address, guard, monkeypatch):
    from axe_playwright_python.sync_playwright import Axe

    starting, ready = Starting(), guard.app
    monkeypatch.setattr(guard, "app", starting)
    page = visit(f"{address}/")
    page.get_by_text("Loading the model.").wait_for()
    assert not Axe().run(page).violations_count
    starting.compiled = 1, 3
    page.get_by_text("Compiling programs: 1 of 3 are done.").wait_for()
    guard.app = ready
    page.locator("nav a:text-is('Fill masks')").wait_for()
    with page.expect_navigation():
        page.click("footer a[href='/openapi.json']")
    assert '"openapi":"3.1.0"' in page.content()


def test_all_answers_fit_the_screen_and_are_accessible(visit, address):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(f"{address}/", 380, color_scheme="dark")
    for title in page.locator("nav a").all_inner_texts():
        if title == "Attention":  # a page with tests of its own
            continue
        ask(page, title)
        page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), title
        found = Axe().run(page)
        assert not found.violations_count, f"{title}: {found.generate_report()}"
    page.click("nav a:text-is('Tags')")
    say(page, text="x" * 300)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_scripts_from_elsewhere_do_not_run(browser, address):
    """The policy allows the page's own scripts and requests to its server, and no others."""
    page, seen = browser.new_page(), []
    page.on("console", lambda message: seen.append(message.text))
    page.goto(address)
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("() => fetch('http://127.0.0.2:9/').catch(() => 'blocked')") == "blocked"
    assert page.evaluate("window.ran") is None
    assert sum("Content Security Policy" in line for line in seen) >= 2
    page.close()
