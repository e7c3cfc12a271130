"""Work that several programs on one file system divide between them, without talking.

Each unit of work is a file or folder that is complete or not there. A program makes the units of
its share, and waits until those of the others are there. One of them, the first, does what needs
all units. A killed program is restarted with the same share and continues.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Iterable

from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError
from bert_jax.files.workers import Log

_POLL_SECONDS, _REPORT_SECONDS = 0.5, 60.0


class OtherTaskError(UserError):
    """Another program, which has a share of the same work, gave up."""


@dataclasses.dataclass(frozen=True)
class Share:
    """The share of one program.

    Attributes:
      index, count: number of the program, from 0 on, and of all of them.
      folder: folder of the work; what a program leaves that gave up is beside it.
      started: when this program began, by the clock of the file system: earlier failures of others
        do not count.
    """

    index: int = 0
    count: int = 1
    folder: str = ""
    started: float = 0.0

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def takes(self, path: str) -> bool:
        """Returns whether a unit of work is this program's, by the numbers in its file's name.

        Not by its place among the units, since a program that is started again sees fewer.
        """
        numbers = map(int, re.findall(r"\d+", os.path.basename(path)))
        return sum(numbers) % self.count == self.index

    def begin(self, path: str, log: Log) -> None:
        """Returns when the first program has begun, which creates the file `path` after that.

        Raises:
          OtherTaskError: it gave up.
        """
        pathlib.Path(self._failed(self.index)).unlink(missing_ok=True)
        if not (self.is_first or os.path.exists(path)):
            log(f"Waiting for task 0 of {self.count}.")
            self.wait([path], "start", log)

    def wait(self, paths: Iterable[str], what: str, log: Log) -> None:
        """Returns when all files are there.

        Args:
          paths: the files to wait for.
          what: their name in the log.
          log: takes a line a minute.

        Raises:
          OtherTaskError: another program gave up.
        """
        missing, said = list(paths), time.monotonic()
        while missing := [path for path in missing if not os.path.exists(path)]:
            self._check_failures()
            if time.monotonic() > said + _REPORT_SECONDS:
                said = time.monotonic()
                log(f"{what}: waiting for {len(missing):,} parts of other tasks: {missing[0]}")
            time.sleep(_POLL_SECONDS)

    def fail(self, error: UserError) -> None:
        """Tells the others that this program cannot do its share."""
        if self.count > 1:
            write_text(self._failed(self.index), str(error))

    def end(self) -> None:
        """Removes what failed programs have left, when all work is done."""
        for index in range(self.count):
            pathlib.Path(self._failed(index)).unlink(missing_ok=True)

    def _failed(self, index: int) -> str:
        return f"{self.folder}-failed-{index}"

    def _check_failures(self) -> None:
        for index in range(self.count):
            with contextlib.suppress(FileNotFoundError):
                path = self._failed(index)
                if os.stat(path).st_mtime >= self.started:
                    reason = pathlib.Path(path).read_text(encoding="utf-8")
                    raise OtherTaskError(f"Task {index} of {self.count} stopped: {reason}")


def parse_share(text: str) -> tuple[int, int]:
    """Returns (2, 8) of "2/8".

    Raises:
      UserError: it has another form, or the first is not below the second.
    """
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise UserError(f"--share={text} is not I/N with I from 0 to N - 1, such as 0/4 to 3/4.")
    return int(index), int(count)
