"""Which batches of a corpus are evaluated."""

import types
from typing import Any

import pytest

from bert_jax.config.task import default_config
from bert_jax.training.evaluate import evaluated_batches

ROWS: Any = types.SimpleNamespace(rows_per_epoch=21, evaluation_batches=lambda size: "abcdef")


def numbers(part=(0.0, 1.0), **changes):
    values = {"eval.part": part, **{f"eval.{name}": value for name, value in changes.items()}}
    return [
        number
        for number, _ in evaluated_batches(default_config("pretraining").replace(values), ROWS, 4)
    ]


def test_parts_divide_the_batches():
    assert numbers() == [0, 1, 2, 3, 4, 5]
    assert numbers((0.0, 0.5)) + numbers((0.5, 1.0)) == numbers()
    assert [numbers((i / 4, (i + 1) / 4)) for i in range(4)] == [[0, 1], [2], [3], [4, 5]]


def test_a_part_has_at_least_one_batch_and_at_most_max_batches():
    assert numbers((0.98, 1.0)) == [5] and numbers((0.0, 0.01)) == [0]
    assert numbers((0.5, 1.0), max_batches=2) == [3, 4]


@pytest.mark.parametrize("part", [(), (0.5,), (0.5, 0.5), (0.5, 1.5), (-0.1, 1.0), ("a", 1.0)])
def test_other_parts_are_refused(part):
    with pytest.raises(ValueError, match="eval.part=.* is not where a part begins and ends"):
        numbers(part)
