"""A trained model as a folder that transformers loads.

The folder has `config.json`, which names the class for the task, `model.safetensors`,
`tokenizer.json`, `tokenizer_config.json`, the vocabulary and `certificate.json`, the comparison of
both programs. As transformers does it, the decoder of the masked-LM head, which is the table of
word embeddings, is not stored twice.
"""

import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.convert import certificate as certificates
from bert_jax.convert.comparison import compare_with_source
from bert_jax.convert.imported import import_checkpoint
from bert_jax.convert.trained_run import TrainedRun, check_output_folder, read_run
from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.formats import FORMATS, open_checkpoint
from bert_jax.formats.bert_config import ARCHITECTURE, model_keys
from bert_jax.formats.hf_tokenizer import tokenizer_config, tokenizer_json
from bert_jax.formats.huggingface import PROBLEM_TYPES
from bert_jax.formats.safetensors_file import write_safetensors
from bert_jax.formats.weight_table import Arrays, export_params
from bert_jax.models import MODELS
from bert_jax.tasks import find_task
from bert_jax.tasks.task import TaskRow
from bert_jax.training.initial import CERTIFICATE, untrained_params, vocabulary_params

_FORMAT = "huggingface"
# The class of pre-training without the head for the next sentence.
_MASKED_LM = "BertForMaskedLM"
# The classes whose config.json names the labels.
_LABELLED = ("BertForSequenceClassification", "BertForTokenClassification")
# Both are the approximation by tanh; "gelu_new" is what all versions of transformers know.
_HIDDEN_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}


def export(workdir: str, out: str, *, compare: bool = True) -> dict[str, Any]:
    """Writes the folder `out`, completely or not at all; prints and returns the certificate.

    Args:
      workdir: folder of a run.
      out: a folder that is new or empty.
      compare: run the result in transformers, where it is installed, and compare the outputs.

    Raises:
      ValueError: `out` is not empty, the run has no checkpoint, its vocabulary has no
        tokenizer.json, or transformers has no class for its model.
    """
    check_output_folder(out)
    run = read_run(workdir)
    config = run.config
    name = class_name(config, run.params)
    params, left_out = choose_params(run.params, name, config)
    untrained = [path for path in untrained_params(workdir) if path in params]
    table = MODELS[config.model.name].formats[_FORMAT]
    tensors = export_params(params, table, FORMATS[_FORMAT].title)
    files = {
        "config.json": make_config(config, name, tensors, run.tokenizer.pad_id, run.labels),
        "tokenizer.json": tokenizer_json(run.tokenizer, run.vocabulary.read_bytes()),
        "tokenizer_config.json": tokenizer_config(
            run.tokenizer, config.model.max_position_embeddings
        ),
    }
    with whole_folder(out) as temporary:
        folder = pathlib.Path(temporary)
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content, indent=1) + "\n")
        write_safetensors(folder / "model.safetensors", tensors)
        shutil.copyfile(run.vocabulary, folder / run.vocabulary.name)
        certificate = {
            "source": workdir,
            "step": run.step,
            "format": FORMATS[_FORMAT].title,
            "class": name,
            "tensors": {
                "in": len(run.params),
                "out": len(tensors),
                "left_out": left_out,
                "random": untrained,
            },
            "parameters": sum(tensor.size for tensor in tensors.values()),
            "weights_sha256": certificates.weights_sha256(params),
            "comparison": _compare(folder, run, compare),
        }
        write_json(folder / CERTIFICATE, certificate)
    print("\n".join(_lines(certificate)))
    print(f"folder      {out}")
    return certificate


def _compare(folder: pathlib.Path, run: TrainedRun, compare: bool) -> dict[str, Any]:
    """Reads the folder back, and runs it in transformers and in this package."""
    if not compare:
        return {"none_because": "--nocomparison"}
    if run.vocabulary.suffix != ".txt":
        return {"none_because": "only folders with a vocab.txt are read back"}
    return compare_with_source(import_checkpoint(open_checkpoint(str(folder), _FORMAT)))


def _lines(certificate: dict[str, Any]) -> list[str]:
    """Returns the lines that are printed of the certificate."""
    tensors = certificate["tensors"]
    return [
        f"source      {certificate['source']}, step {certificate['step']}",
        f"class       {certificate['class']}",
        f"tensors     {tensors['in']} in, {tensors['out']} out;"
        f" {certificate['parameters']:,} parameters",
        *(f"left out    {path}: {reason}" for path, reason in tensors["left_out"].items()),
        *(f"random      {path}: the import did not have it" for path in tensors["random"]),
        f"weights     sha256 {certificate['weights_sha256']}",
        *certificates.comparison_lines(certificate["comparison"]),
    ]


def class_name(config: ConfigDict, params: Arrays) -> str:
    """Returns transformers' class for a run.

    Raises:
      ValueError: for a task or a model that it has no class for.
    """
    for field, required in ARCHITECTURE.items():
        if (value := config.model[field]) != required:
            raise ValueError(
                f"transformers' BERT has no config.model.{field}={value!r}, only {required!r}:"
                " export the run with to_stablehlo, or train with that value."
            )
    task = find_task(config.task)
    if task.head:
        _check_head(config, task)
    if not task.head and not any(path.startswith("next_sentence/") for path in params):
        return _MASKED_LM
    return task.huggingface_class


def _check_head(config: ConfigDict, task: TaskRow) -> None:
    """Raises ValueError for a head that transformers' classes of BERT do not have."""
    if (layers := config.head.get("layers", "last")) != "last":
        raise ValueError(
            f"The head was trained with config.head.layers={layers!r}: transformers' classes read"
            " the last layer only, so their answers would differ."
        )
    required = {config.task: "linear", "lm_weight": 0.0}
    if task.pools:
        required |= {"pool": "cls", "pooler": True, "both_orders": False}
    for name, value in required.items():
        if (got := config.head.get(name, value)) != value:
            raise ValueError(
                f"The head was trained with config.head.{name}={got!r}: transformers' classes of"
                f" BERT have {value!r} only, so their answers would differ."
            )


def choose_params(params: Arrays, name: str, config: ConfigDict) -> tuple[Arrays, dict[str, str]]:
    """Returns the parameters that a class of transformers has, and path -> reason for the rest."""
    encoder, vocab_size = config.model.name, config.model.vocab_size
    has_pooler = find_task(config.task).pools and name != _MASKED_LM
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


def make_config(
    config: ConfigDict, name: str, tensors: Arrays, pad_id: int, labels: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the content of config.json."""
    content = {
        "architectures": [name],
        "model_type": "bert",
        **model_keys(config.model, _HIDDEN_ACTS[config.model.activation]),
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if name in _LABELLED:
        labels = labels or [f"LABEL_{i}" for i in range(len(tensors["classifier.bias"]))]
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    if name == "BertForSequenceClassification":
        types = {labels: problem_type for problem_type, labels in PROBLEM_TYPES.items()}
        content["problem_type"] = types[config.head.labels]
    return content
