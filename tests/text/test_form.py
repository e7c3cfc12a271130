"""What a text is like, of texts that were written in a known form."""

import json
import random
import textwrap

import pytest

from bert_jax.files.errors import UserError
from bert_jax.text.form import find_form
from tests.text.arrow_files import make_table, save_to_disk, write_parquet

WORDS = "the moon of a river and old stone under trees that nobody saw".split()
RANDOM = random.Random(0)


def sentence() -> str:
    words = " ".join(RANDOM.choice(WORDS) for _ in range(RANDOM.randint(4, 12)))
    return f"{words.capitalize()}."


def paragraph() -> str:
    return " ".join(sentence() for _ in range(RANDOM.randint(2, 9)))


def blocks(make, lines: int, count: int) -> str:
    return "\n\n".join("\n".join(make() for _ in range(lines)) for _ in range(count))


def wrapped(count: int) -> str:
    return "\n\n".join(textwrap.fill(paragraph(), 72) for _ in range(count))


def values_of(form) -> dict[str, str]:
    return {name: value for name, (value, _) in form.fields.items() if name != "source"}


@pytest.mark.parametrize(
    "text, line_format, separator, documents",
    [
        (blocks(paragraph, 5, 30), "paragraphs", "blank_line", 30),
        (blocks(paragraph, 1, 30), "paragraphs", "blank_line", 30),
        (blocks(paragraph, 40, 2), "paragraphs", "line", 80),
        (blocks(sentence, 9, 30), "sentences", "blank_line", 30),
        (blocks(sentence, 99, 1), "sentences", "line", 99),
        (wrapped(40), "wrapped", "line", 40),
    ],
    ids=["paragraphs", "apart", "few blocks", "sentences", "one a line", "wrapped"],
)
def test_the_form_in_which_a_text_was_written(tmp_path, text, line_format, separator, documents):
    (tmp_path / "a.txt").write_text(text)
    form = find_form(str(tmp_path / "a.txt"))
    assert values_of(form) == {"line_format": line_format, "document_separator": separator}
    assert form.num_documents == pytest.approx(documents, abs=1)


def test_files_are_documents_if_there_are_enough(tmp_path):
    for number in range(25):
        (tmp_path / f"{number}.txt").write_text(wrapped(6))
    form = find_form(f"{tmp_path}/*.txt")
    assert values_of(form) == {"line_format": "wrapped", "document_separator": "file"}
    assert form.num_documents == 25


def test_json_lines_have_their_longest_text(tmp_path):
    rows = [{"id": str(number), "body": paragraph(), "stars": 5} for number in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    form = find_form(str(tmp_path / "a.jsonl"))
    assert form.fields["source"][0] == f"jsonl:{tmp_path}/a.jsonl"
    assert values_of(form) == {"field": "body"} and form.num_documents == 30


def test_parquet_has_its_longest_column(tmp_path):
    texts = [f"{sentence()} {sentence()}" for _ in range(30)]
    table = make_table({"title": ["A"] * len(texts), "body": texts, "n": [1] * len(texts)})
    folder = save_to_disk(tmp_path / "set", table)
    for path in (write_parquet(tmp_path / "a.parquet", table), folder):
        form = find_form(path)
        assert form.fields["source"][0] == f"parquet:{path}"
        assert values_of(form) == {"field": "body"}
        assert form.num_documents == len(texts)
        assert 50 < len(form.sentences) <= 60


def test_a_long_text_is_estimated_from_its_beginning(tmp_path):
    (tmp_path / "a.txt").write_text(blocks(paragraph, 20, 500))
    form = find_form(str(tmp_path / "a.txt"))
    assert form.scale > 1 and form.num_documents == pytest.approx(500, rel=0.1)


def test_chinese_is_split_by_its_rules(tmp_path):
    (tmp_path / "a.txt").write_text("今天天气很好。我们去公园吧!你说呢?\n" * 30)
    assert values_of(find_form(str(tmp_path / "a.txt")))["language"] == "zh"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", "text,label\n", "a.csv is a table: write its column of texts to a file"),
        ("a.txt", " \n\n", "There is no text in"),
        ("b.txt", None, "No file matches"),
        ("", None, "is a folder: name its files, for example '.*/\\*.txt'."),
    ],
)
def test_texts_without_a_form(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        find_form(str(tmp_path / name))
