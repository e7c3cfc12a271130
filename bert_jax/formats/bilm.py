"""Models of bilm-tf (ELMo): options.json, *weights.hdf5, and vocab*.txt if there is one.

Reading needs the package h5py (extra `elmo`).
"""

import glob
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.formats import foreign
from bert_jax.formats.foreign import Choices, ForeignCheckpoint
from bert_jax.formats.weight_table import Arrays
from bert_jax.text.tokenizers import read_vocabulary
from bert_jax.text.word_tokenizer import MAX_CHARACTERS, WORD_SPECIALS, make_word_vocabulary

TITLE = "bilm-tf"
OPTIONS = "options.json"
# Embeddings computed by the original program, one file per list of sentences in
# SENTENCES; they are not weights.
REFERENCES = "lm_embeddings_{}.hdf5"
SENTENCES = ("lm_embeddings_sentences.json", "sentences.json")
_NUM_CHARACTERS = (261, 262)  # without and with the padding row
# Words of a sampled softmax in the default configuration; smaller vocabularies have a full softmax.
_NUM_SAMPLES = 8192


def open_checkpoint(path: str, choices: Choices) -> ForeignCheckpoint:
    """Opens a folder."""
    options_path = os.path.join(path, OPTIONS)
    options = foreign.read_json_object(options_path)
    arrays = tensors(path)
    no_words = make_word_vocabulary(())
    vocabulary = foreign.text_vocabulary(no_words)
    if name := choices.vocab or _find(path, "vocab*.txt", "vocabularies", "--vocab=PATH"):
        vocabulary = read_vocabulary(name, ".txt")
    notes = ["Text is not lower cased."] if not choices.lowercase else ["Text is lower cased."]
    if not name:
        notes.append(f"{path} has no vocab*.txt: words are known by their characters only.")
    elif missing := [word for word in WORD_SPECIALS if word not in _words(vocabulary.content)]:
        # The vocabulary only served to compute embeddings.
        added = "".join(f"\n{word}" for word in missing).encode() + b"\n"
        vocabulary = foreign.text_vocabulary(vocabulary.content.rstrip(b"\n") + added)
        notes.append(f"{name} lacks {', '.join(missing)}: added at its end.")
    model = _model_fields(options, options_path)
    choices.check_activation(path, "biLM", model.get("cnn_activation", "fixed"))
    model["vocab_size"] = len(_words(vocabulary.content))
    if model["tokens"] == "embeddings" and vocabulary.content == no_words:
        raise UserError(
            f"{path} has a table of words, but no vocab*.txt: name one with --vocab=PATH."
        )
    return ForeignCheckpoint(
        path=path,
        format="bilm",
        task="bidirectional_lm",
        model=model,
        vocabulary=vocabulary,
        lowercase=bool(choices.lowercase),
        tensors=arrays,
        notes=tuple(notes),
        settings={"task.softmax": "full"} if model["vocab_size"] <= _NUM_SAMPLES else {},
    )


def matches(path: str) -> bool:
    is_model = os.path.isfile(os.path.join(path, OPTIONS))
    return is_model and bool(glob.glob(os.path.join(glob.escape(path), "*weights.hdf5")))


def tensors(path: str) -> Arrays:
    """Returns the weights of a folder, with the table of words where it has a file of its own."""
    weights = _find(path, "*weights.hdf5", "files of weights", "one, in a folder of its own")
    if not weights:
        raise UserError(f"{path} has no *weights.hdf5, the file of the model's weights: add it.")
    arrays = read_hdf5(weights)
    if "char_embed" not in arrays and "embedding" not in arrays:
        pattern = re.compile(REFERENCES.format(r"\d+"))
        for table in sorted(glob.glob(os.path.join(glob.escape(path), "*embedding*.hdf5"))):
            if not pattern.fullmatch(os.path.basename(table)):
                arrays |= read_hdf5(table)
    return arrays


def read_hdf5(path: str) -> Arrays:
    """Returns all datasets of a file by their full names."""
    try:
        import h5py
    except ImportError:
        raise UserError(
            f"{path} can only be read with the package h5py: pip install 'bert_jax[elmo]'."
        ) from None
    arrays: Arrays = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = np.asarray(item[()])

    try:
        with h5py.File(path, "r") as file:
            file.visititems(add)
    except OSError as error:
        raise UserError(f"{path} cannot be read as hdf5: {error}.") from None
    return arrays


def _words(vocabulary: bytes) -> list[str]:
    lines = vocabulary.decode("utf-8", "replace").removesuffix("\n").split("\n")
    return [line.strip() for line in lines]


def _find(path: str, pattern: str, what: str, fix: str) -> str:
    """Returns the only file in a folder that matches a pattern; empty if there is none."""
    found = sorted(glob.glob(os.path.join(glob.escape(path), pattern)))
    if len(found) > 1:
        names = ", ".join(map(os.path.basename, found))
        raise UserError(f"{path} has several {what} ({names}): name {fix}.")
    return found[0] if found else ""


def _model_fields(options: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns fields of config.model from options.json."""
    try:
        if not options.get("bidirectional", True):
            raise UserError(f"{path} has bidirectional=false: only models with both directions.")
        lstm = options["lstm"]
        fields = {
            "name": "elmo",
            "tokens": "characters" if "char_cnn" in options else "embeddings",
            "hidden_size": 2 * lstm["projection_dim"],
            "num_layers": lstm.get("n_layers", 1),
            "cell_size": lstm["dim"],
            "cell_clip": float(lstm.get("cell_clip") or 0),
            "projection_clip": float(lstm.get("proj_clip") or 0),
            "skip_connections": lstm["use_skip_connections"],
            "dropout_rate": float(options.get("dropout", 0.1)),
        }
        if "char_cnn" in options:
            fields |= _character_fields(options["char_cnn"], path)
    except KeyError as error:
        raise UserError(f"{path} lacks {error.args[0]!r}: it is not a complete one.") from None
    except TypeError as error:
        raise UserError(f"{path} is not bilm-tf's: {error}.") from None
    return fields


def _character_fields(cnn: Mapping[str, Any], path: str) -> dict[str, Any]:
    if (count := cnn.get("n_characters", _NUM_CHARACTERS[-1])) not in _NUM_CHARACTERS:
        raise UserError(f"{path} has n_characters={count}: only 261 and 262 are known.")
    if (length := cnn["max_characters_per_token"]) != MAX_CHARACTERS:
        raise UserError(
            f"{path} has max_characters_per_token={length}: only {MAX_CHARACTERS} is supported."
        )
    return {
        "character_size": cnn["embedding"]["dim"],
        "max_characters": length,
        "filters": tuple((width, count) for width, count in cnn["filters"]),
        "cnn_activation": cnn["activation"],
        "highway_layers": cnn.get("n_highway") or 0,
    }
