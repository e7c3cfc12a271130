"""A configuration that is edited, and knows which of its fields somebody has set."""

from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config.group import flatten
from bert_jax.config.renames import suggestion

# Attribute with the names of the fields that were set.
_WRITTEN = "_written"


class Editable(ConfigDict):
    """A ConfigDict that remembers which fields were set after it was made, whatever their values.

    >>> config = Editable({"steps": 5, "data": {"seed": 1}})
    >>> config.data.seed = 1
    >>> written(config)
    {'data.seed'}
    """

    def __init__(self, *args: Any, **kwargs: Any):
        object.__setattr__(self, _WRITTEN, set())
        super().__init__(*args, **kwargs)
        getattr(self, _WRITTEN).clear()

    def __setitem__(self, key: str, value: Any) -> None:
        if self.is_locked and key not in self:
            fields = [name for name, _ in flatten(self)]
            raise KeyError(f"There is no field {key!r} here: {suggestion(key, self, fields)}")
        if isinstance(value, ConfigDict | dict) and not isinstance(value, Editable):
            value = Editable(value)
        super().__setitem__(key, value)
        getattr(self, _WRITTEN).add(key)


def written(config: Any) -> set[str]:
    """Returns the dotted names of the fields that were set; of other objects, none."""
    return set(_written(config, ""))


def forget_written(config: Any) -> None:
    """Takes the values of a configuration as those that it was made with."""
    if isinstance(config, Editable):
        getattr(config, _WRITTEN).clear()
        for name in config:
            forget_written(config[name])


def _written(config: Any, prefix: str) -> Iterator[str]:
    if isinstance(config, Editable):
        for name in config:
            if isinstance(config[name], ConfigDict):
                yield from _written(config[name], f"{prefix}{name}.")
            elif name in getattr(config, _WRITTEN):
                yield prefix + name
