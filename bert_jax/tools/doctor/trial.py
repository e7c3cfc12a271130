"""A trial: the run of a configuration, opened on its own data, or on a sample of them.

Labelled files are read as training reads them, all of them. If a corpus is prepared already, its
manifest and shards are opened. If not, whole chunks are read from its beginning, until they have
_READ_BYTES of text, or all of a smaller text; every n-th document is taken, about _SAMPLE_BYTES,
and prepared in a temporary folder, once (`dupe_factor`=1). Numbers of rows and bytes are those of
the sample, scaled by the ratio of the bytes of the text to the sample's. The folders of the run and
of its data are not changed.
"""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.config.phases import Pace, Phase, duration_steps, points
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.manifest import NAME as MANIFEST
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import TRAIN, VALIDATION
from bert_jax.data.corpus.request import find_prepared
from bert_jax.files.errors import UserError
from bert_jax.text.lines import Document
from bert_jax.text.sources import make_source
from bert_jax.training.open import open_run
from bert_jax.training.run import Run

_READ_BYTES, _SAMPLE_BYTES, _FEWEST_DOCUMENTS = 32 << 20, 2 << 20, 8
# A chunk is read to this size; only those of compressed files are larger.
_MAX_CHUNK_BYTES = 2 * _READ_BYTES
# Text compressed with gzip has about a third of its size.
_COMPRESSION = 3
# ArrayRecord pads files to blocks of 64 KiB; one with few rows has about this much padding.
_FILE_PADDING = 96 << 10


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run, and the sizes of the whole data if it is opened on a sample."""

    run: Run  # its phases have the steps of the whole run
    rows: tuple[int, ...]  # training rows of an epoch, for each phase
    held_out: tuple[int, ...]  # rows of an evaluation, for each phase
    manifest: Manifest | None = None  # of a corpus or its sample; None: labelled files
    sample: tuple[Document, ...] = ()  # documents of a corpus that is not prepared
    text_bytes: float = 0.0  # of that corpus, an estimate if it was not read to its end
    prepare_seconds: float = 0.0  # 0 if the data are prepared
    prepare_bytes: float = 0.0  # that the preparation writes

    def steps_of(self, name: str, phase: Phase) -> int:
        """Returns a duration of the configuration in steps, as `Run.steps_of`, but of all data."""
        pace = self._paces()[self.run.phases.index(phase)]
        return duration_steps(self.run.config[name], pace, self.run.steps)

    def milestones(self) -> set[int]:
        """Returns the steps of `config.checkpoint.milestones`; as `Run.milestones`, of all data."""
        texts = self.run.config.checkpoint.milestones
        return set(points(texts, self._paces(), self.run.steps))

    def _paces(self) -> list[Pace]:
        pairs = zip(self.run.phases, self.rows, self.run.training, strict=True)
        return [
            Pace(phase, rows, round(own.words_per_epoch * rows / own.rows_per_epoch))
            for phase, rows, own in pairs
        ]

    def evaluations(self, phase: Phase) -> int:
        return len(self._times("eval.every", phase)) if self.run.evaluation_rows(phase) else 0

    def checkpoints(self) -> int:
        times = (self._times("checkpoint.every", phase) for phase in self.run.phases)
        return len(self.milestones().union(*times))

    def _times(self, name: str, phase: Phase) -> set[int]:
        every = self.steps_of(name, phase)
        first, last = phase.first_step, phase.last_step
        due = set(range(first - first % every + every, last + 1, every)) if every else set()
        return due | ({last} if last == self.run.steps > first else set())


def open_trial(config: RunConfig, workdir: str, folder: str) -> Trial:
    """Opens the run of a configuration.

    Args:
      config: the run's configuration.
      workdir: its folder; empty: not decided.
      folder: a temporary folder, in place of the run's.

    Raises:
      UserError: what training would raise; prepared data have other settings or are corrupt.
    """
    if not isinstance(config, PretrainingConfig):
        run = open_run(config, folder)
        rows = tuple(rows.rows_per_epoch for rows in run.training)
        held_out = tuple(sum(rows.rows_per_epoch for rows in of) for of in run.evaluation)
        return Trial(run, rows, held_out)
    place = config.data_dir(workdir) if workdir or config.data.dir else ""
    if not (place and os.path.isfile(os.path.join(place, MANIFEST))):
        return _open_sample(config, folder)
    find_prepared(config.data, place, lambda _: None)
    run = open_run(config.replace({"data.dir": place}), folder)
    manifest = Manifest.load(place)
    lengths = [phase.sequence_length for phase in run.phases]
    rows = tuple(manifest.num_rows(TRAIN, length) for length in lengths)
    held_out = tuple(_num_rows(manifest, VALIDATION, length) for length in lengths)
    return Trial(run, rows, held_out, manifest)


def _open_sample(config: PretrainingConfig, folder: str) -> Trial:
    started = time.monotonic()
    documents, text_bytes, scale = take_sample(config.data)
    reading = time.monotonic() - started
    path = os.path.join(folder, "sample.txt")
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        for document in documents:
            file.write("\n".join(" ".join(s.split()) for s in document) + "\n\n")
    changed = config.replace(
        {
            "data.source": f"text:{path}",
            "data.line_format": "sentences",
            "data.document_separator": "blank_line",
            "data.dupe_factor": 1,
            "data.extra_tokens": "",  # a sample has few words
            "data.general": "",
            "data.replay": 0.0,
            "data.dir": os.path.join(folder, "data"),
            "data.num_processes": 1,
        }
    )
    started = time.monotonic()
    run = open_run(changed, folder)
    preparing = time.monotonic() - started
    manifest = Manifest.load(changed.data.dir)
    # How often each document is in the data; the sample has each once.
    repeats = config.data.dupe_factor if config.data.segments == "pairs" else 1
    share = config.data.validation_share
    rows, held_out = [], []
    for phase in run.phases:
        length = phase.sequence_length
        both = manifest.num_rows(TRAIN, length) + _num_rows(manifest, VALIDATION, length)
        rows.append(max(1, round(both * scale * (1 - share) * repeats)))
        held_out.append(round(both * scale * share))
    cores = config.data.num_processes or os.cpu_count() or 1
    shards = repeats * _row_bytes(manifest, TRAIN) + _row_bytes(manifest, VALIDATION)
    return Trial(
        run=dataclasses.replace(run, phases=config.make_phases(config.total_steps(tuple(rows)))),
        rows=tuple(rows),
        held_out=tuple(held_out),
        manifest=manifest,
        sample=documents,
        text_bytes=text_bytes,
        prepare_seconds=reading + preparing * scale * (1 + repeats) / 2 / cores,
        prepare_bytes=shards * scale,
    )


def take_sample(config: DataConfig) -> tuple[tuple[Document, ...], float, float]:
    """Returns the sample of a corpus, the bytes of the whole text, and their ratio to the sample's.

    Raises:
      UserError: there is no text, or it is malformed and `config.on_bad_text` is `error`.
    """
    source = make_source(config)
    documents: list[Document] = []
    sizes: list[int] = []
    total, share = 0, 1.0
    chunks = source.chunks()
    weights = [_weight(chunk) for chunk in chunks]
    for number, chunk in enumerate(chunks, 1):
        for document in source.read(chunk, Counter()):
            documents.append(document)
            sizes.append(sum(len(s.encode("utf-8", "surrogatepass")) + 1 for s in document))
            total += sizes[-1]
            if total >= _MAX_CHUNK_BYTES:
                share = min(0.99, total / (_COMPRESSION * sum(weights)))
                break
        else:
            if total >= _READ_BYTES and number < len(chunks):
                share = sum(weights[:number]) / sum(weights)
        if share < 1:
            break
    if not documents:
        raise UserError(f"There is no text in data.source={config.source!r}.")
    step = min(max(1, total // _SAMPLE_BYTES), max(1, len(documents) // _FEWEST_DOCUMENTS))
    text_bytes = total / share
    return tuple(documents[::step]), text_bytes, text_bytes / max(1, sum(sizes[::step]))


def _weight(chunk: Any) -> float:
    """Returns the size of a chunk in bytes; 1 if it is not a file, since such chunks are alike."""
    if not (isinstance(chunk, Iterable) and all(hasattr(part, "path") for part in chunk)):
        return 1.0
    return sum(
        (os.path.getsize(part.path) if part.stop is None else part.stop) - part.start
        for part in chunk
    )


def _num_rows(manifest: Manifest, split: str, length: int) -> int:
    return manifest.num_rows(split, length) if split in manifest.splits else 0


def _row_bytes(manifest: Manifest, split: str) -> int:
    if split not in manifest.splits:
        return 0
    parts = manifest.content["splits"][split]["sequence_lengths"].values()
    return sum(max(0, file["bytes"] - _FILE_PADDING) for part in parts for file in part["files"])
