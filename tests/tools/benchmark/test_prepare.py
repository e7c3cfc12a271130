"""The measurement of preparation: a table of stages, and a line for each number of tasks."""

import re

import numpy as np
import pytest

from bert_jax.tools.benchmark import prepare

WORDS = ["the", "a", "house", "river", "mill", "stands", "runs", "by", "old", "green"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def text(tmp_path):
    """A file of 200 documents of three sentences."""
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, 8)).capitalize() + "." for _ in range(600)]
    documents = [" ".join(sentences[i : i + 3]) for i in range(0, 600, 3)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return str(path)


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIALS, *WORDS, ".", "copy", "##0", "##1"]) + "\n")
    return str(path)


def test_stages_and_tasks_are_measured(text, vocabulary, capfd):
    prepare.run(text, [1], vocabulary, "dynamic", 1)
    stages = (
        r"\n0 MB of text: [\d.]+ s, at most \d+ MiB in any process\n(  [a-z ]+ +[\d.]+ s .*\n)+"
    )
    assert re.search(stages, capfd.readouterr().out)
    prepare.run(text, [1, 2], vocabulary, "dynamic", 1, [1, 2])
    lines = re.findall(r"MB of text, --tasks=(\d): [\d.]+ s, at most \d+", capfd.readouterr().out)
    assert lines == ["1", "2", "1", "2"]


def test_copies_of_a_text_are_not_duplicates(text, tmp_path):
    copies = tmp_path / "copies.txt"
    prepare.write_times(text, 2, str(copies))
    paragraphs = copies.read_text().split("\n\n")
    assert len(paragraphs) == 400 and len(set(paragraphs)) > 200
