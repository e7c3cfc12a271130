"""The device side of masked words."""

import dataclasses

import jax
import numpy as np

from bert_jax.config.phases import Phase, most_masks
from tests.tiny import make_batch, make_task


def test_evaluations_mask_the_same_tokens_whatever_training_masks():
    def task(prob, evaluation_prob):
        rule = dataclasses.replace(make_task().rule, masked_lm_prob=prob)
        changed = dataclasses.replace(make_task(), rule=rule, evaluation_prob=evaluation_prob)
        return changed.at_phase(Phase(64, 4, most_masks(64, prob, "half_even"), 1.0, 0, 1))

    usual = task(0.15, 0.15)
    assert task(0.3, 0.0).to_evaluate().rule == task(0.3, 0.0).rule
    evaluated = task(0.3, 0.15).to_evaluate()
    assert evaluated.rule == usual.rule and evaluated.max_predictions_per_seq == 10
    falling = dataclasses.replace(usual, rule=dataclasses.replace(usual.rule, final_prob=0.1))
    assert falling.to_evaluate() == usual.to_evaluate()
    batch = make_batch(4, 64)
    found, expected = (jax.jit(t.transform)(jax.random.key(0), batch) for t in (evaluated, usual))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
