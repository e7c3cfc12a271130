"""A self-supervised task in one file: the next token, as in GPT (Radford et al. 2018)."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.files.errors import UserError
from bert_jax.models import make_encoder
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks.losses import Sum, cross_entropy, metric
from bert_jax.tasks.task import CorpusTask


class NextTokenModel(nn.Module):
    model: EncoderConfig

    @nn.compact
    def __call__(self, batch, *, deterministic):
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        return jnp.einsum("bsd,vd->bsv", hidden, encoder.word_embedding())


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextToken(CorpusTask):
    name: str = "next_token"

    def bind(self, model, tokenizer, phase=None, evaluate=False):
        if phase is None:
            raise UserError("config.task.name='next_token' makes no predictions.")
        return super().bind(model, tokenizer, phase, evaluate)

    def make_model(self):
        return NextTokenModel(self.model)

    def losses(self, outputs, batch):
        ids = batch["example_ids"]
        is_predicted = (ids[:, 1:] > 0) & (ids[:, 1:] == ids[:, :-1])
        values, hits = cross_entropy(outputs[:, :-1], batch["input_ids"][:, 1:])
        total = is_predicted.sum().astype(jnp.float32)
        return {
            "next_token_loss": Sum((values * is_predicted).sum(), total),
            "next_token_accuracy": metric((hits * is_predicted).sum(), total),
        }

    def head_flops_per_token(self):
        return 2.0 * self.model.hidden_size * self.model.padded_vocab_size
