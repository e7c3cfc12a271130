"""Ratings: one of several ordered levels of a text, such as stars (Niu et al. 2016)."""

import dataclasses
from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.group import setting
from bert_jax.data.labelled.encode_texts import encode_texts
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.tables import Columns, read_table
from bert_jax.models.heads import LinearHead
from bert_jax.models.reading import head_dropout, read_pooled
from bert_jax.tasks import TASKS
from bert_jax.tasks.losses import binary_divergence, weighted_sum
from bert_jax.tasks.supervised import Pooled


class RatingModel(nn.Module):
    task: "Rating"

    @nn.compact
    def __call__(self, batch, *, deterministic=True):
        task, model = self.task, self.task.model
        pooled, _ = read_pooled(model, task, batch, deterministic)
        pooled = head_dropout(task, model, "dropout")(pooled, deterministic)
        return LinearHead(model, task.levels - 1, name="classifier")(pooled)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rating(Pooled):
    name: str = "rating"
    # Column of the text.
    text_a: str = setting("text")
    # Column of the level, from 1.
    label: str = setting("stars")
    # Number of levels.
    levels: int = setting(5, minimum=2)

    HEAD = "classifier"
    EXAMPLE = TextExample
    reads_numbers = True

    def read(self, path, counts, labelled) -> Iterator[TextExample]:
        columns = Columns(self.text_a, None, self.label, decimal=".")
        return read_table(path, columns, counts, labelled)

    def row_texts(self, example):
        return ((example.text_a,),)

    def encode(self, examples, tokenizer, counts):
        length = self.max_sequence_length
        return encode_texts(examples, tokenizer, length, None, "regression", counts)

    def make_model(self):
        return RatingModel(self)

    def losses(self, outputs, batch):
        above = batch["labels"][:, None] > jnp.arange(1, self.levels)[None]  # each level
        values = (jnp.logaddexp(0.0, outputs) - above * outputs).sum(-1)
        return {"task_loss": weighted_sum(values, batch["weights"])}

    def distilled_losses(self, outputs, teacher, batch, temperature):
        values = binary_divergence(outputs, teacher, temperature).sum(-1)
        return {"task_loss": weighted_sum(values, batch["weights"])}

    def answers(self, outputs, batch):
        return {"stars": 1 + (outputs > 0).sum(-1), "above": jax.nn.sigmoid(outputs)}

    def score(self, examples, predictions):
        gold = np.array([float(example.labels[0]) for example in examples])
        found = np.array([prediction["stars"] for prediction in predictions])
        return {"accuracy": float(np.mean(gold == found))}


TASKS["rating"] = Rating
