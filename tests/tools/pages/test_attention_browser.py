"""The page of attention in a browser: what it draws, its choices, keyboard and small screens."""

import re

import numpy as np
import pytest

from bert_jax.scores.attention import STATISTICS, attention_of_words
from bert_jax.tools.pages.attention import Origin, attention_page
from tests.tools.pages.attention_arrays import SPANS, TOKENS, WORDS, make_arrays

ORIGIN = Origin("run", "bert for pretraining", ("It purred [MASK].", "It."), "4 rows of in.txt")


@pytest.fixture(params=["1280 light", "380 dark"])
def page(request, visit, tmp_path):
    """The page, opened."""
    (tmp_path / "attention.html").write_text(attention_page(ORIGIN, make_arrays()))
    width, scheme = request.param.split()
    return visit((tmp_path / "attention.html").as_uri(), int(width), color_scheme=scheme)


def choose(page, name, value):
    page.check(f"input[name={name}][value='{value}']", force=True)


def readout(page):
    return " ".join(page.inner_text("#readout").split())


def matrix(page, rows, columns):
    """The values of all cells, read with the arrow keys; their names are those expected."""
    choose(page, "view", "matrix")
    page.focus("#drawing svg")
    found = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            name, value = readout(page).rsplit(" ", 1)
            assert name == f"{row} attends to {column}"
            found[i, j] = float(value)
            page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        for _ in columns:
            page.keyboard.press("ArrowLeft")
    return found


def test_the_values_of_words_and_tokens(page):
    """Of all words, from A to B, and without special tokens; words are merged by the script."""
    attention = make_arrays()["attention"]
    page.click("[data-place='1,2']")
    of_words = attention_of_words(attention, SPANS)[1, 2]
    np.testing.assert_allclose(matrix(page, WORDS, WORDS), of_words, rtol=0, atol=2.1e-3)
    choose(page, "way", "01")
    found = matrix(page, WORDS[:6], WORDS[6:])
    np.testing.assert_allclose(found, of_words[:6, 6:], rtol=0, atol=2.1e-3)
    page.uncheck("input[name=special]")
    choose(page, "way", "00")
    choose(page, "unit", "tokens")
    found = matrix(page, TOKENS[1:6], TOKENS[1:6])
    np.testing.assert_allclose(found, attention[1, 2, 1:6, 1:6], rtol=0, atol=1.1e-3)


def test_lines_are_those_of_the_token_that_is_looked_at(page):
    attention = make_arrays()["attention"]
    choose(page, "unit", "tokens")
    place = page.get_attribute(".heads button[aria-pressed=true]", "data-place")
    layer, head = map(int, place.split(","))
    weights = attention[layer, head]
    visible = "#drawing .arc:not(.off)"
    assert page.locator(visible).count() == (np.round(weights, 3) >= 0.005).sum()
    page.hover("[data-token='0,3']")
    assert page.locator(visible).count() == (np.round(weights[3], 3) >= 0.005).sum()
    best = int(weights[3].argmax())
    assert readout(page).startswith(f"##red attends to {TOKENS[best]} {weights[3, best]:.3f}")
    page.hover("[data-token='1,4']")
    assert page.locator(visible).count() == (np.round(weights[:, 4], 3) >= 0.005).sum()
    best = int(weights[:, 4].argmax())
    assert readout(page).startswith(f"[MASK] is attended to by {TOKENS[best]}")
    # Two tokens stay chosen: the mean of both.
    page.click("[data-token='0,1']")
    page.click("[data-token='0,3']")
    page.hover("h1")
    both = weights[[1, 3]].mean(0)
    best = int(both.argmax())
    pattern = rf"it \+ ##red attend to {re.escape(TOKENS[best])} 0\.(\d+)"
    match = re.match(pattern, readout(page))
    assert match and abs(float(f"0.{match[1]}") - both[best]) < 2e-3


def test_everything_is_done_with_the_keyboard(page):
    start = page.get_attribute(".heads button[aria-pressed=true]", "data-place")
    layer, head = map(int, start.split(","))
    page.focus(".heads button[tabindex='0']")
    page.keyboard.press("ArrowUp" if layer else "ArrowDown")
    assert page.inner_text("#head") == f"Layer {2 - layer}, head {head + 1}"
    page.focus("#drawing [tabindex='0']")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.get_attribute("[data-token='0,1']", "aria-pressed") == "true"
    assert readout(page).startswith("it attends to ")
    page.keyboard.press("Escape")
    assert page.get_attribute("[data-token='0,1']", "aria-pressed") == "false"


def test_statistics_of_heads_and_links_to_them(page):
    arrays = make_arrays()
    page.select_option("select[name=of]", "sample")
    page.select_option("select[name=show]", "next")
    values = arrays["sample_statistics"][list(STATISTICS).index("next")]
    for (layer, head), value in np.ndenumerate(values):
        button = page.locator(f"[data-place='{layer},{head}']")
        label = button.get_attribute("aria-label")
        assert label == f"Layer {layer + 1}, head {head + 1}: {value:.3f}"
        alpha = button.evaluate("b => getComputedStyle(b).backgroundColor")
        alpha = re.findall(r"[\d.]+", alpha)
        shown = float(alpha[3]) if len(alpha) > 3 else 1.0
        assert shown == pytest.approx(value / values.max(), abs=0.01)
    page.click("td:has-text('Share on the next token') + td a >> nth=0")
    layer, head = np.unravel_index(values.argmax(), values.shape)
    assert page.inner_text("#head") == f"Layer {layer + 1}, head {head + 1}"
    assert f"next {values.max():.3f}" in page.inner_text("#head-values")


def test_nothing_is_wider_than_the_screen(page):
    for view in ("lines", "matrix"):
        choose(page, "view", view)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_axe_finds_nothing(page):
    """With the picture of either view, and with pictures and statistics of heads."""
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    for view, cells in (("lines", "attention"), ("matrix", "next")):
        choose(page, "view", view)
        page.select_option("select[name=show]", cells)
        found = Axe().run(page)
        assert not found.violations_count, found.generate_report()


def test_a_sample_without_a_text(visit, tmp_path):
    arrays = {name: make_arrays()[name] for name in ("statistics", "sample_statistics")}
    path = tmp_path / "heads.html"
    path.write_text(attention_page(Origin("run", "bert", (), "4 rows of in.txt"), arrays))
    page = visit(path.as_uri())
    page.select_option("select[name=show]", "next")
    assert page.locator(".heads button").count() == 6
    page.click(".heads button >> nth=4")
    assert page.get_attribute(".heads button >> nth=4", "aria-pressed") == "true"
