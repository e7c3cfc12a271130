"""Request bodies: JSON to validated inputs. No value of a request names a file or code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.exceptions import HTTPException

from bert_jax.files.errors import UserError
from bert_jax.inference.examples import name_inputs

MAX_BODY_BYTES = 1 << 18
# Seconds until the body of a request must be complete.
BODY_SECONDS = 20.0
MAX_INPUTS = 32
MAX_CHARACTERS = 20_000


@dataclass(frozen=True)
class Field:
    """A field of an input, and the control of the page that it is entered in.

    Attributes:
      name: its key in the JSON object.
      label: text above the control.
      hint: text beside the label.
      rows: number of lines that the control shows.
      is_list: whether the value is a list of strings, entered one a line.
      optional: whether it may be left out.
      needs: string that the page requires in the text.
    """

    name: str
    label: str = ""
    hint: str = ""
    rows: int = 3
    is_list: bool = False
    optional: bool = False
    needs: str = ""


def parse_inputs(
    body: bytes,
    fields: Sequence[Field],
    min_inputs: int = 1,
    max_inputs: int = MAX_INPUTS,
    columns: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Returns the inputs of a body: {"inputs": [{FIELD: VALUE, ...}, ...]}.

    A string may replace an object: it is the value of the first field.

    Args:
      body: JSON in UTF-8.
      fields: the fields of an input.
      min_inputs: smallest allowed number of inputs.
      max_inputs: largest allowed number of inputs.
      columns: further names of the fields, those of the model's training files.

    Raises:
      UserError: the body has another form.
      HTTPException: 413 for a text that is too long.
    """
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise UserError(
            f"The body is not UTF-8 (byte {error.start}): send JSON in UTF-8."
        ) from None
    except ValueError as error:
        message = f'The body is not JSON ({error!s:.200}): send {{"inputs": [...]}}.'
        raise UserError(message) from None
    inputs = value.get("inputs") if isinstance(value, dict) else None
    if not isinstance(inputs, list) or len(value) > 1:
        raise UserError(f'The body is {_shown(value)}, and must be {{"inputs": [...]}}.')
    if not min_inputs <= len(inputs) <= max_inputs:
        allowed = f"{min_inputs} to {max_inputs}" if max_inputs > min_inputs else max_inputs
        raise UserError(f"`inputs` has {len(inputs)} elements; allowed: {allowed}.")
    named = (
        name_inputs(item, columns or {}, f"inputs[{i}]") if isinstance(item, dict) else item
        for i, item in enumerate(inputs)
    )
    return [_parse_input(item, f"inputs[{i}]", fields) for i, item in enumerate(named)]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _parse_input(item: Any, where: str, fields: Sequence[Field]) -> dict[str, Any]:
    if isinstance(item, str):
        item = {fields[0].name: item}
    names = [field.name for field in fields]
    listed = ", ".join(f"`{name}`" for name in names)
    if not isinstance(item, dict):
        raise UserError(
            f"{where} is {_shown(item)}, and must be a string or an object of {listed}."
        )
    if unknown := [name for name in item if name not in names]:
        raise UserError(f"{where}: unknown field {_shown(unknown[0])}; the fields are {listed}.")
    values = {}
    for field in fields:
        value = item.get(field.name)
        if value is not None:
            values[field.name] = _parse_value(value, f"{where}.{field.name}", field)
        elif not field.optional:
            raise UserError(f"{where}: the field `{field.name}` is missing.")
    return values


def _parse_value(value: Any, where: str, field: Field) -> str | tuple[str, ...]:
    texts = value if field.is_list else [value]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        needed = "a list of strings" if field.is_list else "a string"
        raise UserError(f"{where} is {_shown(value)}, and must be {needed}.")
    if (length := sum(map(len, texts))) > MAX_CHARACTERS:
        raise HTTPException(
            413,
            f"{where} has {length:,} characters; at most {MAX_CHARACTERS:,} are allowed:"
            " shorten it.",
        )
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise UserError(f"{where} has half of a surrogate pair, which is not a character.")
    return tuple(texts) if field.is_list else value


def _shown(value: Any) -> str:
    """Returns the beginning of a JSON value, in ASCII."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
