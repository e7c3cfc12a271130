"""Texts, pairs and choices as rows of ids, against rows written out by hand and plain loops."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.encode_texts import encode_choices, encode_texts
from bert_jax.data.labelled.examples import ChoiceExample, Labels, TextExample
from bert_jax.data.labelled.sequences import SequenceWriter
from tests.data.labelled.letters import TOKENIZER

LABELS = Labels(("no", "yes"))


def encode(examples, length=16, labels=LABELS, kind="single", both_orders=False, **long):
    counts = Counter()
    rows = encode_texts(
        iter(examples), TOKENIZER, length, labels, kind, counts, both_orders, **long
    )
    return rows, +counts


def text(text_a, text_b=None, labels=None) -> TextExample:
    return TextExample("dev.tsv, line 7", "0", text_a, text_b, labels)


def choices(endings, label=None, context="a b", start="c") -> ChoiceExample:
    return ChoiceExample("swag.csv, line 3", "0", context, tuple(endings), start, label)


def encode_endings(examples, length=16):
    counts = Counter()
    return encode_choices(iter(examples), TOKENIZER, length, counts), +counts


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
    tags = ["B-PER", "O", "I-LOC"]
    assert Labels.find_tags(tags).names == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert Labels.find_tags(["NOUN", "ADJ"]).names == ("ADJ", "NOUN")


def test_a_pair_loses_tokens_as_the_released_program_cuts_it():
    for length in range(8, 24):
        writer, expected = SequenceWriter(TOKENIZER, length), []
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


def test_a_batch_of_texts():
    rows, _ = encode([text("a b", "c"), text("d"), text("", "")])
    batch = rows.take(np.array([1, -1, 0, 2]), 7)
    assert batch["input_ids"].tolist() == [
        [2, 8, 3, 0, 0, 0, 0],
        [0] * 7,
        [2, 5, 6, 3, 7, 3, 0],
        [2, 3, 3, 0, 0, 0, 0],
    ]
    assert batch["token_type_ids"].tolist()[2:] == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0, 0]]
    assert batch["position_ids"].tolist()[2:] == [[0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 0, 0, 0, 0]]
    assert (batch["example_ids"] == (batch["position_ids"] > 0) | (batch["input_ids"] == 2)).all()
    assert batch["cls_positions"].tolist() == [[0]] * 4
    assert {batch[name].dtype for name in list(batch)[:5]} == {np.dtype(np.int32)}
    assert rows.lengths.tolist() == [6, 3, 3] and rows.example.tolist() == [0, 1, 2]


def test_overlong_texts_are_truncated_and_counted():
    examples = [text("a " * 9), text("a " * 6), text("a " * 7, "b"), text("a " * 4, "b " * 4)]
    rows, counts = encode(examples, length=8)
    assert rows.lengths.tolist() == [8, 8, 8, 8]
    assert rows.sequences.first_lengths.tolist() == [8, 8, 6, 5]
    assert counts == {"texts_truncated": 3, "tokens_cut_off": 3 + 3 + 3}
    rows, counts = encode([text("a " * 9, "b " * 4)], length=9, both_orders=True)
    ids = rows.take(np.array([0]), 9)["input_ids"][0].tolist()
    assert ids == [[2, 5, 5, 5, 3, 6, 6, 6, 3], [2, 6, 6, 6, 3, 5, 5, 5, 3]]
    assert counts == {"texts_truncated": 1, "tokens_cut_off": 7}  # once for both orders


@pytest.mark.parametrize(
    "kind, labels, examples, expected, dtype",
    [
        ("single", LABELS, [("yes",), None, ("no",)], [1, 0, 0, 0], "int32"),
        ("multi", LABELS, [("yes", "no"), None, ()], [[1, 1], *[[0, 0]] * 3], "float32"),
        ("regression", None, [("-2.5e-1",), None, ("3",)], [-0.25, 0, 3, 0], "float32"),
    ],
)
def test_labels_and_weights(kind, labels, examples, expected, dtype):
    rows, _ = encode([text("a", labels=given) for given in examples], labels=labels, kind=kind)
    batch = rows.take(np.array([0, 1, 2, -1]), 8)
    assert batch["labels"].tolist() == expected and batch["labels"].dtype == dtype
    assert batch["weights"].tolist() == [1, 0, 1, 0] and batch["weights"].dtype == np.float32


def test_a_row_is_a_pair_in_both_orders():
    examples = [text("a", "b c", ("yes",)), text("d", "e", ("no",))]
    rows, counts = encode(examples, both_orders=True)
    assert rows.num_rows == 2 and rows.lengths.tolist() == [6, 5] and not counts
    batch = rows.take(np.array([1, 0, -1]), 6)
    assert batch["input_ids"].tolist() == [
        [[2, 8, 3, 9, 3, 0], [2, 9, 3, 8, 3, 0]],
        [[2, 5, 3, 6, 7, 3], [2, 6, 7, 3, 5, 3]],
        [[0] * 6] * 2,
    ]
    assert batch["token_type_ids"][1].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert batch["example_ids"].any(-1).tolist() == [[1, 1], [1, 1], [0, 0]]
    assert batch["cls_positions"].shape == (3, 2, 1)
    assert batch["labels"].tolist() == [0, 1, 0] and batch["weights"].tolist() == [1, 1, 0]


def test_a_row_has_a_sequence_for_each_ending():
    rows, counts = encode_endings([choices(["d", "e f"], 1), choices(["g", "", "h"])])
    batch = rows.take(np.array([1, 0, -1]), 8)
    a_b = [2, 5, 6, 3]
    assert batch["input_ids"].tolist() == [
        [[*a_b, 7, 11, 3, 0], [*a_b, 7, 3, 0, 0], [*a_b, 7, 12, 3, 0]],
        [[*a_b, 7, 8, 3, 0], [*a_b, 7, 9, 10, 3], [0] * 8],
        [[0] * 8] * 3,
    ]
    assert batch["example_ids"].any(-1).tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert batch["token_type_ids"][1, 1].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert batch["labels"].tolist() == [0, 1, 0] and batch["weights"].tolist() == [0, 1, 0]
    assert batch["labels"].dtype == np.int32 and batch["weights"].dtype == np.float32
    assert rows.lengths.tolist() == [8, 7] and rows.max_sequences == 3 and not counts


def test_overlong_endings_are_truncated_and_counted():
    rows, counts = encode_endings([choices(["d " * 9, "e"], context="a " * 4)], length=8)
    assert rows.sequences.lengths.tolist() == [8, 8]
    assert rows.sequences.first_lengths.tolist() == [5, 5]
    assert counts == {"choices_truncated": 2, "tokens_cut_off": 9 + 1}


@pytest.mark.parametrize("stride", [0, 3, 8])
def test_windows_of_a_text_have_all_of_its_tokens_and_its_label(stride):
    """Each window is full and begins a stride after the one before; the last ends with the text."""
    sizes = (0, 1, 8, 9, 15, 16, 17, 40)
    letters = ["".join(chr(97 + i % 8) + " " for i in range(size)) for size in sizes]
    examples = [text(letter, labels=(LABELS.names[n % 2],)) for n, letter in enumerate(letters)]
    rows, counts = encode(examples, length=10, long_texts="windows", stride=stride)
    batch = rows.take(np.arange(rows.num_rows), 10)
    for number, example in enumerate(examples):
        ids = TOKENIZER.encode(example.text_a)
        here = np.flatnonzero(rows.example == number)
        windows = [batch["input_ids"][row][: rows.lengths[row]].tolist() for row in here]
        assert all(w[0] == 2 and w[-1] == 3 for w in windows)
        if len(ids) <= 8:
            assert [w[1:-1] for w in windows] == [ids]
            continue
        starts = [start for start in range(0, len(ids) - 8, stride or 4)] + [len(ids) - 8]
        assert [w[1:-1] for w in windows] == [ids[start : start + 8] for start in starts]
        assert {i for start in starts for i in range(start, start + 8)} == set(range(len(ids)))
        assert batch["labels"][here].tolist() == [number % 2] * len(here)
    assert (batch["weights"] == 1).all() and rows.num_rows > len(examples)
    assert counts == {"texts_of_several_rows": sum(size > 8 for size in sizes)}


def test_windows_of_a_pair_keep_the_shorter_text():
    pairs = [text("a b c d e f g", "h"), text("h", "a b c d e f g"), text("a b", "c")]
    rows, counts = encode(pairs, length=8, long_texts="windows", stride=2)
    assert rows.example.tolist() == [0, 0, 0, 1, 1, 1, 2] and counts["texts_of_several_rows"] == 2
    a, h = 5, 12
    ids = rows.take(np.arange(7), 8)["input_ids"].tolist()
    starts = (0, 2, 3)
    assert ids[:3] == [[2, *range(a + s, a + s + 4), 3, h, 3] for s in starts]
    assert ids[3:6] == [[2, h, 3, *range(a + s, a + s + 4), 3] for s in starts]
    assert "tokens_cut_off" not in counts
    rows, counts = encode([text("a " * 9, "b " * 6)], length=9, long_texts="windows")
    (first, *_) = rows.take(np.arange(rows.num_rows), 9)["input_ids"].tolist()
    assert first == [2, 5, 5, 5, 3, 6, 6, 6, 3]  # half of the room for the shorter one
    assert counts == {"texts_of_several_rows": 1, "texts_truncated": 1, "tokens_cut_off": 3}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: LABELS.number("x", "line 7"), r"line 7: unknown label 'x'; .* are no, yes\.$"),
        (lambda: Labels.find(map(str, range(1000))).number("x", ""), r"0, 1, .*, 11 and 988 more"),
        (lambda: Labels.find([]), "The training data have no labels"),
        (
            lambda: encode([text("a b c d e")])[0].take(np.array([0]), 6),
            "7 tokens does not fit in 6",
        ),
        (
            lambda: encode([text("a")], length=7),
            "max_sequence_length=7 is too short: give at least 8",
        ),
        (lambda: encode([]), "There are no examples"),
        (
            lambda: encode([text("a")], 10, long_texts="windows", stride=9),
            r"config\.task\.stride=9 is above 8, the tokens of a window: give at most that, or 0",
        ),
        (
            lambda: encode([text("a", labels=("inf",))], labels=None, kind="regression"),
            "the label 'inf' is not a finite number",
        ),
        (lambda: encode([text("a", labels=("no", "yes"))]), "line 7: 2 labels, but a text"),
        (
            lambda: encode([text("a")], both_orders=True),
            "both_orders=True needs a second text: set",
        ),
        (lambda: encode_endings([choices(["d"], 0)]), "line 3: 1 endings, but two or more are"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
