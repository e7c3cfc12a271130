"""A run without data or devices of its own: shapes, shardings and programs, but no arrays.

A corpus is not read: the shapes of its batches follow from the configuration, and of a vocabulary
that does not exist yet they need the size only. Labelled files are read, since the lengths of their
batches are chosen by them; the longest length is taken.
"""

import dataclasses
import math
import tempfile
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.config.phases import Phase
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.shards import make_form
from bert_jax.devices import sharding
from bert_jax.devices.memory import bytes_of
from bert_jax.models import reads_new_words
from bert_jax.optim.make import check_names, make_optimizer
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import Vocabulary, load_tokenizer
from bert_jax.text.vocabulary import check_vocabulary
from bert_jax.text.word_tokenizer import WORD_SPECIALS
from bert_jax.training.carry import zero_carry
from bert_jax.training.evaluate import evaluation_batch_size, jitted_eval_step
from bert_jax.training.feed import host_batch, shapes
from bert_jax.training.open import open_run
from bert_jax.training.run import Run, flops_per_token, make_run_task
from bert_jax.training.state import abstract_params, abstract_state
from bert_jax.training.step import make_train_step
from bert_jax.training.teacher import open_teacher

_PIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Steps of a run that knows its length only with its data (`knows_steps`). They are constants of the
# programs, whose sizes do not depend on them.
_STEPS, _WARMUP = 100_000, 1_000

# Name of an array of a batch -> its shape, dtype and sharding.
AbstractBatch = dict[str, jax.ShapeDtypeStruct]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that is not compiled yet.

    Attributes:
      name: "step", "gradient" (of a step in two programs) or "evaluation".
      phase: phase of the run.
      rows, length: of its batch, over all devices.
      microbatches: number of microbatches of a step.
      flops: FLOP of the model's matrix products, over all devices; 0: none.
      sizes: bytes on each device of what it reads, by name.
      function: jitted.
      arguments: arguments of `function`, shapes with their shardings.
    """

    name: str
    phase: Phase
    rows: int
    length: int
    microbatches: int
    flops: float
    sizes: dict[str, int]
    function: Any
    arguments: tuple[Any, ...]


def plan(config: RunConfig, mesh: Mesh) -> Run:
    """Returns the run of a configuration on a mesh, without rows if it has a corpus.

    Raises:
      UserError: for settings, a vocabulary or labelled files that cannot be used.
    """
    check_names(config.optimizer)
    task = make_run_task(config)
    if not config.has_corpus:
        with tempfile.TemporaryDirectory(prefix="bert_jax_compile_") as folder:
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


def knows_steps(run: Run) -> bool:
    """Returns whether the number of steps is that of the run: epochs of a corpus need its data."""
    return bool(run.training) or not run.config.epochs


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


def programs(run: Run, microbatch: int = 0) -> list[Program]:
    """Returns the programs of each phase, in the order in which a run compiles them.

    Args:
      run: result of `plan`.
      microbatch: rows per microbatch, instead of the configuration's.
    """
    if microbatch:
        config = run.config.replace({"microbatch_size": microbatch})
        run = dataclasses.replace(run, config=config)
    found = []
    for phase in run.phases:
        if phase.share:
            found += [*_steps(run, phase), _evaluation(run, phase)]
    return found


def _steps(run: Run, phase: Phase) -> list[Program]:
    batch = _training_batch(run, phase)
    rows, *choices, length = batch["input_ids"].shape
    step = make_train_step(run, phase, warmup_steps=_WARMUP)
    tx, _ = make_optimizer(run.config.optimizer, run.steps, _WARMUP)
    state = abstract_state(run.task_at(phase), tx, run.mesh, phase.batch_size)
    keys = {purpose: _abstract_key(run, purpose) for purpose in ("dropout", "masking")}
    sizes = {
        "parameters": bytes_of(state.params),
        "optimizer": bytes_of(state.opt_state),
        "batch": bytes_of(batch),
    }
    if constants := run.abstract_constants:
        sizes["teacher"] = bytes_of(constants)
    tokens = math.prod([rows, *choices, length])
    flops = flops_per_token(run.task_at(phase), length) * tokens
    most = run.config.num_microbatches(phase.batch_size)
    parts, _ = sharding.even_parts(run.mesh, rows, most)
    (first, arguments), *second = step.programs(state, batch, keys, constants)
    name = "gradient" if second else "step"
    found = [Program(name, phase, rows, length, parts, flops, sizes, first, arguments)]
    for program, arguments in second:
        found.append(Program("step", phase, rows, length, 1, 0, sizes, program, arguments))
    return found


def _evaluation(run: Run, phase: Phase) -> Program:
    task = run.task_at(phase, evaluate=True)
    size = evaluation_batch_size(run.config, phase)
    most = run.config.num_microbatches(size)
    parts, of_part = sharding.even_parts(run.mesh, size, most)
    rows = parts * of_part
    batch = _with_rows(_training_batch(run, phase), rows)
    params = abstract_params(run.task_at(phase), run.mesh)
    carry = jax.eval_shape(lambda: zero_carry(task, rows))
    carry = sharding.abstract(carry, sharding.batch_sharding(run.mesh))
    key, number = _abstract_key(run, "eval_masking"), np.int32(0)
    step = jitted_eval_step(task, run.mesh, most)
    length, tokens = batch["input_ids"].shape[-1], math.prod(batch["input_ids"].shape)
    flops = flops_per_token(task, length) * tokens / 3  # without the backward pass
    sizes = {"parameters": bytes_of(params), "batch": bytes_of(batch)}
    arguments = params, batch, key, number, carry
    return Program("evaluation", phase, rows, length, parts, flops, sizes, step, arguments)


def _training_batch(run: Run, phase: Phase) -> AbstractBatch:
    if run.training:
        longest = shapes(run, phase)[-1]
        batch = host_batch(run, phase, phase.first_step + longest.number)
        return _abstract(run, run.add_fields(batch))
    assert isinstance(run.config, PretrainingConfig)
    form = make_form(run.config.data, run.tokenizer, phase.sequence_length)
    batch = run.add_fields(form.make_batch([form.padding]))
    return _with_rows(_abstract(run, batch), run.padded_rows(phase, phase.batch_size))


def _abstract(run: Run, batch: Any) -> AbstractBatch:
    return sharding.abstract(dict(batch), sharding.batch_sharding(run.mesh))


def _with_rows(batch: AbstractBatch, rows: int) -> AbstractBatch:
    return {
        name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=x.sharding)
        for name, x in batch.items()
    }


def _abstract_key(run: Run, purpose: str) -> jax.ShapeDtypeStruct:
    key = jax.eval_shape(lambda: run.key(purpose))
    return sharding.abstract(key, sharding.replicated(run.mesh))
