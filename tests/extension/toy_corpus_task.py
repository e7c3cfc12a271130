"""A self-supervised task in one file: the next token, as in GPT (Radford et al. 2018)."""

import dataclasses
from collections.abc import Mapping, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import defaults
from bert_jax.config.phases import Phase
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.models import make_encoder
from bert_jax.models.model import Batch, EncoderConfig
from bert_jax.tasks.losses import Sum, Sums, cross_entropy, metric
from bert_jax.tasks.pretraining import Pretraining, PretrainingData
from bert_jax.tasks.task import TaskRow
from bert_jax.text.tokenization import Tokenizer


class NextTokenModel(nn.Module):
    """A causal encoder, and the product with its table of words at each position."""

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool) -> jax.Array:
        """What the encoder takes -> float32[batch, seq, padded vocab]."""
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        return jnp.einsum("bsd,vd->bsv", hidden, encoder.word_embedding())


@dataclasses.dataclass(frozen=True)
class NextToken(Pretraining):
    """The device side; what is predicted are the tokens of the rows themselves."""

    def make_model(self) -> NextTokenModel:  # pyright: ignore[reportIncompatibleMethodOverride]
        return NextTokenModel(self.model)

    def losses(self, outputs: jax.Array, batch: Batch) -> Sums:
        values, hits = cross_entropy(outputs[:, :-1], batch["input_ids"][:, 1:])
        weights = _weights(batch)
        return {
            "next_token_loss": Sum((values * weights).sum(), weights.sum()),
            "next_token_accuracy": metric((hits * weights).sum(), weights.sum()),
        }

    def head_flops_per_token(self) -> float:
        return 2.0 * self.model.hidden_size * self.model.padded_vocab_size


def _weights(batch: Batch) -> jax.Array:
    """float32[batch, seq - 1]: 1 where the next position is a token of the same example."""
    ids = batch["example_ids"]
    return ((ids[:, 1:] > 0) & (ids[:, 1:] == ids[:, :-1])).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class NextTokenData(PretrainingData):
    """The host side."""

    def make_task(
        self,
        model: EncoderConfig,
        tokenizer: Tokenizer,
        phase: Phase | None = None,
        evaluate: bool = False,
    ) -> NextToken:
        if phase is None:
            raise ValueError("config.task='next_token' makes no predictions.")
        return NextToken(model, next_sentence=False)

    def verdict(
        self, values: Mapping[str, float], training: CorpusRows, evaluation: Sequence[CorpusRows]
    ) -> list[str]:
        entropy = training.statistics["unigram_entropy"]
        is_good = values["next_token_loss"] < entropy
        return [f"health: {'good' if is_good else 'no better than word frequencies'}."]


NEXT_TOKEN = TaskRow(
    make=NextTokenData.make,
    default_config=defaults.pretraining,
    head="",
    pools=False,
    huggingface_class="",
)
