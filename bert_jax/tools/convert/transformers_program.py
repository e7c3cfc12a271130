"""Runs a loaded checkpoint by `transformers` on torch, where both are installed.

transformers loads a folder of Hugging Face itself. google-research/bert's program needs TensorFlow
1; parameters of its checkpoints are passed to transformers under the names of our table.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.exchange import LoadedModel
from bert_jax.exchange.huggingface import BERT_CLASSES, FAMILIES, MASKED_LM
from bert_jax.formats.huggingface import INDEX, WEIGHTS
from bert_jax.formats.names import NAMES
from bert_jax.formats.weight_table import export_params
from bert_jax.tasks import TASKS
from bert_jax.tools.convert.outputs import Batch, Outputs, without_padding


def unavailable_because(loaded: LoadedModel) -> str:
    """Returns why a checkpoint cannot be run this way; empty if it can."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (the extra [parity])"
    if _is_huggingface(loaded) and not any(
        os.path.isfile(os.path.join(_path(loaded), name)) for name in (WEIGHTS, INDEX)
    ):
        return f"transformers loads folders with {WEIGHTS} only"
    return ""


def run(loaded: LoadedModel, batch: Batch) -> Outputs:
    """Runs the encoder and the heads that the checkpoint has."""
    import torch

    with _quiet():
        model = _load(loaded) if _is_huggingface(loaded) else _fill(loaded)
    tensors = {name: torch.from_numpy(array.astype(np.int64)) for name, array in batch.items()}
    inputs = {"input_ids": tensors["input_ids"], "attention_mask": tensors["example_ids"]}
    # transformers' GPT would add the embeddings of the words 0 and 1 for token types.
    if FAMILIES[loaded.config.model.name].reads_pairs:
        inputs["token_type_ids"] = tensors["token_type_ids"]
    with torch.no_grad():
        values = _outputs(model, inputs)
    version = importlib.metadata.version
    program = f"transformers {version('transformers')} on torch {version('torch')}"
    if not _is_huggingface(loaded):
        program += ", with the weights by our table"
    return Outputs(program, without_padding({n: x.numpy() for n, x in values.items()}, batch))


def _is_huggingface(loaded: LoadedModel) -> bool:
    return bool(loaded.checkpoint) and loaded.checkpoint.format == "huggingface"


def _path(loaded: LoadedModel) -> str:
    return loaded.checkpoint.path if loaded.checkpoint else loaded.source


def _load(loaded: LoadedModel) -> Any:
    import torch

    make, options = _class(loaded)
    return make.from_pretrained(
        _path(loaded), dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


def _fill(loaded: LoadedModel) -> Any:
    import torch

    name, task = loaded.config.model.name, TASKS[loaded.config.task]
    make, options = _class(loaded)
    values = FAMILIES[name].config.keys(loaded.config.model.to_dict())
    if task.head:
        values["num_labels"] = len(loaded.params[f"{task.head}/bias"])
    model = make(make.config_class(**values, attn_implementation="eager"), **options)
    arrays = export_params(loaded.params, NAMES[name]["huggingface"], "huggingface")
    base = model.base_model_prefix
    prefix = "" if hasattr(model, base) else f"{base}."
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(np.array(arrays[prefix + name]))
    model.tie_weights()
    return model.eval()


def _class(loaded: LoadedModel) -> tuple[Any, dict[str, Any]]:
    """Returns the class that has the heads of the checkpoint only, and its options."""
    import transformers

    task, has_pairs = TASKS[loaded.config.task], loaded.config.model.next_sentence
    heads = {name.split("/")[0] for name in loaded.params}
    options = {}
    if task.reads_forward:
        name = "OpenAIGPTLMHeadModel"
    elif not FAMILIES[loaded.config.model.name].reads_pairs:
        name = "ModernBertForMaskedLM" if "masked_lm" in heads else "ModernBertModel"
    elif task.head or heads >= {"masked_lm", "next_sentence"}:
        name = BERT_CLASSES[loaded.config.task]
    elif "masked_lm" in heads and not has_pairs:
        name = MASKED_LM
    else:
        name, options = "BertModel", {"add_pooling_layer": has_pairs}
    return getattr(transformers, name), options


def _outputs(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the outputs of a transformers model under our names."""
    import torch

    encoded = getattr(model, model.base_model_prefix, model)(**inputs, output_hidden_states=True)
    last, pooled = encoded.last_hidden_state, getattr(encoded, "pooler_output", None)
    # The last of ModernBERT's `hidden_states` is not normalized.
    values = {"hidden states": torch.stack((*encoded.hidden_states[:-1], last))}
    if pooled is not None:
        values["pooled"] = pooled
    if heads := getattr(model, "cls", None):
        values["masked-LM logits"] = heads.predictions(last)
        if hasattr(heads, "seq_relationship"):
            values["next-sentence logits"] = heads.seq_relationship(pooled)
    if hasattr(model, "decoder"):
        values["masked-LM logits"] = model.decoder(model.head(last))
    if head := getattr(model, "lm_head", None):
        values["next-word logits"] = head(last)
    if head := getattr(model, "classifier", None):
        values["task logits"] = head(last if pooled is None else pooled)
    if head := getattr(model, "qa_outputs", None):
        values["task logits"] = head(last)
    return values


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turns off transformers' progress bars and its warnings about heads that it does not load."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
