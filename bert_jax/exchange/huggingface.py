"""Writes a model as a folder that transformers loads.

The folder has `config.json`, which names the class for the task, `model.safetensors` and the
tokenizer files; if it is known how text vectors are made, also the files of
sentence-transformers. As in transformers, the decoder of a language model, which is the word
embedding table, is not stored a second time. A BERT with options for which transformers has no
class comes with `modeling_bert_jax.py`, whose classes transformers loads with
trust_remote_code=True.
"""

import contextlib
import json
import pathlib
import re
from typing import Any

from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.run import RunConfig
from bert_jax.exchange.loaded import LoadedModel, vocabulary_params
from bert_jax.files.errors import UserError
from bert_jax.formats import FORMATS
from bert_jax.formats.hf_labels import IDENTITY, PROBLEM_TYPES, SIGMOID
from bert_jax.formats.hf_tokenizer import tokenizer_config, tokenizer_json
from bert_jax.formats.huggingface import FAMILIES, OWN, TASKS_BY_CLASS, Family
from bert_jax.formats.names import NAMES
from bert_jax.formats.safetensors_file import write_safetensors
from bert_jax.formats.sentence_transformers import projection_file, write_sentence_vectors
from bert_jax.formats.weight_table import Arrays, export_params, weights_sha256
from bert_jax.text.byte_level_tokenizer import ByteLevelTokenizer
from bert_jax.text.gpt_tokenizer import SPECIAL_TOKENS
from bert_jax.text.gpt_vocabulary import UNKNOWN, unpack

_FORMAT = "huggingface"
# The classes that transformers loads for models that it has no class for.
MODELING = pathlib.Path(__file__).with_name("modeling_bert_jax.py")
_MASKED_LM, _BASE = "ForMaskedLM", "Model"
# What transformers' heads have in common with ours, by field of `config.task`.
_HEADS = {"layers": "last", "lm_weight": 0.0, "both_orders": False}
_POOLING = {"pool": "cls", "pooler": True}


