"""Writes a model as a folder that transformers loads.

The folder has `config.json`, which names the class for the task, `model.safetensors` and the
tokenizer files. As in transformers, the decoder of a language model, which is the word embedding
table, is not stored a second time.
"""

import pathlib
from typing import Any

from ml_collections import ConfigDict

from bert_jax.exchange.hf_families import MASKED_LM, class_name, family_of
from bert_jax.exchange.hf_files import json_text, tokenizer_files
from bert_jax.exchange.loaded import LoadedModel, vocabulary_params
from bert_jax.formats import FORMATS
from bert_jax.formats.names import NAMES
from bert_jax.formats.safetensors_file import write_safetensors
from bert_jax.formats.weight_table import Arrays, export_params, weights_sha256
from bert_jax.tasks import find_task

_FORMAT = "huggingface"


def write(model: LoadedModel, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the files of a model into an empty folder.

    Returns:
      Facts about the export, a part of certificate.json: `class` of transformers, `tensors`,
      number of `parameters`, `weights_sha256`.

    Raises:
      UserError: transformers has no class for the task, or not for a model with these settings.
    """
    config, family = model.config, family_of(model.config)
    name = class_name(config, model.params)
    params, left_out = choose_params(model.params, name, config)
    table = NAMES[config.model.name][_FORMAT]
    tensors = export_params(params, table, FORMATS[_FORMAT].title)
    content = family.make_config(config, name, tensors, model.tokenizer.pad_id, model.labels)
    files = {"config.json": json_text(content), **tokenizer_files(model, family)}
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    if model.vocabulary.kind != ".gpt":  # its two files are among `files`
        (folder / model.vocabulary.copy_name).write_bytes(model.vocabulary.content)
    return {
        "class": name,
        "tensors": {
            "in": len(model.params),
            "out": len(tensors),
            "left_out": left_out,
            "random": [path for path in model.missing if path in params] + list(model.new_rows),
        },
        "parameters": sum(tensor.size for tensor in tensors.values()),
        "weights_sha256": weights_sha256(params),
    }


def choose_params(params: Arrays, name: str, config: ConfigDict) -> tuple[Arrays, dict[str, str]]:
    """Returns the parameters that a class of transformers has, and path -> reason for the rest."""
    encoder, vocab_size = config.model.name, config.model.vocab_size
    has_pooler = find_task(config.task).pools and name != MASKED_LM
    kept, left_out = dict(params), {}
    for path, array in params.items():
        if path.startswith(f"{encoder}/pooler/") and not has_pooler:
            left_out[path] = f"{name} has no pooler"
            del kept[path]
        elif path in vocabulary_params(encoder):
            kept[path] = array[:vocab_size]
            if padding := len(array) - vocab_size:
                left_out[f"{path}[{vocab_size}:]"] = f"{padding} rows of padding"
    return kept, left_out
