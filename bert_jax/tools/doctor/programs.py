"""The programs of a run, as functions of shapes with shardings: nothing is compiled here.

`plan` makes a run without data: a corpus is not read, since the shapes of its batches follow from
the configuration, and if the vocabulary does not exist yet, only its size is needed. Labelled
files are read, since the lengths of their batches are chosen by them.
"""

import dataclasses
import functools
import math
import tempfile
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.batch import Batch
from bert_jax.data.corpus.shards import make_form
from bert_jax.devices import sharding
from bert_jax.devices.memory import bytes_of
from bert_jax.models import reads_new_words
from bert_jax.optim.make import check_names, make_optimizer
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import Vocabulary, load_tokenizer
from bert_jax.text.vocabulary import check_vocabulary
from bert_jax.text.word_tokenizer import WORD_SPECIALS
from bert_jax.training.evaluate import evaluation_batch_size, jitted_eval_step
from bert_jax.training.feed import host_batch, shapes
from bert_jax.training.open import open_run
from bert_jax.training.run import Run, flops_per_token
from bert_jax.training.state import abstract_params, abstract_state
from bert_jax.training.step import make_train_step
from bert_jax.training.teacher import open_teacher

_PIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Steps of a run whose epochs convert to steps only with its data. They are constants of its
# programs, whose sizes do not depend on them.
_STEPS, _WARMUP = 100_000, 1_000

# Name of an array of a batch -> its shape, dtype and sharding.
AbstractBatch = dict[str, jax.ShapeDtypeStruct]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that is not compiled yet."""

    name: str  # "step", "gradient" (of a step in two programs), "step on next tokens", "evaluation"
    phase: Phase
    rows: int  # of its batch, over all devices
    length: int
    microbatches: int  # of a step
    flops: float  # of the model's matrix products, over all devices; 0: none
    sizes: dict[str, int]  # bytes on each device of what it reads, by name
    function: Any  # jitted
    arguments: tuple[Any, ...]  # of `function`: shapes with their shardings


def plan(config: RunConfig, mesh: Mesh) -> Run:
    """Returns the run of a configuration on a mesh, without rows if it has a corpus.

    Raises:
      UserError: for settings, a vocabulary or labelled files that cannot be used.
    """
    check_names(config.optimizer)
    task = config.task
    if not config.has_corpus:
        with tempfile.TemporaryDirectory(prefix="bert_jax_doctor_") as folder:
            return open_run(config, folder, mesh=mesh)
    model = config.model
    tokenizer = _tokenizer(config, reads_new_words(model))
    run = Run(
        config=config,
        workdir="",
        mesh=mesh,
        tokenizer=tokenizer,
        vocabulary_path="",
        phases=config.make_phases(_STEPS if config.epochs else config.total_steps(())),
        task=task,
        training=(),
        evaluation=(),
        fingerprint="",
    )
    if config.distillation.teacher:
        run = dataclasses.replace(run, teacher=open_teacher(run))
    _ = run.add_fields  # the encoder may refuse the tokenizer
    run.task_at(run.phases[0])  # and the task
    return run


def _tokenizer(config: RunConfig, of_words: bool) -> Tokenizer:
    """Returns the tokenizer of a vocabulary file, or one with as many pieces as will be trained."""
    path, size = config.data.vocab, config.model.vocab_size
    if not path.startswith("train:"):
        tokenizer = load_tokenizer(path, config.data.lowercase, of_words)
        check_vocabulary(tokenizer, size, path)
        return tokenizer
    specials = WORD_SPECIALS if path == "train:words" else _PIECE_SPECIALS
    pieces = (*specials, *(f"w{number}" for number in range(size - len(specials))))
    content = "".join(f"{piece}\n" for piece in pieces).encode()
    vocabulary = Vocabulary(path, "vocab.txt", ".txt", content)
    return vocabulary.tokenizer(config.data.lowercase, of_words)


def programs(run: Run) -> list[Program]:
    """Returns the programs of each phase's longest batches, in the order of their compilation."""
    found = []
    for phase in run.phases:
        if phase.share:
            batch = _longest_batch(run, phase)
            for kind in run.kinds_of_steps(phase):
                found += step_programs(run, kind, batch)
            found.append(evaluation_program(run, phase, batch))
    return found


