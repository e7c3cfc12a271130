"""A trained model as a folder that transformers loads.

    python -m bert_jax.convert to_hf WORKDIR OUT

OUT holds `config.json`, which names the class for the task, `model.safetensors`, `tokenizer.json`,
`tokenizer_config.json`, the vocabulary and `certificate.json`, the proof that both compute alike.
The decoder of the masked-LM head, which is the table of word embeddings, is not stored twice, as
transformers does it.
"""

import json
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.commands.arguments import Arguments
from bert_jax.convert import certificate, comparison
from bert_jax.convert import workdir as workdirs
from bert_jax.convert.parameters import import_source
from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.formats.hf_tokenizer import tokenizer_config, tokenizer_json
from bert_jax.formats.safetensors_file import write_safetensors
from bert_jax.formats.source import open_source
from bert_jax.formats.tables import FORMATS, Arrays, export_params
from bert_jax.inference.model import random_params

# Task -> transformers' class; of pre-training, with and without the head for the next sentence.
CLASSES = {
    "pretraining": "BertForPreTraining",
    "masked_lm": "BertForMaskedLM",
    "classification": "BertForSequenceClassification",
    "tagging": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
    "multiple_choice": "BertForMultipleChoice",
}
# These classes have no pooler.
_WITHOUT_POOLER = ("BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering")
# Both are the approximation by tanh; "gelu_new" is what all versions of transformers know.
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}


def run(words: list[str]) -> None:
    """The command's words after `to_hf`.

    Raises:
      ValueError: if they are not WORKDIR and OUT, or one of the two cannot be used.
    """
    arguments = Arguments("to_hf", "Makes a folder that transformers loads of a run.")
    arguments.add_argument("workdir", metavar="WORKDIR", help="folder of the run")
    arguments.add_argument("out", metavar="OUT", help="the folder to make")
    arguments.add_argument(
        "--nocomparison", action="store_true", help="do not run the result in transformers"
    )
    given = arguments.parse_args(words)
    export(given.workdir, os.path.normpath(given.out), compare=not given.nocomparison)


def export(workdir: str, out: str, *, compare: bool = True) -> dict[str, Any]:
    """Writes the folder `out`, whole or not at all, and prints and returns the certificate.

    Raises:
      ValueError: if `out` is not empty, the run has no checkpoint, or its vocabulary has no
        tokenizer.json.
    """
    workdirs.check_out(out)
    run = workdirs.read(workdir)
    name = class_name(run.config, run.params)
    params, left_out = choose_params(run.params, name, run.config.model.vocab_size)
    random = [name for name in random_params(workdir) if name in params]
    tensors = export_params(params, FORMATS["huggingface"])
    files = {
        "config.json": make_config(run.config, name, tensors, run.tokenizer.pad_id, run.labels),
        "tokenizer.json": tokenizer_json(run.tokenizer, run.vocabulary.read_bytes()),
        "tokenizer_config.json": tokenizer_config(
            run.tokenizer, run.config.model.max_position_embeddings
        ),
    }
    with whole_folder(out) as temporary:
        folder = pathlib.Path(temporary)
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content, indent=1) + "\n")
        write_safetensors(folder / "model.safetensors", tensors)
        shutil.copyfile(run.vocabulary, folder / run.vocabulary.name)
        proof = {
            "source": workdir,
            "step": run.step,
            "format": "Hugging Face",
            "class": name,
            "tensors": {
                "in": len(run.params),
                "out": len(tensors),
                "left_out": left_out,
                "random": random,
            },
            "parameters": sum(tensor.size for tensor in tensors.values()),
            "weights_sha256": certificate.weights_sha256(params),
            "comparison": _compare(folder, run, compare),
        }
        write_json(folder / certificate.NAME, proof)
    print("\n".join(_lines(proof)))
    print(f"folder      {out}")
    return proof


def _compare(folder: pathlib.Path, run: workdirs.Run, compare: bool) -> dict[str, Any]:
    """Reads the folder back, and runs it in transformers and in this package."""
    if not compare:
        return {"none_because": "--nocomparison"}
    if run.vocabulary.suffix != ".txt":
        return {"none_because": "only folders with a vocab.txt are read back"}
    return comparison.with_source(import_source(open_source(str(folder), "huggingface")))


def _lines(proof: dict[str, Any]) -> list[str]:
    """The certificate for people."""
    tensors = proof["tensors"]
    return [
        f"source      {proof['source']}, step {proof['step']}",
        f"class       {proof['class']}",
        f"tensors     {tensors['in']} in, {tensors['out']} out; {proof['parameters']:,} parameters",
        *(f"left out    {path}: {reason}" for path, reason in tensors["left_out"].items()),
        *(f"random      {path}: the import did not have it" for path in tensors["random"]),
        f"weights     sha256 {proof['weights_sha256']}",
        *certificate.comparison_lines(proof["comparison"]),
    ]


def class_name(config: ConfigDict, params: Arrays) -> str:
    """transformers' class for a run.

    Raises:
      ValueError: for a task that it has no class for.
    """
    task = config.task
    if (layers := config.get("head", {}).get("layers", "last")) != "last":
        raise ValueError(
            f"The head was trained with config.head.layers={layers!r}: transformers' classes read"
            " the last layer only, so their answers would be others."
        )
    if task == "pretraining" and not any(path.startswith("next_sentence/") for path in params):
        task = "masked_lm"
    if task not in CLASSES:
        raise ValueError(
            f"transformers has no class for config.task={task!r}: only for {', '.join(CLASSES)}."
        )
    return CLASSES[task]


# By config.head.labels.
_PROBLEMS = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "regression": "regression",
}


def choose_params(params: Arrays, name: str, vocab_size: int) -> tuple[Arrays, dict[str, str]]:
    """The parameters that a class of transformers has, and path -> reason of what is left out."""
    kept, left_out = dict(params), {}
    for path, array in params.items():
        if path.startswith("bert/pooler/") and name in _WITHOUT_POOLER:
            left_out[path] = f"{name} has no pooler"
            del kept[path]
        elif path in ("bert/embeddings/word_embeddings/embedding", "masked_lm/bias"):
            kept[path] = array[:vocab_size]
            if padding := len(array) - vocab_size:
                left_out[f"{path}[{vocab_size}:]"] = f"{padding} rows of padding"
    return kept, left_out


def make_config(
    config: ConfigDict, name: str, tensors: Arrays, pad_id: int, labels: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of config.json."""
    model = config.model
    content = {
        "architectures": [name],
        "model_type": "bert",
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "intermediate_size": model.intermediate_size,
        "hidden_act": _ACTIVATIONS[model.activation],
        "hidden_dropout_prob": model.dropout_rate,
        "attention_probs_dropout_prob": model.attention_dropout_rate,
        "max_position_embeddings": model.max_position_embeddings,
        "type_vocab_size": model.type_vocab_size,
        "initializer_range": model.initializer_range,
        "layer_norm_eps": model.layer_norm_epsilon,
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if name in ("BertForSequenceClassification", "BertForTokenClassification"):
        labels = labels or [f"LABEL_{i}" for i in range(len(tensors["classifier.bias"]))]
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    if name == "BertForSequenceClassification":
        content["problem_type"] = _PROBLEMS[config.head.labels]
    return content
