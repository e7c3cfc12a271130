"""The lines that a run begins with: its preset, phases, data, batches and head."""

from collections.abc import Iterator

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.layers import GIVEN, describe_preset
from bert_jax.config.phases import Phase
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.labelled.batching import BucketedLoader, PackedLoader
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.devices import sharding
from bert_jax.training.feed import padding_share
from bert_jax.training.run import Run


def banner(run: Run) -> Iterator[str]:
    """Yields the lines."""
    yield from describe_preset(run.config)
    if isinstance(run.config, FinetuningConfig):
        yield from _labelled(run, run.config)
    else:
        yield from _corpus(run)
    yield from run.task.describe()
    for layer in ("encoder", GIVEN):
        if names := [name for name, origin in run.config.origins if origin == layer]:
            yield f"{layer:<10} {', '.join(f'{name}={run.config[name]}' for name in names)}"


def _corpus(run: Run) -> Iterator[str]:
    has_masks = run.config.task.FILLS_MASKS
    for phase, rows in zip(run.phases, run.training, strict=True):
        yield _phase(phase, rows.rows_per_epoch, has_masks)
    rows = run.training[0]
    if not isinstance(rows, CorpusRows):
        yield f"data       batches of a function, fingerprint {run.fingerprint[:12]}"
        return
    content = rows.manifest.content
    form = content["formats"][str(rows.sequence_length)]
    if rows.replay:
        yield (
            f"replay     {rows.replay.batch_size} of {rows.batch_size} rows of a batch are of"
            f" {rows.replay.manifest.content['settings']['source']}"
        )
    yield (
        f"data       {content['settings']['source']} in {rows.manifest.folder},"
        f" fingerprint {rows.fingerprint[:12]}, {form['vocab_size']:,} tokens in the vocabulary"
    )


def _phase(phase: Phase, num_rows: int, has_masks: bool) -> str:
    steps = phase.last_step - phase.first_step
    predictions = f", {phase.max_predictions_per_seq} predictions per sequence" if has_masks else ""
    predictions = f", {phase.task}" if phase.task else predictions
    return (
        f"phase      steps {phase.first_step}-{phase.last_step}: {phase.batch_size} x"
        f" {phase.sequence_length} tokens per step{predictions}; {num_rows:,} sequences,"
        f" {steps * phase.batch_size / num_rows:.1f} epochs"
    )


def _labelled(run: Run, config: FinetuningConfig) -> Iterator[str]:
    training, evaluation = run.training, run.evaluation[0]
    for rows in (*training, *evaluation):
        assert isinstance(rows, LabelledRows)
        yield describe_rows(rows)
        if "numbered_words" in rows.counts:
            yield "           --config.task.strip_numbers=true removes the numbers of the words"
    if run.task.labels:
        yield f"labels     {', '.join(run.task.labels)}"
    assert isinstance(evaluation[0], LabelledRows)
    loader = training[0].loader if training and isinstance(training[0], LabelledRows) else None
    yield _batches(config, loader, evaluation[0].pad_lengths)


def describe_rows(rows: LabelledRows) -> str:
    """Returns a line about a file: its examples and rows, what was repaired or cut off."""
    numbers = [f"{len(rows.examples):,} examples, {rows.rows.num_rows:,} rows"]
    if rows.sampler:
        numbers += [f"{len(rows.sampler.lengths):,} of them in each epoch"]
    numbers += [f"{count:,} {name.replace('_', ' ')}" for name, count in rows.counts.items()]
    return f"{rows.name:<10} {rows.source}: {', '.join(numbers)}; SHA-256 {rows.fingerprint[:12]}"


def _batches(
    config: FinetuningConfig,
    loader: BucketedLoader | PackedLoader | None,
    pad_lengths: tuple[int, ...],
) -> str:
    size = config.global_batch_size
    lengths = loader.lengths if isinstance(loader, BucketedLoader) else pad_lengths
    named = ", ".join(map(str, lengths))
    if isinstance(loader, PackedLoader):
        return (
            f"batches    {loader.rows} rows of {pad_lengths[-1]} tokens with about {size} examples,"
            f" {loader.fill:.1%} filled; evaluation: {named} tokens"
        )
    rows = f"{size} rows"
    if config.data.batch_by == "tokens":
        rows = f"the tokens of {rows} of mean length"
    return f"batches    {rows}, padded to {named} tokens: one compilation each"


def describe_padding(run: Run) -> Iterator[str]:
    """Yields a line if batches have padding rows that the devices and microbatches need."""
    if share := padding_share(run):
        size, shards = run.config.microbatch_size, sharding.batch_shards(run.mesh)
        parts = f"microbatches of at most {size} rows" if size else "the rows of a step"
        yield f"padding    {share:.1%} of all rows: {shards} devices share {parts} evenly"
