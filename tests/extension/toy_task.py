"""A task in one file: how many words a text has. A file has one text per line, its own label."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.texts import read_texts
from bert_jax.models import make_encoder
from bert_jax.models.heads import LinearHead
from bert_jax.models.model import EncoderConfig
from bert_jax.tasks.losses import Sum
from bert_jax.tasks.supervised import Labelled


class CountModel(nn.Module):
    model: EncoderConfig

    @nn.compact
    def __call__(self, batch, *, deterministic):
        encoder = make_encoder(self.model, name=self.model.name)
        hidden = encoder(batch, deterministic=deterministic).hidden
        counts = LinearHead(self.model, 1, name="classifier")(hidden)[..., 0]
        return (counts * (batch["example_ids"] > 0)).sum(-1)  # float32[batch]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountWords(Labelled):
    name: str = "count_words"

    EXAMPLE = TextExample

    def read(self, path, counts, labelled):
        for number, text in enumerate(read_texts(path)):
            label = (str(len(text.text_a.split())),) if labelled else None
            yield TextExample(text.where, str(number), text.text_a, labels=label)

    def encode(self, examples, tokenizer, counts):
        length = self.max_sequence_length
        return encode_texts(examples, tokenizer, length, None, "regression", counts)

    def make_model(self):
        return CountModel(self.model)

    def losses(self, outputs, batch):
        errors, weights = (outputs - batch["labels"]) ** 2, batch["weights"]
        return {"count_loss": Sum((errors * weights).sum(), weights.sum())}

    def answers(self, outputs, batch):
        return {"words": jnp.round(outputs)}

    def score(self, examples, predictions):
        pairs = zip(examples, predictions, strict=True)
        right = [int(example.labels[0]) == found["words"] for example, found in pairs]
        return {"accuracy": sum(right) / len(right)}
