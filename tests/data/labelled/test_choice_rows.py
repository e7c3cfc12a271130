"""Examples with several endings, against the sequences written out by hand."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.choices import read_choices
from bert_jax.data.labelled.encode_choices import encode_choices
from bert_jax.data.labelled.examples import ChoiceExample
from bert_jax.text.tokenization import WordPieceTokenizer
from bert_jax.text.tokenizers import load_tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TOKENIZER = WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=True)


def encode(examples, length=16):
    counts = Counter()
    return encode_choices(iter(examples), TOKENIZER, length, counts), +counts


def example(endings, label=None, context="a b", start="c") -> ChoiceExample:
    return ChoiceExample("swag.csv, line 3", "0", context, start, tuple(endings), label)


def test_a_row_has_a_sequence_for_each_ending():
    rows, counts = encode([example(["d", "e f"], 1), example(["g", "", "h"])])
    batch = rows.take(np.array([1, 0, -1]), 8)
    a_b = [2, 5, 6, 3]
    assert batch["input_ids"].tolist() == [
        [[*a_b, 7, 11, 3, 0], [*a_b, 7, 3, 0, 0], [*a_b, 7, 12, 3, 0]],
        [[*a_b, 7, 8, 3, 0], [*a_b, 7, 9, 10, 3], [0] * 8],
        [[0] * 8] * 3,
    ]
    assert batch["example_ids"].any(-1).tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert batch["token_type_ids"][1, 1].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert batch["cls_positions"].shape == (3, 3, 1)
    assert batch["labels"].tolist() == [0, 1, 0] and batch["weights"].tolist() == [0, 1, 0]
    assert batch["labels"].dtype == np.int32 and batch["weights"].dtype == np.float32
    assert rows.lengths.tolist() == [8, 7] and rows.num_choices == 3 and not counts


def test_what_is_too_long_is_cut_and_counted():
    rows, counts = encode([example(["d " * 9, "e"], context="a " * 4)], length=8)
    assert rows.sequences.lengths.tolist() == [8, 8]
    assert rows.sequences.first_lengths.tolist() == [5, 5]
    assert counts == {"choices_truncated": 2, "tokens_cut_off": 9 + 1}


@pytest.mark.parametrize(
    "endings, label, message",
    [
        (["d"], 0, "swag.csv, line 3: 1 endings, but two or more are needed"),
        (["d", "e"], 2, "swag.csv, line 3: the label 2 is not the number of an ending, 0 to 1"),
        (["d", "e"], -1, "swag.csv, line 3: the label -1 is not the number of an ending, 0 to 1"),
    ],
)
def test_errors(endings, label, message):
    with pytest.raises(ValueError, match=message):
        encode([example(endings, label)])


def test_no_examples_are_an_error():
    with pytest.raises(ValueError, match="There are no examples"):
        encode([])


def test_swag(shared_data):
    path = shared_data / "multiple_choice" / "swag_sample.json"
    examples = list(read_choices(str(path), Counter()))
    tokenizer = load_tokenizer(
        shared_data / "vocab" / "bert-base-uncased" / "vocab.txt", lowercase=True
    )
    rows = encode_choices(examples, tokenizer, 128, Counter())
    batch = rows.take(np.arange(10), 128)
    assert batch["labels"].tolist() == [e.label for e in examples]
    for number, example in enumerate(examples):
        for choice, ending in enumerate(example.endings):
            first = [tokenizer.cls_id, *tokenizer.encode(example.context), tokenizer.sep_id]
            second = [*tokenizer.encode(f"{example.start} {ending}"), tokenizer.sep_id]
            ids = batch["input_ids"][number, choice].tolist()
            assert ids == first + second + [0] * (128 - len(first) - len(second))
