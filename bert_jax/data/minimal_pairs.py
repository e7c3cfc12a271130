"""Suites of minimal pairs: an acceptable sentence, and the same with one thing wrong.

A suite is a file or a folder of files, at any depth, or a name of `SUITES`, which is downloaded
once to the user's cache folder. A file is

    a table          columns `good` and `bad`, or BLiMP's `sentence_good` and `sentence_bad`; and
                     optionally `paradigm` or `UID`, and `field`
    .txt             as in Zorro (Huebner et al. 2021): one sentence per line, the wrong one of
                     each pair before the right one; with a tab in line 1 a table

The paradigm of a pair is what it tests; without a column for it, its field or else the name of the
file, or the path if files in several folders have this name. As in Zorro's names of paradigms, the
field is what comes before the last hyphen: "agreement_subject_verb-in_simple_question".
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator

from bert_jax.data.labelled.reading import ending_of, has_objects, read_lines, text_field
from bert_jax.data.labelled.table_rows import Row, first_row, read_rows
from bert_jax.files.errors import UserError
from bert_jax.files.user_cache import cache_folder

_COLUMNS = {
    "good": ("good", "sentence_good"),
    "bad": ("bad", "sentence_bad"),
    "paradigm": ("paradigm", "UID"),
    "field": ("field",),
}
_SENTENCES = ("good", "bad")
_FIELD_END = "-"


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two sentences; a model that knows the grammar prefers the first.

    Attributes:
      paradigm: what the pair tests.
      field: the group of the paradigm; "": none is known.
    """

    good: str
    bad: str
    paradigm: str
    field: str = ""


@dataclasses.dataclass(frozen=True)
class _Archive:
    """A suite in a zip file: its address, the folder with its files, and its number of pairs."""

    url: str
    folder: str
    pairs: int


_GITHUB = "https://github.com/{0}/archive/{1}.zip"
SUITES = {
    "blimp": _Archive(
        _GITHUB.format("alexwarstadt/blimp", "d07303a7662f1942d70c5e2bbac7aa021c6cdbd0"),
        "data",
        67_000,
    ),
    "zorro": _Archive(
        _GITHUB.format("phueb/Zorro", "3b62dae0615dcc41114010a7ed755413e5e670db"),
        "sentences/babyberta",
        46_000,
    ),
}


def read_pairs(suite: str, per_paradigm: int = 0) -> list[MinimalPair]:
    """Reads a suite, in the order of its files.

    Args:
      suite: a file, a folder, or a name of SUITES.
      per_paradigm: pairs of each paradigm, evenly spaced; 0: all.

    Raises:
      UserError: there is no such suite, it cannot be downloaded, or it has another form.
    """
    if per_paradigm < 0:
        raise UserError(f"per_paradigm={per_paradigm} must be at least 0, which means all pairs.")
    path = pathlib.Path(suite)
    if not path.exists():
        path = _downloaded(suite)
    pairs = [pair for part, name in _files(path) for pair in _read(str(part), name)]
    if not pairs:
        raise UserError(f"{suite} has no pairs of sentences.")
    fields: dict[str, str] = {}
    for pair in pairs:
        if (field := fields.setdefault(pair.paradigm, pair.field)) != pair.field:
            raise UserError(
                f"{suite}: the paradigm {pair.paradigm!r} has the fields {field!r} and"
                f" {pair.field!r}: give each field paradigms of its own."
            )
    return _sample(pairs, per_paradigm) if per_paradigm else pairs


def suite_metric(suite: str) -> str:
    """Returns the name of the metric of a suite: NAME_accuracy, where NAME is that of its file."""
    name = os.path.basename(suite.rstrip("/"))
    return f"{name if os.path.isdir(suite) else _stem(name)}_accuracy"


def _stem(name: str) -> str:
    ending = ending_of(name)
    return name[: name.lower().rindex(ending)] if ending else name


def check_scored(suite: str, sentence: str, count: int) -> None:
    """Raises UserError if no token of a sentence is scored: the sum, 0, would always win."""
    if not count:
        raise UserError(
            f"A sentence of {suite}, {sentence!r}, has no token to which the model gives a"
            " probability: leave its pair out."
        )


