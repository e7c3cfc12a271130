"""Sentences of words with tags, from files of each form."""

import json

import pytest

from bert_jax.data.labelled.conll import read_plain_words, read_tagged
from bert_jax.data.labelled.examples import TaggedExample


@pytest.fixture
def read(read_file):
    def read(content, reader=read_tagged, name="f.conll", **arguments):
        return read_file(reader, content, name, **arguments)

    return read


def content_of(examples):
    return [(e.words, e.tags, e.document) for e in examples]


def test_two_columns(read, tmp_path):
    examples, counts = read("EU B-ORG\nrejects O\n\n\n  \nPeter\tB-PER\nBlackburn\tI-PER")
    assert examples == [
        TaggedExample(f"{tmp_path}/f.conll, line 1", "0", ("EU", "rejects"), ("B-ORG", "O"), 0),
        TaggedExample(
            f"{tmp_path}/f.conll, line 6", "1", ("Peter", "Blackburn"), ("B-PER", "I-PER"), 1
        ),
    ]
    assert counts == {"iob2_files": 1}


CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O

Peter NNP B-NP I-PER
-DOCSTART- -X- O O

BRUSSELS NNP B-NP I-LOC
"""


def test_documents_and_the_last_of_four_columns(read):
    for content in (CONLL_2003, CONLL_2003.replace("\n", "\r\n").replace(" ", "\t")):
        examples, counts = read(content)
        assert content_of(examples) == [
            (("EU", "rejects"), ("B-ORG", "O"), 0),
            (("Peter",), ("B-PER",), 0),
            (("BRUSSELS",), ("B-LOC",), 1),
        ]
        assert counts["docstart_lines"] == 2 and counts["tags_converted"] == 3
        assert counts["iob1_files"] == 1


def test_sentences_before_the_first_mark_are_a_document(read):
    examples, _ = read("a O\n\nb O\n\n-DOCSTART- O\n\nc O\n")
    assert [e.document for e in examples] == [0, 0, 1]


def test_other_columns_by_their_numbers(read):
    examples, _ = read(CONLL_2003, tags=2)
    assert examples[0].tags == ("B-NP", "B-VP")
    examples, _ = read(CONLL_2003, tags=1, plain=True)
    assert examples[0].tags == ("NNP", "VBZ")
    examples, _ = read(CONLL_2003, words=1)
    assert examples[0].words == ("NNP", "VBZ")


def test_one_column_is_only_to_predict(read):
    examples, counts = read("a\nb\n\nc\n", labelled=False)
    assert content_of(examples) == [(("a", "b"), None, 0), (("c",), None, 1)]
    assert not counts


def test_tags_are_not_looked_at_where_they_are_not_wanted(read):
    assert content_of(read("a NN\n", labelled=False)[0]) == [(("a",), None, 0)]


def test_chinese_by_characters_with_blank_words(read):
    content = "\u5317\tB-LOC\n\u4eac\tI-LOC\n\u3000\tO\n\tO\n\n".encode()
    examples, counts = read(b"\xef\xbb\xbf" + content)
    assert examples[0].words == ("\u5317", "\u4eac", "\u3000", "")
    assert examples[0].tags == ("B-LOC", "I-LOC", "O", "O")
    assert counts == {"utf8_boms": 1, "iob2_files": 1, "blank_words": 2}


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
        ("a O\n", {"tags": 3}, "line 1: no column 3; the 2 columns"),
        ("a O\nb NN\n", {}, "line 2: invalid tag 'NN'"),
        (b"a O\n\xff O\n", {}, "line 2: invalid UTF-8"),
    ],
)
def test_errors(read, content, arguments, message):
    with pytest.raises(ValueError, match=message):
        read(content, **arguments)


ROWS = [
    {"tokens": ["a", "b"], "tags": ["I-X", "O"], "document": "one", "id": "first"},
    {"tokens": [], "tags": [], "document": "one"},
    {"tokens": ["c"], "tags": ["I-X"], "document": "two"},
    {"tokens": ["d"], "tags": ["I-X"]},
    {"tokens": ["e"], "tags": ["I-X"]},
]


def test_json_lines(read):
    examples, counts = read("\n".join(map(json.dumps, ROWS)))
    assert content_of(examples) == [
        (("a", "b"), ("B-X", "O"), 0),
        ((), (), 0),
        (("c",), ("B-X",), 1),
        (("d",), ("B-X",), 2),
        (("e",), ("B-X",), 3),
    ]
    assert [e.id for e in examples] == ["first", "1", "2", "3", "4"]
    assert counts == {"iob1_files": 1, "tags_converted": 4, "empty_sentences": 1}


@pytest.mark.parametrize(
    "row, message",
    [
        ({"words": []}, r"line 1: no column 'tokens' \(data.text_a\); it has 'words'"),
        ({"tokens": ["a"]}, r"no column 'tags' \(data.label\); it has 'tokens'"),
        ({"tokens": "a b"}, "'tokens' .* is not a list but a str"),
        ({"tokens": ["a", 5]}, "an element of 'tokens' .* is a JSON int"),
        ({"tokens": ["a"], "tags": [0]}, "an element of 'tags' .* is a JSON int"),
        ({"tokens": ["a"], "tags": ["O", "O"]}, "line 1: 1 words with 2 tags"),
    ],
)
def test_broken_objects(read, row, message):
    with pytest.raises(ValueError, match=message):
        read(row, name="f.json")


def test_plain_lines_one_for_one(read):
    examples, counts = read("a b.\n\n c\n", read_plain_words)
    assert content_of(examples) == [(("a", "b."), None, 0), ((), None, 1), (("c",), None, 2)]
    assert counts == {"empty_sentences": 1}
    examples, _ = read("\u5317\u4eac x\n", read_plain_words, by_character=True)
    assert examples[0].words == ("\u5317", "\u4eac", "x")
    with pytest.raises(ValueError, match="has no lines"):
        read("", read_plain_words)
