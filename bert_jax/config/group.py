"""Groups of configuration fields: frozen dataclasses that own defaults, comments and checks.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class EvalConfig(Group):
        # Batches of the held-out split to evaluate; 0: all.
        max_batches: int = setting(0, minimum=0)

The comment above a field is its documentation: docs/configuration.md shows it. The type of a value
is that of the default, and a number must be positive unless `setting` says otherwise.
"""

import contextlib
import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from bert_jax.files.errors import UserError

# Integers of JSON and of the command line that no field can mean.
_MAX_INT = 1 << 63


@dataclasses.dataclass(frozen=True)
class Rule:
    """What the values of a field must be, besides of its default's type.

    Attributes:
      choices: allowed values; (): any.
      minimum: smallest allowed number; None: every number above 0.
      below: numbers must be less than this.
      also: a number that is allowed besides, and what it means: (-1, "all remaining devices").
      any_number: whether negative numbers are allowed.
      check: raises UserError for a malformed text; takes the field's name and the value.
      in_shards: whether the bytes of prepared shards may depend on the field.
      free: whether the field may change when a run is resumed: no number it computes depends on it.
      added_later: whether runs of earlier versions, whose config.json lacks the field, computed
        what its default does.
      is_path: whether it may name a file or folder, or ("NAME=FILE", ...).
    """

    choices: tuple[str, ...] = ()
    minimum: float | None = None
    below: float = math.inf
    also: tuple[float, str] | None = None
    any_number: bool = False
    check: Callable[[str, str], Any] | None = None
    in_shards: bool = True
    free: bool = False
    added_later: bool = False
    is_path: bool = False


def setting(default: Any, **rule: Any) -> Any:
    """Returns a dataclass field with a default and a `Rule`."""
    return dataclasses.field(default=default, metadata={"rule": Rule(**rule)})


def derived(default: Any, **how: Any) -> Any:
    """Returns a dataclass field that is no configuration: something else determines its value."""
    return dataclasses.field(default=default, metadata={"derived": True}, **how)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Base class of groups: checks the type and the range of every field.

    A message begins with the name of a field, so that `store.parse` can put the name of the group
    before it.

    Raises:
      UserError: a value that the field cannot have, or values that do not fit together.
    """

    def __post_init__(self):
        defaults = {item.name: item.default for item in dataclasses.fields(self)}
        for name, rule in rules(type(self)).items():
            value = _converted(name, getattr(self, name), defaults[name])
            object.__setattr__(self, name, value)
            check_value(name, value, rule)
        self.check()

    def check(self) -> None:
        """Raises UserError for values that do not fit together."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the group's own fields by name."""
        return {name: getattr(self, name) for name in rules(type(self))}

    def replaced(self, values: Mapping[str, Any]) -> Self:
        """Returns a copy with other values of some fields.

        Raises:
          UserError: a field does not exist, or cannot have this value.
        """
        check_known(values, self.to_dict())
        return dataclasses.replace(self, **values)


@functools.cache
def rules(group: type[Group]) -> dict[str, Rule]:
    """Returns the rules of a group's fields of configuration by name.

    A subclass that only changes a default, `name: str = "gpt"`, inherits the field's rule. What it
    declares as `derived` is no configuration of it.
    """
    found = {}
    for base in filter(dataclasses.is_dataclass, reversed(group.__mro__)):
        for item in dataclasses.fields(base):
            if item.metadata.get("derived"):
                found.pop(item.name, None)
            elif not isinstance(item.default, Group):
                found[item.name] = item.metadata.get("rule") or found.get(item.name, Rule())
    return found


def check_value(name: str, value: Any, rule: Rule) -> None:
    """Raises UserError for a value that a rule forbids; `name` is the field's."""
    if rule.choices and value not in rule.choices:
        raise UserError(
            f"{name}={value!r} must be one of {', '.join(c or repr(c) for c in rule.choices)}."
        )
    if rule.check:
        rule.check(name, value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if not math.isfinite(value) or abs(value) >= _MAX_INT and isinstance(value, int):
        raise UserError(f"{name}={value} is not a finite number.")
    if rule.also and value == rule.also[0]:
        return
    allowed = describe_range(rule)
    if rule.minimum is None:
        is_allowed = value > 0 or rule.any_number
    else:
        is_allowed = value >= rule.minimum
    if not (is_allowed and value < rule.below):
        raise UserError(f"{name}={value} must be {allowed}.")


def describe_range(rule: Rule) -> str:
    """Returns the numbers that a rule allows, such as "at least 0 and below 1"."""
    parts = (
        []
        if rule.any_number
        else ["above 0" if rule.minimum is None else f"at least {rule.minimum}"]
    )
    if rule.below < math.inf:
        parts.append(f"below {rule.below}")
    also = f", or {rule.also[0]} for {rule.also[1]}" if rule.also else ""
    return " and ".join(parts) + also


def _converted(name: str, value: Any, default: Any) -> Any:
    """Returns a value in the type of a field: an int as a float, a list as a tuple.

    Raises:
      UserError: the value has another type.
    """
    if isinstance(default, tuple) and isinstance(value, tuple | list):
        is_text = bool(default) and isinstance(default[0], str)
        value = tuple(tuple(item) if isinstance(item, list) else item for item in value)
        if all(isinstance(item, str if is_text else str | int | float | tuple) for item in value):
            return value
    elif type(default) is float and type(value) is int and abs(value) < _MAX_INT:
        return float(value)
    elif type(value) is type(default):
        return value
    raise UserError(f"{name}={value!r} must be of type {type(default).__name__}.")


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises UserError for the first name that is not known, with a similar one."""
    if unknown := [name for name in names if name not in known]:
        close = difflib.get_close_matches(unknown[0], list(known), 1)
        hint = f": did you mean {close[0]!r}?" if close else "."
        raise UserError(f"{unknown[0]} does not exist{hint}")


@contextlib.contextmanager
def named(prefix: str) -> Iterator[None]:
    """Puts the name of a group before messages, which begin with the name of a field."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{prefix}{error}") from None


def flatten(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, value) of each field of nested values."""
    for name, value in values.items():
        if hasattr(value, "items"):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def unflatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values of fields with dotted names."""
    values: dict[str, Any] = {}
    for name, value in fields.items():
        group, _, field = name.rpartition(".")
        (values.setdefault(group, {}) if group else values)[field] = value
    return values
