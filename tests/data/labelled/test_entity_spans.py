"""Entities as characters of a text become words and tags, and tags the same entities again."""

import json
import random
from collections import Counter

import pytest

from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.entity_spans import tagged_words
from bert_jax.data.labelled.tags import as_iob2
from bert_jax.scores.entities import entities as find_entities

# Two code points each: an accent, a flag; several: a family.
PIECES = [
    "a",
    "Rome",
    "e\u0301",
    "\U0001f1eb\U0001f1f7",
    "\U0001f468\u200d\U0001f469",
    "\u5317\u4eac",
]


def read(tmp_path, *rows, **more):
    path = tmp_path / "file.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = Counter()
    found = read_tagged(str(path), counts, words="text", tags="entities", **more)
    return list(found), +counts


def entity(start, end, kind="LOC"):
    return {"start": start, "end": end, "type": kind}


def test_words_are_divided_where_entities_begin_and_end(tmp_path):
    text = "Ann-Marie (Rome), New York."
    # The last one has white space around it, which is not of it.
    spans = [[0, 3, "PER"], entity(11, 15), {"start": 17, "end": 26, "label": "LOC"}]
    (example,), counts = read(tmp_path, {"text": text, "entities": spans, "id": 7})
    assert example.words == ("Ann", "-Marie", "(", "Rome", "),", "New", "York", ".")
    assert example.tags == ("B-PER", "O", "O", "B-LOC", "O", "B-LOC", "I-LOC", "O")
    assert (example.text, example.id) == (text, "7")
    assert counts == {"words_divided": 3, "iob2_files": 1}


@pytest.mark.parametrize("by_character", [False, True])
def test_the_entities_of_the_tags_are_those_that_were_given(by_character):
    rng = random.Random(0)
    for _ in range(50):
        text = "".join(rng.choice([*PIECES, " ", "\u3000", "\n"]) for _ in range(12))
        places = sorted(rng.sample(range(len(text) + 1), min(6, len(text) + 1)))
        spans = [
            [start, end, rng.choice("XY")]
            for start, end in zip(places[::2], places[1::2], strict=False)
            if text[start:end] == text[start:end].strip() != ""
        ]
        words, tags = tagged_words(text, spans, "", Counter(), by_character)
        assert "".join(words) == "".join(text.split())
        at, where = 0, []
        for word in words:
            start = text.index(word, at)
            where.append((start, at := start + len(word)))
        found = [
            [where[first][0], where[last][1], kind]
            for kind, first, last in find_entities(as_iob2(tags))
        ]
        assert sorted(found) == sorted(spans)


def test_texts_without_entities_are_read_to_predict(tmp_path):
    (example,), _ = read(tmp_path, {"text": "in Rome."}, labelled=False)
    assert (example.words, example.tags, example.text) == (("in", "Rome."), None, "in Rome.")


@pytest.mark.parametrize(
    "entities, message",
    [
        (
            [entity(0, 8), entity(4, 8)],
            r"line 1: the entities 'New York' \(0-8\) and 'York' \(4-8\) overlap, and a word has",
        ),
        ([entity(0, 99)], "line 1: the entity .* is not in the text, which has 12 characters"),
        ([entity(0, 3, "A B")], "a type without spaces"),
        ([entity(3, 4)], "is blank"),
        ("Rome", "the entities are Rome, and must be a list of"),
        ([[0, 3]], "must be a list of"),
    ],
)
def test_errors(tmp_path, entities, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, {"text": "New York now", "entities": entities})
