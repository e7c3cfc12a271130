"""Runs an imported checkpoint by `transformers` on torch, where both are installed.

A folder of Hugging Face is loaded by transformers itself. google-research/bert's program cannot be
run here; its parameters are handed to transformers under the names of our table.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.convert.outputs import TASK_HEADS, Batch, Outputs, at_tokens
from bert_jax.convert.parameters import Imported
from bert_jax.formats.huggingface import ACTIVATIONS, CLASS_OF_TASK, INDEX, WEIGHTS
from bert_jax.formats.tables import FORMATS, export_params

_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
}


def why_not(imported: Imported) -> str:
    """Why it cannot be run this way; empty if it can."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (the extra [parity])"
    path = imported.source.path
    if _is_huggingface(imported) and not any(
        os.path.isfile(os.path.join(path, name)) for name in (WEIGHTS, INDEX)
    ):
        return f"transformers loads folders with {WEIGHTS} only"
    return ""


def run(imported: Imported, batch: Batch) -> Outputs:
    """Runs the encoder and the heads that the source has."""
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
    return Outputs(program, at_tokens({n: value.numpy() for n, value in values.items()}, batch))


def _is_huggingface(imported: Imported) -> bool:
    return imported.source.form is FORMATS["huggingface"]


def _class(imported: Imported) -> tuple[Any, dict[str, Any]]:
    """The class without heads that the source does not have, and its options."""
    import transformers

    if name := CLASS_OF_TASK.get(imported.config.task):
        return getattr(transformers, name), {}
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
        imported.source.path, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


def _fill(imported: Imported) -> Any:
    import torch
    import transformers

    fields = imported.config.model
    values: dict[str, Any] = {theirs: fields[ours] for ours, theirs in _SIZES.items()}
    values["attn_implementation"] = "eager"
    # The last name of several for one function is that of torch's own.
    values["hidden_act"] = {ours: theirs for theirs, ours in ACTIVATIONS.items()}[fields.activation]
    make, options = _class(imported)
    if head := TASK_HEADS.get(imported.config.task):
        values["num_labels"] = len(imported.own_params[f"{head}/bias"])
    model = make(transformers.BertConfig(**values), **options)
    arrays = export_params(imported.own_params, FORMATS["huggingface"])
    prefix = "bert." if make is transformers.BertModel else ""
    for name, place in model.named_parameters():
        place.data = torch.from_numpy(np.array(arrays[prefix + name]))
    model.tie_weights()
    return model.eval()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' bars, and its remarks on heads that it does not load."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
