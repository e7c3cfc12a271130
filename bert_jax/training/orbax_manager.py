"""The orbax checkpoint managers behind `Checkpoints`."""

import contextlib
import functools
import json
import logging
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.devices import processes
from bert_jax.files import buckets
from bert_jax.training.seals import checksums

# Devices that hold copies of an array each write a part of it, unless it is smaller than this
# number of bytes: slicing a small array on the devices takes longer than writing it.
_SMALLEST_SLICED_ARRAY = 1 << 20


def _array_handler(**options: Any) -> ocp.PyTreeCheckpointHandler:
    """Returns a handler of array trees with its own type registry: orbax's default is global."""
    arrays = ocp.type_handlers.ArrayHandler(
        min_slice_bytes_for_replica_parallel=_SMALLEST_SLICED_ARRAY
    )
    types = ocp.type_handlers.create_type_handler_registry(
        (jax.Array, arrays),
        (np.ndarray, ocp.type_handlers.NumpyHandler()),
        (np.generic, ocp.type_handlers.ScalarHandler()),
        (int, ocp.type_handlers.ScalarHandler()),
        (float, ocp.type_handlers.ScalarHandler()),
    )
    return ocp.PyTreeCheckpointHandler(type_handler_registry=types, **options)


def open_manager(folder: pathlib.Path, read_only: bool) -> ocp.CheckpointManager:
    """Returns the manager of the checkpoints in a folder.

    Args:
      folder: folder of all checkpoints.
      read_only: change nothing in it.
    """
    handlers = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for item in ("params", "train_state"):
        reader = ocp.StandardCheckpointHandler()
        handlers.add(item, ocp.args.PyTreeSave, _array_handler())
        handlers.add(item, ocp.args.StandardRestore, reader)
        handlers.add(item, ocp.args.StandardSave, reader)  # orbax asks it for metadata
    meta = ocp.JsonCheckpointHandler()
    handlers.add("meta", ocp.args.JsonSave, meta)
    handlers.add("meta", ocp.args.JsonRestore, meta)
    with _without_warnings():  # which repeat `read_only`
        return ocp.CheckpointManager(
            folder,
            handler_registry=handlers,
            options=ocp.CheckpointManagerOptions(
                read_only=read_only,
                cleanup_tmp_directories=not read_only,
                async_options=ocp.AsyncOptions(barrier_sync_fn=processes.wait_or_fail),
            ),
        )


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides warnings in the block, which only calls orbax, and leaves the logger as it was.

    Their record does not say that they are orbax's if `absl` was named before it was imported.
    """

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger = logging.getLogger("absl")
    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)


def open_scratch(folder: pathlib.Path) -> ocp.CheckpointManager:
    """Returns a manager that writes this process's part of the checkpoints of a folder in a bucket.

    Each process writes to its own disk, as if it were the only one. OCDBT would merge the parts of
    several processes at the end, but no process has all of them; without it, each part of an array
    is a file, and the files of all processes together are the checkpoint.
    """
    own = folder / f"process-{jax.process_index()}.part"
    shutil.rmtree(own, ignore_errors=True)  # of a run that was killed
    own.mkdir(parents=True)
    alone = ocp.options.MultiprocessingOptions(primary_host=None)
    arrays = functools.partial(
        _array_handler,
        use_ocdbt=jax.process_count() == 1,
        multiprocessing_options=alone,
    )
    return ocp.CheckpointManager(
        own,
        item_handlers={
            "params": arrays(),
            "train_state": arrays(),
            "meta": ocp.JsonCheckpointHandler(multiprocessing_options=alone),
        },
        options=ocp.CheckpointManagerOptions(
            multiprocessing_options=alone,
            async_options=ocp.AsyncOptions(
                barrier_sync_fn=processes.wait_or_fail,
                # Otherwise a process begins once the folders of another one exist.
                create_directories_asynchronously=False,
            ),
        ),
    )


def upload(own: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """Uploads this process's part of a checkpoint, and removes the local copy.

    Returns:
      The checksums of the files of all processes.
    """
    part: dict[str, str] = {}
    try:
        if not processes.is_main():  # process 0 has these too, with another timestamp
            for path in [own / "_CHECKPOINT_METADATA", *own.rglob("commit_success.txt")]:
                path.unlink()
        part = checksums(own)
        buckets.publish(folder, own)
        shutil.rmtree(own)
    finally:  # an error reaches the others
        parts = processes.gather(f"checkpoint {folder.name}", json.dumps(part))
    return {name: digest for text in parts for name, digest in json.loads(text).items()}
