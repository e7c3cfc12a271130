"""Runs work in Apache Beam (extra `beam`), on any machines that share a file system.

A stage is one pipeline that sends the numbers of its units, in any order, on any worker, to the
function that local processes would call, with the same arguments. Data pass through files only, so
nothing depends on what an engine keeps, orders or repeats. It may stop a unit anywhere and do it
again, or do it twice at the same time:

    - a file exists complete or not at all, and has the same bytes from every attempt;
    - each attempt has its own temporary files;
    - a unit whose file exists is not done again.
"""

# Few environments have Beam.
# pyright: reportMissingImports=false

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import importlib.metadata
import io
import os
import pathlib
import re
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bert_jax.files.atomic import own_parts, write_text
from bert_jax.files.errors import UserError
from bert_jax.files.workers import Log, progress

RUNNERS = ("DirectRunner", "DataflowRunner", "FlinkRunner", "SparkRunner")
# These are checked here; the others ask a job server, which has flags of its own.
_ALL_FLAGS_KNOWN = ("DirectRunner", "DataflowRunner")
# Besides this package, what the bytes of the files may depend on.
_DISTRIBUTIONS = ("array_record", "ftfy", "numpy", "sentencepiece", "sentencex", "spacy")
# A network file system may show a new file to other machines only after a while.
_WAIT_SECONDS, _POLL_SECONDS = 120.0, 0.5


class Beam:
    """Workers of an engine, in place of `files.workers.Workers`.

    Args:
      runner: a name in RUNNERS. DirectRunner runs in this process, or with
        `--direct_running_mode=multi_processing` in processes of this machine.
      flags: flags of the runner, each `--name` or `--name=value`.

    Raises:
      UserError: Beam is not installed, or does not accept the flags.
    """

    def __init__(self, runner: str, flags: Sequence[str] = ()):
        if runner not in RUNNERS:
            raise UserError(f"Unknown --runner={runner}. Available: {', '.join(RUNNERS)}.")
        self._runner = runner
        self._flags = list(flags)
        try:
            self._check_flags()
            self._make_pipeline()
        except ImportError as error:
            extra = "'apache-beam[gcp]'" if "[gcp]" in str(error) else "-e '.[beam]'"
            raise UserError(
                f"--runner={runner} needs a package ({error}): pip install -c constraints-beam.txt"
                f" {extra} in an environment of its own."
            ) from error

    def __enter__(self) -> "Beam":
        return self

    def __exit__(self, *_) -> None:
        pass

    def run_stage(
        self, stage: str, jobs: Mapping[str, Callable[[], Any]], num_bytes: float, log: Log
    ) -> None:
        """Runs all jobs as one pipeline, and logs its end.

        Args:
          stage: name of the stage in the log.
          jobs: the file or folder that a job writes last -> the job, which can be pickled; what it
            returns is dropped.
          num_bytes: bytes of text of all jobs; 0: unknown.
          log: called with lines about progress.

        Raises:
          UserError: raised by a job.
          OSError: the engine gave up; a worker does not share the file system or has other versions
            of what it runs.
        """
        import apache_beam

        started = time.monotonic()
        failure = f"{next(iter(jobs))}.{uuid.uuid4().hex}.failed"
        units = _Units(tuple(jobs.items()), failure, versions())
        log(f"{stage}: {len(jobs)} parts with {self._runner}")
        error = None
        try:
            numbers = self._make_pipeline() | apache_beam.Create(range(len(jobs)))
            result = (numbers | apache_beam.Reshuffle() | apache_beam.Map(units.do)).pipeline.run()
            result.wait_until_finish()
        except Exception as caught:  # engines have no class of errors in common
            error = caught
        with contextlib.suppress(FileNotFoundError):
            raise UserError(pathlib.Path(failure).read_text(encoding="utf-8")) from error
        if error is not None:
            last = traceback.format_exception_only(error)[-1].strip().splitlines()[-1]
            raise OSError(f"{stage} failed with {self._runner}: {last}") from error
        self._wait(jobs)
        seconds = time.monotonic() - started
        log(progress(stage, len(jobs), len(jobs), num_bytes, seconds))

    def _make_pipeline(self) -> Any:
        """Returns an empty pipeline, which checks the values of the flags."""
        import apache_beam
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        # Beam's own choice for this name may download a program.
        runner = FnApiRunner() if self._runner == "DirectRunner" else self._runner
        try:
            return apache_beam.Pipeline(runner=runner, options=PipelineOptions(self._flags))
        except ValueError as error:
            raise UserError(f"{self._runner}: {' '.join(str(error).split())}") from error

    def _check_flags(self) -> None:
        """Raises UserError for flags that Beam would drop, or end the process for."""
        from apache_beam.options.pipeline_options import PipelineOptions

        for flag in self._flags:
            if not re.fullmatch(r"--\w+(=.*)?", flag, re.DOTALL):
                raise UserError(f"{flag!r} is not a flag of Beam: write --NAME or --NAME=VALUE.")
            if flag.split("=")[0] == "--runner":
                raise UserError(f"{flag} belongs before the two dashes.")
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                options = PipelineOptions(self._flags).get_all_options(retain_unknown_options=True)
        except SystemExit:
            reason = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
            raise UserError(f"{self._runner}: {reason}.") from None
        known = PipelineOptions([]).get_all_options()
        if self._runner in _ALL_FLAGS_KNOWN and (unknown := sorted(options.keys() - known)):
            close = difflib.get_close_matches(unknown[0], known, 1)
            hint = f" Did you mean --{close[0]}?" if close else ""
            raise UserError(f"Unknown flag --{unknown[0]} of {self._runner}.{hint}")

    def _wait(self, paths: Iterable[str]) -> None:
        """Returns when all files are there; OSError: some do not appear."""
        end = time.monotonic() + _WAIT_SECONDS
        missing = list(paths)
        while missing := [path for path in missing if not os.path.exists(path)]:
            if time.monotonic() > end:
                raise OSError(
                    f"{self._runner} has ended, but {len(missing):,} files are not there, such as"
                    f" {missing[0]}: all workers must share that folder"
                )
            time.sleep(_POLL_SECONDS)