def write(model: LoadedModel, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the files of a model into an empty folder.

    Returns facts about the export, a part of certificate.json: `class` of transformers, `tensors`,
    number of `parameters`, `weights_sha256`.
    """
    name, family = _find_class(model)
    params, left_out = _choose_params(model, name)
    table = NAMES[model.config.model.name][_FORMAT]
    tensors = export_params(params, table, FORMATS[_FORMAT].TITLE)
    tensors = {_stored_name(tensor, name): array for tensor, array in tensors.items()}
    (folder / "config.json").write_text(_json_text(_config(model, name, family)), encoding="utf-8")
    if family is OWN:
        (folder / MODELING.name).write_bytes(MODELING.read_bytes())
    reads_types = model.config.model.reads_token_types
    write_tokenizer(model, folder, reads_types, family.frames_text)
    projection = tensors.pop("projection.weight", None)
    # transformers requires the metadata.
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    write_sentence_vectors(model.sentence_vectors, str(folder), model.config.model.hidden_size)
    if projection is not None:
        write_safetensors(projection_file(str(folder)), {"linear.weight": projection})
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


def check_encoder(model: EncoderConfig) -> Family:
    """Returns the family of an encoder; raises UserError if it cannot be written."""
    family = FAMILIES.get(model.name, FAMILIES["bert"])
    try:
        family.config.check(model.to_dict())
        return family
    except UserError:
        if FAMILIES.get(model.name) is not FAMILIES["bert"] or model.is_causal:
            raise
    return OWN


def _choose_params(model: LoadedModel, name: str) -> tuple[Arrays, dict[str, str]]:
    """Returns the parameters that a class of transformers has, and path -> reason for the rest."""
    encoder, vocab_size = model.config.model.name, model.config.model.vocab_size
    has_pooler = model.config.task.POOLS and not name.endswith(_MASKED_LM)
    has_pooler = has_pooler and model.config.get("task.pooler", True)
    kept, left_out = dict(model.params), {}
    for path, array in model.params.items():
        if path.startswith(f"{encoder}/pooler/") and not has_pooler:
            left_out[path] = f"{name} has no pooler"
            del kept[path]
        elif path.startswith("next_sentence/") and name.endswith(_MASKED_LM):
            left_out[path] = f"{name} has no head for next sentences"
            del kept[path]
        elif path in vocabulary_params(encoder):
            kept[path] = array[:vocab_size]
            if padding := len(array) - vocab_size:
                left_out[f"{path}[{vocab_size}:]"] = f"{padding} rows of padding"
    return kept, left_out


# ------------------------------------------------------------------ classes and config.json


def _find_class(model: LoadedModel) -> tuple[str, Family]:
    """Returns the name of the class for a model, and its family; raises UserError if none."""
    family = check_encoder(model.config.model)
    try:
        return _class_of(model, family), family
    except UserError:
        if family is FAMILIES["bert"]:
            with contextlib.suppress(UserError):
                return _class_of(model, OWN), OWN
        raise


def _class_of(model: LoadedModel, family: Family) -> str:
    """Returns the name of a family's class for a model; raises UserError if there is none."""
    config, task, title = model.config, model.config.task, family.config.title
    has_copies = any(path.startswith("copy_head/") for path in model.params)
    if has_copies and family is not OWN:
        raise UserError(
            f"{model.source} was trained with config.model.copy_head=True, and transformers'"
            f" {title} has no head that copies tokens: train with False."
        )
    if family is FAMILIES["bert"] and not config["model.type_vocab_size"]:
        raise UserError("transformers' BERT has token types, and config.model.type_vocab_size=0.")
    if task.EMBEDS:
        end = _MASKED_LM if task.EMBEDS == "sparse" else _BASE
        has_class = end in family.classes
    elif not task.HEAD:
        end = "LMHeadModel" if task.READS_FORWARD else _MASKED_LM
        has_class = (task.FILLS_MASKS or task.READS_FORWARD) and end in family.classes
        has_class = has_class and task.READS_FORWARD == model.model.is_causal
        if family.has_pairs and any(path.startswith("next_sentence/") for path in model.params):
            end = "ForPreTraining"
    else:
        stored = task.STORED_AS or task.name
        has_class = stored in family.tasks
        end = next((end for end, name in TASKS_BY_CLASS.items() if name == stored), "")
    if not has_class:
        raise UserError(
            f"transformers has no class for a {title} with config.task.name={task.name!r} whose"
            " head is that of this package."
        )
    if task.EMBEDS or not task.HEAD:
        return family.prefix + end
    required = _HEADS | {"head": "linear"} | (_POOLING if family is not OWN else {})
    for name, value in required.items():
        if (got := config.get(f"task.{name}", value)) != value:
            raise UserError(
                f"The head was trained with config.task.{name}={got!r}: transformers' classes of"
                f" {title} have {value!r} only, so their answers would differ."
            )
    return family.prefix + end


def _stored_name(tensor: str, name: str) -> str:
    """Returns the name of a tensor in a class; some call the last layer of a classifier so."""
    has_projection = name.startswith(("Electra", "Roberta", "XLMRoberta"))
    if has_projection and name.endswith("ForSequenceClassification"):
        return re.sub(r"^classifier\.(?!dense)", "classifier.out_proj.", tensor)
    return tensor


def _config(model: LoadedModel, name: str, family: Family) -> dict[str, Any]:
    """Returns the content of config.json."""
    tokenizer, task = model.tokenizer, model.config.task
    content = {"architectures": [name], **family.config.keys(model.config.model.to_dict())}
    if not task.READS_FORWARD:
        required = family.config.required.get("pad_token_id", tokenizer.pad_id)
        if tokenizer.pad_id != required:
            raise UserError(
                f"{family.config.title} needs the padding id {required}, from which its positions"
                f" count, and that of {model.vocabulary.name} is {tokenizer.pad_id}."
            )
        content["pad_token_id"] = tokenizer.pad_id
    content |= {"tie_word_embeddings": True, "dtype": "float32"}
    if share := model.config.get("causal_share", 0.0):  # transformers ignores it
        content["causal_share"] = share
    if family is OWN:
        content |= {"mask_token_id": tokenizer.mask_id, "tie_word_embeddings": False}
        content |= {key: model.config.get(f"task.{key}", x) for key, x in _POOLING.items()}
        if task.EMBEDS:  # SPLADE's weights of words are neither shifted nor mixed with copies
            content |= {"predicts_next": False, "copy_head": False}
        classes = {"Config": "Config", "Model": "Model"} | {
            f"ModelFor{end.removeprefix('For')}": end for end in _OWN_CLASSES
        }
        content["auto_map"] = {
            f"Auto{auto}": f"{MODELING.stem}.{family.prefix}{end}" for auto, end in classes.items()
        }
    if name.endswith(("ForSequenceClassification", "ForTokenClassification")):
        classes = len(model.params["classifier/bias"])
        labels = model.labels or [f"LABEL_{i}" for i in range(classes)]
        content["id2label"] = {str(index): label for index, label in enumerate(labels)}
        content["label2id"] = {label: index for index, label in enumerate(labels)}
    if name.endswith("ForSequenceClassification"):
        if kind := getattr(model.config.task, "kind", ""):  # a cross-encoder has none
            types = {labels: problem_type for problem_type, labels in PROBLEM_TYPES.items()}
            content["problem_type"] = types[kind]
        if len(model.params["classifier/bias"]) == 1:
            # What sentence-transformers' CrossEncoder applies; its own default is the sigmoid.
            content["sentence_transformers"] = {"activation_fn": IDENTITY if kind else SIGMOID}
    return content


_OWN_CLASSES = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")


# ------------------------------------------------------------------ tokenizer files


def write_tokenizer(
    model: LoadedModel, folder: pathlib.Path, reads_types: bool, frames_text: bool
) -> None:
    """Writes the tokenizer files and the vocabulary; see `Family` for the last two arguments."""
    vocabulary = model.vocabulary
    if vocabulary.kind == ".gpt":
        files = _gpt_files(model)
    else:
        files = _tokenizer_files(model, reads_types, frames_text)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if vocabulary.kind != ".gpt" and vocabulary.copy_name not in files:
        (folder / vocabulary.copy_name).write_bytes(vocabulary.content)


def _tokenizer_files(model: LoadedModel, reads_types: bool, frames_text: bool) -> dict[str, str]:
    content = model.vocabulary.content
    settings = tokenizer_config(model.tokenizer, _max_length(model.config))
    if not reads_types:
        # GPT's class in transformers would add the embeddings of the words 0 and 1 for them, and
        # other classes refuse them.
        settings["model_input_names"].remove("token_type_ids")
    files = {"tokenizer_config.json": _json_text(settings)}
    if not isinstance(model.tokenizer, ByteLevelTokenizer):  # its vocabulary is a tokenizer.json
        tokenizer = tokenizer_json(model.tokenizer, content)
        if not frames_text:  # text to be continued does not end in [SEP]
            tokenizer["post_processor"] = None
        files["tokenizer.json"] = _json_text(tokenizer)
    return files


def _max_length(config: RunConfig) -> int:
    """Returns the length in tokens at which texts are cut off, as in `predict`."""
    limit, task = config.model.max_position_embeddings, config.task
    if not isinstance(config, FinetuningConfig) or not task.POOLS or task.splits_texts:
        return limit
    return min(limit, config.max_length)


def _gpt_files(model: LoadedModel) -> dict[str, str]:
    """Returns the files of the released vocabulary, with the special tokens at its end."""
    _, merges = unpack(model.vocabulary.content, model.vocabulary.path)
    ids = {piece: number for number, piece in enumerate(model.tokenizer.pieces)}
    settings = {
        "tokenizer_class": "OpenAIGPTTokenizer",
        "model_max_length": _max_length(model.config),
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
