"""Pairs of texts in both orders, against the sequences written out by hand."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import Labels, TextExample
from bert_jax.text.tokenization import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
TOKENIZER = WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=True)


def encode(examples, length=16):
    counts, labels = Counter(), Labels(("no", "yes"))
    rows = encode_texts(examples, TOKENIZER, length, labels, "single", counts, both_orders=True)
    return rows, +counts


def pair(text_a, text_b, label="yes"):
    return TextExample("dev.tsv, line 7", "0", text_a, text_b, (label,))


def test_a_row_is_a_pair_in_both_orders():
    rows, counts = encode([pair("a", "b c"), pair("d", "e", "no")])
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


def test_both_orders_are_cut_and_counted_once():
    rows, counts = encode([pair("a " * 9, "b " * 4)], length=9)
    ids = rows.take(np.array([0]), 9)["input_ids"][0].tolist()
    assert ids == [[2, 5, 5, 5, 3, 6, 6, 6, 3], [2, 6, 6, 6, 3, 5, 5, 5, 3]]
    assert counts == {"texts_truncated": 1, "tokens_cut_off": 7}


def test_a_single_text_has_no_other_order():
    with pytest.raises(ValueError, match="line 7: head.both_orders=True needs a second text: set"):
        encode([pair("a", None)])
