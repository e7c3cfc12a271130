"""The one merge of a configuration: layers of values in their order, of which the last wins.

    default    of the package, the task and the configuration's file
    encoder    of fine-tuning, as they follow from the encoder
    file       what the configuration's file sets
    preset     of `config.preset`
    init_from  model and vocabulary of `config.init_from`
    recipe     what a plan chooses, with reasons
    given      by the user: on the command line, or in Python

Nothing compares a value with a default to find out whether somebody meant it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Self

from bert_jax.config.phases import LENGTHS
from bert_jax.files.errors import UserError

DEFAULT, GIVEN = "default", "given"


class Layer(NamedTuple):
    """Values from one place.

    Attributes:
      name: the place, one word for readers.
      values: by dotted name.
    """

    name: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, fields: Mapping[str, Any], names: Collection[str]) -> Self:
        """Returns the layer of some fields, as far as there are any."""
        return cls(name, {field: fields[field] for field in names if field in fields})


def merge(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the values of all fields, and the name of the layer that each is from.

    The length of training is one value with several units: a layer that gives it replaces it in
    all of them. Of two in a file, `steps` is the one without effect.

    Args:
      layers: in order; the first has all fields.

    Raises:
      UserError: the user gives two lengths.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        lengths = [name for name in LENGTHS if layer.values.get(name)]
        if layer.name == GIVEN and len(lengths) > 1:
            one, two, *_ = (f"config.{name}={layer.values[name]}" for name in lengths)
            raise UserError(f"{one} and {two} both give the length of training: set one of them.")
        found = dict(layer.values)
        if values and len(lengths) == 1:
            found |= {name: type(values[name])(0) for name in LENGTHS[1:] if name in values}
            found[lengths[0]] = layer.values[lengths[0]]
        values |= found
        origins |= dict.fromkeys(found, layer.name)
    return values, origins
