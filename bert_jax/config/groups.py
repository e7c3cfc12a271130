"""The groups of a run's configuration, other than its encoder and its data."""

import dataclasses
import math
import re
from typing import Any

from bert_jax.config.class_fields import ClassFields
from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.config.group import Group, setting
from bert_jax.config.phases import parse_duration
from bert_jax.files.errors import UserError


def _check_patterns(name: str, patterns: tuple[Any, ...]) -> None:
    try:
        re.compile("|".join(patterns))
    except (re.error, TypeError) as error:
        raise UserError(f"{name}={patterns!r} are no regular expressions: {error}.") from None


def _check_phase_schedules(name: str, entries: tuple[Any, ...]) -> None:
    pairs = [entry for entry in entries if isinstance(entry, tuple) and len(entry) == 2]
    numbers = [number for pair in pairs for number in pair]
    if (
        len(pairs) < len(entries)
        or not all(isinstance(number, int | float) for number in numbers)
        or not all(peak > 0 and 0 <= warmup < 1 for peak, warmup in pairs)
    ):
        raise UserError(bad_phase_schedules(name, entries))


def bad_phase_schedules(name: str, entries: tuple[Any, ...]) -> str:
    """Returns the message about schedules that are malformed or not one for each phase."""
    return (
        f"{name}={entries!r} is not a pair of a learning rate and a fraction below 1 of warm-up for"
        " each of config.phases, such as ((6e-3, 0.28), (4e-3, 0.13)): correct it, or () for one"
        " schedule over the whole run."
    )


