"""The unfinished output of predictions, from which an interrupted command resumes."""

import itertools
import json
import os
from collections.abc import Callable
from typing import Any

from bert_jax.files.atomic import AppendFile, move_file, read_json, write_bytes, write_json
from bert_jax.tasks.task import Prediction


class Unfinished:
    """Complete lines of an output that is being written, and what they were computed from.

    Attributes:
      count: predictions that are complete.
    """

    def __init__(self, output_path: str):
        self.count = 0
        self._output_path = output_path
        self._path = f"{output_path}.unfinished"
        self._origin: dict[str, Any] = {}
        self._origin_path = f"{self._path}.json"

    def resume(self, origin: dict[str, Any]) -> int:
        """Returns how many predictions are complete; 0 if they were computed from something else.

        Args:
          origin: JSON values that the predictions depend on.
        """
        self._origin = json.loads(json.dumps(origin))
        files = (self._path, self._origin_path)
        before = read_json(self._origin_path) if all(map(os.path.isfile, files)) else {}
        if before.get("origin") == self._origin:
            self._keep(before["done"])
        else:
            write_bytes(self._path, b"")
            self._write_origin()
        return self.count

    def _keep(self, count: int) -> None:
        """Drops lines of an incomplete window: examples of a window are computed together."""
        with open(self._path, "rb+") as file:
            size = sum(map(len, itertools.islice(file, count)))
            file.truncate(size)
        self.count = count

    def append(self, predictions: list[Prediction]) -> None:
        """Adds the predictions of a window; they are on disk when it returns."""
        with AppendFile(self._path) as file:
            for prediction in predictions:
                file.write_line(json.dumps(prediction, ensure_ascii=False))
        self.count += len(predictions)
        self._write_origin()

    def _write_origin(self) -> None:
        write_json(self._origin_path, {"origin": self._origin, "done": self.count})

    def finish(self, write: Callable[[str, str], None] | None) -> None:
        """Moves the lines to the output.

        Args:
          write: (path of the lines, path of the output) writes another form; None: the lines.
        """
        if write is None:
            move_file(self._path, self._output_path)
        else:
            write(self._path, self._output_path)
            os.remove(self._path)
        os.remove(self._origin_path)
