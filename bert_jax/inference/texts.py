"""The texts that a trained model is asked about: a text a line, or a JSON object a line."""

import dataclasses
import json
import os
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Text:
    """A text or a pair; `where` names it in errors."""

    text_a: str
    text_b: str | None = None
    where: str = "A text"

    def __str__(self) -> str:
        return self.text_a if self.text_b is None else f"{self.text_a} | {self.text_b}"


def check_files(input_path: str, output_path: str) -> None:
    """Looks before long work whether files can be read and written; empty paths are no files.

    Raises:
      ValueError: if the one is not there, the folder of the other is not, or both are the same.
    """
    if input_path and not os.path.isfile(input_path):
        raise ValueError(f"--input={input_path}: there is no such file.")
    if not output_path:
        return
    if not os.path.isdir(folder := os.path.dirname(output_path) or "."):
        raise ValueError(f"--output={output_path}: there is no folder {folder}.")
    if os.path.isdir(output_path):
        raise ValueError(f"--output={output_path} is a folder: name a file in it.")
    if input_path and os.path.exists(output_path) and os.path.samefile(input_path, output_path):
        raise ValueError(f"--output={output_path} is the input: name another file.")


def read_texts(path: str) -> Iterator[Text]:
    """Yields each line of a file, a text or a JSON object with `text_a` and perhaps `text_b`.

    Raises:
      ValueError: naming the line of what is no UTF-8, or of JSON that is not of the form.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{where}: no UTF-8 ({error.reason}).") from None
            if line.lstrip().startswith("{"):
                yield _parse(line, where)
            else:
                yield Text(line.strip(), where=where)


def _parse(line: str, where: str) -> Text:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: not a JSON object ({error}); a text that begins with {{ is given as"
            ' {"text_a": TEXT}.'
        ) from None
    text_a, text_b = row.get("text_a"), row.get("text_b")
    if not isinstance(text_a, str) or not isinstance(text_b, str | None):
        raise ValueError(
            f"{where}: needs a text `text_a`, and `text_b` is a text if it is there; it has"
            f" {', '.join(row) or 'nothing'}."
        )
    return Text(text_a, text_b, where)
