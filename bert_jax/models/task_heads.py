"""The models that are fine-tuned: an encoder and a small head (paper, section 4 and appendix B).

Dropout before the head has the encoder's rate, as in `run_classifier.py`, unless the head has its
own; kernels are initialized like those of the encoder, biases to zero. Logits are float32. Outputs
also hold the head's `Reading`, for auxiliary losses.
"""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.crf import Crf
from bert_jax.models.heads import LinearHead
from bert_jax.models.model import Batch, EncoderConfig, complete_batch
from bert_jax.models.reading import (
    HeadConfig,
    PooledHeadConfig,
    Reading,
    head_dropout,
    read_pooled,
    read_tokens,
)

# Logit of positions and choices that cannot be the answer.
IMPOSSIBLE = -1e9


@flax.struct.dataclass
class ClassificationOutputs:
    """The output of models that classify examples.

    Attributes:
      logits: float32[batch, classes]; [batch, examples, classes] for rows with several examples.
      reading: what the head read.
    """

    logits: jax.Array
    reading: Reading


class ClassificationModel(nn.Module):
    """Predicts one class, several classes or, with one class, a number from a pooled vector.

    Attributes:
      model: configuration of the encoder.
      num_classes: number of logits.
      head: what is read.
      both_orders: whether the pooled vector is the sum of those of two sequences.
    """

    model: EncoderConfig
    num_classes: int
    head: PooledHeadConfig = PooledHeadConfig()
    both_orders: bool = False

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> ClassificationOutputs:
        """The input of `read_pooled`, with [batch, 2] in front for two orders -> logits."""
        head = self.head
        if self.both_orders:
            pooled, reading = read_pooled(self.model, head, flat_batch(batch), deterministic)
            pooled = pooled.astype(jnp.float32).reshape(-1, 2, pooled.shape[-1]).sum(axis=1)
        else:
            pooled, reading = read_pooled(self.model, head, batch, deterministic)
        x = head_dropout(head, self.model, "dropout")(pooled, deterministic)
        logits = LinearHead(self.model, self.num_classes, name="classifier")(x)
        return ClassificationOutputs(logits, reading)


class MultipleChoiceModel(nn.Module):
    """Scores each of several endings from its pooled vector.

    Attributes:
      model: configuration of the encoder.
      head: what is read.
      share_dropout: whether all choices of an example share a dropout mask.
    """

    model: EncoderConfig
    head: PooledHeadConfig = PooledHeadConfig()
    share_dropout: bool = False

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> ClassificationOutputs:
        """The input of `read_pooled`, each field with [batch, choices] in front.

        Returns:
          Logits [batch, choices]; a choice that is all padding gets `IMPOSSIBLE`.
        """
        batch = complete_batch(batch)
        is_choice = (batch["example_ids"] > 0).any(-1)
        x, reading = read_pooled(self.model, self.head, flat_batch(batch), deterministic)
        if shared := self.share_dropout:
            x = x.reshape(*is_choice.shape, -1)
        x = head_dropout(self.head, self.model, "dropout", shared)(x, deterministic)
        logits = LinearHead(self.model, 1, name="classifier")(x).reshape(is_choice.shape)
        logits = jnp.where(is_choice, logits, IMPOSSIBLE)
        return ClassificationOutputs(logits, reading)


@flax.struct.dataclass
class EmbeddingOutputs:
    """The output of a model that embeds texts.

    Attributes:
      vectors: float32[batch, texts, features], of the texts of each example; not normalized.
    """

    vectors: jax.Array


class EmbeddingModel(nn.Module):
    """A vector for each text, pooled from the last hidden states; it has no parameters of its own.

    Attributes:
      model: configuration of the encoder.
      head: how the states are pooled.
    """

    model: EncoderConfig
    head: PooledHeadConfig = PooledHeadConfig(pool="mean", pooler=False)

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> EmbeddingOutputs:
        """The input of `read_pooled`, each field with [batch, texts] in front -> vectors."""
        batch = complete_batch(batch)
        pooled, _ = read_pooled(self.model, self.head, flat_batch(batch), deterministic)
        texts = batch["input_ids"].shape[:2]
        return EmbeddingOutputs(pooled.astype(jnp.float32).reshape(*texts, -1))


def flat_batch(batch: Batch) -> dict[str, jax.Array]:
    """[batch, sequences, n, ...] -> [batch * sequences, n, ...], for the inputs of encoders."""
    arrays = {name: array for name, array in batch.items() if name != "carry" and array.ndim > 2}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


