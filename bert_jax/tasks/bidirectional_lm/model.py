"""A bidirectional language model: a recurrent encoder in both directions, and one softmax.

Peters et al. 2018, section 3.1; allenai/bilm-tf `training.py`. The directions share the word
vectors, which the encoder makes, and the softmax; neither sees what the other reads.
"""

import math
from typing import Any

import flax.linen as nn
import flax.struct
import jax

from bert_jax.devices.sharding import gather_features
from bert_jax.models import make_encoder
from bert_jax.models.heads import WordScores, word_bias
from bert_jax.models.model import Batch, EncoderConfig
from bert_jax.tasks.bidirectional_lm.sampled_softmax import Sample, sample_words


@flax.struct.dataclass
class BidirectionalOutputs:
    """The output of a bidirectional language model.

    Attributes:
      forward: scores of the word after each position of `input_ids`.
      backward: scores of the word after each position of `reverse_ids`, which precedes it in the
        text.
      samples: the sampled words of each direction's softmax; empty: full softmax.
      carry: the states of the encoder after the batch.
    """

    forward: WordScores
    backward: WordScores
    samples: tuple[Sample, ...]
    carry: Any


class WordSoftmax(nn.Module):
    """The output word table that both directions share, and a bias for each word.

    As in bilm-tf, the table starts from a normal distribution of variance 1 / features.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        """float[..., features] -> float32[padded vocab, features], float32[padded vocab]."""
        rows, size = self.config.padded_vocab_size, features.shape[-1]
        normal = nn.initializers.normal(1 / math.sqrt(size))
        table = self.param("kernel", normal, (rows, size))
        bias = self.param("bias", nn.initializers.zeros_init(), (rows,))
        return gather_features(table), word_bias(self.config, bias)


class BidirectionalLanguageModel(nn.Module):
    """An encoder with `language_model` and `init_carry`, and the softmax of both directions.

    Attributes:
      model: configuration of the encoder.
      num_samples: number of words of the sampled softmax in training; 0: full softmax.
      num_words: number of words that are predicted, the first ones of the vocabulary.
    """

    model: EncoderConfig
    num_samples: int = 0
    num_words: int = 0

    @nn.nowrap
    def init_carry(self, batch_size: int) -> Any:
        """Returns the states before the first batch, zeros [batch_size, ...]."""
        encoder: Any = make_encoder(self.model)
        return encoder.init_carry(batch_size)

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> BidirectionalOutputs:
        """Encodes a batch of streams and scores the words that follow.

        Args:
          batch: the input of the encoder's `language_model`, and `carry`, the states before it;
            without them, each row begins with zero states.
          deterministic: no dropout and no samples; otherwise a key "dropout" is required, which
            decides both.
        """
        encoder: Any = make_encoder(self.model, name=self.model.name)
        carry = batch.get("carry") or encoder.init_carry(len(batch["input_ids"]))
        forward, backward, carry = encoder.language_model(batch, carry, deterministic)
        table, bias = WordSoftmax(self.model, name="softmax")(forward)
        samples = ()
        if self.num_samples and not deterministic:
            keys = jax.random.split(self.make_rng("dropout"))
            samples = tuple(sample_words(key, self.num_samples, self.num_words) for key in keys)
        return BidirectionalOutputs(
            WordScores(forward, table, bias), WordScores(backward, table, bias), samples, carry
        )
