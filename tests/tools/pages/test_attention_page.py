"""The page of attention: what it holds, and that text in it is only text."""

import dataclasses
import html.parser
import json
import re

import numpy as np
import pytest

from bert_jax.scores.attention import STATISTICS
from bert_jax.tools.pages.attention import (
    DIGITS,
    MOST_WEIGHTS,
    Origin,
    attention_page,
    check_size,
    encode_weights,
)
from tests.tools.pages.attention_arrays import make_arrays

ORIGIN = Origin("run", "bert for pretraining", ("It purred [MASK].", "It sat."), "4 rows of in.txt")


class Elements(html.parser.HTMLParser):
    """The elements of a page with their attributes and the text in each of them."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), []))
        if tag not in ("meta", "input", "br"):
            self._open.append(len(self.found) - 1)

    def handle_endtag(self, tag):
        assert self.found[self._open.pop()][0] == tag

    def handle_data(self, data):
        for number in self._open:
            self.found[number][2].append(data)

    def texts(self, name: str) -> list[str]:
        return ["".join(text) for tag, _, text in self.found if tag == name]


def data_of(page: str) -> dict:
    is_data = {"type": "application/json", "id": "attention-data"}
    (text,) = ["".join(t) for n, a, t in Elements(page).found if n == "script" and a == is_data]
    return json.loads(text)


def decode(text: str, shape: tuple[int, ...]) -> np.ndarray:
    """A loop over the letters, in place of the table of the page."""
    letters = DIGITS.decode()
    values = [
        (64 * letters.index(text[i]) + letters.index(text[i + 1])) / 1000
        for i in range(0, len(text), 2)
    ]
    return np.array(values).reshape(shape)


def test_weights_are_those_of_the_arrays_to_three_digits():
    arrays = make_arrays()
    data = data_of(attention_page(ORIGIN, arrays))
    weights = decode(data["weights"], arrays["attention"].shape)
    np.testing.assert_allclose(weights, arrays["attention"], rtol=0, atol=5.01e-4)
    assert len(data["weights"]) == 2 * weights.size
    for name in ("text", "sample"):
        values = np.reshape(data["values"][name], (len(STATISTICS), 2, 3))
        np.testing.assert_allclose(values, arrays[f"{name}_statistics"], rtol=0, atol=5.01e-5)
    assert data["tokens"] == arrays["tokens"].tolist()
    assert data["words"] == arrays["words"].tolist()
    assert data["spans"] == arrays["word_spans"].tolist()


def test_every_thousandth_has_its_own_digits():
    numbers = np.arange(1001) / 1000
    np.testing.assert_allclose(decode(encode_weights(numbers), (1001,)), numbers)


def test_a_page_is_the_same_each_time_and_asks_for_nothing():
    page = attention_page(ORIGIN, make_arrays())
    assert page == attention_page(ORIGIN, make_arrays())
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import|https?://(?!www.w3.org)", page)


def test_text_is_only_text():
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028\ud800"
    plain = Elements(attention_page(ORIGIN, make_arrays()))
    texts = {name: evil for name in ("name", "model", "sample")} | {"texts": (evil, evil)}
    arrays = make_arrays()
    for name in ("tokens", "words", "lens_tokens", "lens_answers"):
        arrays[name] = np.full(arrays[name].shape, evil)
    page = attention_page(dataclasses.replace(ORIGIN, **texts), arrays)
    hostile = Elements(page)
    # As many scripts, and no elements of the text.
    counts = [sum(tag == "script" for tag, _, _ in found.found) for found in (plain, hostile)]
    assert counts[0] == counts[1]
    assert {tag for tag, _, _ in hostile.found} <= {tag for tag, _, _ in plain.found}
    assert data_of(page)["tokens"] == [evil] * 9
    assert hostile.texts("h1") == [f"Attention of {evil}"]


def test_the_predictions_of_the_layers():
    """From the last layer down to the embeddings; what is right is underlined."""
    arrays = make_arrays()
    page = attention_page(ORIGIN, arrays)
    table = page[page.index('<div class="lens">') :]
    rows = re.findall(r"<tr>(.*?)</tr>", table[: table.index("</table>")])
    assert len(rows) == 4
    assert re.sub("<.*?>", "", rows[0]) == "After[CLS] it purred [MASK] . [SEP] it"
    names = [re.sub("<.*?>", "", re.findall("<td>(.*?)</td>", row)[0]) for row in rows[1:]]
    assert names == ["Layer 2", "Layer 1", "Embeddings"]
    last = Elements(rows[1]).texts("span")
    assert last == ["loudly 60%", "well 30%"]
    assert Elements(rows[1]).texts("u") == ["loudly"]
    # The answer follows the candidates of a layer that does not have it.
    assert Elements(rows[3]).texts("span") == ["sat 2%", "cat 1%", "… loudly < 0.01%"]
    assert "color-mix(in srgb, var(--c0) 18%, transparent)" in rows[1]


def test_predictions_of_next_tokens_name_what_comes_next():
    arrays = make_arrays() | {"lens_offset": np.array(1, np.int32)}
    page = attention_page(ORIGIN, arrays)
    assert '<span class="place">it pur ##red <b>[MASK]</b></span>' in attention_page(
        ORIGIN, arrays | {"lens_positions": np.array([3], np.int32)}
    )
    assert "the shade of a cell: the next token." in page


@pytest.mark.parametrize(
    "without, no_lens, line",
    [
        ("", "imported without a head that predicts words.", "imported without a head"),
        ("lens_tokens", "", "The text has no [MASK]: replace a word"),
    ],
)
def test_a_line_says_why_there_are_no_predictions(without, no_lens, line):
    arrays = {name: array for name, array in make_arrays().items() if name != without}
    page = attention_page(dataclasses.replace(ORIGIN, no_lens=no_lens), arrays)
    assert line in page and '<div class="lens">' not in page


def test_a_sample_alone_has_no_text():
    arrays = {name: make_arrays()[name] for name in ("statistics", "sample_statistics")}
    page = attention_page(dataclasses.replace(ORIGIN, texts=()), arrays)
    assert "weights" not in data_of(page)
    assert Elements(page).texts("h2") == ["Heads", "Statistics of all heads"]
    assert 'id="drawing"' not in page


def test_the_strongest_heads_are_links_to_them():
    arrays = make_arrays()
    values = arrays["sample_statistics"][list(STATISTICS).index("next")]
    layer, head = np.unravel_index(values.argmax(), values.shape)
    page = attention_page(ORIGIN, arrays)
    row = page[page.index("<td>Share on the next token") :]
    link = next(a for tag, a, _ in Elements(row[: row.index("</tr>")]).found if tag == "a")
    assert link["data-head"] == f"{layer},{head}"
    assert link["aria-label"] == f"Layer {layer + 1}, head {head + 1}: {values.max():.2f}"


def test_a_text_that_is_too_long_for_a_page():
    most = int((MOST_WEIGHTS / 144) ** 0.5)
    check_size(12, 12, most)
    with pytest.raises(ValueError, match=f"has {most + 1} tokens, and a page has room for {most}"):
        check_size(12, 12, most + 1)
