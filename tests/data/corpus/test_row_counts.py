"""The statistics of rows, worked out by hand."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.data.corpus.pairs import PAIR
from bert_jax.data.corpus.row_counts import RowCounts

TOKENIZER = SimpleNamespace(
    cls_id=0, sep_id=1, end_id=1, unk_id=2, pieces=("[CLS]", "[SEP]", "[UNK]", "a", "b")
)


def test_statistics_of_two_rows():
    counts, other = RowCounts(5), RowCounts(5)
    # [CLS] a [SEP] b b [SEP]
    pair = np.array([(0, 1, 0, 2, True, 0)], PAIR)
    counts.add(pair, np.array([0, 3, 1, 4, 4, 1]), np.array([6]))
    # [CLS] [UNK] a [SEP] b b b [SEP]
    pair = np.array([(0, 2, 0, 3, False, 7)], PAIR)
    other.add(pair, np.array([0, 2, 3, 1, 4, 4, 4, 1]), np.array([8]))
    counts.add_json(json.loads(json.dumps(other.to_json())))
    shares = [1 / 8, 2 / 8, 5 / 8]
    assert counts.describe(10, TOKENIZER, (0, 1)) == {  # pyright: ignore[reportArgumentType]
        "rows": 2,
        "tokens": 14,
        "mean_length": 7.0,
        "mean_a_length": 1.5,
        "mean_b_length": 2.5,
        "lengths": {"width": 1, "rows": [0, 0, 0, 0, 0, 1, 0, 1, 0, 0]},
        "padding_share": pytest.approx(6 / 20),
        "random_next_share": 0.5,
        "truncated_rows_share": 0.5,
        "truncated_tokens": 7,
        "unknown_token_share": 1 / 8,
        "unigram_entropy": pytest.approx(-sum(p * math.log(p) for p in shares)),
        "most_frequent_token": {"id": 4, "piece": "b", "share": 5 / 8},
    }
