"""Texts without labels: a text, or a JSON object with `text_a` and optionally `text_b`, a line."""

import dataclasses
import json
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Text:
    """A text or a pair of texts; `where` names it in error messages."""

    text_a: str
    text_b: str | None = None
    where: str = "A text"

    def __str__(self) -> str:
        return self.text_a if self.text_b is None else f"{self.text_a} | {self.text_b}"


def read_texts(path: str) -> Iterator[Text]:
    """Yields the texts of a file, one a line; an empty line is an empty text.

    Raises:
      ValueError: naming the line, for invalid UTF-8, or JSON that is not an object with a string
        `text_a` and, optionally, a string `text_b`.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{where}: invalid UTF-8 ({error.reason}).") from None
            if line.lstrip().startswith("{"):
                yield _parse(line, where)
            else:
                yield Text(line.strip(), where=where)


def _parse(line: str, where: str) -> Text:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: not a JSON object ({error}); write a text that begins with {{ as"
            ' {"text_a": TEXT}.'
        ) from None
    text_a, text_b = row.get("text_a"), row.get("text_b")
    if not isinstance(text_a, str) or not isinstance(text_b, str | None):
        raise ValueError(
            f"{where}: an object needs a string `text_a`, and `text_b` must be a string if given;"
            f" its fields are {', '.join(row) or 'none'}."
        )
    return Text(text_a, text_b, where)
