"""Models from and to other programs: in as a `LoadedModel`, out as a folder.

    loaded = open_foreign("weights/bert-base-uncased")    # any format of `bert_jax.formats`
    export(loaded, "huggingface", "exported")             # or "stablehlo"

A workdir is opened by `bert_jax.training.workdir.open_model`, which returns the same class.
"""

from bert_jax.exchange.export import FORMS, check_output_folder, export, write
from bert_jax.exchange.foreign import as_stored, open_foreign, with_new_parameters
from bert_jax.exchange.loaded import LoadedModel

__all__ = [
    "FORMS",
    "LoadedModel",
    "as_stored",
    "check_output_folder",
    "export",
    "open_foreign",
    "with_new_parameters",
    "write",
]
