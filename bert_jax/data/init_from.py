"""From the fields of an experiment to the configuration of a run: preset, `init_from`, checks.

The source of `config.init_from` determines the model's sizes and the vocabulary. The command line
and `bert_jax.train` both call `resolve`. Does not import jax.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bert_jax.config import store
from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.config.encoders import finetuning_values, make_encoder_config
from bert_jax.config.group import flatten, unflatten
from bert_jax.config.layers import DEFAULT, GIVEN, Layer, merge, preset_layer
from bert_jax.config.run import RunConfig
from bert_jax.config.store import parse
from bert_jax.data.corpus.manifest import NAME as MANIFEST
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files.buckets import address_of, local
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of, open_checkpoint
from bert_jax.formats.hub import local_model
from bert_jax.text.extra_tokens import count_extra_tokens
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import find_vocabulary, load_tokenizer

# Fields of config.model that belong to the training; the first ones mean the same in models of any
# kind. All other fields determine the meaning of the parameters.
_OF_ANY_MODEL = (
    *("model.dropout_rate", "model.attention_dropout_rate", "model.remat", "model.remat_policy"),
    "model.attention",
)
_TRAINING_FIELDS = ("model.initializer_range", "model.mask_value", *_OF_ANY_MODEL)
# Values by dotted name.
Fields = Mapping[str, Any]


def resolve(
    values: Mapping[str, Any],
    explicit: Collection[str],
    workdir: str = "",
    data_dir: str = "",
    written: Collection[str] = (),
    chosen: Collection[str] = (),
) -> RunConfig:
    """Returns the configuration of a run, with its preset and the source of its parameters applied.

    Args:
      values: the fields, nested, as an experiment, a plan and the user set them.
      explicit: dotted names of the fields that the user set.
      workdir: folder of the run; "" if it has none. If it has begun, its own configuration is used
        instead of the source.
      data_dir: folder of prepared data, by default the configuration's; data that was prepared with
        the source's vocabulary is kept.
      written: dotted names of the fields that the configuration's file sets.
      chosen: dotted names of the fields that a plan chose.

    Raises:
      UserError: for an unknown preset, an unusable `init_from` or an invalid value.
    """
    fields = dict(flatten(values))
    file, preset = Layer.of("file", fields, written), preset_layer(fields)
    last = [Layer.of("recipe", fields, chosen), Layer.of(GIVEN, fields, explicit)]
    merged, origins = merge([Layer(DEFAULT, fields), file, preset, *last])
    if merged.get("init_from"):
        data_dir = data_dir or local(merged.get("data.dir") or os.path.join(workdir, "data"))
        kept = {*explicit, *chosen}
        if store.has_begun(merged["init_from"], workdir):
            run = store.load(workdir)
            model = run.model.to_dict()
            others = {"data.vocab": run.data.vocab, "data.lowercase": run.data.lowercase}
        else:
            model, others = _from_source(merged, kept, data_dir)
        base, encoder, source = _model_layers(merged, model, others, kept)
        merged, origins = merge([base, encoder, file, preset, source, *last])
    elif merged.get("init_layers"):
        raise UserError("config.init_layers has no effect without config.init_from: set that too.")
    return store.with_own_modules(parse(unflatten(merged), origins))


def _from_source(fields: Fields, explicit: Collection[str], data_dir: str) -> tuple[Fields, Fields]:
    """Returns the fields of the source's model, and values of other fields by dotted name."""
    path = local_model(fields["init_from"])
    if format_of(path) == "workdir":
        run = store.load(path)
        model, lowercase = run.model.to_dict(), run.data.lowercase
        vocab = find_vocabulary(path)
        if not vocab:
            raise UserError(f"config.init_from={path} holds no vocab.txt or vocab.model.")
        tokenizer = load_tokenizer(vocab, lowercase)
    else:
        checkpoint = open_checkpoint(path)
        model, lowercase = checkpoint.model, checkpoint.lowercase
        vocab = checkpoint.vocabulary.path or fields["data.vocab"] * ("data.vocab" in explicit)
        if not vocab:
            raise UserError(
                f"config.init_from={path} has no vocabulary in a file that a run can copy: import"
                " it with bert_jax convert from_hf, and use the new workdir as init_from."
            )
        tokenizer = checkpoint.tokenizer()
    given = fields["data.vocab"]
    if "data.vocab" in explicit and (
        given.startswith("train:")
        or load_tokenizer(given, fields["data.lowercase"]).pieces != tokenizer.pieces
    ):
        raise UserError(
            f"config.data.vocab={given} is not the vocabulary {vocab} of config.init_from: its ids"
            " would mean other words. Leave config.data.vocab out."
        )
    found = {
        "data.vocab": address_of(vocab) or os.path.abspath(vocab),
        "data.lowercase": lowercase,
    }
    if layers := fields.get("init_layers"):
        if max(layers) > model["num_layers"]:
            raise UserError(
                f"config.init_layers={tuple(layers)}: config.init_from={path} has"
                f" {model['num_layers']} layers."
            )
        _check_windows(make_encoder_config(model), layers, path)
        found["model.num_layers"] = len(layers)
    # A model may lack some of the special tokens of its vocabulary, which become new ones.
    missing = range(model["vocab_size"], len(tokenizer.pieces))
    if missing and {*missing} <= {tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id}:
        found["model.vocab_size"] = len(tokenizer.pieces)
    if extra := fields.get("data.extra_tokens"):
        size = len(tokenizer.pieces) + count_extra_tokens(extra, tokenizer)
        found["model.vocab_size"] = max(model["vocab_size"], size)
    elif _is_vocabulary_of(data_dir, given, tokenizer):
        del found["data.vocab"]
    return model, found