@dataclasses.dataclass(frozen=True)
class _Units:
    """The units of a stage, sent to each worker once: jobs share most of their fields.

    Attributes:
      jobs: the file or folder that a unit writes last, and its job, for each unit.
      failure: a file that is written for an error that another attempt would raise too.
      versions: versions to run with; see `versions`.
    """

    jobs: tuple[tuple[str, Callable[[], Any]], ...]
    failure: str
    versions: dict[str, str]

    def do(self, number: int) -> None:
        """Does a unit, unless another attempt has done it, or has failed for good."""
        path, job = self.jobs[number]
        if os.path.exists(path) or os.path.exists(self.failure):
            return
        with own_parts():
            try:
                self._check_worker(os.path.dirname(path))
                job()
            except UserError as error:  # another attempt would raise it too
                write_text(self.failure, str(error))
            except OSError:
                if not os.path.exists(path):  # another attempt may have just finished
                    raise

    def _check_worker(self, folder: str) -> None:
        """Raises OSError: another worker may be able to do it, and finished parts are kept."""
        if not os.path.isdir(folder):
            raise OSError(f"{socket.gethostname()} has no {folder}: all workers must share it")
        for name, version in versions().items():
            if version != self.versions[name]:
                raise OSError(
                    f"{name} on the worker {socket.gethostname()} is {version} and here"
                    f" {self.versions[name]}: install the same on both"
                )


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of what the bytes of the files depend on; this package's is a digest."""
    package = pathlib.Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    found = {
        "Python": ".".join(map(str, sys.version_info[:2])),
        package.name: digest.hexdigest()[:16],
    }
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
