"""Runs an loaded checkpoint by `transformers` on torch, where both are installed.

transformers loads a folder of Hugging Face itself. google-research/bert's program needs TensorFlow
1; parameters of its checkpoints are passed to transformers under the names of our table.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bert_jax.exchange import LoadedModel
from bert_jax.exchange.hf_families import BERT_CLASSES
from bert_jax.formats.huggingface import ACTIVATIONS, INDEX, WEIGHTS
from bert_jax.formats.model_configs import BERT, gpt_keys, modernbert_keys
from bert_jax.formats.names import NAMES
from bert_jax.formats.weight_table import export_params
from bert_jax.tasks import TASKS
from bert_jax.tools.convert.outputs import Batch, Outputs, without_padding


def unavailable_because(loaded: LoadedModel) -> str:
    """Returns why a checkpoint cannot be run this way; empty if it can."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (the extra [parity])"
    path = _path(loaded)
    if _is_huggingface(loaded) and not any(
        os.path.isfile(os.path.join(path, name)) for name in (WEIGHTS, INDEX)
    ):
        return f"transformers loads folders with {WEIGHTS} only"
    return ""


def run(loaded: LoadedModel, batch: Batch) -> Outputs:
    """Runs the encoder and the heads that the checkpoint has."""
    import torch

    family = _FAMILIES[loaded.config.model.name]
    with _quiet():
        model = _load(loaded) if _is_huggingface(loaded) else _fill(loaded)
    tensors = {name: torch.from_numpy(array.astype(np.int64)) for name, array in batch.items()}
    with torch.no_grad():
        values = family.run(model, tensors)
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

    make, options = _FAMILIES[loaded.config.model.name].choose_class(loaded)
    return make.from_pretrained(
        _path(loaded), dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


def _fill(loaded: LoadedModel) -> Any:
    import torch

    family = _FAMILIES[loaded.config.model.name]
    make, options = family.choose_class(loaded)
    model = make(family.make_config(loaded), **options)
    table = NAMES[loaded.config.model.name]["huggingface"]
    arrays = export_params(loaded.params, table, "huggingface")
    prefix = "" if hasattr(model, family.base) else f"{family.base}."
    for name, parameter in model.named_parameters():
        parameter.data = torch.from_numpy(np.array(arrays[prefix + name]))
    model.tie_weights()
    return model.eval()


@dataclasses.dataclass(frozen=True)
class _Family:
    """How transformers runs the models with one encoder.

    Attributes:
      choose_class: returns the class that has the heads of the checkpoint only, and its options.
      make_config: returns its configuration.
      run: (model, tensors of the batch) -> outputs by name.
      base: name of the encoder in classes with heads.
    """

    choose_class: Callable[[LoadedModel], tuple[Any, dict[str, Any]]]
    make_config: Callable[[LoadedModel], Any]
    run: Callable[[Any, dict[str, Any]], dict[str, Any]]
    base: str


def _bert_class(loaded: LoadedModel) -> tuple[Any, dict[str, Any]]:
    import transformers

    task = TASKS[loaded.config.task]
    if task.head:
        return getattr(transformers, BERT_CLASSES[loaded.config.task]), {}
    heads = {name.split("/")[0] for name in loaded.params}
    if heads >= {"masked_lm", "next_sentence"}:
        return transformers.BertForPreTraining, {}
    if "masked_lm" in heads and not loaded.config.model.next_sentence:
        return transformers.BertForMaskedLM, {}
    return transformers.BertModel, {"add_pooling_layer": loaded.config.model.next_sentence}


def _bert_config(loaded: LoadedModel) -> Any:
    import transformers

    model, head = loaded.config.model, TASKS[loaded.config.task].head
    # The last of several names for one function is torch's own implementation.
    hidden_acts = {activation: hidden_act for hidden_act, activation in ACTIVATIONS.items()}
    values = {**BERT.keys(model), "hidden_act": hidden_acts[model.activation]}
    values["attn_implementation"] = "eager"
    if head:
        values["num_labels"] = len(loaded.params[f"{head}/bias"])
    return transformers.BertConfig(**values)


def _run_bert(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    import torch

    names = {"input_ids": "input_ids", "token_type_ids": "token_type_ids"}
    names["attention_mask"] = "example_ids"
    inputs = {theirs: batch[ours] for theirs, ours in names.items()}
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
    return values


def _gpt_class(loaded: LoadedModel) -> tuple[Any, dict[str, Any]]:
    import transformers

    return transformers.OpenAIGPTLMHeadModel, {}


def _gpt_config(loaded: LoadedModel) -> Any:
    import transformers

    values = gpt_keys(loaded.config.model)
    return transformers.OpenAIGPTConfig(**{**values, "attn_implementation": "eager"})


def _run_gpt(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    import torch

    # Without token types: transformers' GPT would add the embeddings of the words 0 and 1.
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["example_ids"]}
    encoded = model.transformer(**inputs, output_hidden_states=True)
    logits = model.lm_head(encoded.last_hidden_state)
    return {"hidden states": torch.stack(encoded.hidden_states), "next-word logits": logits}


def _modernbert_class(loaded: LoadedModel) -> tuple[Any, dict[str, Any]]:
    import transformers

    has_head = any(name.startswith("masked_lm/") for name in loaded.params)
    return transformers.ModernBertForMaskedLM if has_head else transformers.ModernBertModel, {}


def _modernbert_config(loaded: LoadedModel) -> Any:
    import transformers

    values = modernbert_keys(loaded.config.model)
    return transformers.ModernBertConfig(**{**values, "attn_implementation": "eager"})


def _run_modernbert(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    import torch

    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["example_ids"]}
    encoded = getattr(model, "model", model)(**inputs, output_hidden_states=True)
    # The last of them is not normalised there.
    states = (*encoded.hidden_states[:-1], encoded.last_hidden_state)
    values = {"hidden states": torch.stack(states)}
    if hasattr(model, "decoder"):
        values["masked-LM logits"] = model.decoder(model.head(encoded.last_hidden_state))
    return values


# By the name of the encoder.
_FAMILIES = {
    "bert": _Family(_bert_class, _bert_config, _run_bert, "bert"),
    "modernbert": _Family(_modernbert_class, _modernbert_config, _run_modernbert, "model"),
    "gpt": _Family(_gpt_class, _gpt_config, _run_gpt, "transformer"),
}


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
