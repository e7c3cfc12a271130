"""Predictions and scores of multiple choice from probabilities, by hand."""

import numpy as np
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.labelled.examples import ChoiceExample


def test_the_most_probable_ending_of_an_example_is_chosen():
    gold = [
        ChoiceExample("x", "id0", "c", ("a", "b", "c"), "s", 1),
        ChoiceExample("x", "id1", "c", ("d", "e"), "s", 0),
        ChoiceExample("x", "id2", "c", ("f", "g", "h"), "s", 2),
    ]
    data = default_config("multiple_choice").task
    shares = np.array([[0.2, 0.5, 0.3], [0.6, 0.4, 0.0], [0.1, 0.2, 0.7]], np.float32)
    found = data.collect(gold, None, [{"probabilities": row} for row in shares])
    assert [(p["id"], p["choice"], p["ending"]) for p in found] == [
        ("id0", 1, "b"),
        ("id1", 0, "d"),
        ("id2", 2, "h"),
    ]
    assert [len(p["probabilities"]) for p in found] == [3, 2, 3]
    assert data.score(gold, found) == {"accuracy": 1.0}
    found[0]["choice"] = 0
    assert data.score(gold, found) == pytest.approx({"accuracy": 2 / 3})
    assert data.baseline(gold) == pytest.approx(1 / 3)
