"""A trial: the run of a configuration, opened on the data that it has, or on a sample of them.

Labelled files are read as training reads them, all of them. Of a corpus that is prepared already,
the manifest and the shards are opened; of one that is not, a sample is prepared in a temporary
folder (`sample.py`). The folders of the run and of its data are not changed.
"""

import dataclasses
import os
import time

from bert_jax.config.phases import Phase, duration_steps
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.manifest import NAME as MANIFEST
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.request import find_prepared
from bert_jax.tools.doctor import sample
from bert_jax.tools.doctor.sample import Sample
from bert_jax.training.open import TRAIN, VALIDATION, open_run
from bert_jax.training.run import Run

# ArrayRecord pads files to blocks of 64 KiB; one with few rows has about this much padding.
_FILE_PADDING = 96 << 10


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run, and the sizes of the whole data if it is opened on a sample.

    Attributes:
      run: on the data or the sample; `run.phases` have the steps of the whole run.
      rows: training rows of an epoch, for each phase.
      held_out: rows of an evaluation, for each phase.
      manifest: of a corpus or its sample; None: labelled files.
      text: what was read of a corpus that is not prepared; None: it is.
      prepare_seconds: that the preparation of the data will take; 0 if they are prepared.
      prepare_bytes: that it will write.
    """

    run: Run
    rows: tuple[int, ...]
    held_out: tuple[int, ...]
    manifest: Manifest | None = None
    text: Sample | None = None
    prepare_seconds: float = 0.0
    prepare_bytes: float = 0.0

    def rows_of(self, phase: Phase) -> int:
        """Returns the training rows of an epoch of a phase."""
        return self.rows[self.run.phases.index(phase)]

    def steps_of(self, name: str, phase: Phase) -> int:
        """Returns a duration of the configuration in updates; as `Run.steps_of`, of all data."""
        return duration_steps(self.run.config[name], phase, self.rows_of(phase), self.run.steps)

    def evaluations(self, phase: Phase) -> int:
        """Returns how often a phase evaluates."""
        return len(self._times("eval.every", phase)) if self.run.evaluation_rows(phase) else 0

    def checkpoints(self) -> int:
        """Returns how many checkpoints the run writes."""
        return sum(len(self._times("checkpoint.every", phase)) for phase in self.run.phases)

    def _times(self, name: str, phase: Phase) -> set[int]:
        every = self.steps_of(name, phase)
        first, last = phase.first_step, phase.last_step
        due = set(range(first - first % every + every, last + 1, every)) if every else set()
        return due | ({last} if last == self.run.steps > first else set())


def is_prepared(config: PretrainingConfig, workdir: str) -> bool:
    """Returns whether a corpus is prepared in the folder that the run would use."""
    folder = config.data_dir(workdir) if workdir or config.data.dir else ""
    return bool(folder) and os.path.isfile(os.path.join(folder, MANIFEST))


def open_labelled(config: RunConfig, folder: str) -> Trial:
    """Opens the run of a configuration on labelled files.

    Args:
      config: of the run.
      folder: a temporary folder, in place of the run's.

    Raises:
      UserError: what training would raise.
    """
    run = open_run(config, folder)
    rows = tuple(run.training_rows(phase).rows_per_epoch for phase in run.phases)
    held_out = tuple(
        sum(rows.rows_per_epoch for rows in run.evaluation_rows(phase)) for phase in run.phases
    )
    return Trial(run, rows, held_out)


def open_prepared(config: PretrainingConfig, workdir: str, folder: str) -> Trial:
    """Opens the run of a configuration on a prepared corpus, whose checksums are verified.

    Raises:
      UserError: the data have other settings, or are corrupt; what training would raise.
    """
    place = config.data_dir(workdir)
    find_prepared(config.data, place, lambda _: None)
    run = open_run(config.replace({"data.dir": place}), folder)
    lengths = [phase.sequence_length for phase in run.phases]
    manifest = Manifest.load(place)
    rows = tuple(manifest.num_rows(TRAIN, length) for length in lengths)
    held_out = tuple(_num_rows(manifest, VALIDATION, length) for length in lengths)
    return Trial(run, rows, held_out, manifest)


def open_sample(config: PretrainingConfig, folder: str) -> Trial:
    """Opens the run of a configuration on a sample of its corpus, which it prepares in `folder`.

    Raises:
      UserError: there is no text, or too little; what training would raise.
    """
    started = time.monotonic()
    text = sample.take(config.data)
    reading = time.monotonic() - started
    path = os.path.join(folder, "sample.txt")
    text.write(path)
    changed = config.replace(
        {
            "data.source": f"text:{path}",
            "data.line_format": "sentences",
            "data.document_separator": "blank_line",
            "data.dupe_factor": 1,
            "data.dir": os.path.join(folder, "data"),
            "data.num_processes": 1,
        }
    )
    started = time.monotonic()
    run = open_run(changed, folder)
    preparing = time.monotonic() - started
    manifest = Manifest.load(changed.data.dir)
    rows, held_out = _scaled_rows(config, run, manifest, text.scale)
    steps = config.total_steps(rows)
    cores = config.data.num_processes or os.cpu_count() or 1
    repeats = _repeats(config)
    shards = repeats * _row_bytes(manifest, TRAIN) + _row_bytes(manifest, VALIDATION)
    return Trial(
        run=dataclasses.replace(run, phases=config.make_phases(steps)),
        rows=rows,
        held_out=held_out,
        manifest=manifest,
        text=text,
        prepare_seconds=reading + preparing * text.scale * (1 + repeats) / 2 / cores,
        prepare_bytes=shards * text.scale,
    )


def _scaled_rows(
    config: PretrainingConfig, run: Run, manifest: Manifest, scale: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the rows to train on and the held-out ones of the whole corpus, for each phase."""
    share = config.data.validation_share
    rows, held_out = [], []
    for phase in run.phases:
        length = phase.sequence_length
        both = manifest.num_rows(TRAIN, length) + _num_rows(manifest, VALIDATION, length)
        rows.append(max(1, round(both * scale * (1 - share) * _repeats(config))))
        held_out.append(round(both * scale * share))
    return tuple(rows), tuple(held_out)


def _repeats(config: PretrainingConfig) -> int:
    """Returns how often each document is in the data; the sample has each once."""
    return config.data.dupe_factor if config.data.segments == "pairs" else 1


def _num_rows(manifest: Manifest, split: str, length: int) -> int:
    return manifest.num_rows(split, length) if split in manifest.splits else 0


def _row_bytes(manifest: Manifest, split: str) -> int:
    """Returns the bytes of the rows of a split, of all lengths, without the padding of files."""
    if split not in manifest.splits:
        return 0
    parts = manifest.content["splits"][split]["sequence_lengths"].values()
    return sum(max(0, file["bytes"] - _FILE_PADDING) for part in parts for file in part["files"])
