"""What train, evaluate and predict have in common: the flags of a run, and its processes."""

import argparse

from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags.command_line import Parser


def add(parser: Parser) -> None:
    """Adds the flags of a run."""
    parser.flag("workdir", "", "Folder of the run: configuration, data, checkpoints, metrics.")
    parser.flag("coordinator", "", "Address of process 0, HOST:PORT, if there are several.")
    parser.flag("num_processes", 0, "Number of processes of the run.", least=0)
    parser.flag("process_id", -1, "Number of this process, from 0.")
    add_cache(parser)


def add_cache(parser: Parser) -> None:
    """Adds the flag of the folder of compiled programs."""
    help = "Folder that keeps compiled programs, or off (default: in the user's cache folder)."
    parser.flag("compilation_cache", "", help, metavar="FOLDER")


def check(flags: argparse.Namespace) -> None:
    """Raises UserError if there is no --workdir."""
    if not flags.workdir:
        raise UserError("--workdir is missing: the folder that the run is kept in.")


def check_trained(config: RunConfig, flags: argparse.Namespace) -> None:
    """Raises UserError if --workdir is not the folder of one trained run."""
    check(flags)
    if config.get("seeds", 1) > 1:
        raise UserError(
            f"{flags.workdir} holds the runs of several seeds: name the folder of one,"
            f" --workdir={flags.workdir}/seed-{config.seed}."
        )


def start(flags: argparse.Namespace) -> None:
    """Prepares this process for a run and connects it with the others. Imports jax."""
    from bert_jax.devices import allocator, processes

    allocator.keep_freed_memory()
    use_cache(flags)
    processes.start(flags.coordinator, flags.num_processes, flags.process_id)


def use_cache(flags: argparse.Namespace) -> None:
    """Selects the folder of compiled programs. Imports jax.

    Raises:
      UserError: the folder cannot be written.
    """
    from bert_jax.devices import compilation_cache

    compilation_cache.use(flags.compilation_cache)
