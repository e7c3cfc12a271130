"""The largest microbatch of each phase that fits."""

from collections.abc import Callable, Iterator

from bert_jax.config.phases import Phase
from bert_jax.devices import sharding
from bert_jax.files.errors import UserError
from bert_jax.tools.compile.plan import programs
from bert_jax.tools.compile.program import Compiled, compile_program
from bert_jax.training.run import Run


def largest_microbatch(
    run: Run, phase: Phase, room: int, report: Callable[[str], None]
) -> Compiled:
    """Returns the step with the largest microbatch of a phase that fits.

    The memory grows with the microbatch, so that the divisors of the batch are bisected.

    Args:
      run: from `plan`.
      phase: of the run.
      room: bytes of memory of a device; see `Compiled.fits`.
      report: gets a line for each program.

    Raises:
      UserError: none fits.
    """
    sizes = list(microbatches(phase.batch_size, sharding.batch_shards(run.mesh)))
    best, low, high = None, 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        found = _compile(run, phase, sizes[middle])
        fits = found.fits(room)
        report(f"  microbatch of {sizes[middle]:,} rows: {'fits' if fits else 'does not fit'}")
        if fits:
            best, low = found, middle + 1
        else:
            high = middle
    if best is None:
        raise UserError(
            f"No microbatch of {phase.sequence_length} tokens fits: use more devices,"
            " config.mesh.fsdp, or config.model.remat=True."
        )
    return best


def _compile(run: Run, phase: Phase, size: int) -> Compiled:
    first = next(program for program in programs(run, size) if program.phase == phase)
    return compile_program(first)


def microbatches(batch_size: int, shards: int) -> Iterator[int]:
    """Yields the numbers of rows that divide a batch and that the mesh can split, ascending."""
    for size in range(shards, batch_size + 1, shards):
        if batch_size % size == 0:
            yield size
