"""Runs a loaded checkpoint in `transformers` on torch, where both are installed.

transformers loads a Hugging Face folder itself. google-research/bert's program needs TensorFlow
1; parameters of its checkpoints are passed to transformers under the names of our table.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.exchange import LoadedModel
from bert_jax.exchange.huggingface import MODELING
from bert_jax.formats.foreign import sibling
from bert_jax.formats.huggingface import FAMILIES, INDEX, TASKS_BY_CLASS, WEIGHTS
from bert_jax.formats.names import NAMES
from bert_jax.formats.weight_table import export_params
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
    if _has_own_classes(loaded) and not _has_our_code(loaded):
        return f"its {MODELING.name} is not that of this version, and is not run"
    return ""


def run(loaded: LoadedModel, batch: Batch) -> Outputs:
    """Runs the encoder and the heads that the checkpoint has."""
    import torch

    with quiet():
        model = _load(loaded) if _is_huggingface(loaded) else _fill(loaded)
    tensors = {name: torch.from_numpy(array.astype(np.int64)) for name, array in batch.items()}
    inputs = {"input_ids": tensors["input_ids"], "attention_mask": tensors["example_ids"]}
    # transformers' GPT would add the embeddings of the words 0 and 1 for token types.
    if loaded.model.reads_token_types:
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
    options |= {"attn_implementation": "eager", "vocab_size": loaded.config.model.vocab_size}
    return make.from_pretrained(_path(loaded), dtype=torch.float32, **options).eval()


def _fill(loaded: LoadedModel) -> Any:
    import torch

    name, task = loaded.config.model.name, loaded.config.task
    make, options = _class(loaded)
    values = FAMILIES[name].config.keys(loaded.config.model.to_dict())
    if task.HEAD:
        values["num_labels"] = len(loaded.params[f"{task.HEAD}/bias"])
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

    task, family = loaded.config.task, FAMILIES[loaded.config.model.name]
    heads = {name.split("/")[0] for name in loaded.params}
    ends = {task: end for end, task in TASKS_BY_CLASS.items()}
    if _has_own_classes(loaded):
        has_lm = "masked_lm" in heads or loaded.model.lm_head == "tied"
        end = ends.get(loaded.config.task.name, "ForMaskedLM" if has_lm else "")
        return getattr(transformers, f"AutoModel{end}"), {"trust_remote_code": True}
    if task.READS_FORWARD:
        end = "LMHeadModel"
    elif task.HEAD:
        end = ends[loaded.config.task.name]
    elif {"masked_lm", "next_sentence"} <= heads:
        end = "ForPreTraining"
    elif "masked_lm" in heads and not loaded.config.model.next_sentence:
        end = "ForMaskedLM"
    else:
        end = "Model"
    has_option = end == "Model" and family.prefix in ("Bert", "Roberta", "XLMRoberta")
    options = {"add_pooling_layer": loaded.config.model.next_sentence} if has_option else {}
    return getattr(transformers, family.prefix + end), options


def _has_own_classes(loaded: LoadedModel) -> bool:
    return _is_huggingface(loaded) and os.path.isfile(os.path.join(_path(loaded), MODELING.name))


def _has_our_code(loaded: LoadedModel) -> bool:
    """Returns whether a folder's own classes are those of this version, which may be run."""
    path = pathlib.Path(_path(loaded), MODELING.name)
    return _has_own_classes(loaded) and path.read_bytes() == MODELING.read_bytes()


def _outputs(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the outputs of a transformers model under our names."""
    import torch

    base = getattr(model, model.base_model_prefix, model)
    encoded = base(**inputs, output_hidden_states=True)
    last, pooled = encoded.last_hidden_state, getattr(encoded, "pooler_output", None)
    # The last of ModernBERT's `hidden_states` is not normalized.
    values = {"hidden states": torch.stack((*encoded.hidden_states[:-1], last))}
    if pooled is not None:
        values["pooled"] = pooled
    name = type(model).__name__
    if name.endswith("ForPreTraining"):
        values["masked-LM logits"] = model.cls.predictions(last)
        values["next-sentence logits"] = model.cls.seq_relationship(pooled)
    elif name.endswith("ForMultipleChoice"):
        values["task logits"] = model.classifier(pooled)
    elif model is not base:
        outputs = model(**inputs)
        end = next((end for end in _LOGITS if name.endswith(end)), "")
        values[_LOGITS.get(end, "task logits")] = (
            torch.stack((outputs.start_logits, outputs.end_logits), -1)
            if hasattr(outputs, "start_logits")
            else outputs.logits
        )
    return values


# Output by the end of the class's name; those of other classes belong to a task.
_LOGITS = {"ForMaskedLM": "masked-LM logits", "LMHeadModel": "next-word logits"}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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


# ------------------------------------------------------------------ token ids

# Each kind of text that a tokenizer setting affects: case, accents, ideographs, compatibility
# characters, spaces, punctuation, long words.
TEXTS = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "Don't stop-believing (1984): 3.14 & e-mail@example.org!",
    "Café naïve, ÀÉÎ, Straße, ÅNGSTRÖM, e\u0301te\u0301",
    "我们喜欢中文 and 日本語のテキスト 한국어",
    "Привет, мир! Γειά Κόσμε",
    "\ufb01nd \u2460 \uff26\uff55\uff4c\uff4c\u3000width \u00bd \u2122",
    "  two  spaces\tand\nlines ",
    "price \u20ac5, hello\U0001f600world",
    "incomprehensibilities" * 3,
    "",
)
_SHOWN = 40


def compare_token_ids(loaded: LoadedModel) -> dict[str, Any]:
    """Compares the ids of TEXTS with those of transformers; `none_because` if it cannot."""
    import transformers

    assert loaded.checkpoint
    try:
        with quiet():
            theirs = transformers.AutoTokenizer.from_pretrained(
                sibling(loaded.checkpoint.path, ""),
                trust_remote_code=_has_our_code(loaded),  # otherwise it asks on the terminal
            )
    except Exception as error:  # of any kind, from a package that the tokenizer needs
        line = " ".join(str(error).split())[:160]
        return {"none_because": f"transformers cannot load the tokenizer ({line})"}
    differ = []
    for text in TEXTS:
        here = list(map(int, loaded.tokenizer.encode(text)))
        there = theirs(text, add_special_tokens=False)["input_ids"]
        if here != there:
            differ.append({"text": text, "here": here, "there": there})
    return {"with": type(theirs).__name__, "texts": len(TEXTS), "differ": differ}


def token_id_line(found: dict[str, Any]) -> str:
    """Returns the line that is printed of the result."""
    if reason := found.get("none_because"):
        return f"token ids   not compared: {reason}"
    if not (differ := found["differ"]):
        return f"token ids   those of {found['with']} for {found['texts']} texts"
    first, number = differ[0], f"{len(differ)} of {found['texts']} texts"
    here, there = _shown(first["here"]), _shown(first["there"])
    return (
        f"token ids   DIFFER from those of {found['with']} for {number}: {first['text']!r} has"
        f" {here} here, {there} there"
    )


def _shown(ids: list[int]) -> str:
    text = " ".join(map(str, ids))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
