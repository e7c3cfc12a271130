"""Runs an imported checkpoint by `transformers` on torch, where both are installed.

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

from bert_jax.convert.imported import Imported
from bert_jax.convert.outputs import Batch, Outputs, without_padding
from bert_jax.formats.bert_config import model_keys
from bert_jax.formats.huggingface import ACTIVATIONS, INDEX, WEIGHTS
from bert_jax.formats.weight_table import export_params
from bert_jax.models import MODELS
from bert_jax.tasks import TASKS


def unavailable_because(imported: Imported) -> str:
    """Returns why a checkpoint cannot be run this way; empty if it can."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (the extra [parity])"
    path = imported.checkpoint.path
    if _is_huggingface(imported) and not any(
        os.path.isfile(os.path.join(path, name)) for name in (WEIGHTS, INDEX)
    ):
        return f"transformers loads folders with {WEIGHTS} only"
    return ""


def run(imported: Imported, batch: Batch) -> Outputs:
    """Runs the encoder and the heads that the checkpoint has."""
    import torch

    with _quiet():
        model = _load(imported) if _is_huggingface(imported) else _fill(imported)
    names = {"input_ids": "input_ids", "token_type_ids": "token_type_ids"}
    names["attention_mask"] = "example_ids"
    inputs = {new: torch.from_numpy(batch[old].astype(np.int64)) for new, old in names.items()}
    with torch.no_grad():
        encoded = getattr(model, "bert", model)(**inputs, output_hidden_states=True)
        values = {"hidden states": torch.stack(encoded.hidden_states)}
        if encoded.pooler_output is not None:
            values["pooled"] = encoded.pooler_output
        if heads := getattr(model, "cls", None):
            values["masked-LM logits"] = heads.predictions(encoded.last_hidden_state)
            if hasattr(heads, "seq_relationship"):
                values["next-sentence logits"] = heads.seq_relationship(encoded.pooler_output)
        if head := getattr(model, "classifier", None):
            of_rows = encoded.pooler_output is not None
            features = encoded.pooler_output if of_rows else encoded.last_hidden_state
            values["task logits"] = head(features)
        if head := getattr(model, "qa_outputs", None):
            values["task logits"] = head(encoded.last_hidden_state)
    version = importlib.metadata.version
    program = f"transformers {version('transformers')} on torch {version('torch')}"
    if not _is_huggingface(imported):
        program += ", with the weights by our table"
    return Outputs(program, without_padding({n: x.numpy() for n, x in values.items()}, batch))


def _is_huggingface(imported: Imported) -> bool:
    return imported.checkpoint.format == "huggingface"


def _class(imported: Imported) -> tuple[Any, dict[str, Any]]:
    """Returns the class that has the heads of the checkpoint only, and its options."""
    import transformers

    task = TASKS[imported.config.task]
    if task.head:
        return getattr(transformers, task.huggingface_class), {}
    heads = {name.split("/")[0] for name in imported.own_params}
    if heads >= {"masked_lm", "next_sentence"}:
        return transformers.BertForPreTraining, {}
    if "masked_lm" in heads and not imported.config.model.next_sentence:
        return transformers.BertForMaskedLM, {}
    return transformers.BertModel, {"add_pooling_layer": imported.config.model.next_sentence}


def _load(imported: Imported) -> Any:
    import torch

    make, options = _class(imported)
    return make.from_pretrained(
        imported.checkpoint.path, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


def _fill(imported: Imported) -> Any:
    import torch
    import transformers

    model_config, head = imported.config.model, TASKS[imported.config.task].head
    # The last of several names for one function is torch's own implementation.
    hidden_acts = {activation: hidden_act for hidden_act, activation in ACTIVATIONS.items()}
    values = model_keys(model_config, hidden_acts[model_config.activation])
    values["attn_implementation"] = "eager"
    if head:
        values["num_labels"] = len(imported.own_params[f"{head}/bias"])
    make, options = _class(imported)
    model = make(transformers.BertConfig(**values), **options)
    table = MODELS[model_config.name].formats["huggingface"]
    arrays = export_params(imported.own_params, table, "huggingface")
    prefix = "bert." if make is transformers.BertModel else ""
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(np.array(arrays[prefix + name]))
    model.tie_weights()
    return model.eval()


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
