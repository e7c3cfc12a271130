"""Writes a model as a folder that transformers loads.

The folder has `config.json`, which names the class for the task, `model.safetensors` and the
tokenizer files; where it is known how the vectors of texts are made, also the files of
sentence-transformers. As in transformers, the decoder of a language model, which is the word
embedding table, is not stored a second time.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.exchange.loaded import LoadedModel, check_heads, vocabulary_params
from bert_jax.files.errors import UserError
from bert_jax.formats import FORMATS
from bert_jax.formats.hf_tokenizer import tokenizer_config, tokenizer_json
from bert_jax.formats.huggingface import PROBLEM_TYPES, TASKS_BY_CLASS
from bert_jax.formats.model_configs import BERT, GPT, MODERNBERT, ModelConfig
from bert_jax.formats.names import NAMES
from bert_jax.formats.safetensors_file import write_safetensors
from bert_jax.formats.sentence_transformers import write_sentence_vectors
from bert_jax.formats.weight_table import Arrays, export_params, weights_sha256
from bert_jax.tasks import find_task
from bert_jax.text.gpt_tokenizer import SPECIAL_TOKENS
from bert_jax.text.gpt_vocabulary import UNKNOWN, unpack

_FORMAT = "huggingface"
# By config.task.
BERT_CLASSES = {task: name for name, task in TASKS_BY_CLASS.items()}
BERT_CLASSES["pretraining"] = "BertForPreTraining"
# The class of pre-training without the head for the next sentence.
MASKED_LM = "BertForMaskedLM"
_GPT_CLASSES = {"causal_lm": "OpenAIGPTLMHeadModel"}
# The classes whose config.json names the labels.
_LABELLED = ("BertForSequenceClassification", "BertForTokenClassification")


def write(model: LoadedModel, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the files of a model into an empty folder.

    Returns:
      Facts about the export, a part of certificate.json: `class` of transformers, `tensors`,
      number of `parameters`, `weights_sha256`.

    Raises:
      UserError: transformers has no class for the task, or not for a model with these settings.
    """
    check_heads(model)
    family = check_encoder(model.config.model)
    name = family.find_class(model)
    params, left_out = _choose_params(model, name)
    table = NAMES[model.config.model.name][_FORMAT]
    tensors = export_params(params, table, FORMATS[_FORMAT].TITLE)
    files = {
        "config.json": _json_text(_config(model, name, family)),
        **tokenizer_files(model, family.reads_pairs, family.frames_text),
    }
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    write_sentence_vectors(model.sentence_vectors, str(folder), model.config.model.hidden_size)
    if model.vocabulary.kind != ".gpt":  # its two files are among `files`
        (folder / model.vocabulary.copy_name).write_bytes(model.vocabulary.content)
    return {
        "class": name,
        "tensors": {
            "in": len(model.params),
            "out": len(tensors),
            "left_out": left_out,
            "random": [path for path in model.missing if path in params] + list(model.new_rows),
        },
        "parameters": sum(tensor.size for tensor in tensors.values()),
        "weights_sha256": weights_sha256(params),
    }


def check_encoder(model: EncoderConfig) -> "Family":
    """Returns the models of transformers with this encoder.

    Raises:
      UserError: there are none. An encoder that transformers lacks is refused as a BERT.
    """
    family = FAMILIES.get(model.name, FAMILIES["bert"])
    family.config.check(model.to_dict())
    return family


def _choose_params(model: LoadedModel, name: str) -> tuple[Arrays, dict[str, str]]:
    """Returns the parameters that a class of transformers has, and path -> reason for the rest."""
    encoder, vocab_size = model.config.model.name, model.config.model.vocab_size
    has_pooler = find_task(model.config.task).pools and name != MASKED_LM
    kept, left_out = dict(model.params), {}
    for path, array in model.params.items():
        if path.startswith(f"{encoder}/pooler/") and not has_pooler:
            left_out[path] = f"{name} has no pooler"
            del kept[path]
        elif path in vocabulary_params(encoder):
            kept[path] = array[:vocab_size]
            if padding := len(array) - vocab_size:
                left_out[f"{path}[{vocab_size}:]"] = f"{padding} rows of padding"
    return kept, left_out


# ------------------------------------------------------------------ classes and config.json


def _bert_class(model: LoadedModel) -> str:
    config, task = model.config, find_task(model.config.task)
    if not config["model.type_vocab_size"]:
        raise UserError(
            "transformers' BERT has token types, and config.model.type_vocab_size=0: export the run"
            " with to_stablehlo."
        )
    if task.embeds:
        return "BertModel"
    if not task.head:
        has_pairs = any(path.startswith("next_sentence/") for path in model.params)
        return BERT_CLASSES.get(config.task, "") if has_pairs else MASKED_LM
    if (layers := config["head.layers"]) != "last":
        raise UserError(
            f"The head was trained with config.head.layers={layers!r}: transformers' classes read"
            " the last layer only, so their answers would differ."
        )
    required = {config.task: "linear", "lm_weight": 0.0}
    if task.pools:
        required |= {"pool": "cls", "pooler": True, "both_orders": False}
    for name, value in required.items():
        if (got := config[f"head.{name}"]) != value:
            raise UserError(
                f"The head was trained with config.head.{name}={got!r}: transformers' classes of"
                f" BERT have {value!r} only, so their answers would differ."
            )
    return BERT_CLASSES.get(config.task, "")


