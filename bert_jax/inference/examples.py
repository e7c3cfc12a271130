"""Makes a task's examples from plain Python values: texts, pairs, lists of words, dicts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.data.in_memory import column_names
from bert_jax.data.labelled.examples import Example, TaggedExample, split_words
from bert_jax.files.errors import UserError

Fields = Mapping[str, Any]


def make_examples(
    kind: type[Example],
    inputs: Iterable[Any],
    by_character: bool = False,
    where: Callable[[int], str] = "inputs[{}]".format,
    columns: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Yields an example for each input.

    Args:
      kind: the example class of the task, `Task.EXAMPLE`.
      inputs: inputs in one of `kind.forms()`; examples are passed on unchanged.
      by_character: whether each character of a text is a word to tag.
      where: number of an input -> its name in messages.
      columns: `Task.column_inputs`, further names of the fields of dicts.

    Raises:
      UserError: an input has another form; the message names it.
    """
    if isinstance(inputs, str | Mapping) or not isinstance(inputs, Iterable):
        raise UserError(f"Give a list of inputs, [{inputs!r:.60}], not a single one.")
    if (names := column_names(inputs)) is not None:
        names = names or ["text"]
        raise UserError(
            f"A {type(inputs).__name__} with the columns {', '.join(map(repr, names))} is not a"
            f" list of inputs: give a column as a list, such as list(table[{names[-1]!r}])."
        )
    for number, value in enumerate(inputs):
        if isinstance(value, kind):
            yield value
            continue
        if isinstance(value, Mapping):
            value = name_inputs(value, columns or {}, where(number))
        fields = _fields(kind, value, by_character)
        if not _is_complete(kind, fields):
            raise UserError(f"{where(number)} is {value!r:.60}: give {kind.forms()}.")
        yield kind.from_inputs(fields, where(number), number)


def name_inputs(values: Fields, columns: Mapping[str, str], where: str) -> Fields:
    """Renames the fields of an input to the names of an example's inputs.

    Fields that only training reads are left out.

    Args:
      values: fields by these names, or by those of the columns that the model was trained on.
      columns: see `make_examples`.
      where: name of the input in messages.

    Raises:
      UserError: an input is given by both names.
    """
    columns = {name: given for name, given in columns.items() if name in values}
    if twice := next((name for name in columns if columns[name] in values), ""):
        raise UserError(f"{where} has both {twice!r} and {columns[twice]!r}: give one of them.")
    named = {columns.get(name, name): value for name, value in values.items()}
    return {name: value for name, value in named.items() if name}


def _fields(kind: type[Example], value: Any, by_character: bool) -> Fields:
    """Returns the fields that an input gives; {} if it has none of the forms."""
    if kind is TaggedExample:
        if isinstance(value, Mapping):
            if value.keys() == {"words"}:
                return value
            value = value["text"] if value.keys() == {"text"} else None
        if isinstance(value, str):
            return {"words": split_words(value, by_character), "text": value}
        return {"words": value}
    if isinstance(value, Mapping):
        return {name: item for name, item in value.items() if item is not None}
    if isinstance(value, str):
        value = (value,)
    names = [item.name for item in kind.inputs()]
    if not isinstance(value, list | tuple) or len(value) > len(names):
        return {}
    return dict(zip(names, value, strict=False))


def _is_complete(kind: type[Example], fields: Fields) -> bool:
    inputs = {item.name: item for item in kind.inputs()}
    required = {item.name for item in inputs.values() if not item.is_optional}
    if not inputs.keys() >= fields.keys() >= required:
        return False
    for name, value in fields.items():
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        texts = value if inputs[name].is_list else [value]
        if is_list != inputs[name].is_list or not all(isinstance(text, str) for text in texts):
            return False
    return True