@flax.struct.dataclass
class SpanOutputs:
    """The output of a model that answers questions.

    Attributes:
      start_logits, end_logits: float32[batch, seq], of the first and the last token of the answer.
      reading: what the head read.
    """

    start_logits: jax.Array
    end_logits: jax.Array
    reading: Reading


class SpanModel(nn.Module):
    """Scores each token as start and as end of the answer (paper, section 4.2).

    Attributes:
      model: configuration of the encoder.
      head: what is read; as in `run_squad.py`, there is no dropout before the last dense layer,
        except after a BiLSTM.
    """

    model: EncoderConfig
    head: HeadConfig = HeadConfig()

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> SpanOutputs:
        """The encoder's input -> logits; padding gets `IMPOSSIBLE`."""
        batch = complete_batch(batch)
        x, reading = read_tokens(self.model, self.head, batch, deterministic)
        if self.head.has_bilstm:
            x = head_dropout(self.head, self.model, "dropout")(x, deterministic)
        logits = LinearHead(self.model, 2, name="span")(x)
        logits = jnp.where((batch["example_ids"] > 0)[:, :, None], logits, IMPOSSIBLE)
        return SpanOutputs(logits[..., 0], logits[..., 1], reading)


@flax.struct.dataclass
class TaggingOutputs:
    """The output of a tagger.

    Attributes:
      logits: float32[batch, words, classes].
      crf: scores of neighbouring tags; None without a CRF.
      reading: what the head read.
    """

    logits: jax.Array
    crf: Crf | None
    reading: Reading


class TaggingModel(nn.Module):
    """A tag for each word, from its first piece (paper, section 5.3) or from all (`of_words`).

    Attributes:
      model: configuration of the encoder.
      num_classes: number of tags.
      head: what is read, and whether there is a CRF.
      subwords: "first", or how the pieces of a word are read, see `of_words`.
    """

    model: EncoderConfig
    num_classes: int
    head: HeadConfig = HeadConfig()
    subwords: str = "first"

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> TaggingOutputs:
        """The encoder's input, int32[batch, words] `word_positions`, bool[...] `is_word` -> logits.

        With `subwords` other than "first" also int32[batch, words] `word_sizes`.
        """
        model, head = self.model, self.head
        reads_all = self.subwords != "first"
        words = () if reads_all else (batch["word_positions"], batch["is_word"])
        x, reading = read_tokens(model, head, batch, deterministic, *words)
        x = head_dropout(head, model)(x, deterministic)
        logits = LinearHead(model, self.num_classes, name="classifier")(x)
        if reads_all:
            logits = of_words(self.subwords, logits, batch["word_positions"], batch["word_sizes"])
        return TaggingOutputs(logits, self._crf() if head.has_crf else None, reading)

    def _crf(self) -> Crf:
        classes, zeros = self.num_classes, nn.initializers.zeros_init()
        return Crf(
            transitions=self.param("transitions", zeros, (classes, classes)),
            start=self.param("start_transitions", zeros, (classes,)),
            end=self.param("end_transitions", zeros, (classes,)),
        )


# Smallest probability whose logarithm is taken.
_TINY = 1e-30


def of_words(how: str, logits: jax.Array, positions: jax.Array, sizes: jax.Array) -> jax.Array:
    """Returns float32[batch, words, classes], the logits of words from those of their pieces.

    Like the aggregation strategies "average" and "max" of transformers' token-classification
    pipeline.

    Args:
      how: "mean": the logarithm of the mean of the pieces' probabilities. "max": the logits of the
        piece with the most probable tag, the first of several such pieces.
      logits: float32[batch, seq, classes].
      positions: int32[batch, words], of the first piece of each word.
      sizes: int32[batch, words], the number of its pieces, which are contiguous; 0: no word.
    """
    place = jnp.arange(logits.shape[1], dtype=jnp.int32)[None, None]
    first, last = positions[:, :, None], (positions + sizes)[:, :, None]
    is_piece = (place >= first) & (place < last)  # [batch, words, seq]
    probabilities = nn.softmax(logits)
    if how == "mean":
        total = jnp.einsum("bws,bsc->bwc", is_piece.astype(logits.dtype), probabilities)
        return jnp.log(total / jnp.maximum(sizes, 1)[:, :, None] + _TINY)
    sure = jnp.where(is_piece, probabilities.max(axis=-1)[:, None], -1.0)
    return jnp.take_along_axis(logits, sure.argmax(axis=-1)[:, :, None], axis=1)
