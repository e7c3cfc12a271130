"""What the data pipeline needs to know, apart from where it writes and with how many processes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Settings of the data; every field decides the bytes of the shards.

    The fields and their defaults are described in configs/base.py. `vocab_size` is the size of a
    vocabulary that is trained and the most that an existing one may have.
    """

    source: str
    form: str
    document: str
    field: str
    language: str
    on_bad_text: str
    vocab: str
    vocab_size: int
    lowercase: bool
    mode: str
    seed: int
    dupe_factor: int
    short_seq_prob: float
    masked_lm_prob: float
    masking: str
    validation_share: float
    # One for each phase.
    sequence_lengths: tuple[int, ...]
    # Predictions a row, one for each phase; the formula is already applied, so never 0.
    max_predictions_per_seq: tuple[int, ...]

    def __post_init__(self):
        allowed = {
            "form": ("sentences", "paragraphs", "wrapped"),
            "document": ("blank_line", "file"),
            "on_bad_text": ("replace", "skip", "error"),
            "mode": ("dynamic", "static"),
            "masking": ("subword", "whole_word", "span"),
        }
        for name, values in allowed.items():
            if (got := getattr(self, name)) not in values:
                raise ValueError(f"data.{name}={got!r} is none of {', '.join(values)}.")
        for name in ("short_seq_prob", "masked_lm_prob", "validation_share"):
            if not 0 <= (got := getattr(self, name)) < 1:
                raise ValueError(
                    f"data.{name}={got} is not a share: give a number from 0 to below 1."
                )
        if self.dupe_factor < 1:
            raise ValueError(f"data.dupe_factor={self.dupe_factor} must be at least 1.")
        if min(self.sequence_lengths) < 8:
            raise ValueError(
                f"A sequence length of {min(self.sequence_lengths)} in phases is too short:"
                " at least 8 ([CLS], two [SEP] and some words)."
            )
