"""Scores of named entities: precision, recall and F1 as conlleval computes them.

Gold tags come first, predictions second. All scores are fractions. An undefined quotient, 0 / 0,
is 0, as in seqeval.
"""

import re
from collections.abc import Iterable, Sequence

from bert_jax.files.errors import UserError
from bert_jax.scores.classification import Counts, accuracy

_TAG = re.compile(r"O|([BIES])(?:-(.*))?", re.DOTALL)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Returns (type, first word, last word) of each entity of a sentence, as conlleval does.

    IOB1, IOB2 and IOBES may be mixed, and every sequence is valid: an entity begins at B and S,
    after O, E and S, and where the type changes.

    Raises:
      UserError: an invalid tag.
    """
    spans, start, previous, kind = set(), 0, "O", ""
    for position, tag in enumerate([*tags, "O"]):
        match = _TAG.fullmatch(tag)
        if match is None:
            raise UserError(f"Invalid tag {tag!r}: tags are O, or B-, I-, E- or S- and a type.")
        prefix, next_kind = match[1] or "O", match[2] or "_"
        if previous != "O" and (prefix in "OBS" or previous in "ES" or next_kind != kind):
            spans.add((kind, start, position - 1))
            previous = "O"
        if previous == "O":
            start = position
        previous, kind = prefix, next_kind
    return spans


def entity_counts(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, Counts]:
    """Returns type -> Counts of the entities, sorted by type.

    An entity is correct if type, first and last word are equal. `micro` of the counts has
    conlleval's overall precision, recall and F1.

    Raises:
      UserError: the sentences differ in number or length, or a tag is invalid.
    """
    counts: dict[str, Counts] = {}
    for gold_tags, predicted_tags in _sentences(gold, predicted):
        true, guessed = entities(gold_tags), entities(predicted_tags)
        for kind, *_ in true | guessed:
            counts.setdefault(kind, Counts())
        for kind in {kind for kind, *_ in true | guessed}:
            counts[kind] += Counts(
                *(sum(k == kind for k, *_ in some) for some in (true & guessed, guessed, true))
            )
    return dict(sorted(counts.items()))


def token_accuracy(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> float:
    """Returns the fraction of words whose tag is correct, over all sentences."""
    pairs = list(_sentences(gold, predicted))
    return accuracy(
        [tag for tags, _ in pairs for tag in tags], [tag for _, tags in pairs for tag in tags]
    )


def _sentences(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> Iterable[tuple[Sequence[str], Sequence[str]]]:
    gold, predicted = list(gold), list(predicted)
    if len(gold) != len(predicted):
        raise UserError(f"{len(gold)} sentences of gold tags, {len(predicted)} of predictions.")
    for number, (true, guessed) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(guessed):
            raise UserError(
                f"Sentence {number} has {len(true)} gold tags and {len(guessed)} predictions."
            )
        yield true, guessed
