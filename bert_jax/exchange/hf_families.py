"""What transformers has for each encoder: classes for tasks, and the content of config.json."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_jax.files.errors import UserError
from bert_jax.formats.huggingface import PROBLEM_TYPES, TASKS_BY_CLASS
from bert_jax.formats.model_configs import BERT, GPT, MODERNBERT, gpt_keys, modernbert_keys
from bert_jax.formats.weight_table import Arrays
from bert_jax.tasks import find_task
from bert_jax.tasks.task import TaskRow

# By config.task.
BERT_CLASSES = {task: name for name, task in TASKS_BY_CLASS.items()}
BERT_CLASSES["pretraining"] = "BertForPreTraining"
# The class of pre-training without the head for the next sentence.
MASKED_LM = "BertForMaskedLM"
# The classes whose config.json names the labels.
_LABELLED = ("BertForSequenceClassification", "BertForTokenClassification")
# Both are the approximation by tanh; "gelu_new" is what all versions of transformers know.
_HIDDEN_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}


@dataclasses.dataclass(frozen=True)
class Family:
    """The models of transformers with one encoder.

    Attributes:
      title: of the encoder.
      architecture: fields of `config.model` that are the same for all of them.
      find_class: (configuration of a run, its parameters) -> name of the class; raises UserError.
      make_config: (configuration, class, tensors, id of padding, labels) -> config.json.
      has_token_types: whether the encoder reads token types.
      frames_text: whether its text is between [CLS] and [SEP].
    """

    title: str
    architecture: Mapping[str, Any]
    find_class: Callable[[ConfigDict, Arrays], str]
    make_config: Callable[[ConfigDict, str, Arrays, int, Sequence[str]], dict[str, Any]]
    has_token_types: bool
    frames_text: bool


def family_of(config: ConfigDict) -> Family:
    """Returns the family of a run's encoder; for an encoder that transformers lacks, BERT's."""
    return FAMILIES.get(config.model.name, FAMILIES["bert"])


def class_name(config: ConfigDict, params: Arrays) -> str:
    """Returns transformers' class for a run.

    Raises:
      UserError: for a task or a model that it has no class for.
    """
    family = family_of(config)
    for field, required in family.architecture.items():
        if (value := config.model[field]) != required:
            raise UserError(
                f"transformers' {family.title} has no config.model.{field}={value!r}, only"
                f" {required!r}: export the run with to_stablehlo, or train with that value."
            )
    return family.find_class(config, params)


def _bert_class(config: ConfigDict, params: Arrays) -> str:
    if not config.model.type_vocab_size:
        raise UserError(
            "transformers' BERT has token types, and config.model.type_vocab_size=0: export the run"
            " with to_stablehlo."
        )
    task = find_task(config.task)
    if task.head:
        _check_bert_head(config, task)
    if not task.head and not any(path.startswith("next_sentence/") for path in params):
        return MASKED_LM
    return BERT_CLASSES.get(config.task, "")


def _check_bert_head(config: ConfigDict, task: TaskRow) -> None:
    """Raises UserError for a head that transformers' classes do not have."""
    if (layers := config.head.get("layers", "last")) != "last":
        raise UserError(
            f"The head was trained with config.head.layers={layers!r}: transformers' classes read"
            " the last layer only, so their answers would differ."
        )
    required = {config.task: "linear", "lm_weight": 0.0}
    if task.pools:
        required |= {"pool": "cls", "pooler": True, "both_orders": False}
    for name, value in required.items():
        if (got := config.head.get(name, value)) != value:
            raise UserError(
                f"The head was trained with config.head.{name}={got!r}: transformers' classes of"
                f" BERT have {value!r} only, so their answers would differ."
            )


def _bert_config(
    config: ConfigDict, name: str, tensors: Arrays, pad_id: int, labels: Sequence[str]
) -> dict[str, Any]:
    content = {
        "architectures": [name],
        "model_type": "bert",
        **BERT.keys(config.model),
        "hidden_act": _HIDDEN_ACTS[config.model.activation],
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
        content["problem_type"] = types[config.head.problem_type]
    return content


# Values of config.task.
_GPT_CLASSES = {"causal_lm": "OpenAIGPTLMHeadModel"}


def _gpt_class(config: ConfigDict, params: Arrays) -> str:
    if config.task not in _GPT_CLASSES:
        raise UserError(
            f"transformers has no class for a GPT with config.task={config.task!r}, only for"
            f" {', '.join(_GPT_CLASSES)}: export the run with to_stablehlo."
        )
    return _GPT_CLASSES[config.task]


def _gpt_config(
    config: ConfigDict, name: str, tensors: Arrays, pad_id: int, labels: Sequence[str]
) -> dict[str, Any]:
    return {
        "architectures": [name],
        **gpt_keys(config.model),
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def _modernbert_class(config: ConfigDict, params: Arrays) -> str:
    if not find_task(config.task).fills_masks:
        raise UserError(
            f"transformers has no class for a ModernBERT with config.task={config.task!r} whose"
            " head is that of this package: export the run with to_stablehlo."
        )
    return "ModernBertForMaskedLM"


def _modernbert_config(
    config: ConfigDict, name: str, tensors: Arrays, pad_id: int, labels: Sequence[str]
) -> dict[str, Any]:
    # Their defaults are ids of the published vocabulary.
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    return {
        "architectures": [name],
        **modernbert_keys(config.model),
        **tokens,
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


# By the name of the encoder.
FAMILIES = {
    "bert": Family("BERT", BERT.architecture, _bert_class, _bert_config, True, True),
    "modernbert": Family(
        "ModernBERT",
        MODERNBERT.architecture,
        _modernbert_class,
        _modernbert_config,
        has_token_types=False,
        frames_text=True,
    ),
    "gpt": Family("GPT", GPT.architecture, _gpt_class, _gpt_config, False, False),
}
