"""Checkpoints of Hugging Face transformers: config.json, safetensors, a vocabulary.

Pickled weights (`pytorch_model.bin`) are never opened: loading a pickle can run any code.
"""

import glob
import os
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import (
    Choices,
    ForeignCheckpoint,
    read_json_object,
    reads_lowercase,
    sibling,
    wordpiece_vocabulary,
)
from bert_jax.formats.gpt import find_vocabulary, gpt_checkpoint
from bert_jax.formats.model_configs import BERT, GPT, MODERNBERT
from bert_jax.formats.names import bert as bert_names
from bert_jax.formats.safetensors_file import read_safetensors
from bert_jax.formats.weight_table import Arrays

TITLE = "Hugging Face"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# Values of `hidden_act` -> the function that transformers computes.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu2": "relu_squared",
}
# The classes with another head than those of pre-training -> value for `config.task`.
TASKS_BY_CLASS = {
    "BertForSequenceClassification": "classification",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "span",
    "BertForMultipleChoice": "multiple_choice",
}
# `problem_type` of a BertForSequenceClassification -> value for `config.head.problem_type`.
PROBLEM_TYPES = {
    "single_label_classification": "single",
    "multi_label_classification": "multi",
    "regression": "regression",
}
_MODERNBERT_CLASSES = ("ModernBertModel", "ModernBertForMaskedLM")


def open_checkpoint(path: str, choices: Choices) -> ForeignCheckpoint:
    """Opens a folder, or a safetensors file in one.

    Raises:
      UserError: it is incomplete or a model that this package lacks.
    """
    path = _transformer_folder(path)
    arrays = tensors(path)
    config_path = sibling(path, CONFIG)
    values = read_json_object(config_path)
    model_type = values.get("model_type", "bert")
    if model_type not in _MODEL_TYPES:
        raise UserError(
            f"{config_path} has model_type={model_type!r}: only"
            f" {', '.join(map(repr, _MODEL_TYPES))} are supported."
        )
    return _MODEL_TYPES[model_type](path, values, arrays, choices)


def _open_bert(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices
) -> ForeignCheckpoint:
    config_path = sibling(path, CONFIG)
    hidden_act = values.get("hidden_act", "gelu")
    if hidden_act not in ACTIVATIONS:
        raise UserError(
            f"{config_path} has hidden_act={hidden_act!r}: only {', '.join(ACTIVATIONS)} are"
            " supported."
        )
    activation = choices.activation or ACTIVATIONS[hidden_act]
    model = BERT.read({**values, "hidden_act": activation}, config_path)
    notes = [f"GELU: {activation}, config.json says {hidden_act!r}."]
    names = set(map(bert_names.HUGGINGFACE.current_name, arrays))
    model["next_sentence"] = any(name.startswith("bert.pooler.") for name in names)
    task = _task(values, names)
    if task == "pretraining" and not model["next_sentence"]:
        notes.append("It has no pooler: model.next_sentence=False.")
    labels = values.get("id2label") or {} if task in ("classification", "tagging") else {}
    kind = PROBLEM_TYPES.get(str(values.get("problem_type")), "single")
    return ForeignCheckpoint(
        task=task,
        model=model,
        labels=tuple(str(labels[number]) for number in sorted(labels, key=int)),
        label_kind=kind if task == "classification" else "single",
        **_with_wordpiece(path, arrays, choices, *notes),
    )


def _open_modernbert(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices
) -> ForeignCheckpoint:
    choices.check_activation(path, "ModernBERT", "gelu")
    config_path = sibling(path, CONFIG)
    for name in values.get("architectures") or ():
        if name not in _MODERNBERT_CLASSES:
            raise UserError(
                f"{config_path} has architectures={name!r}: only"
                f" {' and '.join(_MODERNBERT_CLASSES)} are supported."
            )
    model = MODERNBERT.read(values, config_path)
    return ForeignCheckpoint(
        task="pretraining", model=model, **_with_wordpiece(path, arrays, choices)
    )


def _open_gpt(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices
) -> ForeignCheckpoint:
    choices.check_activation(path, "GPT", "gelu_tanh")
    model = GPT.read(values, sibling(path, CONFIG))
    vocabulary = find_vocabulary(path, choices.vocab)
    lowercase = choices.lowercase
    if lowercase is None:
        lowercase = vocabulary.kind == ".gpt" or reads_lowercase(path, vocabulary)
    note = _case_note(lowercase)
    return gpt_checkpoint(path, "huggingface", model, vocabulary, lowercase, arrays, note)


