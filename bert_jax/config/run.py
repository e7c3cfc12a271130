"""The configuration of a run: all fields, their defaults and what they must be.

`configs/*.py` and the command line work with an editable copy, a `ConfigDict` (`to_config_dict`);
`store.parse` makes a `RunConfig` of it, once, and everything below reads that.

A duration (`warmup`, `*.every`) is a string: "10000" or "10000 steps", "2 epochs", "1e6 examples",
"3e9 tokens", "1e6 words", or "1%" of the run. "0" is never, or no warm-up. The words of a step
(between white space) are a mean: the rows of its batch times the words per row of an epoch.
"""

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_jax.config.data import DataConfig, LabelledConfig
from bert_jax.config.encoder_fields import DTYPES, PRNG_IMPLS, EncoderConfig
from bert_jax.config.encoders import BertConfig
from bert_jax.config.group import Group, derived, flatten, named, rules, setting, unflatten
from bert_jax.config.groups import (
    CheckpointConfig,
    DistillationConfig,
    EvalConfig,
    LogConfig,
    MeshConfig,
    OptimizerConfig,
    bad_phase_schedules,
)
from bert_jax.config.phases import (
    LENGTHS,
    Phase,
    check_phases,
    max_masks,
    parse_steps,
    phase_bounds,
    round_up,
    split_entry,
    split_into_stages,
)
from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError

if TYPE_CHECKING:
    from ml_collections import ConfigDict

# What evaluations of BERT's pre-training measure.
PRETRAINING_METRICS = (
    "masked_lm_loss",
    "masked_lm_accuracy",
    "masked_lm_bits_per_character",
    "next_sentence_loss",
    "next_sentence_accuracy",
)


