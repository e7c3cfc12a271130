"""Checkpoints of Hugging Face transformers: config.json, safetensors, a vocabulary.

Pickled weights (`pytorch_model.bin`) are never opened: loading a pickle can run any code.
"""

import dataclasses
import glob
import os
import re
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats import model_configs
from bert_jax.formats.foreign import Choices, ForeignCheckpoint, read_json_object, sibling
from bert_jax.formats.gpt import find_vocabulary, gpt_checkpoint
from bert_jax.formats.hf_labels import (
    distinct_labels,
    is_cross_encoder,
    read_labels,
    read_problem_type,
)
from bert_jax.formats.hf_tokenizer_settings import read_settings
from bert_jax.formats.hf_vocabulary import folder_vocabulary
from bert_jax.formats.names import NAMES
from bert_jax.formats.safetensors_file import read_safetensors
from bert_jax.formats.sentence_transformers import PROMPTS, projection_file
from bert_jax.formats.weight_table import Arrays, WeightTable

TITLE = "Hugging Face"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
# The projection of tokens that sentence-transformers stores separately.
_PROJECTION = "projection.weight"
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
# Keys of config.json that change a model of any kind, unless they are empty.
UNSUPPORTED = ("is_encoder_decoder", "pruned_heads", "rope_scaling")
# Endings of the names of classes with a head other than those of pre-training -> value for
# `config.task.name`.
TASKS_BY_CLASS = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "multiple_choice",
}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models in transformers that are BERT's stack.

    Attributes:
      config: the configuration of the models.
      prefix: beginning of the names of their classes.
      tasks: values of `config.task.name` for which its classes have the same head as this package.
      classes: ends of the names of the classes without such a head.
      activation: the only activation; empty: any of ACTIVATIONS.
      has_pairs: whether there is a class with the head for the next sentence.
    """

    config: model_configs.ModelConfig
    prefix: str
    tasks: tuple[str, ...] = ("classification", "tagging", "span")
    classes: tuple[str, ...] = ("Model", "ForMaskedLM")
    activation: str = ""
    has_pairs: bool = False

    @property
    def frames_text(self) -> bool:
        """Whether its text is between [CLS] and [SEP]: not if it is to be continued."""
        return "LMHeadModel" not in self.classes


# By the name of the encoder.
FAMILIES = {
    "bert": Family(
        model_configs.BERT,
        "Bert",
        tuple(TASKS_BY_CLASS.values()),
        ("Model", "ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction"),
        has_pairs=True,
    ),
    "distilbert": Family(model_configs.DISTILBERT, "DistilBert"),
    "electra": Family(
        model_configs.ELECTRA,
        "Electra",
        classes=("Model", "ForMaskedLM", "ForPreTraining"),
        activation="gelu",
    ),
    "roberta": Family(model_configs.ROBERTA, "Roberta", activation="gelu"),
    "xlm_roberta": Family(model_configs.XLM_ROBERTA, "XLMRoberta", activation="gelu"),
    "modernbert": Family(model_configs.MODERNBERT, "ModernBert", (), activation="gelu"),
    "gpt": Family(model_configs.GPT, "OpenAIGPT", (), ("LMHeadModel",), activation="gelu_tanh"),
}
# A BERT with options of this package, for which the exported folder has the classes.
OWN = Family(model_configs.OWN_BERT, "BertJax", ("classification", "tagging"))
# Those whose two segments have different token types; RoBERTa's have the first one.
_READS_TYPES = ("bert", "electra")
_BY_MODEL_TYPE = {"bert_jax": "bert"} | {
    family.config.required["model_type"]: name for name, family in FAMILIES.items()
}


def open_checkpoint(path: str, choices: Choices) -> ForeignCheckpoint:
    """Opens a folder, or a safetensors file in one."""
    arrays, path = tensors(path), _transformer_folder(path)
    config_path = sibling(path, CONFIG)
    values = read_json_object(config_path)
    model_type = values.get("model_type", "bert")
    if model_type not in _BY_MODEL_TYPE:
        raise UserError(
            f"{config_path} has model_type={model_type!r}: only"
            f" {', '.join(map(repr, _BY_MODEL_TYPE))} are supported."
        )
    _check_kind(values, config_path)
    if (name := _BY_MODEL_TYPE[model_type]) != "gpt":
        return _open_bert(path, values, arrays, choices, name)
    choices.check_activation(path, "GPT", "gelu_tanh")
    model = model_configs.GPT.read(values, config_path)
    vocabulary, lowercase = find_vocabulary(path, choices)
    note = _case_note(lowercase)
    return gpt_checkpoint(path, "huggingface", model, vocabulary, lowercase, arrays, note)


def _check_kind(values: dict[str, Any], config_path: str) -> None:
    """Raises UserError for a model that transformers changes, or makes from other classes."""
    if "quantization_config" in values:
        raise UserError(
            f"{config_path} has a quantization_config: quantized weights are not supported; get"
            " them in float32, float16 or bfloat16."
        )
    for key in UNSUPPORTED:
        if value := values.get(key):
            raise UserError(f"{config_path} has {key}={value!r}, which is not supported.")
    own = OWN.config.required["model_type"]
    if "AutoModel" in (values.get("auto_map") or {}) and values.get("model_type") != own:
        raise UserError(f"{config_path} has its own classes (auto_map), which are not run.")
    if os.path.isfile(adapter := sibling(config_path, "adapter_config.json")):
        raise UserError(f"{adapter}: adapters are not supported; merge them into the weights.")


def _open_bert(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices, name: str
) -> ForeignCheckpoint:
    config_path, table = sibling(path, CONFIG), NAMES[name]["huggingface"]
    is_own = values.get("model_type") == OWN.config.required["model_type"]
    family = OWN if is_own else FAMILIES[name]
    if only := family.activation:
        choices.check_activation(path, family.config.title, only)
    ends = [end for end, task in TASKS_BY_CLASS.items() if task in family.tasks]
    known = [family.prefix + end for end in (*family.classes, *ends)]
    if other := next((x for x in values.get("architectures") or () if x not in known), ""):
        raise UserError(
            f"{config_path} has architectures={other!r}: only {', '.join(known)} are supported."
        )
    model, notes = _read_model(values, config_path, family, choices)
    reads_types = name in _READS_TYPES and model["type_vocab_size"] > 1
    if reads_types and not read_settings(path).gives_types:
        arrays, model["type_vocab_size"] = _with_one_type(arrays, table, name), 1
        notes.append("Its tokenizer gives no token types: all tokens have the first one.")
    names = set(map(table.current_name, arrays))
    pooler = next((row.tensor for row in table.rows if row.path == f"{name}/pooler/kernel"), "")
    task = _task(values, names, pooler)
    settings = {}
    if task == "pretraining" and "causal_share" in values:
        settings = {"causal_share": values["causal_share"]}
    if is_own and task == "classification":
        settings = {f"task.{key}": values[key] for key in ("pool", "pooler") if key in values}
    elif family.has_pairs:
        model["next_sentence"] = pooler in names
        if task == "pretraining" and not model["next_sentence"]:
            notes.append("It has no pooler: model.next_sentence=False.")
    if task == "colbert":
        settings["task.features"] = len(arrays[_PROJECTION])
    bias = next((row.tensor for row in table.rows if row.path == "classifier/bias"), "")
    stored = next((name for name in arrays if table.current_name(name) == bias), "")
    labels, kind = (), "single"
    if stored and task in ("classification", "tagging"):
        rows = len(arrays[stored])
        labels = read_labels(values, config_path, rows)
        if task == "classification":
            settings_path = sibling(path, PROMPTS)
            functions = read_json_object(settings_path) if os.path.isfile(settings_path) else {}
            kind, more = read_problem_type(values, config_path, rows)
            labels, renamed = distinct_labels(() if kind == "regression" else labels)
            if kind == "regression" and is_cross_encoder(values, functions):
                task, more = "cross_encoder", []
                _check_prompt(functions, settings_path)
            notes += [*more, *renamed]
    vocabulary, lowercase = folder_vocabulary(path, choices)
    return ForeignCheckpoint(
        path=path,
        format="huggingface",
        task=task,
        model=model,
        vocabulary=vocabulary,
        lowercase=lowercase,
        tensors=arrays,
        notes=(*notes, _case_note(lowercase)),
        labels=labels,
        label_kind=kind,
        settings=settings,
    )


def _with_one_type(arrays: Arrays, table: WeightTable, name: str) -> Arrays:
    """Returns the tensors with the first row of the embeddings of token types only."""
    path = f"{name}/embeddings/token_type_embeddings/embedding"
    types = next(row.tensor for row in table.rows if row.path == path)
    return {x: a[:1] if table.current_name(x) == types else a for x, a in arrays.items()}


def _check_prompt(settings: dict[str, Any], path: str) -> None:
    """Raises UserError for a cross-encoder that puts a prompt before each pair."""
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if name and (text := prompts.get(name)):
        raise UserError(
            f"{path} has the default prompt {text!r}, which is not put before pairs here: write it"
            " into the texts, and remove default_prompt_name."
        )


def _read_model(
    values: dict[str, Any], config_path: str, family: Family, choices: Choices
) -> tuple[dict[str, Any], list[str]]:
    """Returns the fields of `config.model`, and notes."""
    if family.activation:
        return family.config.read(values, config_path), []
    key = next(key for key, field in family.config.fields.items() if field == "activation")
    stored = values.get(key, "gelu")
    if stored not in ACTIVATIONS:
        raise UserError(
            f"{config_path} has {key}={stored!r}: only {', '.join(ACTIVATIONS)} are supported."
        )
    activation = choices.activation or ACTIVATIONS[stored]
    note = f"GELU: {activation}, config.json says {stored!r}."
    return family.config.read({**values, key: activation}, config_path), [note]


def _case_note(lowercase: bool) -> str:
    return f"Text is {'' if lowercase else 'not '}lower cased."


def _task(values: dict[str, Any], names: set[str], pooler: str) -> str:
    """Returns the task of the class in config.json, or else that of the head.

    `names` are the tensors, and `pooler` that of the pooler's kernel.
    """
    for architecture in values.get("architectures") or ():
        for end, task in TASKS_BY_CLASS.items():
            if architecture.endswith(end):
                return task
    if "qa_outputs.weight" in names:
        return "span"
    if _PROJECTION in names:
        return "colbert"
    if "classifier.weight" in names:
        return "classification" if pooler in names else "tagging"
    return "pretraining"


def matches(path: str) -> bool:
    if os.path.isfile(path):
        return path.endswith((".safetensors", *_PICKLES))
    path = _transformer_folder(path)
    names = (WEIGHTS, INDEX, *map("pytorch_model{}".format, _PICKLES), "tokenizer_config.json")
    return any(os.path.isfile(os.path.join(path, name)) for name in names)


def tensors(path: str) -> Arrays:
    """Returns the tensors of a folder or file, mapped into memory."""
    arrays: Arrays = {}
    for file in _weight_files(_transformer_folder(path)):
        for name, array in read_safetensors(file).items():
            if name in arrays:
                raise UserError(f"{file} has the tensor {name}, as another file of {path} has.")
            arrays[name] = array
    if file := projection_file(path):
        arrays[_PROJECTION] = read_safetensors(file)["linear.weight"]
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
    for pattern in ("pytorch_model*", "*"):
        for end in _PICKLES:
            if files := glob.glob(os.path.join(glob.escape(path), pattern + end)):
                raise _pickle_error(files[0])
    raise UserError(f"{path} has no {WEIGHTS}.")


def _pickle_error(path: str) -> UserError:
    parts = re.sub(r"-\d+-of-\d+", "-*", path)
    target = os.path.join(os.path.dirname(path), WEIGHTS)
    return UserError(
        f"{path} is a pickle, which can run any code when it is loaded, so it is never opened here."
        " Let torch convert it to safetensors without running code: python -c 'import glob, torch;"
        " from safetensors.torch import save_file; save_file({k: v.contiguous().clone() for f in"
        f' glob.glob("{parts}") for k, v in torch.load(f, weights_only=True).items()}}, "{target}",'
        ' {"format": "pt"})\''
    )
