"""The one merge of a configuration: layers of values in their order, of which the last wins.

    default    defaults of the package and of the task
    encoder    fine-tuning values that follow from the encoder
    file       what the configuration's file sets
    preset     the values of `config.preset`
    init_from  the model and the vocabulary of `config.init_from`
    recipe     what a plan chooses, with reasons
    given      what the user sets, on the command line or in Python

No layer compares a value with a default to find out whether somebody meant it. A frozen
`RunConfig` that is given to the Python API has no record of what was set: its values that differ
from the task's defaults count as those of a file.
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
        if len(lengths) == 1:
            found = {n: type(values[n])(0) for n in LENGTHS[1:] if n in values} | found
        values |= found
        origins |= dict.fromkeys(found, layer.name)
    return values, origins
