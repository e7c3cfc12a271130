"""The data of a run: a corpus of text, or files of labelled examples."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from bert_jax.config.group import Group, derived, rules, setting
from bert_jax.files.errors import UserError

# Weights are stored as int8 numbers of classes, of which three have another meaning.
MAX_WEIGHTS = 125
# Examples of a row are stored as uint8.
MAX_EXAMPLES = 255
_SHARES = ("mask_share", "keep_share", "random_share")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Group):
    """A corpus of text. `shard_settings` are the fields that determine the bytes of the shards."""

    # installed_docs, text:GLOB, jsonl:GLOB, parquet:PATH, tfds:NAME.
    source: str = setting("installed_docs")
    # How lines form sentences: `sentences` (one per line, the released code's form), `paragraphs`
    # (one per line, split into sentences), `wrapped` (paragraphs that end at a blank line).
    line_format: str = setting("paragraphs", choices=("sentences", "paragraphs", "wrapped"))
    # What ends a document of `text:`: a `blank_line`, the end of a `line` (of wrapped text, of a
    # paragraph), or the end of a `file`.
    document_separator: str = setting("blank_line", choices=("blank_line", "line", "file"))
    # Field or column with the text, in `jsonl:`, `parquet:` and `tfds:`.
    field: str = setting("text")
    # Language of the rules for sentence boundaries (ISO 639-1).
    language: str = setting("en")
    # Malformed text (invalid UTF-8, NUL, overlong lines).
    on_bad_text: str = setting("replace", choices=("replace", "skip", "error"))
    # A vocab.txt, .model or tokenizer.json file, GPT's folder, or train:wordpiece, train:unigram,
    # train:bpe, train:words.
    vocab: str = setting("train:wordpiece", is_path=True)
    # Words that are added to a given WordPiece vocabulary: a file with one per line, or frequent:N
    # for the N most frequent words of the text that it splits into many pieces. With `init_from`,
    # the embedding of each begins as the mean of those of its old pieces.
    extra_tokens: str = setting("", is_path=True)
    # Lower-case the text and remove accents.
    lowercase: bool = setting(True)
    # Rows are `pairs` of segments for next-sentence prediction; `full_sentences`: as many
    # sentences as fit, across documents, with [SEP] between documents; `doc_sentences`: the same
    # within documents (both Liu et al. 2019, 4.2); `running_text`: the text cut at the sequence
    # length, for next-token prediction; or `stream`: the whole corpus without gaps, for models that
    # carry a state from row to row.
    segments: str = setting(
        "pairs",
        choices=("pairs", "full_sentences", "doc_sentences", "running_text", "stream"),
    )
    # `dynamic`: masks are drawn at each step, on the device. `static`: masks are drawn once, by the
    # released code's procedure with the same random numbers.
    mode: str = setting("dynamic", choices=("dynamic", "static"))
    # Seed of pairs, held-out split and static masks.
    seed: int = setting(12345, minimum=0)
    # Pairs: number of times that each document is split into pairs.
    dupe_factor: int = setting(10)
    # Pairs: fraction of the documents split with a random, shorter target length.
    short_seq_prob: float = setting(0.1, minimum=0, below=1)
    # Fraction of the tokens that is masked.
    masked_lm_prob: float = setting(0.15, below=1)
    # Masking rate at the last step, with linear decay (dynamic masks only); 0: constant rate.
    final_masked_lm_prob: float = setting(0.0, minimum=0, below=1, in_shards=False)
    # With mask_rounding `row`: number of stages of a decaying rate. They are equal parts of the
    # run; each uses the mean rate of its part, and its own program, in which no slot is empty.
    mask_stages: int = setting(1, in_shards=False)
    # Masking rate of evaluations with dynamic masks, so that runs with different rates can be
    # compared; 0: masked_lm_prob.
    eval_masked_lm_prob: float = setting(0.15, minimum=0, below=1, in_shards=False, free=True)
    # Unit of masking: `subword`, `whole_word`, `span` (of words, with geometric lengths), `phrase`
    # (the longest phrases of data.lexicon, and the words outside them).
    masking: str = setting("subword", choices=("subword", "whole_word", "span", "phrase"))
    # `phrase`: a file with one phrase per line, optionally with a tab and the name of its class.
    lexicon: str = setting("", is_path=True)
    # `phrase`: weights in the choice of units: ("CLASS=WEIGHT", ...); 0: never masked. Words, and
    # phrases of other classes or of none, have weight 1.
    lexicon_weights: tuple[str, ...] = setting(())
    # Share of the chosen tokens that become [MASK] (paper, appendix C.2); the three shares add up
    # to 1.
    mask_share: float = setting(0.8, minimum=0)
    # Share of the chosen tokens that stay.
    keep_share: float = setting(0.1, minimum=0)
    # Share of the chosen tokens that become a random token.
    random_share: float = setting(0.1, minimum=0)
    # Number of masked tokens among n, with p = masked_lm_prob. `half_even`: round(n * p), at least
    # 1; `stochastic`: n * p rounded up or down at random; `bernoulli`: each token independently;
    # `row`: exactly round(sequence length * p) of each row, padding or not, at most half of its
    # tokens. Evaluations then round as `half_even` does.
    mask_rounding: str = setting(
        "half_even", choices=("half_even", "stochastic", "bernoulli", "row")
    )
    # Maximum predictions of a sequence; 0: the largest number that mask_rounding gives.
    max_predictions_per_seq: int = setting(0, minimum=0, in_shards=False)
    # Maximum examples per row; with more than 1, short examples are packed into rows, and do not
    # attend to each other. Steps, epochs and examples then count rows.
    max_examples_per_row: int = setting(1)
    # Fraction of the documents held out for evaluation.
    validation_share: float = setting(0.01, minimum=0, below=1)
    # Text to evaluate on, written like `source`, instead of a held-out part of `source`.
    held_out: str = setting("", in_shards=False)
    # Source of general text, in the form of `source`, such as what `init_from` was trained on.
    # Some of it is evaluated beside the held-out text; its metrics are called general_NAME.
    general: str = setting("", in_shards=False)
    # Fraction of the documents of `general` that is evaluated, and never replayed.
    general_share: float = setting(0.1, below=1, in_shards=False)
    # Fraction of the rows of each batch that are from the other documents of `general`, rounded to
    # whole rows. Epochs count passes over `source`.
    replay: float = setting(0.0, minimum=0, below=1, in_shards=False)
    # Folder of vocabulary and shards; empty: `data` in the workdir.
    dir: str = setting("", in_shards=False, free=True, is_path=True)
    # Maximum number of words (between white space) of the text, held-out documents included; 0: any
    # number. The text of `held_out` and `general` does not count.
    max_words: int = setting(0, minimum=0, in_shards=False, free=True)
    # Processes that prepare the data; 0: one for each core.
    num_processes: int = setting(0, minimum=0, in_shards=False, free=True)
    # Size of a vocabulary that is trained, and the maximum for an existing one.
    vocab_size: int = derived(30_522)
    # In tokens, ascending; one for each length that the phases use.
    sequence_lengths: tuple[int, ...] = derived((128, 512))
    # Maximum predictions for each sequence length; never 0.
    num_predictions: tuple[int, ...] = derived((20, 77))

    def check(self) -> None:
        if self.max_examples_per_row > MAX_EXAMPLES:
            raise UserError(
                f"max_examples_per_row={self.max_examples_per_row} must be at most {MAX_EXAMPLES}."
            )
        shares = [getattr(self, name) for name in _SHARES]
        if not math.isclose(sum(shares), 1.0):
            first, *others = (f"{name}={getattr(self, name)}" for name in _SHARES)
            raise UserError(f"{first}, {', '.join(others)}: they must add up to 1.")
        if self.held_out and self.validation_share:
            raise UserError(
                f"held_out={self.held_out!r} and config.data.validation_share="
                f"{self.validation_share} both give the text to evaluate on: set"
                " config.data.validation_share=0."
            )
        self._check_general()
        self._check_extra_tokens()
        self._check_lexicon()
        self._check_rate()
        self._check_static()
        if self.max_examples_per_row > 1 and self.counts_text:
            raise UserError(
                f"max_examples_per_row={self.max_examples_per_row} has no effect with"
                f" config.data.segments={self.segments!r}, whose rows are full: set it to 1."
            )
        if self.mask_rounding in ("bernoulli", "row") and self.masking != "subword":
            raise UserError(
                f"mask_rounding={self.mask_rounding!r} needs config.data.masking='subword', not"
                f" {self.masking!r}: it chooses single tokens."
            )
        self._check_exact()

    def _check_general(self) -> None:
        """Refuses a replay of no text, and general text as the only one to evaluate on."""
        if self.replay and not self.general:
            raise UserError(f"replay={self.replay} needs config.data.general: the text to replay.")
        if self.general and not (self.held_out or self.validation_share):
            raise UserError(
                f"general={self.general!r} is evaluated beside held-out text, and there is none:"
                " set config.data.validation_share or config.data.held_out."
            )

    def _check_extra_tokens(self) -> None:
        """Refuses words for a vocabulary that is trained on the text, which has them already."""
        num_frequent(self.extra_tokens)
        if self.extra_tokens and self.vocab.startswith("train:"):
            raise UserError(
                f"extra_tokens={self.extra_tokens!r} is for a given vocabulary, and"
                f" config.data.vocab={self.vocab!r} is trained on the text: set config.init_from or"
                " config.data.vocab."
            )

    def _check_lexicon(self) -> None:
        """Refuses malformed weights, and a lexicon without its masking or the reverse."""
        if self.masking == "phrase" and not self.lexicon:
            raise UserError(
                "masking='phrase' needs config.data.lexicon: a file with one phrase per line."
            )
        for name in ("lexicon", "lexicon_weights"):
            if self.masking != "phrase" and (got := getattr(self, name)):
                raise UserError(
                    f"{name}={got!r} has no effect with config.data.masking={self.masking!r}: set"
                    " config.data.masking='phrase'."
                )
        parse_weights(self.lexicon_weights)

    def _check_rate(self) -> None:
        final = self.final_masked_lm_prob
        if final > self.masked_lm_prob:
            raise UserError(
                f"final_masked_lm_prob={final} is above config.data.masked_lm_prob="
                f"{self.masked_lm_prob}, which it is to fall from: give a lower one, or 0 for a"
                " constant rate."
            )
        if final and self.mode != "dynamic":
            raise UserError(
                f"final_masked_lm_prob={final} needs config.data.mode='dynamic', not"
                f" {self.mode!r}, whose masks are drawn before the run: set it to 0."
            )

    def _check_exact(self) -> None:
        """Refuses numbers of masks that `row` or its stages cannot have."""
        is_exact, final = self.mask_rounding == "row", self.final_masked_lm_prob
        if is_exact and self.max_predictions_per_seq:
            raise UserError(
                f"max_predictions_per_seq={self.max_predictions_per_seq} has no effect with"
                " config.data.mask_rounding='row', which takes it from config.data.masked_lm_prob:"
                " set it to 0."
            )
        if is_exact and (final > 0) != (self.mask_stages > 1):
            raise UserError(
                f"mask_stages={self.mask_stages} does not fit config.data.final_masked_lm_prob="
                f"{final}: with config.data.mask_rounding='row', a rate falls in two or more stages"
                " (such as 3), and a constant one, 0, has 1."
            )
        if self.mask_stages > 1 and not is_exact:
            raise UserError(
                f"mask_stages={self.mask_stages} needs config.data.mask_rounding='row', not"
                f" {self.mask_rounding!r}: set config.data.mask_stages=1 for a rate that falls at"
                " each step."
            )

    def stage_rates(self) -> list[float]:
        """Returns the masking rate of each stage: the mean of the linear decay within it."""
        fall, stages = self.final_masked_lm_prob - self.masked_lm_prob, self.mask_stages
        return [self.masked_lm_prob + fall * (n + 0.5) / stages for n in range(stages)]

    def _check_static(self) -> None:
        """Refuses static masks that the released program, which they reproduce, does not draw."""
        if self.mode != "static":
            return
        released = "config.data.mode='dynamic': the released program, which static data reproduces,"
        if self.masking == "span":
            raise UserError(f"masking='span' needs {released} masks subwords or whole words.")
        if self.mask_rounding != "half_even":
            raise UserError(
                f"mask_rounding={self.mask_rounding!r} needs {released} rounds half to even."
            )
        if self.segments != "pairs":
            raise UserError(f"segments={self.segments!r} needs {released} makes pairs.")

    @property
    def counts_text(self) -> bool:
        """Whether the words and characters of the text are counted, for scores of each of them."""
        return self.segments in ("running_text", "stream")

    def shard_settings(self) -> dict[str, Any]:
        """Returns the fields that determine the bytes of the shards."""
        without_effect = set()
        if self.mode == "dynamic":
            without_effect = {"masked_lm_prob", "masking", "mask_rounding", "num_predictions"}
            without_effect.update(_SHARES)
            if self.masking == "phrase":  # its units are stored in the rows
                without_effect.remove("masking")
        if self.segments != "pairs":
            without_effect |= {"dupe_factor", "short_seq_prob"}
        if not self.extra_tokens:
            without_effect.add("extra_tokens")
        without_effect |= {name for name, rule in rules(type(self)).items() if not rule.in_shards}
        return {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name not in without_effect
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledConfig(Group):
    """Files of labelled examples."""

    # File to train on; also a folder of Parquet files, and tfds:NAME[SPLIT] of tensorflow-datasets.
    train: str = setting("", is_path=True)
    # File to evaluate on.
    eval: str = setting("", is_path=True)
    # Further files to evaluate: NAME=FILE, ...; their scores are named NAME_...
    more_eval: tuple[str, ...] = setting((), is_path=True)
    # A vocab.txt, .model or tokenizer.json file; empty: that of `init_from`.
    vocab: str = setting("", is_path=True)
    # Lower-case the text and remove accents.
    lowercase: bool = setting(True)
    # Batches of equal numbers of `rows`, or of about equal numbers of `tokens` (for losses over
    # words), where batches of short sentences have more than global_batch_size rows.
    batch_by: str = setting("rows", choices=("rows", "tokens"))
    # Maximum examples per row in training; with more than 1, examples are packed into rows of the
    # maximum length, and do not attend to each other. Batches have about as many examples as
    # without packing.
    max_examples_per_row: int = setting(1)
    # Sequence lengths that rows are padded to, in addition to the maximum; (): a few that minimize
    # the padding of the training rows, or one for tasks whose losses compare the texts of a batch.
    bucket_lengths: tuple[int, ...] = setting(())

    def check(self) -> None:
        lengths = self.bucket_lengths
        are_numbers = all(type(length) is int for length in lengths)
        if not are_numbers or list(lengths) != sorted(set(lengths)) or min(lengths, default=1) < 1:
            raise UserError(
                f"bucket_lengths={lengths!r} are not ascending, positive sequence lengths."
            )


def num_frequent(extra_tokens: str) -> int:
    """Returns N of `frequent:N` in `data.extra_tokens`; 0 for a file, and for none.

    Raises:
      UserError: N is not a number above 0.
    """
    kind, colon, number = extra_tokens.partition(":")
    if (kind, colon) != ("frequent", ":"):
        return 0
    if not number.isdecimal() or not int(number):
        raise UserError(
            f"extra_tokens={extra_tokens!r} is not frequent:N with a number N above 0, such as"
            " frequent:500."
        )
    return int(number)


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
                f"lexicon_weights: {entry!r} is not CLASS=WEIGHT with a weight of at least 0,"
                " such as person=2."
            )
        if name in weights:
            raise UserError(f"lexicon_weights gives the class {name!r} twice.")
        weights[name] = weight
    if len(weights) > MAX_WEIGHTS:
        raise UserError(
            f"lexicon_weights has {len(weights)} classes, more than {MAX_WEIGHTS}: give"
            " classes of the same weight one name."
        )
    return dict(sorted(weights.items()))
