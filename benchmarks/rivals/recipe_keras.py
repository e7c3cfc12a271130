"""keras-hub's BERT in the race of recipes, on Keras with jax: `Model.fit`, compiled.

No extra has keras-hub, which installs TensorFlow too: 1 GB.
"""
# pyright: reportMissingImports=false

import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import keras  # noqa: E402
import keras_hub  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.rivals.recipe_reference import (  # noqa: E402
    Evaluations,
    Order,
    mask,
    training_rows,
)
from bert_jax.data.batch import Batch  # noqa: E402
from bert_jax.training.run import Run  # noqa: E402

# What Keras takes for a batch: inputs, true tokens, weights.
Example = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def masked_batches(run: Run, probability: float, seed: int) -> Iterator[Example]:
    """Yields training rows with masks; see `mask`."""
    rng, tokenizer = np.random.default_rng(seed), run.tokenizer
    for batch in training_rows(run):
        found = mask(rng, batch, probability, tokenizer.mask_id, len(tokenizer.pieces))
        inputs, positions, true, weights = found
        yield model_inputs(inputs, batch["is_token"], positions), true, weights


def model_inputs(ids: np.ndarray, is_token: np.ndarray, positions: np.ndarray) -> dict[str, Any]:
    return {
        "token_ids": ids.astype(np.int32),
        "segment_ids": np.zeros(ids.shape, np.int32),
        "padding_mask": is_token.astype(np.int32),
        "mask_positions": positions.astype(np.int32),
    }


class Trapezoid(keras.optimizers.schedules.LearningRateSchedule):
    """Rises from 0 in the first part of the run, and falls to 0 in the last."""

    def __init__(self, peak: float, steps: int, warmup: float, tail: float):
        self._peak, self._steps, self._warmup, self._tail = peak, steps, warmup, tail

    def __call__(self, step):
        progress = (keras.ops.cast(step, "float32") + 1) / self._steps
        rise = progress / self._warmup if self._warmup else 1.0
        fall = (1 - progress) / self._tail if self._tail else 1.0
        return self._peak * keras.ops.minimum(1.0, keras.ops.minimum(rise, fall))

    def get_config(self) -> dict[str, Any]:
        names = ("peak", "steps", "warmup", "tail")
        return {name: getattr(self, f"_{name}") for name in names}


class EvaluationCallback(keras.callbacks.Callback):
    def __init__(self, evaluations: Evaluations):
        super().__init__()
        self._evaluations = evaluations

    def on_train_begin(self, logs=None):
        self._evaluations.begin()

    def on_train_batch_end(self, batch, logs=None):
        if self._evaluations.is_due(step := batch + 1):
            # Without waiting, the clock would stop before the work of the step is done.
            self.model.jax_state_sync()
            jax.block_until_ready([variable.value for variable in self.model.variables])
            self._evaluations.evaluate(step, self._predict)

    def _predict(self, batch: Batch) -> np.ndarray:
        ids, positions = (np.asarray(batch[n]) for n in ("input_ids", "masked_lm_positions"))
        inputs = model_inputs(ids, np.asarray(batch["example_ids"]) > 0, positions)
        logits = np.asarray(self.model.predict_on_batch(inputs), np.float32)
        return logits[np.nonzero(batch["masked_lm_weights"])]


def make_model(run: Run, dropout: float) -> keras.Model:
    """Returns keras-hub's model with the sizes of the reference."""
    sizes = run.config.model
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=len(run.tokenizer.pieces),
        num_layers=sizes.num_layers,
        num_heads=run.config["model.num_heads"],
        hidden_dim=sizes.hidden_size,
        intermediate_dim=run.config["model.intermediate_size"],
        max_sequence_length=sizes.max_position_embeddings,
        dropout=dropout,
    )
    model = keras_hub.models.BertMaskedLM(backbone)
    # Without keras-hub's `fit`, which converts the batches to tensors of TensorFlow.
    return keras.Model(model.input, model.output)


def build(**settings: Any) -> Callable[[], dict[str, Any]]:
    """Prepares the run of `Order(**settings)`, which the measurement performs."""
    jax.config.update("jax_numpy_rank_promotion", "allow")  # our tests forbid it
    order = Order(**settings)
    run, arguments = order.open(), dict(order.arguments)
    keras.utils.set_random_seed(order.seed)
    keras.config.set_dtype_policy(arguments.pop("dtype", "float32"))
    module = make_model(run, arguments.pop("dropout", 0.1))
    batches = masked_batches(run, arguments.pop("mlm_probability", 0.15), order.seed)
    peak = arguments.pop("learning_rate", 1e-3)
    rate = Trapezoid(peak, order.steps, arguments.pop("warmup", 0.0), arguments.pop("tail", 0.0))
    optimizer = keras.optimizers.AdamW(rate, **arguments)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    module.compile(optimizer=optimizer, loss=loss, weighted_metrics=[], jit_compile=True)
    step_tokens = run.phases[0].batch_size * run.phases[0].sequence_length
    callback = EvaluationCallback(Evaluations(order, run, step_tokens))

    def measure() -> dict[str, Any]:
        module.fit(
            batches, steps_per_epoch=order.steps, shuffle=False, verbose=0, callbacks=[callback]
        )
        jax.block_until_ready([variable.value for variable in module.variables])
        return {}

    return measure
