"""Whatever parameters can start from: which form it has, and what it decides in a configuration.

Nothing here imports jax, so that a mistake on the command line is answered at once.
"""

import dataclasses
import os
import pathlib
from collections.abc import Collection
from typing import Any

from ml_collections import ConfigDict

from bert_jax.config import settings as config_lib
from bert_jax.corpus.manifest import NAME as MANIFEST
from bert_jax.corpus.manifest import Manifest
from bert_jax.formats import foreign, google, huggingface
from bert_jax.formats.foreign import Choices, Source
from bert_jax.text.tokenization import Tokenizer, load_tokenizer

_FORMATS = {"huggingface": huggingface, "google": google}
# Of config.model: what the parameters are for. Dropout and the like belong to the training.
_DECIDED = (
    "vocab_size pad_vocab_to_multiple_of hidden_size num_layers num_heads intermediate_size"
    " max_position_embeddings type_vocab_size layer_norm_epsilon activation next_sentence"
).split()


def kind_of(path: str) -> str:
    """`workdir`, `huggingface` or `google`.

    Raises:
      ValueError: it is nothing of these.
    """
    if not os.path.exists(path) and not google.is_one(path):
        raise ValueError(f"{path}: there is no such file or folder.")
    if os.path.isdir(os.path.join(path, "checkpoints")):
        return "workdir"
    if found := next((name for name, form in _FORMATS.items() if form.is_one(path)), ""):
        return found
    raise ValueError(
        f"{path} is neither a workdir (with checkpoints/), nor a folder of Hugging Face (with"
        f" {huggingface.WEIGHTS}), nor one of google-research/bert (with {google.CONFIG})."
    )


def open_source(path: str, kind: str = "", choices: Choices | None = None) -> Source:
    """A checkpoint of another program; its vocabulary is checked, its tensors not read yet.

    Raises:
      ValueError: it is not complete, or no BERT.
    """
    source = _FORMATS[kind or kind_of(path)].describe(path, choices or Choices())
    name = source.vocabulary_path or foreign.beside(source.path, "tokenizer.json")
    pieces, rows = len(source.tokenizer().pieces), source.model["vocab_size"]
    more = foreign.check_vocabulary(pieces, rows, name)
    return dataclasses.replace(source, notes=(*source.notes, *more))


def adopt(config: ConfigDict, explicit: Collection[str], workdir: str, data_dir: str = "") -> None:
    """Lets the source of config.init_from decide sizes and vocabulary; fields in `explicit` stay.

    Args:
      config: is changed.
      explicit: names of the fields that the command line sets.
      workdir: of the run; one that has begun has decided already.
      data_dir: of prepared data, by default where the configuration says; what was prepared with
        the source's vocabulary stays.

    Raises:
      ValueError: there is no such source, or it has another vocabulary than was asked for.
    """
    if not config.init_from:
        return
    data_dir = data_dir or config_lib.data_dir(config, workdir)
    values = _decided_before(config, workdir) or _decided_by_source(config, explicit, data_dir)
    config.update_from_flattened_dict({n: v for n, v in values.items() if n not in explicit})


def describe(config: ConfigDict) -> str:
    """What was taken from the source of config.init_from, for the banner of a run."""
    model = config.model
    return (
        f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads,"
        f" {model.activation}, next_sentence={model.next_sentence}, vocabulary {config.data.vocab}"
        f" ({'' if config.data.lowercase else 'not '}lower cased)"
    )


def has_begun(config: ConfigDict, workdir: str) -> bool:
    """Whether this run has begun from the source of config.init_from, which may be gone since."""
    if not (workdir and os.path.isfile(os.path.join(workdir, "config.json"))):
        return False
    return config_lib.load(workdir).init_from == config.init_from


def _decided_before(config: ConfigDict, workdir: str) -> dict[str, Any]:
    """What this run took from the same source when it began."""
    if not has_begun(config, workdir):
        return {}
    run = config_lib.load(workdir)
    return _model(run.model) | {"data.vocab": run.data.vocab, "data.lowercase": run.data.lowercase}


def _decided_by_source(
    config: ConfigDict, explicit: Collection[str], data_dir: str
) -> dict[str, Any]:
    path = config.init_from
    if kind_of(path) == "workdir":
        run = config_lib.load(path)
        model, lowercase = run.model, run.data.lowercase
        vocab = next(iter(sorted(map(str, pathlib.Path(path).glob("vocab.*")))), "")
        if not vocab:
            raise ValueError(f"config.init_from={path} holds no vocab.txt or vocab.model.")
    else:
        source = open_source(path)
        model, lowercase, vocab = source.model, source.lowercase, source.vocabulary_path
        if not vocab:
            raise ValueError(
                f"config.init_from={path} has its vocabulary in tokenizer.json only: import it with"
                " python -m bert_jax.convert from_hf, and start from the workdir that this makes."
            )
    tokenizer = load_tokenizer(vocab, lowercase)
    if "data.vocab" in explicit:
        _check_same_vocabulary(config, tokenizer, vocab)
    values = _model(model) | {"data.vocab": os.path.abspath(vocab), "data.lowercase": lowercase}
    if _made_with(data_dir) == tokenizer.fingerprint:
        del values["data.vocab"]
    return values


def _model(model: ConfigDict | dict[str, Any]) -> dict[str, Any]:
    return {f"model.{name}": model[name] for name in _DECIDED if name in model}


def _check_same_vocabulary(config: ConfigDict, tokenizer: Tokenizer, vocab: str) -> None:
    asked = config.data.vocab
    if asked.startswith("train:") or (
        load_tokenizer(asked, config.data.lowercase).pieces != tokenizer.pieces
    ):
        raise ValueError(
            f"config.data.vocab={asked} is not the vocabulary {vocab} of config.init_from: its ids"
            " would mean other words. Leave config.data.vocab out."
        )


def _made_with(data_dir: str) -> str:
    """Fingerprint of the tokenizer of prepared data; empty if there is none."""
    if not os.path.isfile(os.path.join(data_dir, MANIFEST)):
        return ""
    return Manifest.load(data_dir).content["tokenizer"]["fingerprint"]
