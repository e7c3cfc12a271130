"""Makes a task's examples of plain Python values: texts, pairs, lists of words, dicts."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.data.labelled.conll import split_words
from bert_jax.data.labelled.examples import ChoiceExample, Question, TaggedExample, TextExample
from bert_jax.data.labelled.texts import Text
from bert_jax.files.errors import UserError

Fields = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _Form:
    """The values that an example class is made of.

    Attributes:
      names: fields, in the order in which a tuple gives them.
      num_required: number of fields, from the first, that must be given.
      make: (fields, place for messages, number of the input) -> example.
      allowed: the forms of an input, for messages.
    """

    names: tuple[str, ...]
    num_required: int
    make: Callable[[Fields, str, int], Any]
    allowed: str


_TEXT = "a text, a pair (text_a, text_b), or a dict with text_a and optionally text_b"
_FORMS: dict[type, _Form] = {
    Text: _Form(
        ("text_a", "text_b"),
        1,
        lambda fields, where, number: Text(fields["text_a"], fields.get("text_b"), where),
        _TEXT,
    ),
    TextExample: _Form(
        ("text_a", "text_b"),
        1,
        lambda fields, where, number: TextExample(where, str(number), **fields),
        _TEXT,
    ),
    TaggedExample: _Form(
        ("words", "text"),
        1,
        # Each sentence is a document by itself: none is the context of another.
        lambda fields, where, number: TaggedExample(
            where, str(number), tuple(fields["words"]), None, number, fields.get("text")
        ),
        "a text with spaces between its words, a list of words, or a dict with text or words",
    ),
    Question: _Form(
        ("question", "context"),
        2,
        lambda fields, where, number: Question(where, str(number), **fields),
        "a pair (question, context), or a dict with question and context",
    ),
    ChoiceExample: _Form(
        ("context", "endings", "start"),
        2,
        lambda fields, where, number: ChoiceExample(
            where, str(number), fields["context"], fields.get("start", ""), tuple(fields["endings"])
        ),
        "a pair (context, endings), or a dict with context, endings and optionally start",
    ),
}
_LISTS = ("words", "endings")


def make_examples(
    kind: type,
    inputs: Iterable[Any],
    by_character: bool = False,
    where: Callable[[int], str] = "inputs[{}]".format,
) -> Iterator[Any]:
    """Yields an example for each input.

    Args:
      kind: the example class of the task, `Task.EXAMPLE`.
      inputs: inputs in one of the forms in `_FORMS`; examples are passed on unchanged.
      by_character: whether each character of a text is a word to tag.
      where: number of an input -> its name in messages.

    Raises:
      UserError: naming the input, for a value of another form.
    """
    form = _FORMS[kind]
    if isinstance(inputs, str | Mapping):
        raise UserError(f"Give a list of inputs, [{inputs!r:.60}], not a single one.")
    if (names := _columns_of(inputs)) is not None:
        shown = ", ".join(map(repr, names))
        raise UserError(
            f"A {type(inputs).__name__} with the columns {shown} is no list of inputs: give a"
            f" column as a list, such as list(table[{names[-1]!r}])."
        )
    for number, value in enumerate(inputs):
        if isinstance(value, kind):
            yield value
            continue
        fields = _fields(form, value, by_character)
        if not _is_complete(form, fields):
            raise UserError(f"{where(number)} is {value!r:.60}: give {form.allowed}.")
        yield form.make(fields, where(number), number)


def _columns_of(value: Any) -> list[Any] | None:
    """Returns the columns of a DataFrame, or of a table of pyarrow, datasets or polars."""
    names = getattr(value, "column_names", None)
    names = getattr(value, "columns", None) if names is None else names
    return None if names is None or callable(names) else list(names) or ["text"]


def _fields(form: _Form, value: Any, by_character: bool) -> Fields:
    """Returns the fields that an input gives; {} if it has no form at all."""
    if form is _FORMS[TaggedExample]:
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
    if not isinstance(value, list | tuple) or len(value) > len(form.names):
        return {}
    return dict(zip(form.names, value, strict=False))


def _is_complete(form: _Form, fields: Fields) -> bool:
    def has_type(name: str, value: Any) -> bool:
        if name not in _LISTS:
            return isinstance(value, str)
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        return is_list and all(isinstance(item, str) for item in value)

    return {*form.names} >= fields.keys() >= {*form.names[: form.num_required]} and all(
        has_type(name, value) for name, value in fields.items()
    )
