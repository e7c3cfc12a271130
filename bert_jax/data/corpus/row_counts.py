"""Statistics of the rows, counted while they are written."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.text.tokenization import Tokenizer

_LENGTH_BINS = 16


class RowCounts:
    """Sums over the rows of one or more shards."""

    def __init__(self, vocab_size: int):
        self.sums: Counter[str] = Counter()
        # int64[vocab]: occurrences of each id, special tokens included.
        self.token_counts = np.zeros(vocab_size, np.int64)
        # Length in tokens -> rows.
        self.lengths: Counter[int] = Counter()

    def add(self, pairs: np.ndarray, input_ids: np.ndarray, lengths: np.ndarray) -> None:
        """Counts rows.

        Args:
          pairs: pairs of their examples (pairs.PAIR).
          input_ids: all their ids before masking.
          lengths: int[rows], the tokens of each.
        """
        self.token_counts += np.bincount(input_ids, minlength=self.token_counts.size)
        values, counts = np.unique(lengths, return_counts=True)
        self.lengths.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        self.sums["rows"] += lengths.size
        self.sums["examples"] += pairs.size
        self.sums["tokens"] += input_ids.size
        self.sums["a_tokens"] += int(pairs["a_length"].sum(dtype=np.int64))
        self.sums["b_tokens"] += int(pairs["b_length"].sum(dtype=np.int64))
        self.sums["random_next"] += int(pairs["is_random_next"].sum())
        self.sums["truncated_rows"] += int((pairs["num_truncated"] > 0).sum())
        self.sums["truncated_tokens"] += int(pairs["num_truncated"].sum(dtype=np.int64))

    def to_json(self) -> dict[str, Any]:
        return {
            "sums": dict(self.sums),
            "token_counts": self.token_counts.tolist(),
            "lengths": list(self.lengths.items()),
        }

    def add_json(self, counts: dict[str, Any]) -> None:
        """Adds the counts of `to_json`."""
        self.sums.update(counts["sums"])
        self.token_counts += np.array(counts["token_counts"])
        self.lengths.update(dict(counts["lengths"]))

    def describe(
        self, sequence_length: int, tokenizer: Tokenizer, unpredicted: Sequence[int]
    ) -> dict[str, Any]:
        """Returns means and fractions.

        `unigram_entropy`, in nats, is over all tokens that can be predicted: the loss of a model
        that knows only their frequencies. The fraction of `most_frequent_token` is the accuracy of
        a model that always predicts it.

        Means of A and B, and the shares of pairs, are over examples; if rows have several, their
        number, `examples`, is also returned.

        With phrases as masking units, `mask_units` has the number of `units` and of `phrases`,
        `phrases_by_class`, and the share of phrases' tokens in all that can be masked; for static
        masks also the masked shares of these tokens, of phrases' tokens and of phrases.

        `lengths` are the numbers of `rows` of 1 to `width` tokens, of `width` + 1 to 2 `width`, ...

        Args:
          sequence_length: tokens of a row.
          tokenizer: the tokenizer that made the ids.
          unpredicted: ids that are never predicted.
        """
        sums = self.sums
        rows, examples = sums["rows"], sums["examples"]
        predicted = self.token_counts.copy()
        predicted[list(unpredicted)] = 0
        total = int(predicted.sum())
        probabilities = predicted[predicted > 0] / total
        most_frequent = int(predicted.argmax())
        return {
            "rows": rows,
            "tokens": sums["tokens"],
            "mean_length": sums["tokens"] / rows,
            **({"examples": examples} if examples > rows else {}),
            "mean_a_length": sums["a_tokens"] / examples,
            "mean_b_length": sums["b_tokens"] / examples,
            "lengths": self._describe_lengths(sequence_length),
            "padding_share": 1 - sums["tokens"] / (rows * sequence_length),
            "random_next_share": sums["random_next"] / examples,
            "truncated_rows_share": sums["truncated_rows"] / examples,
            "truncated_tokens": sums["truncated_tokens"],
            "unknown_token_share": int(predicted[tokenizer.unk_id]) / total,
            "unigram_entropy": float(-(probabilities * np.log(probabilities)).sum()),
            "most_frequent_token": {
                "id": most_frequent,
                "piece": tokenizer.pieces[most_frequent],
                "share": int(predicted[most_frequent]) / total,
            },
            **({"mask_units": _describe_units(sums)} if "units" in sums else {}),
        }

    def _describe_lengths(self, sequence_length: int) -> dict[str, Any]:
        width = -(-sequence_length // _LENGTH_BINS)
        rows = [0] * -(-sequence_length // width)
        for length, count in self.lengths.items():
            rows[max(length - 1, 0) // width] += count
        return {"width": width, "rows": rows}


def _describe_units(sums: Counter[str]) -> dict[str, Any]:
    """Returns the statistics of the masking units; a share of nothing is 0."""

    def share(part: str, whole: str) -> float:
        return sums[part] / max(sums[whole], 1)

    classes = sorted(key.partition("/")[2] for key in sums if key.startswith("phrases/"))
    described: dict[str, Any] = {
        "units": sums["units"],
        "phrases": sums["phrases"],
        "phrases_by_class": {name: sums[f"phrases/{name}"] for name in classes},
        "phrase_token_share": share("phrase_tokens", "unit_tokens"),
    }
    if "masked_tokens" in sums:
        described |= {
            "masked_token_share": share("masked_tokens", "unit_tokens"),
            "masked_phrase_token_share": share("masked_phrase_tokens", "phrase_tokens"),
            "masked_phrase_share": share("masked_phrases", "phrases"),
            "masked_phrase_share_by_class": {
                name: share(f"masked_phrases/{name}", f"phrases/{name}") for name in classes
            },
        }
    return described
