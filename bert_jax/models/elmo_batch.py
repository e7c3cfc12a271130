"""The fields of a batch that only ELMo reads: the characters of each word."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.files.errors import UserError
from bert_jax.models.batch import AddFields

# Field with ids of words -> field with the characters of these words.
_FIELDS = {"input_ids": "character_ids", "reverse_ids": "reverse_character_ids"}
# What a language model predicts.
_TARGETS = ("next_ids", "previous_ids")


def add_fields(config: Any, tokenizer: Any) -> AddFields:
    """Returns the function that adds what ELMo reads to a batch on the host.

    tokens="characters": adds int32[..., seq, characters] `character_ids`, and for `reverse_ids`
    also `reverse_character_ids`; 0 in padding. Words past `vocab_size` become the unknown word
    where they are predicted (`next_ids`, `previous_ids`), with tokens="embeddings" also where
    they are read.

    Args:
      config: an `ElmoConfig`.
      tokenizer: that made the ids.

    Raises:
      UserError: the tokenizer has no words, or its words have another number of characters.
    """

    def known(batch: dict[str, np.ndarray], names: Iterable[str]) -> dict[str, np.ndarray]:
        return {
            name: np.where(batch[name] < config.vocab_size, batch[name], tokenizer.unk_id)
            for name in names
            if name in batch
        }

    if config.tokens == "embeddings":
        return lambda batch: batch | known(batch, (*_FIELDS, *_TARGETS))
    if not hasattr(tokenizer, "characters"):
        raise UserError(
            "config.model.tokens='characters' needs a vocabulary of words, and this one has pieces"
            " of words: set config.data.vocab=train:words, or a file with <S>, </S> and <UNK>."
        )
    if (length := tokenizer.characters.shape[1]) != config.max_characters:
        raise UserError(
            f"config.model.max_characters={config.max_characters} is not {length}, the characters"
            f" of a word: set config.model.max_characters={length}."
        )

    def with_characters(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        characters = tokenizer.characters  # has a row for each word that was read so far
        is_token = (batch["example_ids"] > 0)[..., None]
        return {**batch, **known(batch, _TARGETS)} | {
            name: np.where(is_token, characters[batch[ids]], 0).astype(np.int32)
            for ids, name in _FIELDS.items()
            if ids in batch
        }

    return with_characters