def _files(path: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    """Returns the files of a suite and their names, no two of which are equal."""
    if path.is_file():
        return [(path, _stem(path.name))]
    parts = [part for part in sorted(path.rglob("*")) if part.is_file()]
    parts = [p for p in parts if not any(n.startswith(".") for n in p.relative_to(path).parts)]
    count = Counter(_stem(part.name) for part in parts)
    is_unique = lambda part: count[_stem(part.name)] == 1  # noqa: E731
    return [(p, _stem(p.name) if is_unique(p) else str(p.relative_to(path))) for p in parts]


def _read(path: str, name: str) -> Iterator[MinimalPair]:
    if ending_of(path) == ".txt" and not has_objects(path) and len(first_row(path)) < 2:
        yield from _read_lines(path, name)
        return
    for where, row in read_rows(path, Counter()):
        good, bad = (_column(row, role, where) for role in _SENTENCES)
        if not (good.strip() and bad.strip()):
            raise UserError(f"{where} has an empty sentence.")
        paradigm = _column(row, "paradigm", where)
        field = _column(row, "field", where, _field_of(paradigm))
        paradigm = paradigm or field or name
        yield MinimalPair(good, bad, paradigm, field.replace("/", "_"))  # BLiMP has both


def _column(row: Row, role: str, where: str, default: str = "") -> str:
    """Returns the text of the first column for a role; without one, the default."""
    names = _COLUMNS[role]
    if name := next((name for name in names if name in row), ""):
        return text_field(row, name, role, where)
    if role in _SENTENCES:
        columns = ", ".join(map(str, row))
        raise UserError(f"{where} has no column {' or '.join(names)}: its columns are {columns}.")
    return default


def _read_lines(path: str, paradigm: str) -> Iterator[MinimalPair]:
    lines = [(number, line.strip()) for number, line in read_lines(path, Counter())]
    if not all(line for _, line in lines) or len(lines) % 2:
        raise UserError(
            f"{path} must have one sentence per line, the wrong one of each pair before the"
            " right one."
        )
    for (_, bad), (_, good) in zip(lines[::2], lines[1::2], strict=True):
        yield MinimalPair(good, bad, paradigm, _field_of(paradigm))


def _field_of(paradigm: str) -> str:
    return paradigm.rpartition(_FIELD_END)[0]


def _sample(pairs: list[MinimalPair], count: int) -> list[MinimalPair]:
    sizes = Counter(pair.paradigm for pair in pairs)
    seen, found = Counter(), []
    for pair in pairs:
        # The numbers at which a multiple of size / count is passed.
        number, size = seen[pair.paradigm], sizes[pair.paradigm]
        if number * count // size != (number - 1) * count // size:
            found.append(pair)
        seen[pair.paradigm] += 1
    return found


def _downloaded(name: str) -> pathlib.Path:
    """Returns the folder of a suite in the user's cache folder, which is created if needed."""
    if name not in SUITES:
        raise UserError(
            f"{name} is neither a file or folder nor a suite: give a path, or"
            f" {' or '.join(SUITES)}."
        )
    archive = SUITES[name]
    folder = pathlib.Path(cache_folder("suites"), name)
    if folder.is_dir():
        return folder
    try:
        with urllib.request.urlopen(archive.url, timeout=60) as response:
            content = response.read()
    except (urllib.error.URLError, OSError) as error:
        raise UserError(
            f"{name} could not be downloaded from {archive.url} ({getattr(error, 'reason', error)})"
            f": unpack it elsewhere, and give the path of its folder {archive.folder}."
        ) from None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        _unpack(content, archive.folder, pathlib.Path(made) / name)
        if (count := len(read_pairs(str(pathlib.Path(made) / name)))) != archive.pairs:
            raise UserError(f"{archive.url} has {count:,} pairs instead of {archive.pairs:,}.")
        with contextlib.suppress(FileExistsError, OSError):  # another process was faster
            (pathlib.Path(made) / name).rename(folder)
    return folder


def _unpack(content: bytes, inner: str, folder: pathlib.Path) -> None:
    """Writes the files of the folder `inner` of a zip file, whose first folder has any name."""
    folder.mkdir()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path in map(pathlib.PurePosixPath, archive.namelist()):
            if "/".join(path.parts[1:-1]) == inner:
                (folder / path.name).write_bytes(archive.read(str(path)))
