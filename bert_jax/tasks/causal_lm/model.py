"""The causal language model: an encoder, and scores of the next token."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import make_encoder
from bert_jax.models.heads import LMHead, WordScores
from bert_jax.models.layers.cache import Cache
from bert_jax.models.model import Batch, Encoder, EncoderConfig


class CausalLMModel(nn.Module):
    """An encoder, and scores of the next token at each position.

    Attributes:
      model: the encoder's configuration.
    """

    model: EncoderConfig

    def setup(self):
        setattr(self, self.model.name, make_encoder(self.model))
        self.masked_lm = LMHead(self.model)  # the name that its parameters have in BERT

    @property
    def _encoder(self) -> Encoder:
        return getattr(self, self.model.name)

    def __call__(self, batch: Batch, *, deterministic: bool = True) -> WordScores:
        """Returns the scores of the token after each position.

        Args:
          batch: the encoder's input.
          deterministic: no dropout; otherwise a key "dropout" is required.
        """
        hidden = self._encoder(batch, deterministic=deterministic).hidden
        return self.masked_lm(hidden, self._encoder.word_embedding())

    def decode(self, batch: Batch, cache: Cache) -> tuple[jax.Array, Cache]:
        """Reads rows part by part: `model.apply(variables, batch, cache, method="decode")`.

        Args:
          batch: the next tokens of each row; see `Bert.decode`.
          cache: the keys and values of the tokens before.

        Returns:
          float32[batch, padded vocab], the logits of the token after each row; and the new cache.
        """
        hidden, cache = self._encoder.decode(batch, cache)
        last = jnp.maximum((batch["example_ids"] > 0).sum(1) - 1, 0)
        hidden = jnp.take_along_axis(hidden, last[:, None, None], axis=1)
        scores = self.masked_lm(hidden, self._encoder.word_embedding())
        return scores.logits()[:, 0], cache
