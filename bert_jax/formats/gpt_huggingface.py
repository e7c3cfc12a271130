"""GPT in Hugging Face transformers: a folder with model_type "openai-gpt".

Its vocabulary is that of the released program, vocab.json and merges.txt, or a vocab.txt. The three
special tokens of fine-tuning follow the released pieces; a folder that lacks them has no embeddings
of them.
"""

import os
from typing import Any

from bert_jax.formats.foreign import Choices, ForeignCheckpoint, check_activation, sibling
from bert_jax.formats.gpt_config import model_fields
from bert_jax.formats.hf_vocabulary import is_lowercase, wordpiece_vocabulary
from bert_jax.formats.weight_table import Arrays
from bert_jax.text.gpt_tokenizer import SPECIAL_TOKENS
from bert_jax.text.gpt_vocabulary import FILES, unpack
from bert_jax.text.tokenizers import Vocabulary, read_vocabulary

CONFIG = "config.json"


def open_gpt(
    path: str, values: dict[str, Any], arrays: Arrays, choices: Choices
) -> ForeignCheckpoint:
    """Describes a folder.

    Args:
      path: the folder, or a file in it.
      values: content of its config.json.
      arrays: its tensors.
      choices: settings that take precedence over its own.

    Raises:
      UserError: it is incomplete, or not a GPT that this package has.
    """
    check_activation(choices, path, "GPT", "gelu_tanh")
    model = model_fields(values, sibling(path, CONFIG))
    vocabulary = find_vocabulary(path, choices.vocab)
    lowercase = choices.lowercase
    if lowercase is None:
        is_gpt = vocabulary.kind == ".gpt"
        lowercase = True if is_gpt else is_lowercase(path, vocabulary)
    return describe(
        path=path,
        format="huggingface",
        model=model,
        vocabulary=vocabulary,
        lowercase=lowercase,
        arrays=arrays,
        notes=(f"Text is {'' if lowercase else 'not '}lower cased.",),
    )


def describe(
    *,
    path: str,
    format: str,
    model: dict[str, Any],
    vocabulary: Vocabulary,
    lowercase: bool,
    arrays: Arrays,
    notes: tuple[str, ...],
) -> ForeignCheckpoint:
    """Returns a GPT's checkpoint, whose table of words grows by special tokens that it lacks."""
    new = missing_words(vocabulary)
    if new:
        notes += (f"Embeddings of {', '.join(new)} are new: the checkpoint has none.",)
    return ForeignCheckpoint(
        path=path,
        format=format,
        task="causal_lm",
        model=model | {"vocab_size": model["vocab_size"] + len(new), "next_sentence": False},
        vocabulary=vocabulary,
        lowercase=lowercase,
        labels=(),
        shapes={name: array.shape for name, array in arrays.items()},
        read=lambda: arrays,
        notes=notes,
        new_words=new,
    )


def find_vocabulary(path: str, chosen: str) -> Vocabulary:
    """Returns the vocabulary `chosen`, or else that in the folder of a checkpoint.

    Raises:
      UserError: there is none.
    """
    if chosen or any(os.path.isfile(sibling(path, name)) for pair in FILES for name in pair):
        return read_vocabulary(chosen or os.path.dirname(sibling(path, CONFIG)))
    return wordpiece_vocabulary(path, "")


def missing_words(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Returns the special tokens that the tokenizer appends to the pieces of a vocabulary."""
    if vocabulary.kind != ".gpt":
        return ()
    pieces, _ = unpack(vocabulary.content, vocabulary.path)
    return tuple(token for token in SPECIAL_TOKENS if token not in pieces)
