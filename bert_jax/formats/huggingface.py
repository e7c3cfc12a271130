"""Checkpoints in the form of Hugging Face: config.json, safetensors, vocab.txt or tokenizer.json.

Pickled weights (`pytorch_model.bin`) are never opened: loading a pickle can run any code.
"""

import glob
import os
from typing import Any

from bert_jax.formats import foreign
from bert_jax.formats.foreign import Choices, Source, beside
from bert_jax.formats.safetensors_file import read_safetensors
from bert_jax.formats.tables import FORMATS, Arrays

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# What transformers computes under these names of `hidden_act`.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
}
# The classes with another head than those of pre-training.
_TASKS = {
    "BertForSequenceClassification": "classification",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "span",
    "BertForMultipleChoice": "multiple_choice",
}
CLASS_OF_TASK = {task: name for name, task in _TASKS.items()}


def describe(path: str, choices: Choices) -> Source:
    """Looks at a folder, or at a safetensors file with its config.json beside it.

    Raises:
      ValueError: it is not complete, or no BERT.
    """
    path = _folder_of_the_transformer(path)
    arrays = read(path)
    config_path = beside(path, CONFIG)
    values = foreign.read_config(config_path)
    said = values.get("hidden_act", "gelu")
    if said not in ACTIVATIONS:
        raise ValueError(
            f"{config_path} says hidden_act={said!r}: only {', '.join(ACTIVATIONS)} are BERT's."
        )
    activation = choices.activation or ACTIVATIONS[said]
    model = foreign.model_fields(values, activation, config_path)
    notes = [f"GELU: {activation}, config.json says {said!r}."]

    form = FORMATS["huggingface"]
    names = set(map(form.todays_name, arrays))
    model["next_sentence"] = any(name.startswith("bert.pooler.") for name in names)
    task = _task(values, names)
    if task == "pretraining" and not model["next_sentence"]:
        notes.append("It has no pooler: model.next_sentence=False.")

    vocabulary, vocabulary_path = _vocabulary(path, choices.vocab)
    is_said = _says_lowercase(path)
    lowercase = choices.lowercase
    if lowercase is None:
        lowercase = foreign.is_lowercase(vocabulary) if is_said is None else is_said
    notes.append(f"Text is {'' if lowercase else 'not '}lower cased.")
    return Source(
        path=path,
        form=form,
        task=task,
        model=model,
        vocabulary=vocabulary,
        vocabulary_path=vocabulary_path,
        lowercase=lowercase,
        labels=_labels(values) if task in ("classification", "tagging") else (),
        shapes={name: array.shape for name, array in arrays.items()},
        read=lambda: arrays,
        notes=tuple(notes),
        label_kind=_LABEL_KINDS.get(str(values.get("problem_type")), "single"),
    )


def read(path: str) -> Arrays:
    """The tensors of a folder or file, mapped into memory.

    Raises:
      ValueError: there are none that may be read, or they are damaged.
    """
    arrays: Arrays = {}
    for file in _weight_files(_folder_of_the_transformer(path)):
        for name, array in read_safetensors(file).items():
            if name in arrays:
                raise ValueError(f"{file} has {name}, as another file has: they are no one model.")
            arrays[name] = array
    return arrays


def is_one(path: str) -> bool:
    """Whether a path looks like a checkpoint of this form."""
    if os.path.isfile(path):
        return path.endswith((".safetensors", *_PICKLES))
    path = _folder_of_the_transformer(path)
    names = (WEIGHTS, INDEX, *map("pytorch_model{}".format, _PICKLES), "tokenizer_config.json")
    return any(os.path.isfile(os.path.join(path, name)) for name in names)


def _folder_of_the_transformer(path: str) -> str:
    """The folder itself, or that of the first module of sentence-transformers in it."""
    modules = os.path.join(path, "modules.json")
    if os.path.isfile(modules) and not os.path.isfile(os.path.join(path, CONFIG)):
        for folder in sorted(glob.glob(os.path.join(glob.escape(path), "0*", ""))):
            return folder.rstrip("/")
    return path