def _gpt_class(model: LoadedModel) -> str:
    if (task := model.config.task) not in _GPT_CLASSES:
        raise UserError(
            f"transformers has no class for a GPT with config.task={task!r}, only for"
            f" {', '.join(_GPT_CLASSES)}: export the run with to_stablehlo."
        )
    return _GPT_CLASSES[task]


def _modernbert_class(model: LoadedModel) -> str:
    if find_task(model.config.task).embeds:
        return "ModernBertModel"
    if not find_task(model.config.task).fills_masks:
        raise UserError(
            f"transformers has no class for a ModernBERT with config.task={model.config.task!r}"
            " whose head is that of this package: export the run with to_stablehlo."
        )
    return "ModernBertForMaskedLM"


@dataclasses.dataclass(frozen=True)
class Family:
    """The models of transformers with one encoder.

    Attributes:
      config: their configuration.
      find_class: model -> name of the class; raises UserError.
      reads_pairs: whether the encoder reads token types.
      frames_text: whether its text is between [CLS] and [SEP], and may be padded with [PAD].
    """

    config: ModelConfig
    find_class: Callable[[LoadedModel], str]
    reads_pairs: bool
    frames_text: bool


# By the name of the encoder.
FAMILIES = {
    "bert": Family(BERT, _bert_class, reads_pairs=True, frames_text=True),
    "modernbert": Family(MODERNBERT, _modernbert_class, reads_pairs=False, frames_text=True),
    "gpt": Family(GPT, _gpt_class, reads_pairs=False, frames_text=False),
}


def _config(model: LoadedModel, name: str, family: Family) -> dict[str, Any]:
    """Returns the content of config.json."""
    content = {"architectures": [name], **family.config.keys(model.config.model.to_dict())}
    if family.frames_text:
        content["pad_token_id"] = model.tokenizer.pad_id
    content |= {"tie_word_embeddings": True, "dtype": "float32"}
    if name in _LABELLED:
        classes = len(model.params["classifier/bias"])
        labels = model.labels or [f"LABEL_{i}" for i in range(classes)]
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    if name == "BertForSequenceClassification":
        types = {labels: problem_type for problem_type, labels in PROBLEM_TYPES.items()}
        content["problem_type"] = types[model.config["head.problem_type"]]
    return content


# ------------------------------------------------------------------ tokenizer files


def tokenizer_files(model: LoadedModel, reads_pairs: bool, frames_text: bool) -> dict[str, str]:
    """Returns the content of each tokenizer file, by name, apart from vocab.txt or vocab.model.

    Args:
      model: the model.
      reads_pairs, frames_text: see `Family`.

    Raises:
      UserError: the run's vocabulary has no tokenizer.json.
    """
    length, content = model.config.model.max_position_embeddings, model.vocabulary.content
    if model.vocabulary.kind == ".gpt":
        return _gpt_files(model, length)
    tokenizer = tokenizer_json(model.tokenizer, content)
    settings = tokenizer_config(model.tokenizer, length)
    if not frames_text:  # text to be continued does not end in [SEP]
        tokenizer["post_processor"] = None
    if not reads_pairs:
        # GPT's class in transformers would add the embeddings of the words 0 and 1 for them, and
        # ModernBERT's classes refuse them.
        settings["model_input_names"].remove("token_type_ids")
    return {
        "tokenizer.json": _json_text(tokenizer),
        "tokenizer_config.json": _json_text(settings),
    }


def _gpt_files(model: LoadedModel, length: int) -> dict[str, str]:
    """Returns the files of the released vocabulary, with the special tokens at its end."""
    _, merges = unpack(model.vocabulary.content, model.vocabulary.path)
    ids = {piece: number for number, piece in enumerate(model.tokenizer.pieces)}
    settings = {
        "tokenizer_class": "OpenAIGPTTokenizer",
        "model_max_length": length,
        "unk_token": UNKNOWN,
        "additional_special_tokens": list(SPECIAL_TOKENS),
    }
    return {
        "vocab.json": json.dumps(ids, ensure_ascii=False) + "\n",
        "merges.txt": "".join(f"{line}\n" for line in ("#version: 0.2", *map(" ".join, merges))),
        "tokenizer_config.json": _json_text(settings),
    }


def _json_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"
