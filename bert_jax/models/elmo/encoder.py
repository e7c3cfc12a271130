"""ELMo's encoder: a bidirectional language model (Peters et al. 2018; allenai/bilm-tf)."""

from collections.abc import Iterable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from bert_jax.config.encoders import ElmoConfig
from bert_jax.files.errors import UserError
from bert_jax.models.elmo import lstm
from bert_jax.models.elmo.characters import CharacterCnn
from bert_jax.models.elmo.lstm import Lstm, LstmState
from bert_jax.models.layers.dense import Table
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.model import AddFields, Batch, Encoded, Encoder, Model, Rules, complete_batch

DIRECTIONS = ("forward", "backward")

RULES: Rules = (
    (r"^elmo/embeddings/word_embeddings/embedding$", PartitionSpec("tensor", "fsdp")),
    (r"^elmo/characters/embedding$", PartitionSpec()),
    (r"^elmo/characters/filter_\d+/kernel$", PartitionSpec(None, None, "fsdp")),
    (r"^elmo/characters/highway_\d+/(carry|transform)/kernel$", PartitionSpec("fsdp")),
    (r"^elmo/characters/projection/kernel$", PartitionSpec("fsdp")),
    (r"^elmo/characters/.*bias$", PartitionSpec()),
    # Not over `tensor`: devices would have to exchange hidden states at each time step.
    (r"^elmo/(forward|backward)_\d+/(kernel|projection)$", PartitionSpec(None, "fsdp")),
    (r"^elmo/(forward|backward)_\d+/bias$", PartitionSpec()),
)

# Field with ids of words -> field with the characters of these words.
_FIELDS = {"input_ids": "character_ids", "reverse_ids": "reverse_character_ids"}
# Fields that a language model predicts.
_TARGETS = ("next_ids", "previous_ids")
# The state of each layer of each direction: "forward" or "backward" -> layers from below.
Carry = dict[str, tuple[LstmState, ...]]


class Embeddings(nn.Module):
    """A table of word embeddings, float32[padded vocab, projection size]."""

    config: ElmoConfig

    def setup(self):
        config = self.config
        self.word_embeddings = Table(
            config.padded_vocab_size,
            config.projection_size,
            # As in bilm-tf: uniform from -1 to 1.
            embedding_init=lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -1, 1),
        )

    def __call__(self, ids: jax.Array) -> jax.Array:
        """int32[batch, seq] -> float32[batch, seq, features]."""
        return self.word_embeddings(ids)


