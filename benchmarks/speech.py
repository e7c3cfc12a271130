"""Child-directed speech as text: what everybody says but the child, an utterance a document.

    python -m benchmarks.speech FOLDER --output=speech.txt

FOLDER holds files of CHILDES, in any folders: transcripts in CHAT (.cha), tables of AO-CHILDES
(.csv; https://github.com/UIUCLearningLanguageLab/AOCHILDES), or utterances of adults, one a line
and without punctuation (.txt). Those with fewer than three words or with words that nobody
understood are left out. Where a file has no punctuation, a rule tells questions by their first and
last words.
"""

import argparse
import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import command
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag("FOLDER", "", "folder with transcripts"),
    Flag("output", "speech.txt", "File for the text."),
)
MIN_WORDS = 3
_NOT_UNDERSTOOD = re.compile(r"\b(xxx?|yyy?|www)\b")
_OPENERS = (
    "who who's what what's where where's when why how which whose is isn't are aren't was wasn't"
    " were do don't\xa0you does doesn't did didn't can can't could couldn't shall will would"
    " wouldn't won't has have\xa0you have\xa0we hasn't am should shouldn't"
)
_TAGS = (
    "isn't\xa0it is\xa0it aren't\xa0they are\xa0they don't\xa0you do\xa0you haven't\xa0you"
    " have\xa0you can\xa0you can't\xa0you won't\xa0you will\xa0you shall\xa0we didn't\xa0you"
    " did\xa0you doesn't\xa0it does\xa0it"
)


def _any_of(phrases: str) -> str:
    return "|".join(phrases.split(" ")).replace("\xa0", " ")


_QUESTION = re.compile(
    rf"^((and|but|so|well|oh|then|or|now) )*({_any_of(_OPENERS)})\b|\b({_any_of(_TAGS)})$", re.I
)
# What CHAT marks in an utterance, in this order -> what stands there in the text.
_CHAT_CODES = (
    (r"\x15.*?\x15", ""),  # times in a recording
    (r"\[[^\]]*\]", ""),
    (r"&\S+", ""),  # fillers and gestures
    (r"[<>]", ""),
    (r"\(\.*\)", ""),  # pauses
    (r"[()]", ""),  # around sounds that were left out
    (r"\+[\"/.,!?<^]+", ""),
    (r"@\S*", ""),  # kinds of words
    (r"[_+]", " "),  # compounds
    (r"[„‡]", ","),
    (r"\b0\w*", ""),  # missing words
    (r"[“”↑↓→:]", ""),
    (r"\s+", " "),
)


def read_chat(path: Path) -> Iterator[str]:
    """Yields utterances of a transcript, with punctuation."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\n\t", " ")
    for speaker, said in re.findall(r"^\*([A-Z0-9]{3}):\t(.*)$", text, re.MULTILINE):
        if speaker != "CHI":
            for code, written in _CHAT_CODES:
                said = re.sub(code, written, said)
            yield said.strip()


def read_table(path: Path) -> Iterator[str]:
    """Yields utterances of a table of AO-CHILDES, with punctuation."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["speaker_role"] != "Target_Child" and row["gloss"] not in ("", "NA"):
                ends = (
                    end for kind, end in (("question", "?"), ("exclam", "!")) if kind in row["type"]
                )
                yield f"{row['gloss'].replace('_', ' ').strip()} {next(ends, '.')}"


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file without punctuation, and "?" or "." after each."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        said = line.replace("willn't", "won't").replace("_", " ").strip()
        if said and not said.isdigit():  # the first line counts words
            yield f"{said} {'?' if _QUESTION.search(said) else '.'}"


READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    ".cha": read_chat,
    ".csv": read_table,
    ".txt": read_lines,
}


def utterances(folder: Path) -> Iterator[str]:
    """Yields the utterances of all files, sorted by path."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for said in READERS[path.suffix](path) if path.suffix in READERS else ():
            if len(said.split()) > MIN_WORDS and not _NOT_UNDERSTOOD.search(said):
                yield said


def run(flags: argparse.Namespace) -> None:
    """Writes the text, and prints how many utterances and words it has.

    Raises:
      UserError: there are no utterances.
    """
    found = list(utterances(Path(flags.folder)))
    if not found:
        raise UserError(f"{flags.folder} has no utterances of adults in .cha or .csv files.")
    write_text(flags.output, "\n\n".join(found) + "\n")
    print(f"{len(found):,} utterances, {sum(len(said.split()) for said in found):,} words")


if __name__ == "__main__":
    command.start("speech")