def _check_rates(name: str, entries: tuple[Any, ...]) -> None:
    pairs = [entry for entry in entries if isinstance(entry, tuple) and len(entry) == 2]
    if len(pairs) < len(entries) or not all(
        isinstance(pattern, str) and type(factor) in (int, float) and 0 <= factor < math.inf
        for pattern, factor in pairs
    ):
        raise UserError(
            f"{name}={entries!r} are not pairs of a regular expression and a factor of at least 0,"
            ' such as (("embedding", 0.5), ("scale$", 3.0)): correct it, or () for none.'
        )
    _check_patterns(name, tuple(pattern for pattern, _ in pairs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Group):
    """The optimizer and the learning rate."""

    # A row of bert_jax.optim.optimizers.OPTIMIZERS: bert_adam, adamw, gpt_adam, adagrad,
    # adafactor, lamb, muon.
    name: str = setting("bert_adam")
    # Peak of the schedule.
    learning_rate: float = setting(1e-4, minimum=0)
    # A row of bert_jax.optim.schedules.SCHEDULES: bert_linear, linear, trapezoid, constant,
    # cosine, root, gpt_linear, gpt_cosine.
    schedule: str = setting("bert_linear")
    # Duration in which the learning rate rises.
    warmup: str = setting("10000", check=parse_duration)
    # Schedule `trapezoid`: fraction of the run, at its end, in which the rate falls to 0.
    decay_fraction: float = setting(0.5, below=1)
    # The schedule restarts in each phase: (peak, fraction of the phase that is warm-up), ..., in
    # place of `learning_rate` and `warmup`; (): one schedule over the whole run.
    phase_schedules: tuple[tuple[float, float], ...] = setting((), check=_check_phase_schedules)
    # Factor of the parameters in the update (decoupled weight decay).
    weight_decay: float = setting(0.01, minimum=0)
    # Decay rate of the gradient average.
    beta1: float = setting(0.9, minimum=0, below=1)
    # Decay rate of the average squared gradient.
    beta2: float = setting(0.999, below=1)
    # Added to the root of the average squared gradient.
    epsilon: float = setting(1e-6)
    # Adagrad: initial value of the squared-gradient sums.
    initial_accumulator: float = setting(1.0)
    # Maximum global norm of the gradient; 0: no clipping.
    clip_norm: float = setting(1.0, minimum=0)
    # Parameters without weight decay: regular expressions searched in their paths.
    no_decay: tuple[str, ...] = setting(("layer_norm", "bias"), check=_check_patterns)
    # Factor of the learning rate from each layer to the layer below; 1: none.
    layer_decay: float = setting(1.0)
    # Factors of the learning rate, weight decay included: (regular expression searched in a
    # parameter's path, factor), ...; the first that matches decides; 0: not trained.
    rates: tuple[tuple[str, float], ...] = setting((), check=_check_rates)
    # Fraction of the run, at its end, after whose steps the parameters are averaged: evaluations
    # and checkpoints have the mean, which training does not use; 0: none.
    average_fraction: float = setting(0.0, minimum=0, below=1)
    # Freezes the embeddings and this many layers; 0: none.
    frozen_layers: int = setting(0, minimum=0, also=(-1, "all layers"))
    # Top-level name of the encoder's parameters.
    encoder: str = setting("bert", of_run=True)
    # Share of each phase's steps.
    phase_shares: tuple[float, ...] = setting((), of_run=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(Group):
    """The number of devices along each axis of the mesh."""

    # Data parallelism: parameters are replicated.
    data: int = setting(-1, minimum=1, also=(-1, "all remaining devices"), free=True)
    # Data parallelism with sharded parameters and optimizer state.
    fsdp: int = setting(1, minimum=1, also=(-1, "all remaining devices"), free=True)
    # Tensor parallelism: matrices are sharded.
    tensor: int = setting(1, minimum=1, also=(-1, "all remaining devices"), free=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(Group):
    """The logging of training metrics."""

    # Duration between two lines of metrics; "0": none.
    every: str = setting("100", check=parse_duration, free=True)


def _check_part(name: str, part: tuple[Any, ...]) -> None:
    numbers = [end for end in part if type(end) in (int, float)]
    if len(part) != 2 or len(numbers) != 2 or not 0 <= part[0] < part[1] <= 1:
        raise UserError(
            f"{name}={part!r} is not where a part begins and ends, such as (0.0, 0.5) for the first"
            " half."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(Group):
    """The evaluation on held-out data."""

    # Duration between two evaluations; "0": none but the last.
    every: str = setting("10000", check=parse_duration, free=True)
    # Whether the initial parameters are evaluated too, as step 0.
    at_start: bool = setting(False, free=True)
    # Pre-training: batches of the held-out split to evaluate; 0: all. (Of labelled examples all are
    # evaluated.)
    max_batches: int = setting(0, minimum=0, free=True)
    # Pre-training: which part of the held-out batches is evaluated, (begin, end) as fractions.
    # Choose settings on (0.0, 0.5), and report scores on (0.5, 1.0).
    part: tuple[float, float] = setting((0.0, 1.0), check=_check_part, free=True)
    # Sequences of an evaluation batch; 0: the training batch size.
    batch_size: int = setting(0, minimum=0, free=True)
    # Early stopping: evaluations without improvement; 0: train to the end.
    patience: int = setting(0, minimum=0, free=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Group):
    """The checkpoints of a run."""

    # Duration between two checkpoints; "0": none but the last.
    every: str = setting("10000", check=parse_duration, free=True)
    # Number of newest checkpoints to keep.
    keep: int = setting(3, free=True)
    # Number of best checkpoints to keep in addition.
    keep_best: int = setting(1, minimum=0, free=True)
    # Metric of the held-out split that selects the best: the lowest loss, perplexity or bits per
    # character, otherwise the highest value; empty: the first of config.metrics.
    best_metric: str = setting("loss", free=True)
    # Checkpoint for evaluation, prediction and export. With `best`, an evaluation with the best
    # metric so far is saved in addition to `every`.
    use: str = setting("newest", choices=("newest", "best"), free=True)
    # Resume even if configuration or data differ from the checkpoint's.
    allow_changes: bool = setting(False, free=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(Group):
    """The softmax over words of ELMo's pre-training."""

    # Softmax of the training loss: `full`, or `sampled` from a vocabulary that is sorted by
    # frequency. Evaluations use the full softmax.
    softmax: str = setting("sampled", choices=("full", "sampled"))
    # Negative samples per step of the sampled softmax.
    num_samples: int = setting(8192)
    # Whether to sum the loss over the positions of a row, as in bilm-tf, which matters for clipping
    # and Adagrad; otherwise it is the mean over all words.
    sum_over_time: bool = setting(True)


def _check_sizes(name: str, sizes: tuple[Any, ...]) -> None:
    are_numbers = all(type(size) is int and size > 0 for size in sizes)
    if not are_numbers or list(sizes) != sorted(set(sizes)):
        raise UserError(
            f"{name}={sizes!r} are not ascending, positive numbers of dimensions, such as (32, 64)."
        )


_HEADS = ("linear", "bilstm")
_MIXES = ("scalar_mix", "mix_last_4", "mix_with_embeddings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig(ClassFields):
    """The head of a fine-tuned task, and what it reads of the encoder; the defaults are BERT's."""

    # Classification: `single`, `multi` (any number of labels) or `regression`.
    problem_type: str = setting("single", choices=("single", "multi", "regression"))
    # Tagging: whether tags mark entities (O, B-TYPE, I-TYPE, ...) or classify single words.
    entities: bool = setting(True)
    # Tagging: a linear layer or a CRF, on the encoder or on a BiLSTM.
    tagging: str = setting("linear", choices=(*_HEADS, "crf", "bilstm_crf"))
    # Classification: linear, or bilstm, a randomly initialized BiLSTM on top of the encoder (paper,
    # section 5.1).
    classification: str = setting("linear", choices=_HEADS)
    # Question answering: the same.
    span: str = setting("linear", choices=_HEADS)
    # Multiple choice: the same.
    multiple_choice: str = setting("linear", choices=_HEADS)
    # Features of the BiLSTM in each direction.
    lstm_size: int = setting(768)
    # Layers of the BiLSTM.
    lstm_layers: int = setting(2)
    # What the head reads: last, embeddings, second_to_last, sum_last_4, concat_last_4, sum_all
    # (paper, Table 7); with learned weights: scalar_mix (all layers), mix_last_4,
    # mix_with_embeddings (every layer and the embeddings, as ELMo).
    layers: str = setting(
        "last",
        choices=(
            *("last", "embeddings", "second_to_last", "sum_last_4", "concat_last_4", "sum_all"),
            *_MIXES,
        ),
    )
    # Learned weights: whether to normalize each layer first, over all tokens of the batch.
    mix_layer_norm: bool = setting(False)
    # Learned weights: coefficient of their L2 penalty.
    mix_l2: float = setting(0.0, minimum=0)
    # Classification, multiple choice, embeddings: the vector of an example: cls (its first token),
    # last (its last token, for causal models), mean, max (over its tokens).
    pool: str = setting("cls", choices=("cls", "last", "mean", "max"))
    # Classification, multiple choice: whether BERT's pooler (dense, tanh) follows. It reads the
    # last layer: with a BiLSTM, or with other layers, there is none.
    pooler: bool = setting(True)
    # Classification with data.long_texts=windows: the logits of a text are the `mean` or the `max`
    # of those of its windows.
    window_pool: str = setting("mean", choices=("mean", "max"))
    # Dropout rate in the head.
    dropout_rate: float = setting(-1.0, minimum=0, below=1, also=(-1, "model.dropout_rate"))
    # Multiple choice: whether all choices of an example share a dropout mask, as in GPT's released
    # code.
    share_dropout: bool = setting(False)
    # Classification of pairs: whether to encode both orders of a pair and add the two vectors.
    both_orders: bool = setting(False)
    # Causal models: weight of an auxiliary next-token loss.
    lm_weight: float = setting(0.0, minimum=0)
    # Tagging: whether to fill rows with the preceding and following sentences (paper, section 5.3).
    document_context: bool = setting(False)
    # Tagging: what gives a word its tag: its `first` sub-word, the `mean` of the probabilities of
    # its sub-words, or the sub-word with the most probable tag (`max`); in training too.
    subwords: str = setting("first", choices=("first", "mean", "max"))
    # Tagging: a word that several windows of a long sentence show has its tag from the window with
    # most `context`, or from the mean of the probabilities of all (`vote`).
    overlap: str = setting("context", choices=("context", "vote"))
    # Question answering: stride in tokens between the windows of a long text.
    doc_stride: int = setting(128)
    # Question answering: maximum tokens of a question; the rest is cut off.
    max_query_length: int = setting(64)
    # Question answering: maximum tokens of an answer.
    max_answer_length: int = setting(30)
    # Question answering: number of best spans to list.
    n_best: int = setting(20)
    # Question answering: whether "no answer" is an answer (SQuAD 2.0).
    null_answers: bool = setting(False)
    # Question answering: "no answer" is predicted if its score exceeds the best span's by more than
    # this (results.json has the best threshold).
    null_threshold: float = setting(0.0, any_number=True)
    # Embeddings: for pairs in_batch (the other examples of the batch are negatives) or
    # in_batch_symmetric (also from the second text to the first); for scored pairs cosent (the
    # order of the scores) or cosine_mse (squared error of the cosine).
    embedding_loss: str = setting(
        "in_batch", choices=("in_batch", "in_batch_symmetric", "cosent", "cosine_mse")
    )
    # Embeddings: cosines are divided by it, except with cosine_mse.
    temperature: float = setting(0.05)
    # Embeddings: numbers of first dimensions whose losses are added to that of the whole vector
    # (Matryoshka representations, arXiv 2205.13147); (): none.
    matryoshka: tuple[int, ...] = setting((), check=_check_sizes)
    # The head of the run's task: `tagging`, `classification`, `span` or `multiple_choice`.
    head: str = setting("linear", of_run=True)
    # The encoder is not trained and has no dropout: its states are features. Not with a pooler,
    # which belongs to the encoder.
    frozen: bool = setting(False, of_run=True)

    def check(self) -> None:
        super().check()
        for name in ("mix_layer_norm", "mix_l2"):
            if (value := getattr(self, name)) and self.layers not in _MIXES:
                raise UserError(
                    f"{name}={value} has no effect with config.head.layers={self.layers!r}, which"
                    f" has no weights: set {name}={type(value)()}, or config.head.layers to"
                    f" {', '.join(_MIXES)}."
                )
        if self.subwords != "first" and self.tagging.startswith("bilstm"):
            raise UserError(
                f"subwords={self.subwords!r} does not go with config.head.tagging={self.tagging!r},"
                " whose BiLSTM reads the first sub-words: set one of the two to its default."
            )
        if self.overlap == "vote" and self.tagging.endswith("crf"):
            raise UserError(
                f"overlap='vote' does not go with config.head.tagging={self.tagging!r}, which"
                " decodes the tags of a window together: set config.head.overlap=context."
            )

    @property
    def has_bilstm(self) -> bool:
        """Whether there is a BiLSTM on top of the encoder."""
        return self.head.startswith("bilstm")

    @property
    def has_crf(self) -> bool:
        """Whether a tagger scores neighbouring tags."""
        return self.head.endswith("crf")

    @property
    def has_lm_head(self) -> bool:
        """Whether the last hidden states also give the scores of words, for an auxiliary loss."""
        return self.lm_weight > 0

    @property
    def has_pooler(self) -> bool:
        """Whether the pooler is applied: it was made for the last layer, with nothing between."""
        return self.pooler and self.layers == "last" and not self.has_bilstm

    @property
    def reads_whole_rows(self) -> bool:
        """Whether several examples in a row would be mixed."""
        return self.has_bilstm or self.has_crf or self.both_orders

    def rate(self, model: EncoderConfig) -> float:
        """Returns the dropout rate in the head."""
        return model.dropout_rate if self.dropout_rate < 0 else self.dropout_rate
