"""Completes the settings of a run: its preset, its `init_from`, and all checks.

The source of `config.init_from` determines the model's sizes and the vocabulary. The command line
and `bert_jax.train` both call `complete`. Does not import jax.
"""

import os
from collections.abc import Collection, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import checks, model_choices, presets, store
from bert_jax.config.fields import data_dir as data_dir_of
from bert_jax.config.fields import has_corpus
from bert_jax.data.corpus.manifest import NAME as MANIFEST
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files.buckets import address_of, local
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of, open_checkpoint
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import find_vocabulary, load_tokenizer

# Fields of config.model that belong to the training. All others determine what parameters mean.
_TRAINING_FIELDS = (
    "dropout_rate attention_dropout_rate initializer_range mask_value remat remat_policy"
    " scan_layers attention"
).split()
# Those of them that mean the same in models of any kind.
_OF_ANY_MODEL = (
    *("dropout_rate", "attention_dropout_rate", "remat", "remat_policy", "scan_layers"),
    "attention",
)


def complete(
    config: ConfigDict, explicit: Collection[str], workdir: str, data_dir: str = ""
) -> None:
    """Applies the preset and `init_from` of a new run's configuration, then checks all values.

    Args:
      config: is changed.
      explicit: dotted names of the fields that the user set; they keep their values.
      workdir: folder of the run; "" if it has none.
      data_dir: folder of prepared data; see `resolve`.

    Raises:
      ValueError: for an unknown preset, an unusable `init_from` or an invalid value.
    """
    presets.apply(config, explicit)
    resolve(config, explicit, workdir, data_dir)
    checks.check(config)


def resolve(
    config: ConfigDict, explicit: Collection[str], workdir: str, data_dir: str = ""
) -> None:
    """Sets the model's sizes and the vocabulary to those of the source of config.init_from.

    Fine-tuning takes any kind of model, and with it the values of `config.model_choices`.

    Args:
      config: is changed.
      explicit: names of the fields that the command line sets; they are not changed.
      workdir: of the run. If it has begun, its own configuration is used instead of the source.
      data_dir: folder of prepared data, by default the configuration's; data that was prepared with
        the source's vocabulary is kept.

    Raises:
      UserError: there is no such source, or its vocabulary is not config.data.vocab.
    """
    if not config.init_from:
        return
    data_dir = data_dir or data_dir_of(config, workdir)
    values = _from_run(config, explicit, workdir) or _from_source(config, explicit, data_dir)
    config.update_from_flattened_dict({n: v for n, v in values.items() if n not in explicit})


def _from_run(config: ConfigDict, explicit: Collection[str], workdir: str) -> dict[str, Any]:
    """Returns the fields that the run took from the same source when it began; else none."""
    if not store.has_begun(config, workdir):
        return {}
    run = store.load(workdir)
    return model_fields(config, run.model, explicit) | {
        "data.vocab": run.data.vocab,
        "data.lowercase": run.data.lowercase,
    }


def _from_source(config: ConfigDict, explicit: Collection[str], data_dir: str) -> dict[str, Any]:
    path = local(config.init_from)
    if format_of(path) == "workdir":
        run = store.load(path)
        model, lowercase = run.model, run.data.lowercase
        vocab = find_vocabulary(path)
        if not vocab:
            raise UserError(f"config.init_from={path} holds no vocab.txt or vocab.model.")
    else:
        checkpoint = open_checkpoint(path)
        model, lowercase = checkpoint.model, checkpoint.lowercase
        vocab = checkpoint.vocabulary.path
        if not vocab:
            raise UserError(
                f"config.init_from={path} has its vocabulary in tokenizer.json only: import it with"
                " python -m bert_jax convert from_hf, and use the new workdir as init_from."
            )
    tokenizer = load_tokenizer(vocab, lowercase)
    if "data.vocab" in explicit:
        _check_same_vocabulary(config, tokenizer, vocab)
    fields = model_fields(config, model, explicit) | {
        "data.vocab": address_of(vocab) or os.path.abspath(vocab),
        "data.lowercase": lowercase,
    }
    if _lacks_special_tokens_only(model["vocab_size"], tokenizer):
        fields["model.vocab_size"] = len(tokenizer.pieces)
    if _fingerprint_of(data_dir) == tokenizer.fingerprint:
        del fields["data.vocab"]
    return fields


def _lacks_special_tokens_only(vocab_size: int, tokenizer: Tokenizer) -> bool:
    """Whether a model has all words of its vocabulary but special tokens, which become new ones."""
    missing = range(vocab_size, len(tokenizer.pieces))
    return bool(missing) and {tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id}.issuperset(
        missing
    )


def model_fields(
    config: ConfigDict, model: ConfigDict | dict[str, Any], explicit: Collection[str]
) -> dict[str, Any]:
    """Returns the fields of a configuration that have the values of a source's model.

    For fine-tuning, config.model becomes a model of the source's kind.

    Raises:
      UserError: the source has fields that config.model lacks, or lacks one in `explicit`.
    """
    model = dict(model.items())
    chosen = model_choices.values_for(config, model, explicit)
    if not has_corpus(config) and model.get("name", "bert") != config.model.name:
        _replace_model(config, model, explicit)
    fields = {name: value for name, value in model.items() if name not in _TRAINING_FIELDS}
    if missing := sorted(fields.keys() - config.model.keys()):
        raise UserError(
            f"config.init_from={config.init_from} has another kind of model: config.model lacks"
            f" {', '.join(missing)}. Use a configuration for that model."
        )
    return {f"model.{name}": value for name, value in fields.items()} | chosen


def _replace_model(config: ConfigDict, model: Mapping[str, Any], explicit: Collection[str]) -> None:
    """Makes config.model a model of another kind.

    Fields in `explicit` and those of the training keep their values.
    """
    given = {name.removeprefix("model."): name for name in explicit if name.startswith("model.")}
    if unknown := sorted(given[name] for name in given.keys() - model.keys()):
        raise UserError(
            f"config.init_from={config.init_from} has a model of the kind {model['name']!r}, which"
            f" has no {', '.join(f'config.{name}' for name in unknown)}: leave it out."
        )
    kept = (*given, *(name for name in _OF_ANY_MODEL if name in model.keys() & config.model.keys()))
    config.model = ConfigDict({**model, **{name: config.model[name] for name in kept}})


def _check_same_vocabulary(config: ConfigDict, tokenizer: Tokenizer, vocab: str) -> None:
    given = config.data.vocab
    if given.startswith("train:") or (
        load_tokenizer(given, config.data.lowercase).pieces != tokenizer.pieces
    ):
        raise UserError(
            f"config.data.vocab={given} is not the vocabulary {vocab} of config.init_from: its ids"
            " would mean other words. Leave config.data.vocab out."
        )


def _fingerprint_of(data_dir: str) -> str:
    """Returns the fingerprint of the tokenizer of prepared data; empty if there is none."""
    if not os.path.isfile(os.path.join(data_dir, MANIFEST)):
        return ""
    return Manifest.load(data_dir).content["tokenizer"]["fingerprint"]