def _weight_files(path: str) -> list[str]:
    """The safetensors files of a checkpoint."""
    if not os.path.exists(path):
        raise ValueError(f"{path}: there is no such file or folder.")
    if os.path.isfile(path):
        if path.endswith(_PICKLES):
            raise _pickled(path)
        return [path]
    index, single = os.path.join(path, INDEX), os.path.join(path, WEIGHTS)
    if os.path.isfile(index):
        names = foreign.read_config(index).get("weight_map")
        if not isinstance(names, dict):
            raise ValueError(f"{index} has no weight_map.")
        files = [os.path.join(path, os.path.basename(name)) for name in set(names.values())]
        for file in files:
            if not os.path.isfile(file):
                raise ValueError(f"{file} is missing: {INDEX} names it.")
        return sorted(files)
    if os.path.isfile(single):
        return [single]
    pickles = (glob.glob(os.path.join(glob.escape(path), f"*{end}")) for end in _PICKLES)
    if found := next(filter(None, pickles), None):
        raise _pickled(found[0])
    raise ValueError(f"{path} holds no {WEIGHTS}.")


def _pickled(path: str) -> ValueError:
    folder = os.path.dirname(path) or "."
    return ValueError(
        f"{path} is a pickle, which can run any code when it is loaded, so it is never opened here."
        " Where you trust it, make a safetensors file of it with transformers: python -c 'from"
        " transformers import AutoModelForPreTraining as M, AutoTokenizer as T;"
        f' M.from_pretrained("{folder}").save_pretrained("NEW");'
        f' T.from_pretrained("{folder}").save_pretrained("NEW")\''
    )


def _task(values: dict[str, Any], names: set[str]) -> str:
    """By the class in config.json, else by the heads."""
    for architecture in values.get("architectures") or ():
        if architecture in _TASKS:
            return _TASKS[architecture]
    if "qa_outputs.weight" in names:
        return "span"
    if "classifier.weight" in names:
        return "classification" if "bert.pooler.dense.weight" in names else "tagging"
    return "pretraining"


# By `problem_type`, which says what a BertForSequenceClassification was trained for.
_LABEL_KINDS = {"multi_label_classification": "multi", "regression": "regression"}


def _labels(values: dict[str, Any]) -> tuple[str, ...]:
    labels = values.get("id2label") or {}
    return tuple(str(labels[number]) for number in sorted(labels, key=int))


def _vocabulary(path: str, chosen: str) -> tuple[bytes, str]:
    """The bytes of the vocab.txt, and its path if there is such a file."""
    name = chosen or beside(path, "vocab.txt")
    if chosen or os.path.isfile(name):
        return foreign.read_vocabulary(name), name
    name = beside(path, "tokenizer.json")
    if not os.path.isfile(name):
        raise ValueError(
            f"{os.path.dirname(name)} holds neither vocab.txt nor tokenizer.json: give the"
            " vocabulary with --vocab=PATH."
        )
    tokenizer = foreign.read_config(name)
    model = tokenizer.get("model") or {}
    if model.get("type") != "WordPiece":
        raise ValueError(
            f"{name} has a tokenizer of type {model.get('type')!r}; BERT's is 'WordPiece': give a"
            " vocab.txt with --vocab=PATH."
        )
    ids = dict(model["vocab"])
    ids |= {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError(f"{name} does not number its pieces 0, 1, 2 ...: give --vocab=PATH.")
    return "".join(piece + "\n" for piece in pieces).encode(), ""


def _says_lowercase(path: str) -> bool | None:
    """Of the files of the tokenizer, None where they say nothing."""
    name = beside(path, "tokenizer_config.json")
    said = foreign.read_config(name).get("do_lower_case") if os.path.isfile(name) else None
    name = beside(path, "tokenizer.json")
    if said is None and os.path.isfile(name):
        said = (foreign.read_config(name).get("normalizer") or {}).get("lowercase")
    return said if isinstance(said, bool) else None