# `model_type` of config.json -> function that opens such a folder.
_MODEL_TYPES: dict[str, Callable[..., ForeignCheckpoint]] = {
    "bert": _open_bert,
    "openai-gpt": _open_gpt,
    "modernbert": _open_modernbert,
}


def _with_wordpiece(path: str, arrays: Arrays, choices: Choices, *notes: str) -> Mapping[str, Any]:
    """Returns the fields of a checkpoint that do not depend on its kind of model."""
    vocabulary = wordpiece_vocabulary(path, choices.vocab)
    lowercase = choices.lowercase
    if lowercase is None:
        lowercase = reads_lowercase(path, vocabulary)
    return {
        "path": path,
        "format": "huggingface",
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "tensors": arrays,
        "notes": (*notes, _case_note(lowercase)),
    }


def _case_note(lowercase: bool) -> str:
    return f"Text is {'' if lowercase else 'not '}lower cased."


def _task(values: dict[str, Any], names: set[str]) -> str:
    """Returns the task of the class in config.json, or else that of the head."""
    for architecture in values.get("architectures") or ():
        if architecture in TASKS_BY_CLASS:
            return TASKS_BY_CLASS[architecture]
    if "qa_outputs.weight" in names:
        return "span"
    if "classifier.weight" in names:
        return "classification" if "bert.pooler.dense.weight" in names else "tagging"
    return "pretraining"


def matches(path: str) -> bool:
    """Returns whether a path looks like a checkpoint of this format."""
    if os.path.isfile(path):
        return path.endswith((".safetensors", *_PICKLES))
    path = _transformer_folder(path)
    names = (WEIGHTS, INDEX, *map("pytorch_model{}".format, _PICKLES), "tokenizer_config.json")
    return any(os.path.isfile(os.path.join(path, name)) for name in names)


def tensors(path: str) -> Arrays:
    """Returns the tensors of a folder or file, mapped into memory.

    Raises:
      UserError: there are no weights that may be read, or they are corrupt.
    """
    arrays: Arrays = {}
    for file in _weight_files(_transformer_folder(path)):
        for name, array in read_safetensors(file).items():
            if name in arrays:
                raise UserError(f"{file} has the tensor {name}, as another file of {path} has.")
            arrays[name] = array
    return arrays


def _transformer_folder(path: str) -> str:
    """Returns the folder, or its folder of the first module of sentence-transformers."""
    modules = os.path.join(path, "modules.json")
    if os.path.isfile(modules) and not os.path.isfile(os.path.join(path, CONFIG)):
        for folder in sorted(glob.glob(os.path.join(glob.escape(path), "0*", ""))):
            return folder.rstrip("/")
    return path


def _weight_files(path: str) -> list[str]:
    """Returns the safetensors files of a checkpoint."""
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file or folder.")
    if os.path.isfile(path):
        if path.endswith(_PICKLES):
            raise _pickle_error(path)
        return [path]
    index, single = os.path.join(path, INDEX), os.path.join(path, WEIGHTS)
    if os.path.isfile(index):
        names = read_json_object(index).get("weight_map")
        if not isinstance(names, dict):
            raise UserError(f"{index} has no weight_map.")
        files = [os.path.join(path, os.path.basename(name)) for name in set(names.values())]
        for file in files:
            if not os.path.isfile(file):
                raise UserError(f"{file} is missing: {INDEX} names it.")
        return sorted(files)
    if os.path.isfile(single):
        return [single]
    pickles = (glob.glob(os.path.join(glob.escape(path), f"*{end}")) for end in _PICKLES)
    if files := next(filter(None, pickles), None):
        raise _pickle_error(files[0])
    raise UserError(f"{path} has no {WEIGHTS}.")


def _pickle_error(path: str) -> UserError:
    folder = os.path.dirname(path) or "."
    return UserError(
        f"{path} is a pickle, which can run any code when it is loaded, so it is never opened here."
        " If you trust it, convert it to safetensors with transformers: python -c 'from"
        " transformers import AutoModelForPreTraining as M, AutoTokenizer as T;"
        f' M.from_pretrained("{folder}").save_pretrained("NEW");'
        f' T.from_pretrained("{folder}").save_pretrained("NEW")\''
    )
