"""Statistics of the rows, counted while they are written."""

from collections import Counter
from typing import Any

import numpy as np

from bert_jax.text.tokenization import Tokenizer


class RowCounts:
    """Sums over the rows of one or several shards."""

    def __init__(self, vocab_size: int):
        self.sums: Counter[str] = Counter()
        # int64[vocab]: occurrences of each id, special tokens included.
        self.token_counts = np.zeros(vocab_size, np.int64)

    def add(self, pairs: np.ndarray, input_ids: np.ndarray) -> None:
        """Counts rows: their pairs (pairs.PAIR), and all their ids before masking."""
        self.token_counts += np.bincount(input_ids, minlength=self.token_counts.size)
        self.sums["rows"] += pairs.size
        self.sums["tokens"] += input_ids.size
        self.sums["a_tokens"] += int(pairs["a_length"].sum(dtype=np.int64))
        self.sums["b_tokens"] += int(pairs["b_length"].sum(dtype=np.int64))
        self.sums["random_next"] += int(pairs["is_random_next"].sum())
        self.sums["truncated_rows"] += int((pairs["num_truncated"] > 0).sum())
        self.sums["truncated_tokens"] += int(pairs["num_truncated"].sum(dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "token_counts": self.token_counts.tolist()}

    def add_json(self, counts: dict[str, Any]) -> None:
        """Adds the counts of `to_json`."""
        self.sums.update(counts["sums"])
        self.token_counts += np.array(counts["token_counts"])

    def describe(self, sequence_length: int, tokenizer: Tokenizer) -> dict[str, Any]:
        """Returns means and fractions.

        `unigram_entropy`, in nats, is that of all tokens that can be masked: the loss of a model
        that knows only their frequencies. The fraction of `most_frequent_token` is the accuracy of
        a model that always predicts it.
        """
        sums = self.sums
        rows = sums["rows"]
        maskable = self.token_counts.copy()
        maskable[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id]] = 0
        total = int(maskable.sum())
        probabilities = maskable[maskable > 0] / total
        most_frequent = int(maskable.argmax())
        return {
            "rows": rows,
            "tokens": sums["tokens"],
            "mean_length": sums["tokens"] / rows,
            "mean_a_length": sums["a_tokens"] / rows,
            "mean_b_length": sums["b_tokens"] / rows,
            "padding_share": 1 - sums["tokens"] / (rows * sequence_length),
            "random_next_share": sums["random_next"] / rows,
            "truncated_rows_share": sums["truncated_rows"] / rows,
            "truncated_tokens": sums["truncated_tokens"],
            "unknown_token_share": int(maskable[tokenizer.unk_id]) / total,
            "unigram_entropy": float(-(probabilities * np.log(probabilities)).sum()),
            "most_frequent_token": {
                "id": most_frequent,
                "piece": tokenizer.pieces[most_frequent],
                "share": int(maskable[most_frequent]) / total,
            },
        }
