"""Rows of ids: padding, labels and the fit of pairs, against plain loops."""

import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import Labels, TextExample
from bert_jax.data.labelled.sequences import SequenceWriter
from bert_jax.text.tokenization import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b"]
AB = Labels(("no", "yes"))


@pytest.fixture
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=True)


def encode(tokenizer, examples, length=16, labels=AB, kind="single"):
    counts = Counter()
    return encode_texts(iter(examples), tokenizer, length, labels, kind, counts), +counts


def text(text_a, text_b=None, labels=None) -> TextExample:
    return TextExample("dev.tsv, line 7", "0", text_a, text_b, labels)


# ---------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "found, names",
    [
        (["b", "a", "b"], ("a", "b")),
        (["10", "9", "0"], ("0", "9", "10")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["1", "01"], ("01", "1")),
    ],
)
def test_labels_are_sorted_and_numbers_by_value(found, names):
    labels = Labels.find(found)
    assert labels.names == names
    assert [labels.number(name, "") for name in names] == list(range(len(names)))


def test_tags_have_the_inside_of_every_type_seen():
    assert Labels.find_tags(["B-PER", "O", "I-LOC"]).names == (
        ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    )
    assert Labels.find_tags(["NOUN", "ADJ"]).names == ("ADJ", "NOUN")


def test_an_unknown_label_names_its_place():
    message = r"dev.tsv, line 7: unknown label 'maybe'; the labels of .* are no, yes\."
    with pytest.raises(ValueError, match=message):
        AB.number("maybe", "dev.tsv, line 7")
    many = Labels.find(map(str, range(1000)))
    with pytest.raises(ValueError, match=r"are 0, 1, 2, .*, 11 and 988 more\.$"):
        many.number("x", "dev.tsv, line 7")


def test_no_label_at_all_is_an_error():
    with pytest.raises(ValueError, match="The training data have no labels"):
        Labels.find([])


# ------------------------------------------------------------------------------------- sequences


def test_a_pair_loses_tokens_as_the_released_program_cuts_it(tokenizer):
    for length in range(8, 24):
        writer, expected = SequenceWriter(tokenizer, length), []
        for num_a in range(24):
            for num_b in range(24):
                a, b = num_a, num_b
                while a + b > length - 3:
                    if a > b:
                        a -= 1
                    else:
                        b -= 1
                assert writer.add_truncated([5] * num_a, [6] * num_b) == num_a + num_b - a - b
                expected += [2, *[5] * a, 3, *[6] * b, 3]
        assert writer.finish().ids.tolist() == expected


def test_padding(tokenizer):
    rows, _ = encode(tokenizer, [text("a b", "c"), text("d"), text("", "")])
    batch = rows.take(np.array([1, -1, 0, 2]), 7)
    assert batch["input_ids"].tolist() == [
        [2, 8, 3, 0, 0, 0, 0],
        [0] * 7,
        [2, 5, 6, 3, 7, 3, 0],
        [2, 3, 3, 0, 0, 0, 0],
    ]
    assert batch["token_type_ids"].tolist() == [
        [0] * 7,
        [0] * 7,
        [0, 0, 0, 0, 1, 1, 0],
        [0, 0, 1, 0, 0, 0, 0],
    ]
    assert batch["position_ids"].tolist() == [
        [0, 1, 2, 0, 0, 0, 0],
        [0] * 7,
        [0, 1, 2, 3, 4, 5, 0],
        [0, 1, 2, 0, 0, 0, 0],
    ]
    assert (batch["example_ids"] == (batch["position_ids"] > 0) | (batch["input_ids"] == 2)).all()
    assert batch["cls_positions"].tolist() == [[0]] * 4
    assert {batch[name].dtype for name in list(batch)[:5]} == {np.dtype(np.int32)}
    assert rows.lengths.tolist() == [6, 3, 3] and rows.example.tolist() == [0, 1, 2]


def test_a_row_that_does_not_fit_is_an_error(tokenizer):
    rows, _ = encode(tokenizer, [text("a b c d e")])
    with pytest.raises(ValueError, match="A row of 7 tokens does not fit in 6"):
        rows.take(np.array([0]), 6)