def _check_windows(encoder: EncoderConfig, layers: Sequence[int], path: str) -> None:
    """Raises UserError if one of the chosen layers would attend to other positions than before."""
    if not isinstance(encoder, TransformerConfig):
        return
    for new, old in enumerate(layers):
        if encoder.is_global(old - 1) != encoder.is_global(new):
            raise UserError(
                f"config.init_layers={tuple(layers)}: layer {old} of config.init_from={path} would"
                f" have another window: layers 1, {1 + encoder.global_every}, ... of both models"
                " attend to all positions. Choose layers that keep their kind."
            )


def with_model(
    fields: Fields,
    model: Mapping[str, Any],
    explicit: Collection[str],
    written: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the fields of a configuration with the values of a source's model; see `resolve`."""
    base, encoder, source = _model_layers(fields, model, {}, explicit)
    file, given = Layer.of("file", fields, written), Layer.of(GIVEN, fields, explicit)
    return merge([base, encoder, file, source, given])[0]


def _model_layers(
    fields: Fields, model: Mapping[str, Any], others: Fields, explicit: Collection[str]
) -> tuple[Layer, Layer, Layer]:
    """Returns three layers of fields: defaults, for the encoder, from the parameters' source.

    For fine-tuning, `config.model` becomes a model of the source's kind, and fields that depend on
    the model have the values of `finetuning_values`. `others` are the source's other values;
    fields in `explicit` keep their values.

    Raises:
      UserError: the source has fields that `config.model` lacks, or lacks one in `explicit`.
    """
    found = {f"model.{name}": value for name, value in model.items()}
    taken = {name: found[name] for name in found if name not in _TRAINING_FIELDS} | dict(others)
    encoder: Fields = {}
    if "data.source" not in fields:
        encoder = finetuning_values(model, fields)
        if found["model.name"] != fields["model.name"]:
            fields = _with_model_of_kind(fields, found, explicit)
    if missing := sorted(name for name in taken if name not in fields):
        names = ", ".join(name.removeprefix("model.") for name in missing)
        raise UserError(
            f"config.init_from={fields['init_from']} has another kind of model: config.model lacks"
            f" {names}. Use a configuration for that model."
        )
    return Layer(DEFAULT, fields), Layer("encoder", encoder), Layer("init_from", taken)


def _with_model_of_kind(fields: Fields, model: Fields, explicit: Collection[str]) -> dict[str, Any]:
    """Returns fields with another kind of model; `explicit` and training ones keep their values."""
    names = {name.removeprefix("model."): value for name, value in model.items()}
    # A checkpoint of another program has values for only some of the fields.
    full = make_encoder_config(names).to_dict()
    model = {f"model.{name}": value for name, value in full.items()} | dict(model)
    given = [name for name in explicit if name.startswith("model.")]
    if unknown := sorted(name for name in given if name not in model):
        raise UserError(
            f"config.init_from={fields['init_from']} has a model of the kind"
            f" {model['model.name']!r}, which has no"
            f" {', '.join(f'config.{name}' for name in unknown)}: leave it out."
        )
    kept = {*given, *(name for name in _OF_ANY_MODEL if name in model and name in fields)}
    others = {name: fields[name] for name in fields if not name.startswith("model.")}
    return {**others, **model, **{name: fields[name] for name in kept}}


def _is_vocabulary_of(data_dir: str, vocab: str, tokenizer: Tokenizer) -> bool:
    """Whether prepared data have this tokenizer, and `vocab` as data.vocab: trained, or given."""
    if not os.path.isfile(os.path.join(data_dir, MANIFEST)):
        return False
    content = Manifest.load(data_dir).content
    was_trained = content["settings"]["vocab"].startswith("train:")
    is_same = content["tokenizer"]["fingerprint"] == tokenizer.fingerprint
    return is_same and was_trained == vocab.startswith("train:")
