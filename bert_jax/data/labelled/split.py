"""Holds out a part of a labelled file, if there is no file to evaluate on.

The part is stratified: each class, entity type or decile of the numbers has its share; those that
are too small for a share of their own have one together. Every label stays in the part to train on.
Examples with the same (first) text, sentences of one document and questions about one context stay
on one side, so that what is held out is new. Which ones are held out depends on their text and the
seed, not on their order in the file.
"""

import hashlib
import io
import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.data.labelled.examples import ChoiceExample, Question, TaggedExample, TextExample
from bert_jax.data.labelled.reading import has_objects, read_objects
from bert_jax.data.labelled.table_rows import csv_writer, read_rows
from bert_jax.files.atomic import write_text
from bert_jax.files.errors import UserError

TRAIN, EVALUATE = "train", "evaluate"
# Fewer examples are not split: the score of a handful says nothing.
_FEWEST = 10
# Characters after the end of a context: no place of an answer is near (`questions`).
_BEYOND = 1000
# The common stratum of those that are too small.
_TOGETHER = "together", None
_Example = TextExample | TaggedExample | Question | ChoiceExample


def held_out(
    examples: Sequence[_Example], share: float, seed: int, are_numbers: bool = False
) -> list[bool]:
    """Returns for each example whether it is held out.

    Args:
      examples: labelled examples.
      share: share to hold out, above 0 and below 1.
      seed: a different seed holds out different examples.
      are_numbers: whether labels are numbers (regression).

    Raises:
      UserError: there are too few examples.
    """
    if len(examples) < _FEWEST:
        raise UserError(
            f"{len(examples)} examples are too few to hold some out: give a file to evaluate on."
        )
    groups: dict[str, list[int]] = defaultdict(list)
    for number, group in enumerate(_groups(examples)):
        groups[group].append(number)
    stratum_of = find_strata(examples, are_numbers)
    small = small_strata(stratum_of, share)
    strata: dict[Any, list[list[int]]] = defaultdict(list)
    for group in sorted(groups, key=lambda group: _hash(group, seed)):
        stratum = stratum_of[groups[group][0]]
        strata[_TOGETHER if stratum in small else stratum].append(groups[group])
    chosen = [False] * len(examples)
    labels = [() if are_numbers else labels_of(example) for example in examples]
    left = Counter(name for names in labels for name in names)
    for of_stratum in strata.values():
        wanted = _num_held_out(share, sum(map(len, of_stratum)))
        for members in of_stratum[:-1]:  # one is left to train on
            if wanted <= 0:
                break
            taken = Counter(name for number in members for name in labels[number])
            if any(left[name] <= count for name, count in taken.items()):
                continue
            left -= taken
            for number in members:
                chosen[number] = True
            wanted -= len(members)
    if not any(chosen):
        raise UserError(
            f"None of the {len(examples)} examples can be held out, since each label, or each group"
            " of equal texts, must stay in the training data: give a file to evaluate on."
        )
    return chosen


def small_strata(stratum_of: Sequence[Any], share: float) -> set[Any]:
    """Returns the strata, of all examples, that are too small for a share of their own."""
    return {s for s, count in Counter(stratum_of).items() if _num_held_out(share, count) == 0}


def _num_held_out(share: float, count: int) -> int:
    return round(share * count + 1e-9)


def write_split(
    source: str,
    examples: Sequence[_Example],
    chosen: Sequence[bool],
    has_header: bool,
    folder: str,
    words: str = "",
    tags: str = "",
) -> tuple[str, str]:
    """Writes the part to train on and the one held out, and returns their paths.

    Tables and JSON objects keep all columns and fields; words and tags of other files, and
    questions, become JSON lines with the fields that data/labelled/ reads.

    Args:
      source: the file.
      examples: its examples.
      chosen: result of `held_out`.
      has_header: whether the first row of a table has the names of the columns.
      folder: folder of the parts.
      words, tags: names of the fields of words and tags; numbers and "": the usual ones.
    """
    is_json = has_objects(source)
    if isinstance(examples[0], TextExample | ChoiceExample):
        places = {example.where for example in examples}  # others were left out
        found = read_rows(source, Counter(), has_header)
        rows = [row for where, row in found if where in places]
    else:
        has_rows = is_json and isinstance(examples[0], TaggedExample)
        rows = [row for _, row in read_objects(source, Counter())] if has_rows else []
        if len(rows) != len(examples):
            words = "tokens" if not words or words.isdecimal() else words
            tags = "tags" if not tags or tags.isdecimal() else tags
            rows = [_to_object(example, words, tags) for example in examples]
        is_json = True
    os.makedirs(folder, exist_ok=True)
    ending, header = ("jsonl", []) if is_json else ("csv", [list(rows[0])] * has_header)
    train, evaluate = (os.path.join(folder, f"{name}.{ending}") for name in (TRAIN, EVALUATE))
    for path, side in ((train, False), (evaluate, True)):
        part, text = (
            (row for row, held in zip(rows, chosen, strict=True) if held is side),
            io.StringIO(),
        )
        if is_json:
            text.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        else:
            csv_writer(text).writerows([*header, *(row.values() for row in part)])
        write_text(path, text.getvalue())
    return train, evaluate


def _to_object(example: _Example, words: str, tags: str) -> dict[str, Any]:
    if isinstance(example, Question):
        # An answer that is not found is not searched for again, as one without an offset would be.
        beyond = len(example.context) + _BEYOND
        answers = [
            {"text": text, "answer_start": beyond if start < 0 else start}
            for text, start in example.answers
        ]
        fields = {"id": example.id, "question": example.question, "context": example.context}
        return fields | {"answers": answers, "is_impossible": example.is_impossible}
    assert isinstance(example, TaggedExample)
    fields = {"id": example.id, words: example.words, tags: example.tags}
    return fields | {"document": example.document}


def _groups(examples: Sequence[_Example]) -> list[str]:
    """Returns the group of each example; examples of one group stay together."""
    first, rest = zip(*map(_parts, examples), strict=True)
    if len(set(first)) >= _FEWEST:  # otherwise they would be too coarse
        return list(first)
    return list(map("\t".join, zip(first, rest, strict=True)))


def _parts(example: _Example) -> tuple[str, str]:
    """Returns the text, document or context of an example, and what else it has."""
    if isinstance(example, TextExample):
        return example.text_a, example.text_b or ""
    if isinstance(example, TaggedExample):
        return str(example.document), " ".join(example.words)
    return example.context, example.question if isinstance(example, Question) else example.start


def find_strata(examples: Sequence[_Example], are_numbers: bool) -> list[Any]:
    """Returns the stratum of each example: its rarest label, or the decile of its number."""
    labels = list(map(labels_of, examples))
    if are_numbers:
        order = np.argsort([float(names[0]) for names in labels], kind="stable")
        return (10 * np.argsort(order) // len(order)).tolist()
    counts = Counter(name for names in labels for name in names)
    return [min(names, key=lambda name: (counts[name], name), default="") for names in labels]


def labels_of(example: _Example) -> Sequence[str]:
    """Returns the labels of an example; of a sentence, the types of its entities."""
    if isinstance(example, TextExample):
        return example.labels or ()
    if isinstance(example, TaggedExample):
        return sorted({tag[2 * (tag[1:2] == "-") :] for tag in example.tags or () if tag != "O"})
    return (str(example.is_impossible),) if isinstance(example, Question) else ()


def _hash(group: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}\0{group}".encode("utf-8", "surrogatepass")).hexdigest()