class Elmo(Encoder):
    """Words -> `num_layers` LSTMs from left to right, and as many from right to left."""

    config: ElmoConfig

    def setup(self):
        config = self.config
        if config.tokens == "characters":
            self.characters = CharacterCnn(config, config.projection_size)
        else:
            self.embeddings = Embeddings(config)
        for direction in DIRECTIONS:
            # Sets self.forward and self.backward: modules forward_0, ..., backward_0, ...
            layers = [
                Lstm(config, skip=config.skip_connections and i > 0)
                for i in range(config.num_layers)
            ]
            setattr(self, direction, layers)
        self.output_dropout = Dropout(config.dropout_rate, config.prng_impl)

    def __call__(
        self, batch, *, deterministic=True, keep_all=False, keep_attention=False
    ) -> Encoded:
        """Encodes a batch; see `Encoder`.

        Each example starts from zero states in both directions. `all_hidden` holds the words twice,
        [word, word], then the outputs of each layer, [forward, backward].

        With tokens="characters" the batch also has int32[batch, seq, characters] `character_ids`.
        """
        if keep_attention:
            raise UserError("ELMo has no attention probabilities: read its hidden states.")
        batch = complete_batch(batch)
        words, ids = self._words(batch, ""), batch["example_ids"]
        is_new = ids[:, 1:] != ids[:, :-1]
        starts = {
            "forward": jnp.pad(is_new, ((0, 0), (1, 0))),
            "backward": jnp.pad(is_new, ((0, 0), (0, 1))),
        }
        outputs = {direction: [words] for direction in DIRECTIONS}
        for direction, states in outputs.items():
            for layer in getattr(self, direction):
                x, _ = layer(
                    states[-1],
                    lstm.zero_state(self.config, len(ids)),
                    deterministic,
                    starts=starts[direction],
                    reverse=direction == "backward",
                )
                states.append(x)
        all_hidden = tuple(
            jnp.concatenate(both, axis=-1)
            for both in zip(outputs["forward"], outputs["backward"], strict=True)
        )
        return Encoded(all_hidden[-1], all_hidden if keep_all else ())

    def language_model(
        self, batch: Batch, carry: Carry, deterministic: bool
    ) -> tuple[jax.Array, jax.Array, Carry]:
        """Encodes a piece of running text in each direction, from the states before it.

        Padding (`example_ids` 0) at the end of a row does not change the states.

        Args:
          batch: int32[batch, seq] `input_ids` and `example_ids`, and `reverse_ids`, a piece of the
            text that the backward direction reads, already reversed; with tokens="characters"
            also int32[batch, seq, characters] `character_ids` and `reverse_character_ids`.
          carry: states, from `init_carry` or from the previous piece.
          deterministic: no dropout; otherwise the outputs, which a softmax reads, get dropout too.

        Returns:
          The outputs of the last layer of each direction, float[batch, seq, projection size] each;
          those of the backward direction in the order of `reverse_ids`; and the states after the
          last token.
        """
        batch = complete_batch(batch)
        is_token = batch["example_ids"] > 0
        outputs, new_carry = [], {}
        for direction, prefix in zip(DIRECTIONS, ("", "reverse_"), strict=True):
            x, states = self._words(batch, prefix), []
            for layer, state in zip(getattr(self, direction), carry[direction], strict=True):
                x, state = layer(x, state, deterministic, is_token=is_token)
                states.append(state)
            outputs.append(self.output_dropout(x, deterministic))
            new_carry[direction] = tuple(states)
        return outputs[0], outputs[1], new_carry

    def init_carry(self, batch_size: int) -> Carry:
        """Returns zero states: float32[batch, cell size] and float32[batch, projection size]."""
        layers = range(self.config.num_layers)
        return {
            direction: tuple(lstm.zero_state(self.config, batch_size) for _ in layers)
            for direction in DIRECTIONS
        }

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, projection size]; with tokens="embeddings" only.

        Raises:
          UserError: words are made of characters.
        """
        if self.config.tokens != "embeddings":
            raise UserError(
                "config.model.tokens='characters' has no table of word embeddings that a head could"
                " be tied to: set config.model.tokens='embeddings', or another task."
            )
        return self.embeddings.word_embeddings.whole()

    def _words(self, batch: Batch, prefix: str) -> jax.Array:
        """float[batch, seq, projection size] of `input_ids`, or of `reverse_ids`."""
        ids = batch[f"{prefix}ids" if prefix else "input_ids"]
        if self.config.tokens == "embeddings":
            return self.embeddings(ids)
        name = f"{prefix}character_ids"
        if name in batch:
            return self.characters(batch[name])
        if not self.is_initializing():
            raise UserError(
                f"The batch has no {name}, int32[batch, seq, {self.config.max_characters}], which"
                " config.model.tokens='characters' reads: add it with `models.make_add_fields`."
            )
        # The shapes of parameters do not depend on values.
        return self.characters(jnp.zeros((*ids.shape, self.config.max_characters), jnp.int32))


def flops_per_token(config: ElmoConfig, sequence_length: int) -> float:
    """FLOPs per token of the matrix products in a forward pass."""
    del sequence_length  # the work is linear in it
    flops = 2.0 * config.num_layers * lstm.flops_per_token(config)
    if config.tokens == "embeddings":
        return flops
    num_filters = sum(count for _, count in config.filters)
    flops += sum(
        2.0 * (config.max_characters - width + 1) * width * config.character_size * count
        for width, count in config.filters
    )
    flops += 4.0 * config.highway_layers * num_filters**2
    return flops + 2.0 * (num_filters != config.projection_size) * (
        num_filters * config.projection_size
    )


def add_fields(config: Any, tokenizer: Any) -> AddFields:
    """Returns the function that adds what ELMo reads to a batch on the host.

    tokens="characters": adds int32[..., seq, characters] `character_ids`, and for `reverse_ids`
    also `reverse_character_ids`; 0 in padding. Words past `vocab_size` become the unknown word
    where they are predicted (`next_ids`, `previous_ids`), with tokens="embeddings" also where
    they are read.

    Args:
      config: an `ElmoConfig`.
      tokenizer: the one that made the ids.

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


ELMO = Model(
    config=ElmoConfig,
    encoder=Elmo,
    rules=RULES,
    flops_per_token=flops_per_token,
    add_fields=add_fields,
)
