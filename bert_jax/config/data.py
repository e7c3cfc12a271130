"""What the data pipeline needs to know, apart from where it writes and with how many processes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Settings of the data; every field that is not `idle` decides the bytes of the shards.

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
    segments: str
    mode: str
    seed: int
    dupe_factor: int
    short_seq_prob: float
    masked_lm_prob: float
    masking: str
    mask_rounding: str
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
            "mask_rounding": ("half_even", "stochastic", "bernoulli"),
            "segments": ("pairs", "full_sentences"),
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
        self._check_together()

    def _check_together(self) -> None:
        """Refuses what each setting allows and both together do not."""
        if self.mode == "static" and self.masking == "span":
            raise ValueError(
                "data.masking=span needs data.mode=dynamic: the released program, which static data"
                " follow, masks subwords or whole words."
            )
        if self.mode == "static" and self.mask_rounding != "half_even":
            raise ValueError(
                f"data.mask_rounding={self.mask_rounding} needs data.mode=dynamic: the released"
                " program, which static data follow, rounds half to even."
            )
        if self.mode == "static" and self.segments != "pairs":
            raise ValueError(
                f"data.segments={self.segments} needs data.mode=dynamic: the released program,"
                " which static data follow, makes pairs."
            )
        if self.mask_rounding == "bernoulli" and self.masking != "subword":
            raise ValueError(
                "data.mask_rounding=bernoulli, where each token is masked or not by itself, needs"
                f" data.masking=subword, not {self.masking}."
            )

    @property
    def idle(self) -> frozenset[str]:
        """Names of the fields that decide nothing here, because others make them void."""
        of_masks = {"masked_lm_prob", "masking", "mask_rounding", "max_predictions_per_seq"}
        of_pairs = {"dupe_factor", "short_seq_prob"}
        return frozenset(
            (of_masks if self.mode == "dynamic" else set())
            | (of_pairs if self.segments != "pairs" else set())
        )
