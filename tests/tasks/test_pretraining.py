"""Pre-training on the devices, as it is trained, evaluated and used for predictions."""

from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np

from bert_jax.config.phases import Phase, max_masks
from bert_jax.config.task import default_config
from bert_jax.tasks.causal_lm.model import CausalLMModel
from tests import tiny

TOKENIZER: Any = SimpleNamespace(
    pieces=tuple(map(str, range(64))),
    mask_id=4,
    cls_id=2,
    sep_id=3,
    is_continuation=np.zeros(64, bool),
    piece_lengths=lambda: (1,) * 64,
)


def make_task(prob, evaluation_prob, evaluate, final_prob=0.0, **changes):
    values = {"data.masked_lm_prob": prob, "data.eval_masked_lm_prob": evaluation_prob}
    values |= {f"data.{name}": value for name, value in changes.items()}
    config = default_config("pretraining").replace(
        values | {"data.final_masked_lm_prob": final_prob}
    )
    phase = Phase(64, 4, max_masks(64, prob, "half_even"), 1.0, 0, 1)
    data = config.task
    return cast(Any, data.bind(tiny.make_model(), TOKENIZER, phase, evaluate))


def test_evaluations_mask_the_same_tokens_whatever_training_masks():
    usual = make_task(0.15, 0.15, evaluate=False)
    assert make_task(0.3, 0.0, evaluate=True).rule == make_task(0.3, 0.0, evaluate=False).rule
    evaluated = make_task(0.3, 0.15, evaluate=True)
    assert evaluated.rule == usual.rule and evaluated.max_predictions == 10
    falling = make_task(0.15, 0.15, evaluate=True, final_prob=0.1)
    same = make_task(0.15, 0.15, evaluate=True)
    assert (falling.rule, falling.max_predictions) == (same.rule, same.max_predictions)
    in_stages = {"mask_rounding": "row", "mask_stages": 2}
    staged = make_task(0.3, 0.15, True, 0.1, **in_stages)
    assert (staged.rule, staged.max_predictions) == (same.rule, same.max_predictions)
    batch = tiny.make_batch(4, 64)
    found, expected = (jax.jit(t.transform)(jax.random.key(0), batch) for t in (evaluated, usual))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_with_predicts_next_the_state_before_a_masked_token_predicts_it():
    """It is where a model of next tokens with the same parameters predicts the token."""
    changes = {"next_sentence": False, "convolution": 3, "norm_place": "pre"}
    batch = tiny.make_batch(3)
    positions = np.array([[1, 4, 7], [2, 3, 0], [5, 6, 9]], np.int32)
    batch["masked_lm_positions"] = positions
    for changes["last_layer_predicted_only"] in (False, True):
        task = tiny.make_task(**changes, predicts_next=True)
        module = task.make_model()
        variables = module.init(jax.random.key(0), batch)
        found = cast(Any, module.apply(variables, batch)).masked_lm_logits
        whole: Any = CausalLMModel(task.model).apply(variables, batch)
        expected = np.take_along_axis(whole.logits(), np.maximum(positions - 1, 0)[:, :, None], 1)
        np.testing.assert_allclose(found, expected, atol=1e-5)