def test_what_is_too_long_is_cut_and_counted(tokenizer):
    examples = [text("a " * 9), text("a " * 6), text("a " * 7, "b"), text("a " * 4, "b " * 4)]
    rows, counts = encode(tokenizer, examples, length=8)
    assert rows.lengths.tolist() == [8, 8, 8, 8]
    assert rows.sequences.first_lengths.tolist() == [8, 8, 6, 5]
    assert counts == {"texts_truncated": 3, "tokens_cut_off": 3 + 3 + 3}


def test_lengths_without_room_are_an_error(tokenizer):
    with pytest.raises(ValueError, match="max_sequence_length=7 is too short: give at least 8"):
        SequenceWriter(tokenizer, 7)


def test_no_examples_are_an_error(tokenizer):
    with pytest.raises(ValueError, match="There are no examples"):
        encode(tokenizer, [])


# ----------------------------------------------------------------------------- labels of the rows


def test_classes_and_rows_without_one(tokenizer):
    rows, _ = encode(tokenizer, [text("a", labels=("yes",)), text("b"), text("c", labels=("no",))])
    batch = rows.take(np.array([0, 1, 2, -1]), 8)
    assert batch["labels"].tolist() == [1, 0, 0, 0] and batch["labels"].dtype == np.int32
    assert batch["weights"].tolist() == [1, 0, 1, 0] and batch["weights"].dtype == np.float32


def test_several_labels(tokenizer):
    examples = [text("a", labels=("yes", "no")), text("b", labels=()), text("c")]
    rows, _ = encode(tokenizer, examples, kind="multi")
    batch = rows.take(np.array([0, 1, 2, -1]), 8)
    assert batch["labels"].tolist() == [[1, 1], [0, 0], [0, 0], [0, 0]]
    assert batch["labels"].dtype == np.float32
    assert batch["weights"].tolist() == [1, 1, 0, 0]


def test_numbers(tokenizer):
    examples = [text("a", labels=("-2.5e-1",)), text("b")]
    rows, _ = encode(tokenizer, examples, labels=None, kind="regression")
    batch = rows.take(np.array([1, 0]), 8)
    assert batch["labels"].tolist() == [0, -0.25] and batch["labels"].dtype == np.float32
    assert batch["weights"].tolist() == [0, 1]


@pytest.mark.parametrize("label", ["high", "nan", "inf", ""])
def test_a_regression_needs_numbers(label, tokenizer):
    with pytest.raises(ValueError, match=f"line 7: the label '{label}' is not a finite number"):
        encode(tokenizer, [text("a", labels=(label,))], labels=None, kind="regression")


@pytest.mark.parametrize("labels", [(), ("no", "yes")])
def test_one_class_is_one_class(labels, tokenizer):
    with pytest.raises(ValueError, match=f"line 7: {len(labels)} labels, but a text of this task"):
        encode(tokenizer, [text("a", labels=labels)])


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_an_unknown_class_is_an_error(kind, tokenizer):
    with pytest.raises(ValueError, match="line 7: unknown label 'maybe'"):
        encode(tokenizer, [text("a", labels=("maybe",))], kind=kind)


def test_many_rows_are_what_the_tokenizer_gives_one_by_one(tokenizer):
    rng = random.Random(0)

    def words(n):
        return " ".join(rng.choices(["a", "ab", "abb", "cd", "h"], k=rng.randint(0, n)))

    examples = [text(words(20), words(20) if rng.random() < 0.5 else None) for _ in range(300)]
    rows, _ = encode(tokenizer, examples, length=128)
    for number in rng.sample(range(300), 50):
        expected = [2, *tokenizer.encode(examples[number].text_a), 3]
        if examples[number].text_b is not None:
            expected += [*tokenizer.encode(examples[number].text_b), 3]
        batch = rows.take(np.array([number]), 128)
        assert batch["input_ids"][0, : len(expected)].tolist() == expected
        assert batch["example_ids"].sum() == len(expected) == rows.lengths[number]
