"""Folders of transformers, their imports, and runs that start from them."""

import json
import pathlib

import pytest
from ml_collections import ConfigDict

from bert_jax.config import defaults
from bert_jax.exchange import LoadedModel
from bert_jax.tools.cli import convert
from bert_jax.training.workdir import open_workdir
from tests.tools.convert.conftest import VOCABULARY

PIECES = len(VOCABULARY.split("\n"))


HF_SIZES = dict(
    vocab_size=PIECES,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=40,
)


CLASSES = {
    "BertForPreTraining": ("pretraining", ["masked_lm", "next_sentence"]),
    "BertForMaskedLM": ("pretraining", ["masked_lm"]),
    "BertForNextSentencePrediction": ("pretraining", ["next_sentence"]),
    "BertModel": ("pretraining", []),
    "BertForSequenceClassification": ("classification", ["classifier"]),
    "BertForTokenClassification": ("tagging", ["classifier"]),
    "BertForQuestionAnswering": ("span", ["span"]),
    "BertForMultipleChoice": ("multiple_choice", ["classifier"]),
}


def edit(folder: pathlib.Path, change, file="model.safetensors") -> None:
    """Rewrites the tensors of a folder."""
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    arrays = safetensors_numpy.load_file(folder / file)
    change(arrays)
    safetensors_numpy.save_file(arrays, folder / file, {"format": "pt"})


def edit_config(folder: pathlib.Path, file="config.json", **changes) -> None:
    values = json.loads((folder / file).read_text()) | changes
    (folder / file).write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def from_hf(folder: pathlib.Path, *words: str) -> LoadedModel:
    """Imports to the folder `out` next to the folder, without a comparison."""
    out = folder.parent / "out"
    convert.main(["convert", "from_hf", str(folder), str(out), "--nocomparison", *words])
    return open_workdir(str(out))


def read_certificate(folder: pathlib.Path) -> dict:
    return json.loads((folder.parent / "out" / "certificate.json").read_text())


def new_config(init_from: pathlib.Path, **changes) -> ConfigDict:
    """Returns a configuration of pre-training with `init_from`; dots of fields as __."""
    config = defaults.pretraining()
    config.init_from = str(init_from)
    config.phases = ((16, 1.0),)
    config.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return config
