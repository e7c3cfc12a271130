"""Sentences of words with tags, from files of each form."""

import json
import re

import pytest

from bert_jax.data.labelled.conll import read_plain_words, read_tagged


@pytest.fixture
def read(read_file):
    def read(content, reader=read_tagged, name="f.conll", **arguments):
        return read_file(reader, content, name, **arguments)

    return read


def shown(examples):
    """Each sentence as "document: word/tag word/tag"."""
    lines = []
    for e in examples:
        words = [f"{word}/{tag}" for word, tag in zip(e.words, e.tags or e.words, strict=True)]
        lines.append(" ".join([f"{e.document}:", *(words if e.tags is not None else e.words)]))
    return lines


CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O

Peter NNP B-NP I-PER
-DOCSTART- -X- O O

BRUSSELS NNP B-NP I-LOC
"""
NAMES = ["0: EU/B-ORG rejects/O", "0: Peter/B-PER", "1: BRUSSELS/B-LOC"]
COUNTS = {"docstart_lines": 2, "tags_converted": 3, "iob1_files": 1}
TAGGED = "EU B-ORG\nrejects O\n\n\n  \nPeter\tB-PER\nBlackburn\tI-PER"
# As Weibo's: each character with its position in a word.
NUMBERED = "\u53e30 O\n\u81541 O\n!0 O\n\n\u53170 B-GPE.NAM\n\u4eac1 I-GPE.NAM\n"
NUMBERED_NAMES = ["0: \u53e30/O \u81541/O !0/O", "1: \u53170/B-GPE.NAM \u4eac1/I-GPE.NAM"]
STRIPPED_NAMES = [re.sub("[01]/", "/", line) for line in NUMBERED_NAMES]
CHINESE = b"\xef\xbb\xbf" + "\u5317\tB-LOC\n\u4eac\tI-LOC\n\u3000\tO\n\tO\n\n".encode()


@pytest.mark.parametrize(
    "content, arguments, expected, counts",
    [
        (TAGGED, {}, ["0: EU/B-ORG rejects/O", "1: Peter/B-PER Blackburn/I-PER"], None),
        (CONLL_2003, {}, NAMES, COUNTS),
        (CONLL_2003.replace(" ", "\t"), {}, NAMES, COUNTS),
        # Sentences before the first mark are a document.
        ("a O\n\nb O\n\n-DOCSTART- O\n\nc O\n", {}, ["0: a/O", "0: b/O", "1: c/O"], None),
        # Columns by their numbers; those of the tags are not looked at where they are not wanted.
        (CONLL_2003, {"tags": 2}, ["0: EU/B-NP rejects/B-VP", "0: Peter/B-NP"], None),
        (CONLL_2003, {"tags": 1, "plain": True}, ["0: EU/NNP rejects/VBZ"], None),
        (CONLL_2003, {"words": 1}, ["0: NNP/B-ORG VBZ/O"], None),
        ("a NN\n", {"labelled": False}, ["0: a"], {}),
        ("a\nb\n\nc\n", {"labelled": False}, ["0: a b", "1: c"], {}),
        (NUMBERED, {}, NUMBERED_NAMES, {"numbered_words": 5, "iob2_files": 1}),
        (
            NUMBERED,
            {"strip_numbers": True},
            STRIPPED_NAMES,
            {"numbers_stripped": 5, "iob2_files": 1},
        ),
        # Only a part of the words, or numbers that do not count.
        ("A0 O\nB1 O\nend O\n", {"strip_numbers": True}, ["0: A0/O B1/O end/O"], None),
        ("A4 O\nB6 O\nA3 O\n", {"strip_numbers": True}, ["0: A4/O B6/O A3/O"], None),
        # By characters, with blank words.
        (
            CHINESE,
            {},
            ["0: \u5317/B-LOC \u4eac/I-LOC \u3000/O /O"],
            {"utf8_boms": 1, "iob2_files": 1, "blank_words": 2},
        ),
    ],
)
def test_columns(read, content, arguments, expected, counts):
    examples, counted = read(content, **arguments)
    assert shown(examples)[: len(expected)] == expected
    assert counts is None or counted == counts
    if content == TAGGED:
        assert [(e.id, e.where.split(", ")[1]) for e in examples] == [
            ("0", "line 1"),
            ("1", "line 6"),
        ]


def test_objects_with_lists_of_words_and_tags(read):
    rows = [
        {"tokens": ["a", "b"], "tags": ["I-X", "O"], "document": "one", "id": "first"},
        {"tokens": [], "tags": [], "document": "one"},
        {"tokens": ["c"], "tags": ["I-X"], "document": "two"},
        {"tokens": ["d"], "tags": ["I-X"]},
        {"tokens": ["e"], "tags": ["I-X"]},
    ]
    examples, counts = read("\n".join(map(json.dumps, rows)))
    assert shown(examples) == ["0: a/B-X b/O", "0:", "1: c/B-X", "2: d/B-X", "3: e/B-X"]
    assert [e.id for e in examples] == ["first", "1", "2", "3", "4"]
    assert counts == {"iob1_files": 1, "tags_converted": 4, "empty_sentences": 1}


def test_plain_lines_one_for_one(read):
    examples, counts = read("a b.\n\n c\n", read_plain_words)
    assert shown(examples) == ["0: a b.", "1:", "2: c"] and counts == {"empty_sentences": 1}
    examples, _ = read("\u5317\u4eac x\n", read_plain_words, by_character=True)
    assert examples[0].words == ("\u5317", "\u4eac", "x")
    with pytest.raises(ValueError, match="has no lines"):
        read("", read_plain_words)


@pytest.mark.parametrize(
    "content, arguments, message",
    [
        ("", {}, "f.conll has no sentences"),
        ("", {"name": "f.jsonl"}, "f.jsonl has no sentences"),
        ("\n\n-DOCSTART- O\n", {}, "has no sentences"),
        ("a O\nb X O\n", {}, "line 2: 3 columns where the first line has 2"),
        ("a O\n\nb\n", {}, "line 3: 1 columns where the first line has 2"),
        ("a\tO\nb\t\n", {}, "line 2: 1 columns"),
        ("a\nb\n", {}, "line 1: one column, but labelled files need"),
        ("a O\n", {"tags": 3}, "line 1: no column 3; the 2 are"),
        ("a O\nb NN\n", {}, "line 2: invalid tag 'NN'"),
        (b"a O\n\xff O\n", {}, "line 2: invalid UTF-8"),
        ({"words": []}, {}, r"line 1: no column 'tokens' \(task.text_a\); it has 'words'"),
        ({"tokens": ["a"]}, {}, r"no column 'tags' \(task.label\); it has 'tokens'"),
        ({"tokens": 5}, {}, "'tokens' .* is not a list but a int"),
        ({"tokens": ["a", 5]}, {}, "an element of 'tokens' .* is a JSON int"),
        ({"tokens": ["a"], "tags": [0]}, {}, "an element of 'tags' .* is a JSON int"),
        ({"tokens": ["a"], "tags": ["O", "O"]}, {}, "line 1: 1 words with 2 tags"),
    ],
)
def test_errors(read, content, arguments, message):
    name = {"name": "f.json"} if isinstance(content, dict) else {}
    with pytest.raises(ValueError, match=message):
        read(content, **name | arguments)
