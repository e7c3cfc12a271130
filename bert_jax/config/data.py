"""The settings of the data pipeline, apart from where it writes and how many processes it uses."""

import dataclasses
import math
from collections.abc import Sequence

from ml_collections import ConfigDict

from bert_jax.config.phases import make_phases
from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError

# Weights are stored as int8 numbers of classes, of which three have another meaning.
MAX_WEIGHTS = 125
# Examples of a row are stored as uint8.
MAX_EXAMPLES = 255
_SHARES = ("mask_share", "keep_share", "random_share")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Settings of a corpus. All fields but the `unused` ones determine the bytes of the shards.

    bert_jax/config/defaults.py describes the fields. `vocab_size` is the size of a vocabulary that
    is trained, and the maximum for an existing one.

    Attributes:
      sequence_lengths: in tokens, ascending; one for each length that the phases use.
      max_predictions_per_seq: for each sequence length; never 0, which stands for a default.
    """

    source: str
    line_format: str
    document_separator: str
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
    sequence_lengths: tuple[int, ...]
    max_predictions_per_seq: tuple[int, ...]
    mask_share: float = 0.8
    keep_share: float = 0.1
    random_share: float = 0.1
    lexicon: str = ""
    lexicon_weights: tuple[str, ...] = ()
    max_examples_per_row: int = 1

    def __post_init__(self):
        allowed = {
            "line_format": ("sentences", "paragraphs", "wrapped"),
            "document_separator": ("blank_line", "file"),
            "on_bad_text": ("replace", "skip", "error"),
            "mode": ("dynamic", "static"),
            "masking": ("subword", "whole_word", "span", "phrase"),
            "mask_rounding": ("half_even", "stochastic", "bernoulli"),
            "segments": ("pairs", "full_sentences", "running_text", "stream"),
        }
        for name, values in allowed.items():
            if (got := getattr(self, name)) not in values:
                raise UserError(f"data.{name}={got!r} is none of {', '.join(values)}.")
        for name in ("short_seq_prob", "masked_lm_prob", "validation_share"):
            if not 0 <= (got := getattr(self, name)) < 1:
                raise UserError(f"data.{name}={got} must be at least 0 and below 1.")
        if self.dupe_factor < 1:
            raise UserError(f"data.dupe_factor={self.dupe_factor} must be at least 1.")
        if not 1 <= self.max_examples_per_row <= MAX_EXAMPLES:
            raise UserError(
                f"data.max_examples_per_row={self.max_examples_per_row} must be at least 1 and"
                f" at most {MAX_EXAMPLES}."
            )
        if min(self.sequence_lengths) < 8:
            raise UserError(
                f"A sequence length of {min(self.sequence_lengths)} in phases is too short:"
                " it must be at least 8 ([CLS], two [SEP] and some words)."
            )
        shares = [getattr(self, name) for name in _SHARES]
        if min(shares) < 0 or not math.isclose(sum(shares), 1.0):
            names = ", ".join(f"data.{name}={getattr(self, name)}" for name in _SHARES)
            raise UserError(f"{names}: they must be at least 0 and add up to 1.")
        self._check_lexicon()
        self._check_combinations()

    def _check_lexicon(self) -> None:
        """Refuses malformed weights, and a lexicon without its masking or the reverse."""
        if self.masking == "phrase" and not self.lexicon:
            raise UserError("data.masking=phrase needs data.lexicon: a file with a phrase a line.")
        for name in ("lexicon", "lexicon_weights"):
            if self.masking != "phrase" and (got := getattr(self, name)):
                raise UserError(
                    f"data.{name}={got!r} has no effect with data.masking={self.masking}: set"
                    " data.masking=phrase."
                )
        parse_weights(self.lexicon_weights)

    def _check_combinations(self) -> None:
        """Refuses values that are valid alone but not together."""
        if self.mode == "static" and self.masking == "span":
            raise UserError(
                "data.masking=span needs data.mode=dynamic: the released program, which static data"
                " reproduces, masks subwords or whole words."
            )
        if self.mode == "static" and self.mask_rounding != "half_even":
            raise UserError(
                f"data.mask_rounding={self.mask_rounding} needs data.mode=dynamic: the released"
                " program, which static data reproduces, rounds half to even."
            )
        if self.mode == "static" and self.segments != "pairs":
            raise UserError(
                f"data.segments={self.segments} needs data.mode=dynamic: the released program,"
                " which static data reproduces, makes pairs."
            )
        if self.max_examples_per_row > 1 and self.counts_text:
            raise UserError(
                f"data.max_examples_per_row={self.max_examples_per_row} has no effect with"
                f" data.segments={self.segments}, whose"
                " rows are full: set data.max_examples_per_row=1."
            )
        if self.mask_rounding == "bernoulli" and self.masking != "subword":
            raise UserError(
                "data.mask_rounding=bernoulli, which masks each token independently, needs"
                f" data.masking=subword, not {self.masking}."
            )

    @property
    def counts_text(self) -> bool:
        """Whether the words and characters of the text are counted, for scores of each of them."""
        return self.segments in ("running_text", "stream")

    @property
    def unused(self) -> frozenset[str]:
        """Names of the fields that have no effect, because of the values of other fields."""
        for_masks = {
            "masked_lm_prob",
            "masking",
            "mask_rounding",
            "max_predictions_per_seq",
            *_SHARES,
        }
        if self.masking == "phrase":  # its units are stored in the rows
            for_masks.remove("masking")
        for_pairs = {"dupe_factor", "short_seq_prob"}
        return frozenset(
            (for_masks if self.mode == "dynamic" else set())
            | (for_pairs if self.segments != "pairs" else set())
        )


def parse_weights(entries: Sequence[str]) -> dict[str, float]:
    """Returns the weight of each class of `data.lexicon_weights`, by name in alphabetical order.

    Raises:
      UserError: an entry is not CLASS=WEIGHT, a weight is negative, or a class is given twice.
    """
    weights: dict[str, float] = {}
    for entry in entries:
        name, _, number = str(entry).rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not name or name != name.strip() or not 0 <= weight < math.inf:
            raise UserError(
                f"data.lexicon_weights: {entry!r} is not CLASS=WEIGHT with a weight of at least 0,"
                " such as person=2."
            )
        if name in weights:
            raise UserError(f"data.lexicon_weights gives the class {name!r} twice.")
        weights[name] = weight
    if len(weights) > MAX_WEIGHTS:
        raise UserError(
            f"data.lexicon_weights has {len(weights)} classes, more than {MAX_WEIGHTS}: give"
            " classes of the same weight one name."
        )
    return dict(sorted(weights.items()))


def data_config(config: ConfigDict) -> DataConfig:
    """Returns the settings of the corpus of a run.

    Raises:
      UserError: for a setting that is not allowed.
    """
    phases = make_phases(config, steps=0)
    lengths = sorted({phase.sequence_length for phase in phases})
    predictions: dict[int, int] = {}
    for phase in phases:
        length, count = phase.sequence_length, phase.max_predictions_per_seq
        if config.data.mode == "static" and predictions.get(length, count) != count:
            raise UserError(
                f"config.phases has sequences of {length} tokens with {predictions[length]} and"
                f" with {count} predictions, but static data is prepared once for each length: use"
                " the same number, or config.data.mode=dynamic."
            )
        predictions[length] = count
    names = {field.name for field in dataclasses.fields(DataConfig)}
    values = {name: value for name, value in config.data.items() if name in names}
    values["lexicon"] = local(values["lexicon"])
    return DataConfig(
        **values
        | {
            "vocab_size": config.model.vocab_size,
            "sequence_lengths": tuple(lengths),
            "max_predictions_per_seq": tuple(predictions[length] for length in lengths),
        }
    )
