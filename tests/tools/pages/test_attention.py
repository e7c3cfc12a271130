"""The page of attention: what it holds, that text in it is only text, and what the script draws."""

import base64
import dataclasses
import html
import json
import pathlib
import re

import numpy as np
import pytest

from bert_jax.scores.attention import STATISTICS, attention_of_words
from bert_jax.tools.pages.attention import Origin, attention_page
from docs import pictures
from tests.tools.pages.attention_arrays import SPANS, TOKENS, WORDS, make_arrays
from tests.tools.pages.made_runs import read_page

ORIGIN = Origin("run", "bert for pretraining", ("It purred [MASK].", "It."), "4 rows of in.txt")
ARRAYS = make_arrays()


def make_page(origin=ORIGIN, without=(), **changes):
    arrays = {name: array for name, array in (ARRAYS | changes).items() if name not in without}
    return attention_page(origin, arrays)


def data_of(root):
    (script,) = root.find("script", id="attention-data")
    return json.loads(script.text)


def lens_of(root):
    (table,) = (table for table in root.find("table") if "Embeddings" in table.text)
    return [[cell for cell in row.children] for row in table.find("tr")]


def test_a_page_holds_the_arrays_to_three_digits_and_asks_for_nothing():
    page = make_page()
    assert page == make_page()
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import|https?://(?!www.w3.org)", page)
    data = data_of(read_page(page))
    weights = np.frombuffer(base64.b64decode(data["weights"]), "<u2") / 1000
    found = weights.reshape(ARRAYS["attention"].shape)
    np.testing.assert_allclose(found, ARRAYS["attention"], rtol=0, atol=5.01e-4)
    for sample in ("text", "sample"):
        values = [data["values"][sample][name] for name in STATISTICS]
        expected = ARRAYS[f"{sample}_statistics"].reshape(len(STATISTICS), -1)
        np.testing.assert_allclose(values, expected, rtol=0, atol=5.01e-5)
    found = [data[name] for name in ("tokens", "words", "spans")]
    assert found == [TOKENS, WORDS, SPANS.tolist()]


def test_labels_in_the_picture_of_a_page_are_those_of_today():
    labels = pictures.labels_of(str(pathlib.Path(pictures.__file__).with_name("attention.png")))
    text = "The cat sat on the mat because it was tired."
    of_this_text = {text, "Attention of model", "[CLS]", "because", "tired", "[SEP]"}
    page = html.unescape(make_page())
    assert len(labels) > 15
    parts = [part for label in labels for part in label.strip(".").split("; ")]
    assert not [p for p in parts if p not in page and p not in {t.strip(".") for t in of_this_text}]


def test_text_is_only_text():
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028\ud800"
    texts = {name: evil for name in ("name", "model", "sample")} | {"texts": (evil, evil)}
    names = ("tokens", "words", "lens_tokens", "lens_answers")
    arrays = {name: np.full(ARRAYS[name].shape, evil) for name in names}
    hostile = read_page(make_page(dataclasses.replace(ORIGIN, **texts), **arrays))
    assert not list(hostile.find("img"))
    assert len(list(hostile.find("script"))) == len(list(read_page(make_page()).find("script")))
    assert data_of(hostile)["tokens"] == [evil] * 9
    assert [h1.text for h1 in hostile.find("h1")] == [f"Attention of {evil}"]


def test_predictions_of_the_layers():
    """From the last layer down to the embeddings; what is right is underlined and shaded."""
    header, last, _, first = rows = lens_of(read_page(make_page()))
    names = [cells[0].text for cells in rows]
    assert names == ["After", "Layer 2", "Layer 1", "Embeddings"]
    assert header[1].text == "[CLS] it purred [MASK] . [SEP] it"
    texts = [[span.text for span in cells[1].find("span")] for cells in (last, first)]
    # The answer follows the candidates of a layer that does not have it.
    assert texts == [["loudly 60%", "well 30%"], ["sat 2%", "cat 1%", "… loudly < 0.01%"]]
    assert [u.text for u in last[1].find("u")] == ["loudly"]
    (cell,) = last[1].find("div")
    assert "color-mix(in srgb, var(--c0) 18%, transparent)" in cell.attributes["style"]


def test_other_tables_of_predictions():
    page = make_page(lens_offset=np.array(1, np.int32), lens_positions=np.array([3], np.int32))
    assert lens_of(read_page(page))[0][1].text == "it pur ##red [MASK]"
    assert "the shade of a cell: the next token." in page
    page = make_page(without=["lens_tokens"])
    assert "The text has no [MASK]: replace a word" in page and "Embeddings" not in page


# ------------------------------------------------------------------ in Chromium


@pytest.fixture
def show(visit, tmp_path):
    """Returns the function (page, **options of `visit`) -> the opened page."""

    def show(page, **options):
        (tmp_path / "attention.html").write_text(page)
        return visit((tmp_path / "attention.html").as_uri(), **options)

    return show


def choose(page, name, value):
    page.check(f"input[name={name}][value='{value}']", force=True)


# Reads all cells of the matrix with the arrow keys.
READ_MATRIX = """([rows, columns]) => {
  const picture = document.querySelector("#drawing svg"), found = [];
  const press = (key) => picture.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      found.push(document.getElementById("readout").textContent.trim());
      press("ArrowRight");
    }
    press("ArrowDown");
    for (let j = 0; j < columns; j++) press("ArrowLeft");
  }
  return found;
}"""


def matrix(page, rows, columns):
    """Returns the values of all cells, whose names are those expected."""
    choose(page, "view", "matrix")
    found = [line.rsplit(" ", 1) for line in page.evaluate(READ_MATRIX, [len(rows), len(columns)])]
    expected = [f"{row} attends to {column}" for row in rows for column in columns]
    assert [" ".join(name.split()) for name, _ in found] == expected
    return np.array([float(value) for _, value in found]).reshape(len(rows), len(columns))


def test_the_values_of_words_and_tokens(show):
    """Of all words, from A to B, and without special tokens; words are merged by the script."""
    page = show(make_page())
    page.click("[data-place='1,2']")
    of_words = attention_of_words(ARRAYS["attention"], SPANS)[1, 2]
    np.testing.assert_allclose(matrix(page, WORDS, WORDS), of_words, rtol=0, atol=2.1e-3)
    choose(page, "way", "01")
    found = matrix(page, WORDS[:6], WORDS[6:])
    np.testing.assert_allclose(found, of_words[:6, 6:], rtol=0, atol=2.1e-3)
    page.uncheck("input[name=special]")
    choose(page, "way", "00")
    choose(page, "unit", "tokens")
    found = matrix(page, TOKENS[1:6], TOKENS[1:6])
    expected = ARRAYS["attention"][1, 2, 1:6, 1:6]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.1e-3)


def test_nothing_is_wider_than_the_screen_and_axe_finds_nothing(show):
    """With the picture of either view, and with pictures and statistics of heads."""
    from axe_playwright_python.sync_playwright import Axe

    page = show(make_page(), width=380, color_scheme="dark")
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    for view, cells in (("lines", "attention"), ("matrix", "next")):
        choose(page, "view", view)
        page.select_option("select[name=show]", cells)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = Axe().run(page)
        assert not found.violations_count, found.generate_report()
