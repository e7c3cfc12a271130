"""Distillation: a task whose student also learns from the outputs and the layers of a teacher.

    predictions   divergence from the teacher's, mixed with the loss of the labels (Hinton et al.
                  2015, arXiv 1503.02531)
    hidden        mean squared error of hidden states, after one learned projection where the
                  hidden sizes differ (TinyBERT, Jiao et al. 2019, arXiv 1909.10351, equation 8)
    relation      divergence of query-query, key-key and value-value relations (MiniLMv2, Wang et
                  al. 2020, arXiv 2012.15828, equations 3 to 5)

Tasks do not know a teacher: `Distilled` has the task of the student and that of the teacher, whose
parameters are the collection "teacher" of its model. They get no gradient.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.distillation import DistillationConfig
from bert_jax.models import make_encoder
from bert_jax.models.layers.dense import initializer
from bert_jax.models.model import Encoded, EncoderConfig
from bert_jax.models.task_heads import flat_batch
from bert_jax.tasks.losses import Sum, Sums, divergence, metric
from bert_jax.tasks.task import Batch, Task

# The top-level name of the student's parameters that only distillation has, and their key.
PROJECTION = "distillation"
_PROJECTION_KEY = 1
# Score of positions of other examples.
_LOWEST = -1e9

# Student's and teacher's float32[rows, seq, features].
Pair = tuple[jax.Array, jax.Array]


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
    """A trained model that a run's model learns from; it has no optimizer and no checkpoints.

    Attributes:
      task: its task.
      config: what is compared, all of it decided.
      params: its parameters by path, float32 on the host.
      sha256: checksum of their names, shapes and values.
    """

    task: Task
    config: DistillationConfig
    params: Mapping[str, np.ndarray]
    sha256: str

    def teach(self, task: Task) -> "Distilled":
        """Returns a task whose model also learns from this teacher."""
        return Distilled(task, self.task, self.config, model=task.model)


@flax.struct.dataclass
class DistilledOutputs:
    """The outputs of both models for a batch; those of the teacher have no gradient.

    Attributes:
      student: outputs of the student's model.
      teacher: outputs of the teacher's.
      hidden: hidden states, projected to the teacher's size; empty unless compared.
      relations: queries, keys and values; empty unless compared.
    """

    student: Any
    teacher: Any
    hidden: tuple[Pair, ...]
    relations: tuple[Pair, ...]


@dataclasses.dataclass(frozen=True)
class Distilled(Task):
    """The task of a student with a teacher; answers, masks and names are those of `task`.

    Attributes:
      task: the student's task.
      teacher: the teacher's: of the same kind, or an `EncoderTask` if predictions are not compared.
      config: the settings, whose layer map, layer and relation heads are resolved.
    """

    task: Task
    teacher: Task
    config: DistillationConfig

    def make_model(self) -> Any:
        """Returns the model, which has the methods `init` and `apply` of a linen module."""
        return DistilledModel(self)

    def example_batch(self) -> dict[str, jax.Array]:
        return self.task.example_batch()

    def transform(self, key, batch, progress=0.0):
        return self.task.transform(key, batch, progress)

    def losses(self, outputs: DistilledOutputs, batch: Batch) -> Sums:
        """Returns the losses and metrics of `task`, and those of the distillation.

        Each loss NAME_loss of predictions becomes a metric, beside NAME_distilled_loss, the
        divergence from the teacher. What is minimized has "weighted_" in front.
        """
        config, sums = self.config, self.task.all_losses(outputs.student, batch)
        if weight := config.weight:
            both = outputs.student, outputs.teacher
            found = self.task.distilled_losses(*both, batch, config.temperature)
            for name, distilled in found.items():
                sums |= _weighted(name, 1 - weight, sums[name])
                sums |= _weighted(f"{name.removesuffix('_loss')}_distilled_loss", weight, distilled)
        example_ids = batch["example_ids"].reshape(-1, batch["example_ids"].shape[-1])
        is_token = (example_ids > 0).astype(jnp.float32)
        heads = config.relation_heads
        for name, weight, values in (  # float32[rows, seq] each
            (
                "hidden_loss",
                config.hidden_weight,
                [((student - teacher) ** 2).mean(-1) for student, teacher in outputs.hidden],
            ),
            (
                "relation_loss",
                config.relation_weight,
                [relation_loss(*pair, example_ids, heads) for pair in outputs.relations],
            ),
        ):
            if values:
                total = Sum((sum(values) * is_token).sum(), is_token.sum())
                sums |= _weighted(name, weight, total)
        return sums

    def answers(self, outputs: DistilledOutputs, batch: Batch) -> dict[str, jax.Array]:
        return self.task.answers(outputs.student, batch)

    def head_flops_per_token(self) -> float:
        return self.task.head_flops_per_token()


def _weighted(name: str, weight: float, loss: Sum) -> Sums:
    """Returns a loss as a metric and, under another name, with its weight; 0: the metric alone."""
    sums = {name: metric(loss.numerator, loss.denominator)}
    if weight:
        sums[f"weighted_{name}"] = Sum(weight * loss.numerator, loss.denominator)
    return sums


@dataclasses.dataclass(frozen=True)
class DistilledModel:
    """Student and teacher as one model, with the methods of a linen module that training calls.

    Attributes:
      task: decides the models and what is compared.
    """

    task: Distilled

    def init(self, key: jax.Array, batch: Batch, *, deterministic: bool = True) -> dict[str, Any]:
        """Returns {"params": ...} of the student, and the projection if hidden sizes differ."""
        task, student = self.task, self.task.task.make_model()
        params = dict(student.init(key, batch, deterministic=deterministic)["params"])
        shape = task.model.hidden_size, task.teacher.model.hidden_size
        if task.config.hidden_weight and shape[0] != shape[1]:
            key = jax.random.fold_in(key, _PROJECTION_KEY)
            params[PROJECTION] = {"kernel": initializer(task.model)(key, shape, jnp.float32)}
        return {"params": params}

    def apply(
        self,
        variables: Mapping[str, Any],
        batch: Batch,
        *,
        deterministic: bool = True,
        rngs: Mapping[str, jax.Array] | None = None,
    ) -> DistilledOutputs:
        """Applies both models to a batch, the teacher without dropout.

        Args:
          variables: "params" of the student and "teacher", the parameters of the teacher.
          batch: what the student's model takes.
          deterministic: no dropout in the student; otherwise `rngs` has a key "dropout".
          rngs: see `deterministic`.
        """
        config, student, teacher = self.task.config, self.task.task, self.task.teacher
        params = dict(variables["params"])
        projection = params.pop(PROJECTION, None)
        layers, target_layers = (
            zip(*config.layer_map, strict=True) if config.layer_map else ((), ())
        )
        block = target_block = -1
        if config.relation_weight:
            block, target_block = student.model.num_layers - 1, config.relation_layer - 1
        options = {"deterministic": deterministic, "rngs": rngs}
        outputs, hidden, relations = _read(student, params, batch, layers, block, options)
        options = {"deterministic": True}
        targets, hidden_targets, relation_targets = jax.lax.stop_gradient(
            _read(teacher, variables["teacher"], batch, target_layers, target_block, options)
        )
        if projection is not None:
            hidden = [state @ projection["kernel"] for state in hidden]
        return DistilledOutputs(
            outputs,
            targets,
            tuple(zip(hidden, hidden_targets, strict=True)),
            tuple(zip(relations, relation_targets, strict=True)),
        )


def _read(
    task: Task,
    params: Any,
    batch: Batch,
    layers: Sequence[int],
    block: int,
    options: Mapping[str, Any],
) -> tuple[Any, list[jax.Array], list[jax.Array]]:
    """Returns a model's outputs, some hidden states, and queries, keys and values of a block.

    Args:
      task: decides the model.
      params: its parameters.
      batch: what it takes.
      layers: layers whose hidden states are returned, 0 for the embeddings.
      block: number of the block, from 0; -1: none.
      options: further arguments of the model.

    Returns:
      The outputs; float32[rows, seq, hidden] of each of `layers`; and three of them, before heads
      are split, normalized or rotated, or none.
    """
    name, num_layers = task.model.name, task.model.num_layers
    states = [_layer_path(name, layer, num_layers) for layer in layers]
    attention = f"{name}/encoder/layer_{block}/attention"
    projections = [f"{attention}/{part}" for part in ("query", "key", "value")] * (block >= 0)
    wanted = {*states, *projections}

    def is_read(module: nn.Module, method: str) -> bool:
        return method == "__call__" and "/".join(module.path) in wanted

    outputs, captured = task.make_model().apply(
        {"params": params},
        batch,
        capture_intermediates=is_read,
        mutable=["intermediates"],
        **options,
    )

    def found(path: str) -> jax.Array:
        node: Any = captured["intermediates"]
        for part in path.split("/"):
            node = node[part]
        (value,) = node["__call__"]  # called once
        if isinstance(value, Encoded):
            value = value.hidden
        return (value[0] if isinstance(value, tuple) else value).astype(jnp.float32)

    return outputs, [found(path) for path in states], [found(path) for path in projections]


def _layer_path(name: str, layer: int, num_layers: int) -> str:
    """Returns the path of the module whose output is the hidden state of a layer."""
    if layer == 0:
        return f"{name}/embeddings"
    # After the last layer norm, which encoders with norms before the sub-layers have.
    return f"{name}/encoder" if layer == num_layers else f"{name}/encoder/layer_{layer - 1}"


@dataclasses.dataclass(frozen=True)
class EncoderTask(Task):
    """A teacher of which only the layers are read: the encoder without a head."""

    def make_model(self) -> "EncoderModel":
        return EncoderModel(self.model)


class EncoderModel(nn.Module):
    """An encoder under its name, as models with heads have it."""

    model: EncoderConfig

    @nn.compact
    def __call__(self, batch: Batch, *, deterministic: bool = True) -> tuple[()]:
        """Encodes a batch, [batch, sequences] in front included; the result is what is captured."""
        batch = flat_batch(batch) if batch["input_ids"].ndim > 2 else batch
        make_encoder(self.model, name=self.model.name)(batch, deterministic=deterministic)
        return ()


def relation_loss(
    student: jax.Array, teacher: jax.Array, example_ids: jax.Array, heads: int
) -> jax.Array:
    """KL(teacher's relations || student's) of each position, the mean over relation heads.

    The relations of a position are the softmax of its scaled products with all positions of its
    example; the features are split into `heads` relation heads, whatever the attention heads.

    Args:
      student: float32[rows, seq, hidden], queries, keys or values of all attention heads.
      teacher: float32[rows, seq, teacher's hidden], the same of the teacher.
      example_ids: int32[rows, seq]; 0: padding.
      heads: number of relation heads.

    Returns:
      float32[rows, seq].
    """
    is_same = example_ids[:, None, :, None] == example_ids[:, None, None, :]

    def scores(x: jax.Array) -> jax.Array:
        """[rows, seq, features] -> [rows, heads, seq, seq]."""
        x = x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
        products = jnp.einsum("bhsk,bhtk->bhst", x, x) / math.sqrt(x.shape[-1])
        return jnp.where(is_same, products, _LOWEST)

    return divergence(scores(student), scores(teacher)).mean(1)
