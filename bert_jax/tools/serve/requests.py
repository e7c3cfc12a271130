"""Bodies of requests: JSON to validated inputs. No value of a request names a file or code."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from bert_jax.files.errors import UserError
from bert_jax.tools.serve.limits import Limits

# Inputs of an ability: each is an object with the fields of its form.
INPUTS = "inputs"


class RequestError(Exception):
    """What is wrong with a request.

    Attributes:
      status: of HTTP, 4xx, or 503 for a server that is full.
      message: one line.
      headers: further ones of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.message = status, " ".join(message.split())
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Field:
    """A field of an input.

    Attributes:
      name: of the field.
      optional: whether it may be left out.
      is_list: whether it is a list of strings instead of one.
    """

    name: str
    optional: bool = False
    is_list: bool = False

    def describe(self) -> dict[str, Any]:
        """Returns the field for the description of the API."""
        kind = "list of strings" if self.is_list else "string"
        return {"type": kind, "optional": self.optional}


def parse_inputs(
    body: bytes, fields: Sequence[Field], limits: Limits, least: int = 1, most: int = 0
) -> list[dict[str, Any]]:
    """Returns the inputs of a body: {"inputs": [{FIELD: VALUE, ...}, ...]}.

    A string may replace an object: it is the value of the first field.

    Args:
      body: of the request.
      fields: of an input.
      limits: of the server.
      least, most: inputs of a request; 0: `limits.inputs`.

    Raises:
      RequestError: for anything else.
    """
    value = _parse_json(body)
    if not isinstance(value, dict):
        raise RequestError(400, f"The body is {_kind(value)}, and must be an object, {_example()}.")
    if unknown := sorted(set(value) - {INPUTS}):
        raise RequestError(400, f"Unknown field {_shown(unknown[0])}: the body is {_example()}.")
    inputs = value.get(INPUTS)
    if not isinstance(inputs, list):
        what = "missing" if inputs is None else _kind(inputs)
        raise RequestError(400, f"`inputs` is {what}, and must be a list: {_example()}.")
    most = most or limits.inputs
    if not least <= len(inputs) <= most:
        allowed = str(most) if least == most else f"{least} to {most}"
        raise RequestError(400, f"`inputs` has {len(inputs)} elements; allowed: {allowed}.")
    return [_parse_input(item, i, fields, limits) for i, item in enumerate(inputs)]


def _example() -> str:
    return '{"inputs": [...]}'


def _parse_json(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(400, f"The body is not UTF-8 (byte {error.start}).") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except RecursionError:
        raise RequestError(400, "The JSON of the body is nested too deeply.") from None
    except ValueError as error:
        raise RequestError(400, f"The body is not JSON ({str(error)[:200]}).") from None


def _refuse_constant(name: str) -> NoReturn:
    raise UserError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UserError("an object has a field twice")
    return found


def _parse_input(item: Any, number: int, fields: Sequence[Field], limits: Limits) -> dict[str, Any]:
    where = f"inputs[{number}]"
    if isinstance(item, str):
        item = {fields[0].name: item}
    names = [field.name for field in fields]
    if not isinstance(item, dict):
        raise RequestError(
            400, f"{where} is {_kind(item)}, and must be a string or an object of {_list(names)}."
        )
    if unknown := [name for name in item if name not in names]:
        raise RequestError(
            400, f"{where}: unknown field {_shown(unknown[0])}; the fields are {_list(names)}."
        )
    values = {}
    for field in fields:
        value = item.get(field.name)
        if value is None:
            if not field.optional:
                raise RequestError(400, f"{where}: the field `{field.name}` is missing.")
            continue
        values[field.name] = _parse_value(value, f"{where}.{field.name}", field, limits)
    return values


def _parse_value(value: Any, where: str, field: Field, limits: Limits) -> Any:
    if not field.is_list:
        _check_text(value, where, limits)
        return value
    if not isinstance(value, list):
        raise RequestError(400, f"{where} is {_kind(value)}, and must be a list of strings.")
    for i, text in enumerate(value):
        _check_text(text, f"{where}[{i}]", limits)
    if (total := sum(map(len, value))) > limits.text_characters:
        _refuse_length(where, total, limits)
    return tuple(value)


def _check_text(value: Any, where: str, limits: Limits) -> None:
    if not isinstance(value, str):
        raise RequestError(400, f"{where} is {_kind(value)}, and must be a string.")
    if len(value) > limits.text_characters:
        _refuse_length(where, len(value), limits)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise RequestError(400, f"{where} has half of a surrogate pair, which is no character.")


def _refuse_length(where: str, length: int, limits: Limits) -> NoReturn:
    most = limits.text_characters
    raise RequestError(
        413, f"{where} has {length:,} characters; at most {most:,} are allowed: shorten it."
    )


def _kind(value: Any) -> str:
    """Returns the name of a JSON value's type."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {str: "a string", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "an object")


def _shown(name: str) -> str:
    """Returns a name of a request as it can stand in a message: short, and ASCII."""
    return json.dumps(name if len(name) <= 40 else f"{name[:40]}...")


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
