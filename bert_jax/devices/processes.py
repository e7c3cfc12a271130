"""One process or many: joining them, and stopping them all at the same step.

A run is one process for each host. On a TPU pod or under SLURM or Open MPI jax finds the others
automatically; elsewhere they are named on the command line (launch/README.md).
"""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import jax
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from bert_jax.files import locks
from bert_jax.files.errors import UserError

# For each cluster manager that jax.distributed supports: the variables with the number of processes
# and the number of this one. (A shell inside an allocation has only the first.)
_CLUSTERS = (("SLURM_NTASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))

_FAILED = "bert_jax/failed"  # folder of the shared key-value store: process number -> its error
_SECONDS_BETWEEN_LOOKS = 0.5
_GATHER_SECONDS = 1200  # as long as orbax waits
_PROBLEMS = itertools.count()  # the same in all processes of a run


def start(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins the processes of the run; does nothing for a run of one. Call before any computation.

    Args:
      coordinator: address "host:port" of process 0; empty: found by jax.
      num_processes: number of processes; 0: found by jax.
      process_id: number of this process; -1: found by jax.

    Raises:
      UserError: if only some of the three are given.
    """
    given = (bool(coordinator), num_processes > 0, process_id >= 0)
    if any(given):
        if not all(given):
            raise UserError(
                "--coordinator, --num_processes and --process_id go together: give all three, or"
                " none on TPU pods, SLURM and Open MPI, where they are found."
            )
        if process_id >= num_processes:
            raise UserError(
                f"--process_id={process_id} must be below --num_processes={num_processes}."
            )
        jax.distributed.initialize(coordinator, num_processes, process_id)
    elif _is_in_cluster():
        jax.distributed.initialize()


def _is_in_cluster() -> bool:
    tpu_hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
    return len(tpu_hosts) > 1 or any(
        int(os.environ.get(size, "1")) > 1 and rank in os.environ for size, rank in _CLUSTERS
    )


def is_main() -> bool:
    """Whether this is the process that prints and writes shared files."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Waits until all processes have called it."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def wait_or_fail(*, key: str, timeout_ms: int) -> None:
    """Waits until all processes get here, as orbax requires; fails if another process has failed.

    A process that gets here while handling an error does not wait: it tells the others. At orbax's
    own barrier they would wait for it until the timeout, which is 20 minutes.

    Args:
      key: name of the barrier.
      timeout_ms: milliseconds to wait.

    Raises:
      RuntimeError: another process has failed; its error is in the message.
    """
    if jax.process_count() == 1:
        return
    client = multihost.get_jax_distributed_client()
    failed = client.key_value_dir_get(_FAILED)
    if (error := sys.exc_info()[1]) is not None:
        if not failed:
            number = jax.process_index()
            client.key_value_set(f"{_FAILED}/{number}", f"in process {number}: {error}")
        return
    errors = []

    def wait() -> None:
        try:
            client.wait_at_barrier(key, timeout_ms)
        except jax.errors.JaxRuntimeError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    while waiting.is_alive() and not failed:
        waiting.join(_SECONDS_BETWEEN_LOOKS)
        failed = client.key_value_dir_get(_FAILED)
    if waiting.is_alive() and failed:
        raise RuntimeError(failed[0][1])
    if errors:
        raise errors[0]


def gather(key: str, text: str) -> list[str]:
    """Returns the texts of all processes, in their order. Threads of a process may call it.

    Args:
      key: a name that is used only once.
      text: this process's text.

    Raises:
      RuntimeError: another process has failed; see `wait_or_fail`.
    """
    if jax.process_count() == 1:
        return [text]
    client, folder = multihost.get_jax_distributed_client(), f"bert_jax/{key}"
    client.key_value_set(f"{folder}/{jax.process_index():06d}", text)
    wait_or_fail(key=folder, timeout_ms=_GATHER_SECONDS * 1000)
    return [value for _, value in sorted(client.key_value_dir_get(folder))]


def raise_together(problem: str) -> None:
    """Raises in all processes what keeps the main one from going on. All of them call it.

    Args:
      problem: the main process's message; empty: there is none. Those of the others are ignored.

    Raises:
      UserError: the main process has a problem.
    """
    problem, *_ = gather(f"problem {next(_PROBLEMS)}", problem)
    if problem:
        raise UserError(problem)


@contextlib.contextmanager
def lock(workdir: str, log: Callable[[str], None]) -> Iterator[None]:
    """Locks the folder of a run until the block ends: its processes are one holder.

    Args:
      workdir: folder of the run.
      log: see `locks.lock`.

    Raises:
      UserError: another run works in the folder.
    """
    with contextlib.ExitStack() as stack:
        problem = ""
        if is_main():
            try:
                stack.enter_context(locks.lock(workdir, log))
            except UserError as error:
                problem = str(error)
        raise_together(problem)
        yield


class StopRequest:
    """SIGTERM or SIGINT as a request to stop, which all processes see at the same step.

    With several processes jax's own handler of SIGTERM agrees on the step; SIGINT is passed on to
    it. A second SIGINT interrupts immediately. Use as a context, in the main thread.

    Attributes:
      signal_name: the signal that this process received; empty if none.
      granted: whether `is_set` has returned True; unlike `signal_name`, the same in every process.
    """

    def __init__(self):
        self.signal_name = ""
        self.granted = False
        self._several = jax.process_count() > 1
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            signals = (signal.SIGINT,) if self._several else (signal.SIGINT, signal.SIGTERM)
            self._previous = {number: signal.signal(number, self._handle) for number in signals}
        return self

    def __exit__(self, *_):
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _handle(self, number, _frame):
        if self.signal_name and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
        if self._several:
            os.kill(os.getpid(), signal.SIGTERM)

    def is_set(self, step: int) -> bool:
        """Whether to stop after `step`: the same answer in every process."""
        if self._several:
            self.granted = multihost_utils.reached_preemption_sync_point(step)
        else:
            self.granted = bool(self.signal_name)
        if self.granted:
            self.signal_name = self.signal_name or "SIGTERM"
        return self.granted
