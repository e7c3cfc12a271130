"""Finds out how a file gives words and their tags.

    lines of columns          a word and its tag among them, CoNLL-U's ten, the tag first or last
    lists, also as text       "tokens": ["EU", "won"], "tags": ["B-ORG", "O"]
    texts                     "text": "EU won", "tags": "B-ORG O"; or entities as characters of it
    rows of a table           a word, its tag, and the sentence that it is in

Tags are those of entities (O, B-TYPE, ...) or else classes of single words, such as parts of
speech, whose score is the accuracy.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from bert_jax.data.labelled.cells import is_list_text, is_missing
from bert_jax.data.labelled.conll import are_tags, columns_of, elements, is_comment, is_document
from bert_jax.data.labelled.entity_spans import is_spans
from bert_jax.data.labelled.forms.table import TEXTS, Detection, Table, known, listed
from bert_jax.data.labelled.reading import ending_of, read_lines
from bert_jax.data.labelled.tags import is_typed_tag
from bert_jax.files.errors import UserError

_WORDS = ("tokens", "words", "token", "word")
_TAGS = (
    *("tags", "tag", "ner_tags", "ner_tag", "ner", "labels", "label"),
    *("pos_tags", "pos_tag", "pos"),
)
# Number of words of a text above which it is no coincidence that it has as many labels.
_MIN_WORDS = 3
_SENTENCES = ("sentence", "sentence #", "sentence_id", "sentence id", "sentence_idx", "sent_id")
_SPANS = ("entities", "spans", "label", "labels", "annotations")
# Fields of a run whose tags are classes of words.
_CLASSES = {"task.entities": False, "metrics": ("accuracy",)}
# CoNLL-U: the number of columns, those of the word and of its part of speech.
_CONLL_U = 10, 1, 3
# Lines that are read to find out the form of a file.
_MAX_LINES = 1000
# Share of the lines, and of the tags, that may have another form by mistake.
_MISTAKES = 0.1


def detect_columns(path: str) -> Detection | None:
    """Returns the detection of a file with a word and its tag per line; None: it has another form.

    The columns become fields unless words are in the first column and tags in the last one.
    """
    if ending_of(path) == ".csv":
        return None
    lines = [line for _, line in islice(read_lines(path, Counter()), _MAX_LINES)]
    while lines and not lines[-1].strip():
        lines.pop()
    filled = [line for line in lines if line.strip() and not is_document(line)]
    width = next((len(columns_of(line)) for line in filled if not line.startswith("#")), 0)
    rows = [columns_of(line) for line in filled if not is_comment(line, width)]
    right = [row for row in rows if len(row) == width]
    if width < 2 or len(rows) - len(right) > _MISTAKES * len(rows):
        return None
    columns = list(zip(*right, strict=True))
    what, fields = "one word and its tag per line", {}
    if width == _CONLL_U[0] and any(map(str.isdecimal, columns[0])):
        fields = {"task.text_a": str(_CONLL_U[1]), "task.label": str(_CONLL_U[2])}
        return Detection("tagging", what, fields | _CLASSES)
    typed = [c for c, tags in enumerate(columns) if _are_entities(tags)]
    if not typed and all(line.strip() for line in lines):
        return None  # texts and labels, or the lines of a text
    first, last = (len(set(columns[c])) for c in (0, -1))
    tags = max(typed) if typed else 0 if first < last and width == 2 else width - 1
    words = next(c for c in (0, 1) if c != tags)
    if width > 2 and words == 0 and all(map(str.isdecimal, columns[0])):
        words = 1  # after the number of the word
    if words:
        fields["task.text_a"] = str(words)
    if tags != width - 1:
        fields["task.label"] = str(tags)
    return Detection("tagging", what, fields | ({} if typed else _CLASSES))


def detect_words(table: Table) -> Detection | None:
    """Returns the detection of a table of words and tags; None: it is not one."""
    columns, given = table.columns, table.given
    words, text = table.named("text_a", _WORDS), table.named("text_a", TEXTS)
    spans = known([n for n in _SPANS if n == given.get("task.label", n)], columns)
    if text in columns and spans in columns and _are_spans(columns[text], columns[spans], spans):
        fields = {"task.text_a": str(text), "task.label": str(spans)}
        return Detection("tagging", f"texts ({text}) and their entities ({spans})", fields)
    tags = table.named("label", _TAGS)
    if words is None or words not in columns:
        words = text
    if words not in columns or tags not in columns:
        return None
    cells = zip(columns[words], columns[tags], strict=True)
    pairs = [pair for pair in cells if not any(map(is_missing, pair))]
    fields = {"task.text_a": str(words), "task.label": str(tags)}
    is_row = all(_is_word(word) for word, _ in pairs)
    if pairs and not is_row and all(_fit(*pair) for pair in pairs):
        each = [tag for _, value in pairs for tag in elements(value)]
        if all(str(tag).isdecimal() for tag in each):
            raise UserError(
                f"{table.path}: the tags in {str(tags)!r} are numbers: write their names. (Parquet"
                " files and folders of datasets have them with their class labels.)"
            )
        of_entities = _are_entities(map(str, each))
        if of_entities or max(len(elements(value)) for _, value in pairs) > _MIN_WORDS:
            what = f"sentences of words ({words}) and tags ({tags})"
            return Detection("tagging", what, fields | ({} if of_entities else _CLASSES))
    if str(words).strip().lower() not in _WORDS or not is_row:
        return None
    sentence = table.named("id", _SENTENCES)
    if sentence is None or sentence not in columns:
        raise UserError(
            f"{table.path} has one word per row ({words}), and no column that numbers sentences"
            f" among {listed(columns)}: name it with task.id, or set --task=classification."
        )
    fields["task.id"] = str(sentence)
    if not _are_entities(str(tag) for _, tag in pairs):
        fields |= _CLASSES
    what = f"a word ({words}) and its tag ({tags}) per row, sentences by {sentence!r}"
    return Detection("tagging", what, fields)


def _are_spans(texts: Sequence[Any], values: Sequence[Any], name: str) -> bool:
    some = [value for value in values if value]
    of_texts = any(isinstance(text, str) for text in texts) and all(map(is_spans, some))
    lists = all(isinstance(value, list) for value in values if value is not None)
    return of_texts and lists and (bool(some) or name in _SPANS[:2])


def _fit(words: Any, tags: Any) -> bool:
    """Returns whether cells have several words and as many tags."""
    words_are_list, tags_are_list = (
        isinstance(value, list) or is_list_text(value) for value in (words, tags)
    )
    if not words_are_list and not (isinstance(words, str) and are_tags(tags)):
        return False
    return (tags_are_list or are_tags(tags)) and len(elements(words)) == len(elements(tags))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) < 2 and not is_list_text(value)


def _are_entities(tags: Iterable[str]) -> bool:
    """Returns whether tags are those of entities, apart from mistakes; words are no O's only."""
    counts = Counter(tags)
    outside = counts.pop("O", 0)
    typed = sum(count for tag, count in counts.items() if is_typed_tag(tag))
    if set(counts) <= {"B", "I"} and counts:  # without types
        return outside > 0
    return (outside > 0 or typed > 0) and typed >= (1 - _MISTAKES) * counts.total()
