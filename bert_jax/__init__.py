"""BERT in JAX: train, fine-tune and use encoders from Python.

    >>> import bert_jax
    >>> model = bert_jax.load("runs/mine")
    >>> model.encode(["A cat sat on the mat."])  # float32[texts, hidden]

`bert_jax.models` holds encoders for your own flax code. docs/python.md is the guide. Importing
this package imports nothing else; jax is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert_jax.files.errors import UserError

if TYPE_CHECKING:
    from bert_jax import models
    from bert_jax.api import (
        Model,
        adapt,
        evaluate_retrieval,
        evaluate_suite,
        finetune,
        get_config,
        load,
        mine_negatives,
        multitask,
        prepare,
        probe,
        train,
    )

__version__ = "0.1.0"
__all__ = [
    "Model",
    "UserError",
    "adapt",
    "evaluate_retrieval",
    "evaluate_suite",
    "finetune",
    "get_config",
    "load",
    "mine_negatives",
    "models",
    "multitask",
    "prepare",
    "probe",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a function of the API, or the package `models`, on first use."""
    if name == "models":
        return importlib.import_module("bert_jax.models")
    if name in __all__:
        return getattr(importlib.import_module("bert_jax.api"), name)
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
