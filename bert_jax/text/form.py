"""The form of a text, detected from a sample of it: what a line is, and what a document is.

    one paragraph per line   lines with several sentences
    one sentence per line    hardly any line has several
    wrapped lines            the next line's first word would not have fitted
    JSON lines               each line is a JSON object
    Parquet                  each row of a file, or of a folder of Hugging Face `datasets`

Documents are what blank lines separate, if there are enough of them; otherwise the files, or else
the lines (for wrapped text, the paragraphs), since held-out text is chosen by document.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from bert_jax.config.data import DataConfig
from bert_jax.files.errors import UserError
from bert_jax.text.arrow_tables import ENDINGS, Table, is_table
from bert_jax.text.files import FileRange, refuse_spreadsheet
from bert_jax.text.lines import BadText, make_documents, read_lines, split_sentences
from bert_jax.text.parquet import find_tables
from bert_jax.text.sources import find_files

# Characters of the sample, and the maximum number of files that they are taken from.
_SAMPLE, _MAX_FILES = 1 << 20, 16
# Lines that are split into sentences.
_MAX_LINES = 2000
# Share of the lines with several sentences above which lines are paragraphs. Splitting by rules
# finds a second sentence in 6 % of the lines of google-research/bert's sample_text.txt, which has
# one sentence per line, and in 34 % and 63 % of those of novels and of Wikipedia's articles.
_PARAGRAPHS = 0.15
# Wrapped text: maximum length of lines, and minimum share of line ends where no word would fit.
_MAX_WIDTH, _WRAPPED = 160, 0.6
# Minimum number of documents of a corpus, so that some of them can be held out.
_MIN_DOCUMENTS = 20
_TABLES = (".csv", ".tsv")


@dataclasses.dataclass(frozen=True)
class TextForm:
    """What a text is like.

    Attributes:
      fields: name of a field of `config.data` -> its value, and the reason.
      sentences: sentences of the sample.
      scale: size of the text divided by that of the sample.
      num_documents: estimated documents of the whole text.
    """

    fields: Mapping[str, tuple[Any, str]]
    sentences: Sequence[str]
    scale: float
    num_documents: int

    @property
    def sentences_per_document(self) -> float:
        """Estimated mean number of sentences of a document."""
        return len(self.sentences) * self.scale / max(1, self.num_documents)


def find_form(text: str) -> TextForm:
    """Returns the form of a text.

    Args:
      text: files, as in `data.source=text:` or `parquet:`: globs separated by commas.

    Raises:
      UserError: there is no such file, it is a table or binary, or it has no text.
    """
    if text.lower().endswith(ENDINGS) or (os.path.isdir(text) and is_table(text)):
        return _form_of_tables(text)
    if os.path.isdir(text):
        raise UserError(f"{text} is a folder: name its files, for example '{text}/*.txt'.")
    files = find_files(text)
    for path in files:
        refuse_spreadsheet(path)
    if table := next((path for path in files if path.endswith(_TABLES)), ""):
        raise UserError(
            f"{table} is a table: write its column of texts to a file with one text per line, or to"
            ' JSON lines ({"text": ...}), and give that.'
        )
    lines, scale = _sample(files)
    filled = [line for line in map(str.strip, lines) if line]
    if not filled:
        raise UserError(f"There is no text in {text}.")
    size = _size(files)
    if name := _json_field(filled):
        fields: dict[str, tuple[Any, str]] = {
            "source": (f"jsonl:{text}", f"JSON lines, one document each; {size}"),
            "field": (name, "the longest text of the first objects"),
        }
        texts = [str((_json_object(line) or {}).get(name, "")) for line in filled]
        return _of_documents(fields, texts, scale)
    fields = {"source": (f"text:{text}", size), "line_format": _line_format(lines, filled)}
    if language := _language(filled):
        fields["language"] = (language, "its characters")
    values = {name: value for name, (value, _) in fields.items()}
    separator = fields["document_separator"] = _separator(lines, files, values, scale)
    config = DataConfig(**values, document_separator=separator[0])
    by_file = separator[0] == "file"
    documents = list(make_documents(lines, config, by_file, Counter()))
    sentences = [sentence for document in documents for sentence in document]
    return TextForm(
        fields, sentences, scale, len(files) if by_file else round(len(documents) * scale)
    )


def _size(files: Sequence[str]) -> str:
    size = sum(map(os.path.getsize, files)) / 1e6
    return f"{f'{len(files)} files' if len(files) > 1 else '1 file'}, {size:.2g} MB"


def _of_documents(
    fields: Mapping[str, tuple[Any, str]], texts: Sequence[str], scale: float
) -> TextForm:
    """Returns the form of a sample of texts that are documents."""
    sentences = [sentence for text in texts for sentence in split_sentences(text, "en")]
    return TextForm(fields, sentences, scale, round(len(texts) * scale))


def _form_of_tables(text: str) -> TextForm:
    """Returns the form of Parquet files or folders; a row is a document."""
    paths = find_tables(text)
    lengths: Counter[str] = Counter()
    for _, row in islice(Table(paths[0]).rows(), 20):
        lengths.update({name: len(x) for name, x in row.items() if isinstance(x, str)})
    columns = [name for name in Table(paths[0]).text_columns if lengths[name]]
    if not columns:
        raise UserError(f"There is no text in {text}.")
    column = max(columns, key=lengths.__getitem__)
    some, texts = paths[:: -(-len(paths) // _MAX_FILES)], []
    for path in some:
        left = _SAMPLE // len(some)
        for _, value in Table(path).texts(column):
            texts.append((value or b"").decode(errors="replace"))
            left -= len(texts[-1]) + 1
            if left < 0:
                break
    fields = {
        "source": (f"parquet:{text}", f"rows, one document each; {_size(paths)}"),
        "field": (column, "the longest text of the first rows"),
    }
    rows = sum(Table(path).num_rows for path in paths)
    return _of_documents(fields, texts, rows / len(texts))


def _sample(files: Sequence[str]) -> tuple[list[str], float]:
    """Returns the lines of the sample, and how many times larger the text is."""
    some = files[:: -(-len(files) // _MAX_FILES)]
    lines, read = [], 0
    for path in some:
        left = _SAMPLE // len(some)
        for line in read_lines(FileRange(path), BadText("replace", Counter(), str)):
            lines.append(line)
            left -= len(line) + 1
            read += len(line.encode("utf-8", "surrogatepass")) + 1
            if left < 0:
                break
        lines.append("")  # the end of a file ends a document
    return lines, max(1.0, sum(map(os.path.getsize, files)) / max(1, read))


def _json_field(filled: Sequence[str]) -> str:
    """Returns the field of JSON lines with the longest texts; "": they are not JSON."""
    lengths: Counter[str] = Counter()
    for line in islice(filled, 20):
        if (value := _json_object(line)) is None:
            return ""
        lengths.update({name: len(x) for name, x in value.items() if isinstance(x, str)})
    return max(lengths, key=lengths.__getitem__, default="")


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None


def _line_format(lines: Sequence[str], filled: Sequence[str]) -> tuple[str, str]:
    widths = sorted(map(len, filled))
    width = widths[int(0.99 * (len(widths) - 1))]
    pairs = [(a.strip(), b.split()[0]) for a, b in pairwise(lines) if a.strip() and b.strip()]
    breaks = sum(len(line) + 1 + len(word) > width for line, word in pairs)
    if len(pairs) > 4 and width <= _MAX_WIDTH and breaks > _WRAPPED * len(pairs):
        return "wrapped", f"lines are wrapped at about {width} characters"
    some = filled[:: -(-len(filled) // _MAX_LINES)]
    share = sum(len(split_sentences(line, "en")) > 1 for line in some) / len(some)
    found = f"{share:.0%} of the lines have several sentences"
    if share < _PARAGRAPHS:
        return "sentences", f"one sentence per line: {found}"
    return "paragraphs", f"one paragraph per line: {found}"


def _language(filled: Sequence[str]) -> str:
    """Returns the language whose sentence rules suit text without spaces; "": the default."""
    text = "".join(filled[:200])
    kana = sum("\u3040" <= character <= "\u30ff" for character in text)
    ideographs = sum("\u4e00" <= character <= "\u9fff" for character in text)
    if kana + ideographs < 0.3 * len(text):
        return ""
    return "ja" if kana > 0.1 * len(text) else "zh"


def _separator(
    lines: Sequence[str], files: Sequence[str], values: Mapping[str, Any], scale: float
) -> tuple[str, str]:
    """Returns the value of `document_separator`, and the reason."""
    is_wrapped = values["line_format"] == "wrapped"
    starts = [bool(b.strip()) and not a.strip() for a, b in pairwise(["", *lines])]
    blocks, num_lines = sum(starts), sum(bool(line.strip()) for line in lines)
    num_blocks = round(blocks * scale)
    of_one_line = num_lines < 1.5 * blocks
    if len(files) >= _MIN_DOCUMENTS and (is_wrapped or of_one_line or num_blocks == len(files)):
        return "file", f"each of the {len(files):,} files is a document"
    if not is_wrapped and num_blocks >= _MIN_DOCUMENTS:
        what = "blank lines between documents" if not of_one_line else "a blank line after each"
        return "blank_line", f"{what}, about {num_blocks:,}"
    unit = "paragraph" if is_wrapped else "line"
    blank = "no blank lines" if num_blocks == len(files) else f"{num_blocks:,} blocks of lines"
    why = "blank lines end paragraphs" if is_wrapped else f"{blank} are too few documents"
    return "line", f"each {unit} is a document of its own: {why}"
