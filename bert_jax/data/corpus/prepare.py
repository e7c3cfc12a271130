"""Prepares the data of a run in a folder, or uses the data that it has.

The settings are compared, the folder is locked, and unfinished work is resumed. The result depends
on the text and the settings only, not on the number of processes.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import socket
from collections.abc import Iterator
from typing import Any

from bert_jax.config.data import DataConfig, built_in, parse_weights
from bert_jax.data.corpus import dump
from bert_jax.data.corpus.manifest import NAME, Manifest
from bert_jax.data.corpus.preparation import CLAIM, TRAIN, Preparation
from bert_jax.files.atomic import read_json, write_json
from bert_jax.files.beam import Beam
from bert_jax.files.buckets import UNFINISHED, address_of, claim, refresh
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.files.shares import OtherTaskError, Share
from bert_jax.files.workers import Log, Workers
from bert_jax.text.lexicon import check_classes, read_lexicon
from bert_jax.text.sources import make_source
from bert_jax.text.tokenizers import load_tokenizer, read_vocabulary
from bert_jax.text.vocabulary import FILE_NAMES, check_vocabulary


def prepare(
    config: DataConfig,
    data_dir: str,
    num_processes: int = 0,
    log: Log = print,
    task: tuple[int, int] = (0, 1),
    beam: Beam | None = None,
) -> Manifest:
    """Prepares data in `data_dir`, or uses the data that it has.

    Of several processes on one file system, one does the work and the others wait, unless each has
    a task of its own.

    Args:
      config: what to prepare.
      data_dir: the folder for the data.
      num_processes: number of worker processes; 0: one for each core.
      log: takes lines of progress.
      task: number of this program, from 0 on, and of all that divide the work between them.
      beam: does the work in the place of processes of this program; they share `data_dir`.

    Raises:
      UserError: the text, the vocabulary or a setting is invalid; the folder has data of other
        settings, or tasks of another number; the disk is full, a process died, the engine gave up,
        or another task stopped. Finished parts of the work are kept.
    """
    data_dir = os.path.abspath(data_dir)
    if task[1] > 1 and address_of(data_dir):
        raise UserError(
            f"{data_dir}: tasks pass their work on through files that all of them see, which a"
            " bucket is not: use a shared file system, or one program (without --task)."
        )
    _check(config)
    if manifest := find_prepared(config, data_dir, log):
        return manifest
    try:
        os.makedirs(data_dir, exist_ok=True)
        with _lock(data_dir, log, f"-{task[0]}" if task[0] else "") as started:
            share = Share(*task, os.path.join(data_dir, UNFINISHED), started)
            refresh(data_dir)
            if manifest := find_prepared(config, data_dir, log):
                return manifest
            if share.count == 1:
                _check_tasks(data_dir)
            source = make_source(config)
            request = {"settings": _settings(config), "source": source.fingerprint()}
            _claim(share, request, log)
            try:
                with beam or Workers(num_processes or os.cpu_count() or 1) as workers:
                    stages = Preparation(config, source, request, data_dir, workers, log, share)
                    manifest = stages.run()
            except UserError as error:
                if not isinstance(error, OtherTaskError):
                    share.fail(error)
                    if share.is_first:  # it would fail again: there is nothing to resume
                        shutil.rmtree(share.folder)
                raise
            log(dump.summarize(manifest) if share.is_first else f"Task {share.index} is done.")
            return manifest
    except OSError as error:
        reason = ": ".join(filter(None, [error.filename, error.strerror])) or str(error)
        raise UserError(
            f"Preparing data in {data_dir} stopped: {reason}. Run it again to continue from the"
            " finished parts."
        ) from error


def _check(config: DataConfig) -> None:
    """Checks the vocabulary and the lexicon before any work.

    Raises:
      UserError: one is unknown, malformed or cannot be read, or the vocabulary is too large.
    """
    if config.vocab.startswith(TRAIN):
        if config.vocab.removeprefix(TRAIN) not in FILE_NAMES:
            raise UserError(
                f"Unknown data.vocab={config.vocab!r}. Available: a vocab.txt or .model file, GPT's"
                f" folder, {', '.join(TRAIN + kind for kind in FILE_NAMES)}."
            )
    else:
        tokenizer = load_tokenizer(config.vocab, config.lowercase)
        check_vocabulary(tokenizer, config.vocab_size, config.vocab)
    if config.lexicon:
        entries = read_lexicon(config.lexicon)
        check_classes(parse_weights(config.lexicon_weights), entries, config.lexicon)


def _settings(config: DataConfig) -> dict[str, Any]:
    """Returns the settings that determine the data, with the hash of a given vocabulary."""
    settings = dataclasses.asdict(config)
    if config.mode == "dynamic" and config.lexicon_weights:
        # Rows have the numbers of these classes; the weights are used when masks are drawn.
        settings["lexicon_classes"] = tuple(parse_weights(settings.pop("lexicon_weights")))
    for name in config.omitted & settings.keys():
        del settings[name]
    if config.lexicon:
        name = os.path.basename(config.lexicon)
        settings["lexicon"] = f"{name} (SHA-256 {file_sha256(config.lexicon)})"
    if not config.vocab.startswith(TRAIN):
        given = read_vocabulary(config.vocab)
        settings["vocab"] = f"{given.name} (SHA-256 {hashlib.sha256(given.content).hexdigest()})"
        del settings["vocab_size"]
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
    }


def find_prepared(config: DataConfig, data_dir: str, log: Log) -> Manifest | None:
    """Returns the data in the folder, if it is complete; writes nothing.

    Args:
      config: what is asked for.
      data_dir: the folder.
      log: takes lines of progress.

    Raises:
      UserError: it has other settings or another text, or the manifest is corrupt.
    """
    if not os.path.exists(os.path.join(data_dir, NAME)):
        return None
    manifest = Manifest.load(data_dir)
    request: dict[str, Any] = {"settings": _settings(config)}
    try:
        request["source"] = make_source(config).fingerprint()
    except UserError as error:
        # Prepared data can be used without the text.
        log(f"The text cannot be compared with the prepared data: {error}")
    present = {name: manifest.content[name] for name in request}
    if difference := _differences(present, request):
        raise UserError(
            f"{data_dir} has data of other settings ({difference}): use those, or another folder"
            " (data.dir), or delete this one."
        )
    log(f"Using the prepared data in {data_dir}.")
    return manifest


def has_unfinished(data_dir: str) -> bool:
    """Returns whether a preparation has begun in the folder and not ended, or has ended."""
    return any(os.path.exists(os.path.join(data_dir, name)) for name in (UNFINISHED, NAME))


def _claim(share: Share, request: dict[str, Any], log: Log) -> None:
    """Creates the folder of unfinished work, or checks that it has the same request.

    Only the first program creates it; the others wait for that. One that works alone may go on with
    what any number of tasks have left.

    Raises:
      UserError: it has another request, or is divided between another number of tasks.
    """
    folder = share.folder
    path, tasks = (os.path.join(folder, name) for name in ("request.json", "tasks.json"))
    content = json.dumps(request, sort_keys=True).encode()
    other = json.loads(claim(os.path.join(os.path.dirname(folder), CLAIM), content))
    if difference := _differences(other, json.loads(content)):
        raise UserError(
            f"Other settings are being prepared in {os.path.dirname(folder)} ({difference}): use"
            f" those, or another folder (data.dir), or delete {CLAIM} there if nobody is."
        )
    share.begin(tasks, log)
    if share.count > 1 and os.path.exists(tasks) and (count := read_json(tasks)) != share.count:
        raise UserError(
            f"{folder} is divided between {count} tasks, and this is one of {share.count}: give"
            f" all of them --task=I/{count}, or finish alone with --merge."
        )
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        write_json(path, request)
    elif difference := _differences(read_json(path), request):
        raise UserError(
            f"{folder} has unfinished work of other settings ({difference}): use those, or another"
            " folder (data.dir), or delete this one."
        )
    elif share.is_first:
        log(f"Continuing the unfinished work in {folder}.")
    if share.is_first and share.count > 1:
        write_json(tasks, share.count)  # last: the others wait for it


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Returns the first settings in which two requests differ: "seed: 1 there, 2 requested"."""
    before, after = dict(_flatten(old)), dict(_flatten(new))
    for name, value in built_in().items():
        if (name := f"settings.{name}") in before.keys() | after.keys():
            before.setdefault(name, value)
            after.setdefault(name, value)
    names = [name for name in sorted(before | after) if before.get(name) != after.get(name)]
    texts = [
        f"{name.removeprefix('settings.')}: {before.get(name, 'nothing')} there,"
        f" {after.get(name, 'nothing')} requested"
        for name in names[:3]
    ]
    return "; ".join(texts + [f"and {len(names) - 3} more"] * (len(names) > 3))


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield from _flatten({str(item.get("name", i)): item for i, item in enumerate(value)}, name)
    else:
        yield name, value


def _check_tasks(data_dir: str) -> None:
    """Raises UserError if tasks are at work in the folder, whose units this program would do."""
    for path in pathlib.Path(data_dir).glob(".lock-*"):
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{file.read()} is a task of the preparation in {data_dir}: wait until it ends,"
                    " or stop it."
                ) from None


@contextlib.contextmanager
def _lock(data_dir: str, log: Log, name: str = "") -> Iterator[float]:
    """Locks the folder, when no other process prepares data in it, until the block ends.

    With a name, the lock is that of one of several tasks. Yields the time by the clock of the file
    system.
    """
    with open(os.path.join(data_dir, f".lock{name}"), "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            log(f"Waiting for {file.read()}, which prepares data in {data_dir}.")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield os.fstat(file.fileno()).st_mtime