def step_programs(
    run: Run,
    phase: Phase,
    batch: AbstractBatch,
    *,
    batch_size: int = 0,
    warmup_steps: int = _WARMUP,
) -> list[Program]:
    """Returns the programs of a training step: those that training compiles.

    Args:
      run: the run.
      phase: one of its phases, or of its `kinds_of_steps`.
      batch: a batch with its rows of padding.
      batch_size: rows without them; 0: those of the phase.
      warmup_steps: steps of the warmup.
    """
    rows, *choices, length = batch["input_ids"].shape
    task, size = run.task_at(phase), batch_size or phase.batch_size
    step = make_train_step(run, phase, batch_size=size, warmup_steps=warmup_steps)
    tx, _ = make_optimizer(run.config.optimizer, run.steps, warmup_steps)
    state = abstract_state(task, tx, run.mesh, size)
    keys = {purpose: _abstract_key(run, purpose) for purpose in ("dropout", "masking")}
    sizes = {
        "parameters": bytes_of(state.params),
        "optimizer": bytes_of(state.opt_state),
        "batch": bytes_of(batch),
    }
    if constants := run.abstract_constants:
        sizes["teacher"] = bytes_of(constants)
    flops = flops_per_token(task, length) * math.prod([rows, *choices, length])
    parts, _ = sharding.even_parts(run.mesh, rows, run.config.num_microbatches(size))
    (first, arguments), *second = step.programs(state, batch, keys, constants)
    of_kind = "" if phase in run.phases else " on next tokens"
    name = f"{'gradient' if second else 'step'}{of_kind}"
    found = [Program(name, phase, rows, length, parts, flops, sizes, first, arguments)]
    for program, arguments in second:
        found.append(
            Program(f"step{of_kind}", phase, rows, length, 1, 0, sizes, program, arguments)
        )
    return found


def evaluation_program(run: Run, phase: Phase, batch: AbstractBatch) -> Program:
    """Returns the program of an evaluation; `batch` may have another number of rows."""
    task = run.task_at(phase, evaluate=True)
    size = evaluation_batch_size(run.config, phase)
    most = run.config.num_microbatches(size)
    parts, of_part = sharding.even_parts(run.mesh, size, most)
    rows = parts * of_part
    batch = with_rows(batch, rows)
    params = abstract_params(run.task_at(phase), run.mesh)
    carry = jax.eval_shape(lambda: task.init_carry(rows))
    carry = sharding.abstract(carry, sharding.batch_sharding(run.mesh))
    step = jitted_eval_step(task, run.mesh, most)
    length, tokens = batch["input_ids"].shape[-1], math.prod(batch["input_ids"].shape)
    flops = flops_per_token(task, length) * tokens / 3  # without the backward pass
    sizes = {"parameters": bytes_of(params), "batch": bytes_of(batch)}
    arguments = params, batch, _abstract_key(run, "eval_masking"), 0, carry
    return Program("evaluation", phase, rows, length, parts, flops, sizes, step, arguments)


def _longest_batch(run: Run, phase: Phase) -> AbstractBatch:
    if run.training:
        longest = shapes(run, phase)[-1]
        return abstract_batch(run, host_batch(run, phase, phase.first_step + longest.number))
    assert isinstance(run.config, PretrainingConfig)
    form = make_form(run.config.data, run.tokenizer, phase.sequence_length)
    batch = abstract_batch(run, form.make_batch([form.padding]))
    return with_rows(batch, run.padded_rows(phase, phase.batch_size))


def abstract_batch(run: Run, batch: Batch) -> AbstractBatch:
    """Returns the shapes of a batch, with what only the run's encoder reads."""
    batch_sharding = sharding.batch_sharding(run.mesh)
    return sharding.abstract(dict(run.add_fields(batch)), batch_sharding)


def with_rows(batch: AbstractBatch, rows: int) -> AbstractBatch:
    """Returns the batch with another number of rows."""
    return {
        name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=x.sharding)
        for name, x in batch.items()
    }


def _abstract_key(run: Run, purpose: str) -> jax.ShapeDtypeStruct:
    return jax.eval_shape(functools.partial(run.key, purpose))
