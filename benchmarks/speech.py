"""Child-directed speech as text: the utterances of everyone but children.

    python -m benchmarks.speech FOLDER --output=speech.txt

FOLDER holds files of CHILDES, at any depth: transcripts in CHAT (.cha) or TalkBank's XML (.xml),
tables of AO-CHILDES (.csv; https://github.com/UIUCLearningLanguageLab/AOCHILDES), or utterances
without punctuation, one per line (.txt). Left out are the speakers with the code CHI in CHAT, and
with the role Child or Target_Child elsewhere. Utterances of fewer than three words and those with
unintelligible words are left out. The text has a document per utterance. In files without
punctuation, a rule finds the questions: in the transcripts of Brown, Bloom and Gelman, it agrees
with 85 % of the marks, and most of the others are questions with the word order of statements.
"""

import argparse
import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import command
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag("FOLDER", "", "folder with transcripts"),
    Flag("output", "speech.txt", "File for the text, outside of FOLDER."),
)
MIN_WORDS = 3
_WORD = re.compile(r"\w[\w'-]*")
_UNINTELLIGIBLE = re.compile(r"\b(xxx?|yyy?|www)\b")
_XML = "{http://www.talkbank.org/ns/talkbank}"
# A part of AO-CHILDES' types of utterances -> what ends such a one.
_ENDS = {"question": "?", "imperative": "!"}
# What CHAT marks in an utterance, in this order -> what stands there in the text.
_CHAT_MARKS = (
    (r"\x15.*?\x15", ""),  # times in a recording
    (r"\[[^\]]*\]", ""),
    (r"&\S+", ""),  # fillers and gestures
    (r"\([\d.:]*\)", ""),  # pauses
    (r"\+[^\s\w]*([.!?])", r"\1"),  # ends, such as an interrupted question
    (r"\+[^\s\w]+", ""),  # beginnings
    (r"@\S*", ""),  # kinds of words
    (r"[_+]", " "),  # compounds
    (r"[„‡]", ","),
    (r"\b0\w*", ""),  # missing words
    (r"[^\w\s'.,!?-]", ""),  # overlaps, tones, omitted sounds
    (r"\s+", " "),
)
_CHILDREN = ("Target_Child", "Child")  # the roles that both tables and XML name
_AUXILIARY = (
    "(?:(?:is|are|was|were|does|did|could|would|should|has|have|had|do|ca|wo|sha)n't"
    "|is|are|am|was|were|do|does|did|can|could|shall|will|would|should|may|might|must|has|have|had)"
)
_SUBJECT = "(?:i|you|he|she|it|we|they|there|that|this|these|those|the|a|an|your|my|his|her)"
_QUESTION = re.compile(
    rf"""
      ^(?:(?:and|but|so|well|oh|then|or|now|okay)\ )*
      (?: (?:who|what|where|how|why)'(?:s|re|d|ll)\b
        | (?:who|whose|which|why)\b
        | (?:how|what)\ (?:about|kind|many|much|come|else|color|colour)\b
        | (?:what|where|when|how)(?:\ \w+)?\ {_AUXILIARY}\b
        | (?:do|don't|have|haven't)\ (?:you\ (?!dare)|i|we|they)\b
        | (?!(?:do|don't|have)\b){_AUXILIARY}\ {_SUBJECT}\b
      )
    | \b{_AUXILIARY}\ (?:i|you|he|she|it|we|they|there)$
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_question(said: str) -> bool:
    """Returns whether words without punctuation begin or end as a question."""
    return bool(_QUESTION.search(said))


def read_chat(path: Path) -> Iterator[str]:
    """Yields utterances of a transcript, with punctuation."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\n\t", " ")
    for speaker, said in re.findall(r"^\*([A-Z0-9]+): *\t(.*)$", text, re.MULTILINE):
        if speaker != "CHI":
            for mark, written in _CHAT_MARKS:
                said = re.sub(mark, written, said)
            yield said.strip()


def read_xml(path: Path) -> Iterator[str]:
    """Yields utterances of a transcript in TalkBank's XML, with punctuation.

    Raises:
      UserError: it is not such a file.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise UserError(f"{path} is not XML ({error}): move it out of the folder.") from error
    if root.tag != f"{_XML}CHAT":
        raise UserError(f"{path} is not a transcript of TalkBank: move it out of the folder.")
    children = {
        speaker.get("id")
        for speaker in root.iter(f"{_XML}participant")
        if speaker.get("role") in _CHILDREN
    }
    for utterance in root.iter(f"{_XML}u"):
        if utterance.get("who") not in children:
            yield "".join(_spoken(utterance)).strip()


def _spoken(part: ElementTree.Element) -> Iterator[str]:
    """Yields words and punctuation of a part of an utterance, with the spaces before them."""
    for child in part:
        kind, tag = child.get("type", ""), child.tag.removeprefix(_XML)
        if tag == "w" and kind not in ("filler", "fragment", "omission"):
            yield f" {''.join(_spelled(child))}".replace("_", " ")
        elif tag == "tagMarker":
            yield " ,"
        elif tag == "t":
            yield " ?" if kind == "q" or "question" in kind else " !" if kind == "e" else " ."
        elif tag == "g":
            yield from _spoken(child)


def _spelled(word: ElementTree.Element) -> Iterator[str]:
    """Yields the parts of a word: its text, sounds that were left out, parts of a compound."""
    yield (word.text or "").strip()
    for child in word:
        tag = child.tag.removeprefix(_XML)
        if tag == "shortening":
            yield child.text or ""
        elif tag == "wk":
            yield " "
        yield (child.tail or "").strip()


def read_table(path: Path) -> Iterator[str]:
    """Yields utterances of a table of AO-CHILDES, with punctuation.

    Raises:
      UserError: it lacks a column.
    """
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, restval=""):
            if not {"gloss", "type", "speaker_role"} <= row.keys():
                raise UserError(
                    f"{path} lacks the columns gloss, type and speaker_role of AO-CHILDES: move"
                    " tables of another kind out of the folder."
                )
            if row["speaker_role"] not in _CHILDREN and row["gloss"] != "NA":
                end = next((end for kind, end in _ENDS.items() if kind in row["type"]), ".")
                yield f"{row['gloss'].replace('_', ' ').strip()} {end}"


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file without punctuation, and "?" or "." after each."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        said = line.replace("willn't", "won't").replace("_", " ").strip()
        if said:
            yield f"{said} {'?' if is_question(said) else '.'}"


READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    ".cha": read_chat,
    ".xml": read_xml,
    ".csv": read_table,
    ".txt": read_lines,
}


def utterances(folder: Path) -> Iterator[str]:
    """Yields the utterances of all files, sorted by path."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for said in READERS[path.suffix](path) if path.suffix in READERS else ():
            if len(_WORD.findall(said)) >= MIN_WORDS and not _UNINTELLIGIBLE.search(said):
                yield said


def run(flags: argparse.Namespace) -> None:
    """Writes the text, and prints how many utterances and words it has.

    Raises:
      UserError: there are no utterances, or the text would become one of the files.
    """
    folder, output = Path(flags.folder), Path(flags.output)
    if folder.resolve() in output.resolve().parents:
        raise UserError(f"--output={output} is in {folder}, whose files are read: choose another.")
    found = list(utterances(folder))
    if not found:
        raise UserError(f"{folder} has no utterances in .cha, .xml, .csv or .txt files.")
    write_text(output, "\n\n".join(found) + "\n")
    print(f"{len(found):,} utterances, {sum(len(said.split()) for said in found):,} words")


if __name__ == "__main__":
    command.start("speech")
