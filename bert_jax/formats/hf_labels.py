"""The labels of a classifier or tagger in transformers' config.json, and what its numbers are.

transformers leaves `id2label` out for two classes without names; older programs and people write
`num_labels` alone, or name some classes only. A class without a name is LABEL_i there.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from bert_jax.files.errors import UserError

# `problem_type` of a class ForSequenceClassification -> value for `config.task.problem_type`.
PROBLEM_TYPES = {
    "single_label_classification": "single",
    "multi_label_classification": "multi",
    "regression": "regression",
}
# Keys with the function that sentence-transformers' CrossEncoder applies to the logits, in the
# order of its versions.
_CROSS_ENCODER = ("activation_fn", "sentence_transformers", "sbert_ce_default_activation_function")
# That function if there is none, and the usual one.
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"


def read_labels(values: Mapping[str, Any], path: str, rows: int) -> tuple[str, ...]:
    """Returns the names of the classes, one for each row of the head.

    Args:
      values: content of config.json.
      path: names the file in messages.
      rows: rows of the head.

    Raises:
      UserError: a key contradicts the head or another key.
    """
    number = values.get("num_labels")
    if number is not None and number != rows:
        raise UserError(f"{path} has num_labels={number!r}, but the head has {rows} rows.")
    numbers = {str(name): _class(n, path) for name, n in (values.get("label2id") or {}).items()}
    stored = values.get("id2label")
    if stored:
        if not isinstance(stored, Mapping):
            raise UserError(f"{path} has an id2label that is not an object: write number: name.")
        names = {_class(n, path): str(name) for n, name in stored.items()}
    else:
        names = {number: name for name, number in numbers.items()}
    if extra := [number for number in names if not 0 <= number < rows]:
        raise UserError(f"{path} names a label {extra[0]}, but the head has {rows} rows.")
    labels = tuple(names.get(number, f"LABEL_{number}") for number in range(rows))
    for name, number in numbers.items():
        if name in labels and (number >= rows or labels[number] != name):
            raise UserError(
                f"{path} contradicts itself: label2id has {name!r} as {number}, id2label as"
                f" {labels.index(name)}. Correct the wrong one."
            )
    return labels


def _class(number: Any, path: str) -> int:
    try:
        return int(number)
    except (TypeError, ValueError):
        raise UserError(f"{path} has a label with the number {number!r}.") from None


def distinct_labels(labels: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Returns distinct names, since predictions have a probability for each name, and notes."""
    counts, seen = Counter(labels), set()
    names = []
    for number, name in enumerate(labels):
        names.append(f"{name} (LABEL_{number})" if name in seen else name)
        seen.add(name)
    notes = [
        f"config.json names {count} labels {name!r}: the later ones are told apart by numbers."
        for name, count in counts.items()
        if count > 1
    ]
    return tuple(names), notes


def is_cross_encoder(values: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Returns whether the one logit of a head is that of a score from 0 to 1.

    Args:
      values: content of config.json.
      settings: content of config_sentence_transformers.json; {} if there is none.
    """
    return SIGMOID in _functions({**values, **settings})


def _functions(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the functions that CrossEncoder applies to the logits."""
    found = [values[key] for key in _CROSS_ENCODER if values.get(key)]
    return [str(x["activation_fn"] if isinstance(x, dict) else x) for x in found]


def read_problem_type(values: Mapping[str, Any], path: str, rows: int) -> tuple[str, list[str]]:
    """Returns what the logits of a text classifier are, and notes.

    Args:
      values, path, rows: see `read_labels`.

    Returns:
      A value for `config.task.problem_type`. Without `problem_type`, one row is a number, as in
      transformers.

    Raises:
      UserError: the head cannot be of that kind.
    """
    stored = values.get("problem_type")
    if stored is not None and stored not in PROBLEM_TYPES:
        known = ", ".join(map(repr, PROBLEM_TYPES))
        raise UserError(f"{path} has problem_type={stored!r}: only {known} are supported.")
    kind = PROBLEM_TYPES[stored] if stored else ("regression" if rows == 1 else "single")
    if kind == "single" and rows == 1:
        raise UserError(
            f"{path} has problem_type={stored!r} and the head one row, which is always chosen:"
            " leave problem_type out if it is a number."
        )
    if kind == "regression" and rows > 1:
        raise UserError(
            f"{path} has problem_type={stored!r} and the head {rows} rows: only one number is"
            " supported."
        )
    notes = []
    if not stored and kind == "regression":
        notes.append("One label without problem_type: its logit is a number, a regression.")
    if kind == "regression" and set(_functions(values)) - {IDENTITY}:
        notes.append(
            "The number is the logit: sentence-transformers' CrossEncoder may apply a function to"
            " it, such as the sigmoid."
        )
    return kind, notes