def _check_layers(name: str, layers: tuple[Any, ...]) -> None:
    if not all(type(layer) is int and layer > 0 for layer in layers):
        raise UserError(f"{name}={layers!r} are not layer numbers, such as (1, 3, 6).")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskConfig(Group):
    """What a run trains: `config.task`. The base class of `bert_jax.tasks.task.Task`."""

    # What is trained: a name in bert_jax.tasks.TASKS.
    name: str = setting("")
    # `config.metrics`: see there.
    metrics: tuple[str, ...] = derived(())

    # The class of the run's configuration.
    RUN: ClassVar[type["RunConfig"]]

    def replaced(self, values: Mapping[str, Any]) -> Self:
        if (name := values.get("name", self.name)) != self.name:
            raise UserError(
                f"name={name!r} is another task than {self.name!r}: begin with the configuration of"
                " that one."
            )
        return super().replaced(values)

    @property
    def known_metrics(self) -> Collection[str]:
        """Names that `config.metrics` may have; (): they are checked when they are measured."""
        return ()

    def for_run(self, config: "RunConfig") -> Self:
        """Returns the task with what other fields of a run determine.

        Raises:
          UserError: the task cannot have these fields.
        """
        known = self.known_metrics
        if known and (wrong := [name for name in config.metrics if name not in known]):
            raise UserError(
                f"metrics: {wrong[0]!r} is none of {', '.join(known)}, the metrics for config.task"
                " as it is set."
            )
        return dataclasses.replace(self, metrics=config.metrics)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(Group):
    """The fields of every run, with those of BERT-Base (Devlin et al. 2019, 3.1, appendix A.2)."""

    # Sets all fields in which the well-known BERTs differ: paper, google_2018, google_2019, hf,
    # roberta (a row of bert_jax.config.layers.PRESETS); empty: the fields below as they are. (A
    # preset is only a name; the fields that it sets are compared when a run is resumed.)
    preset: str = setting("", free=True)
    # Modules that are imported first, such as ("my_tasks",): they add tasks to TASKS, or encoders
    # to bert_jax.models.MODELS.
    imports: tuple[str, ...] = setting((), free=True)
    # Source of initial parameters, model sizes and vocabulary: a workdir, or a folder of Hugging
    # Face or google-research/bert; empty: random initial parameters.
    init_from: str = setting("", is_path=True)
    # Where `model.max_position_embeddings` is above the learned positions of `init_from`: the new
    # rows repeat the table (`tile`; Beltagy et al. 2020, arXiv 2004.05150), or the table is
    # stretched over all rows (`interpolate`, linear); empty: refused. Other positions need nothing.
    extend_positions: str = setting("", choices=("", "tile", "interpolate"))
    # Layers of `init_from`, from 1, that those of a smaller model start from: (1, 3, 6); (): all.
    init_layers: tuple[int, ...] = setting((), check=_check_layers)
    # Seed of initial parameters, order of the data, masks and dropout.
    seed: int = setting(0, minimum=0)
    # Length of training in steps (updates of the parameters).
    steps: int = setting(1_000_000)
    # Length of training in other units; the one that is not 0 replaces `steps`.
    epochs: float = setting(0.0, minimum=0)
    # The same in examples: sequences of the training data.
    examples: int = setting(0, minimum=0)
    # The same in tokens, padding included.
    tokens: int = setting(0, minimum=0)
    # Sequences per step, over all devices and processes.
    global_batch_size: int = setting(256)
    # Maximum number of sequences per forward and backward pass, over all devices, each of which
    # gets at least one; 0: the whole batch. Less takes less memory; results are equal up to
    # rounding.
    microbatch_size: int = setting(0, minimum=0, free=True)
    # Dtype of activations and matrix products: float32, bfloat16; bfloat16_products: float32, but
    # operands of dense layers are rounded, which is fastest on CPUs with AMX and on AMD's with
    # AVX512-BF16. Parameters and optimizer state are always float32.
    dtype: str = setting("float32", choices=DTYPES)
    # Random bit generator of dropout: one of jax, or mulxor, a hash of positions: masks do not go
    # through the memory of a GPU then.
    prng_impl: str = setting("threefry4x32", choices=PRNG_IMPLS)
    # After a non-finite loss or gradient, which is never applied: `abort` the run, or `skip` the
    # step, which the learning-rate schedule then does not count.
    nonfinite: str = setting("abort", choices=("abort", "skip"))
    # With `skip`: abort after this many non-finite steps in a row.
    nonfinite_limit: int = setting(5, minimum=0)
    # Steps of a training run, from 1, of which jax.profiler writes a trace into the folder profile
    # of the workdir: "10:15" are the six from the 10th to the 15th; empty: none.
    profile: str = setting("", check=parse_steps, free=True)

    # A class of bert_jax.tasks, with the fields of that task.
    task: Any = TaskConfig()
    model: EncoderConfig = BertConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    log: LogConfig = LogConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    distillation: DistillationConfig = DistillationConfig()
    data: DataConfig | LabelledConfig = DataConfig()
    # What evaluations report; (): everything that the task measures.
    metrics: tuple[str, ...] = setting(())
    # (field, name of the layer that its value is from), see `config.layers`; (): unknown.
    origins: tuple[tuple[str, str], ...] = derived((), compare=False, repr=False)

    has_corpus: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        self._complete("model", dtype=self.dtype, prng_impl=self.prng_impl)
        shares = tuple(float(entry[1]) for entry in self.phase_entries)
        self._complete("optimizer", encoder=self.model.name, phase_shares=shares)
        self.complete_data()
        self.check_run()
        object.__setattr__(self, "task", self.task.for_run(self))

    def complete_data(self) -> None:
        """Sets the fields of `data` that other groups determine."""

    def _complete(self, name: str, **values: Any) -> None:
        """Sets the fields of a group that other groups determine."""
        with named(f"{name}."):
            group = dataclasses.replace(getattr(self, name), **values)
        object.__setattr__(self, name, group)

    @property
    def phase_entries(self) -> tuple[tuple[Any, ...], ...]:
        """(sequence length, fraction of the steps[, batch size[, predictions]][, task]) of each
        phase."""
        raise NotImplementedError

    @property
    def known_metrics(self) -> tuple[str, ...]:
        """Names that `checkpoint.best_metric` may have, in addition to `loss`."""
        return self.metrics or PRETRAINING_METRICS

    @property
    def best_metric(self) -> str:
        """Metric that selects the best checkpoint."""
        return self.checkpoint.best_metric or next(iter(self.metrics), "loss")

    def num_predictions(self, sequence_length: int) -> int:
        """Returns the maximum masked positions of a sequence; 0 without masked-LM training."""
        return 0

    def make_phases(self, steps: int) -> tuple[Phase, ...]:
        """Returns the phases of a run with `steps` steps, in order and without gaps."""
        bounds = phase_bounds([entry[1] for entry in self.phase_entries], steps)
        phases = []
        for entry, (first, last) in zip(self.phase_entries, bounds, strict=True):
            (length, share, *rest), task = split_entry(entry)
            batch_size, predictions = (*rest, *(0, 0)[len(rest) :])
            phases.append(
                Phase(
                    sequence_length=length,
                    batch_size=batch_size or self.global_batch_size,
                    max_predictions_per_seq=predictions or self.num_predictions(length),
                    share=share,
                    first_step=first,
                    last_step=last,
                    data_step=first,
                    task=task,
                )
            )
        return tuple(phases)

    def num_microbatches(self, batch_size: int) -> int:
        """Returns the number of microbatches of a batch, before they are shared by devices."""
        return -(-batch_size // (self.microbatch_size or batch_size))

    def total_steps(self, rows: tuple[int, ...]) -> int:
        """Returns the steps of the whole run, for the training rows of an epoch of each phase."""
        phases = self.make_phases(0)
        if self.epochs:
            pairs = zip(phases, rows, strict=True)
            return round_up(self.epochs / sum(p.share * p.batch_size / n for p, n in pairs))
        if self.examples:
            return round_up(self.examples / sum(p.share * p.batch_size for p in phases))
        if self.tokens:
            tokens = sum(p.share * p.batch_size * p.sequence_length for p in phases)
            return round_up(self.tokens / tokens)
        return self.steps

    def check_run(self) -> None:
        """Raises UserError for values of several groups that do not fit together."""
        given = [name for name in LENGTHS[1:] if getattr(self, name)]
        if len(given) > 1:
            raise UserError(
                f"{given[0]} and config.{' and config.'.join(given[1:])} both give the length of"
                " training: set one of them."
            )
        attention = getattr(self.model, "attention", "")
        if attention == "cudnn" and self.dtype != "bfloat16":
            raise UserError(
                f"model.attention='cudnn' needs config.dtype='bfloat16', not {self.dtype!r}: change"
                " one of the two."
            )
        schedules = self.optimizer.phase_schedules
        if len(schedules) not in (0, len(self.phase_entries)):
            raise UserError(bad_phase_schedules("optimizer.phase_schedules", schedules))
        if self.model.has_directions:
            self._check_unnumbered_layers()
        if self.distillation.teacher and self.has_corpus and self.model.has_copy_head:
            raise UserError(
                "model.copy_head=True mixes a softmax with copies, which have no logits to compare:"
                " set config.model.copy_head=False, or leave out config.distillation.teacher."
            )
        for phase in self.make_phases(0):
            if phase.sequence_length > self.model.max_position_embeddings:
                name = "phases" if self.has_corpus else "max_length"
                raise UserError(
                    f"{name} has a sequence length of {phase.sequence_length}, above"
                    f" config.model.max_position_embeddings={self.model.max_position_embeddings}."
                )
        best, known = self.best_metric, ("loss", *self.known_metrics)
        if best not in known:
            raise UserError(f"checkpoint.best_metric={best!r} must be one of {', '.join(known)}.")

    def _check_unnumbered_layers(self) -> None:
        """Raises UserError for settings that choose ELMo's layers by number, or Muon."""
        optimizer = self.optimizer
        for name, value, default in (
            ("optimizer.layer_decay", optimizer.layer_decay, 1.0),
            ("optimizer.frozen_layers", max(optimizer.frozen_layers, 0), 0),
            ("reinit_layers", self.get("reinit_layers", 0), 0),
        ):
            if value != default:
                raise UserError(
                    f"{name}={value} is for Transformers: the layers of ELMo have no such numbers;"
                    f" set config.{name}={default}."
                )
        if optimizer.name == "muon":
            raise UserError(
                "optimizer.name='muon' is for Transformers: set config.optimizer.name=adamw for"
                " ELMo, or another one."
            )

    def fields(self) -> dict[str, Any]:
        """Returns the value of each field by dotted name, in alphabetical order."""
        return dict(sorted(flatten(self.to_dict())))

    def marked(self, mark: str) -> set[str]:
        """Returns the dotted names of the fields whose `Rule` has a mark: "free" or "is_path"."""
        found = {name for name, rule in rules(type(self)).items() if getattr(rule, mark)}
        for name, group in self.groups():
            own = rules(type(group)).items()
            found |= {f"{name}.{field}" for field, rule in own if getattr(rule, mark)}
        return found

    def __getitem__(self, name: str) -> Any:
        """Returns the value of a field by its dotted name."""
        value: Any = self
        for part in name.split("."):
            value = getattr(value, part)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of a field by its dotted name; the default if there is none."""
        try:
            return self[name]
        except AttributeError:
            return default

    def groups(self) -> Iterator[tuple[str, Group]]:
        """Yields (name, group) of each group of fields."""
        for item in dataclasses.fields(self):
            if isinstance(group := getattr(self, item.name), Group):
                yield item.name, group

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as nested dictionaries: what config.json holds and
        `store.parse` takes."""
        return super().to_dict() | {name: group.to_dict() for name, group in self.groups()}

    def to_config_dict(self) -> "ConfigDict":
        """Returns an editable copy, for experiments and command lines."""
        from bert_jax.config.editing import Editable  # takes time, and only editors need it

        return Editable(self.to_dict())

    def replace(self, values: Mapping[str, Any], model: EncoderConfig | None = None) -> Self:
        """Returns a copy with other values of some fields, given by dotted name.

        Args:
          values: new values by dotted name.
          model: another model; None: the same.

        Raises:
          UserError: a field does not exist, or values that no run can use.
        """
        changes = unflatten(values)
        for name, group in self.groups():
            group = model if model and name == "model" else group
            with named(f"config.{name}."):
                changes[name] = group.replaced(changes.get(name, {}))
        with named("config."):
            return self.replaced(changes)

    def data_dir(self, workdir: str) -> str:
        """Returns the folder of the run's vocabulary and shards; of a bucket, the working copy."""
        return local(self.get("data.dir") or os.path.join(workdir, "data"))

    def reinitialized_pattern(self) -> str:
        """Returns a regular expression for the paths of the parameters not taken from `init_from`.

        Empty if all are taken.
        """
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(RunConfig):
    """Training on a corpus of text."""

    # In order: (sequence length, fraction of the steps[, global batch size[, predictions per
    # sequence]][, task]); without the third and fourth, global_batch_size and
    # data.max_predictions_per_seq apply (paper, appendix A.2). A phase of 'causal_lm' trains a
    # masked language model on next tokens; evaluations are those of the run's task.
    phases: tuple[tuple[float | str, ...], ...] = setting(
        ((128, 0.9), (512, 0.1)), check=check_phases
    )
    # Share of the steps, evenly spaced, in which a masked language model is trained on next tokens,
    # with causal attention (1/16 in GPT-BERT: Charpentier & Samuel 2024; with model.predicts_next).
    causal_share: float = setting(0.0, minimum=0, below=1, added_later=True)
    # Initial token embeddings: `random`, or `spectral`, a truncated singular value decomposition of
    # the positive pointwise mutual information of adjacent tokens (bert_jax/data/spectral.py).
    init_embeddings: str = setting("random", choices=("random", "spectral"), added_later=True)
    data: DataConfig = DataConfig()

    def complete_data(self) -> None:
        phases = sorted(self.make_phases(0), key=lambda phase: phase.sequence_length)
        predictions = {phase.sequence_length: phase.max_predictions_per_seq for phase in phases}
        self._complete(
            "data",
            vocab_size=self.model.vocab_size,
            sequence_lengths=tuple(predictions),
            num_predictions=tuple(predictions.values()),
        )

    @property
    def phase_entries(self) -> tuple[tuple[Any, ...], ...]:
        return self.phases

    def make_phases(self, steps: int) -> tuple[Phase, ...]:
        phases, data = super().make_phases(steps), self.data
        if data.mask_stages == 1:
            return phases
        return split_into_stages(phases, data.stage_rates(), data.mask_rounding, steps)

    def num_predictions(self, sequence_length: int) -> int:
        data = self.data
        return data.max_predictions_per_seq or max_masks(
            sequence_length, data.masked_lm_prob, data.mask_rounding, data.max_examples_per_row
        )

    def check_run(self) -> None:
        super().check_run()
        if self.model.next_sentence and self.data.segments != "pairs":
            raise UserError(
                "model.next_sentence=True needs config.data.segments='pairs', not"
                f" {self.data.segments!r}, which has no second segment: change one of the two."
            )
        best = self.best_metric
        if not self.model.next_sentence and best.startswith("next_sentence"):
            raise UserError(
                f"checkpoint.best_metric={best!r} is not measured with"
                " config.model.next_sentence=False."
            )
        if self.data.mask_rounding == "row" and any(
            split_entry(entry)[0][3:] for entry in self.phases
        ):
            raise UserError(
                f"phases={self.phases!r} has numbers of predictions, which"
                " config.data.mask_rounding='row' takes from config.data.masked_lm_prob: leave"
                " them out."
            )
        self._check_static_predictions()
        if self.init_embeddings == "spectral":
            self._check_spectral()

    def _check_spectral(self) -> None:
        if self.init_from:
            raise UserError(
                "init_embeddings='spectral' initializes a new model, and config.init_from has"
                " embeddings: leave one of them out."
            )
        if self.data.mode == "static":
            raise UserError(
                "init_embeddings='spectral' needs unmasked text, and config.data.mode='static'"
                " stores masked tokens: set config.data.mode='dynamic'."
            )
        if self.data.segments == "stream":
            raise UserError(
                "init_embeddings='spectral' is for encoders with token embeddings, not for the"
                " characters of config.data.segments='stream': set config.init_embeddings='random'."
            )

    def _check_static_predictions(self) -> None:
        found: dict[int, int] = {}
        for phase in self.make_phases(0):
            length, count = phase.sequence_length, phase.max_predictions_per_seq
            if found.setdefault(length, count) != count and self.data.mode == "static":
                raise UserError(
                    f"phases has sequences of {length} tokens with {found[length]} and with"
                    f" {count} predictions, but static data is prepared once for each length: use"
                    " the same number, or config.data.mode=dynamic."
                )
