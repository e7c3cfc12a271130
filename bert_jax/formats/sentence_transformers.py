"""How sentence-transformers makes vectors of texts: modules.json and the files that it names."""

import dataclasses
import os

from bert_jax.files.atomic import read_json
from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import read_json_object

_MODE = "pooling_mode_"
_MODES = {"mean_tokens": "mean", "max_tokens": "max", "cls_token": "cls"}


@dataclasses.dataclass(frozen=True)
class SentenceVectors:
    """How the vector of a text is made of the last hidden states of its tokens.

    Attributes:
      pooling: `mean`, `max` or `cls`; "" if the folder is not one of sentence-transformers.
      normalize: whether vectors are scaled to length 1.
      max_length: tokens of a text, special ones included; 0: as many as the model has positions.
      unknown: what is done besides, which this package does not do; "" if nothing.
    """

    pooling: str = ""
    normalize: bool = False
    max_length: int = 0
    unknown: str = ""


def read_sentence_vectors(folder: str) -> SentenceVectors:
    """Returns what the modules.json of a folder says; the defaults if there is none.

    Raises:
      UserError: a file that it names is missing or corrupt.
    """
    if not os.path.isfile(path := os.path.join(folder, "modules.json")):
        return SentenceVectors()
    try:
        modules = [(module["type"], module["path"]) for module in read_json(path)]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is corrupt ({error!r}): get another one.") from None
    pooling, normalize, unknown = "", False, ""
    for kind, part in modules:
        kind = kind.split(".")[-1]
        if kind == "Pooling":
            values = read_json_object(os.path.join(folder, part, "config.json"))
            modes = [
                name.removeprefix(_MODE)
                for name in values
                if values[name] is True and name.startswith(_MODE)
            ]
            pooling = _MODES.get(modes[0], "") if len(modes) == 1 else ""
            unknown = unknown or ("" if pooling else f"pools by {' and '.join(modes)}")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            unknown = f"has a module {kind}"
    folders = (os.path.join(folder, part) for _, part in modules)
    names = (os.path.join(part, "sentence_bert_config.json") for part in folders)
    settings = next((read_json_object(name) for name in names if os.path.isfile(name)), {})
    return SentenceVectors(pooling, normalize, settings.get("max_seq_length") or 0, unknown)
