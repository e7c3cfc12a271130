"""Settings of fine-tuning that follow from the encoder and the data."""

import numpy as np
import pytest

from bert_jax.config.encoders import BertConfig, GptConfig
from bert_jax.plans.recipe import (
    finetuning_recipe,
    kernel_rms,
    length_recipe,
    skewed_recipe,
)
from bert_jax.tasks.class_loss import parse_class_weights


def values(recipe):
    return {name: value for name, (value, _) in recipe.items()}


@pytest.mark.parametrize(
    "size, lowest, highest",
    [
        (1024, 2e-5, 5e-5),
        (768, 2e-5, 5e-5),
        (512, 3e-5, 3e-4),
        (384, 5e-5, 3e-4),
        (128, 5e-4, 2e-3),
    ],
)
def test_the_rate_is_in_the_range_that_is_known_to_learn(size, lowest, highest):
    """Devlin et al. 2019 for Base and Large, Turc et al. 2019 for 512; measured below."""
    model = BertConfig(hidden_size=size, num_heads=2).to_dict()
    found = values(finetuning_recipe(model, 1000, True))
    assert lowest <= found["optimizer.learning_rate"] <= highest
    many = values(finetuning_recipe(model, 100_000, True))  # small files are read more often
    assert (many["global_batch_size"], many["epochs"]) == (32, 3)
    assert (found["global_batch_size"], found["epochs"]) == (16, 16)
    gpt = finetuning_recipe(GptConfig().to_dict(), 1000, True)  # it has a published rate
    assert "optimizer.learning_rate" not in gpt


@pytest.mark.parametrize(
    "rms, lowest, highest",
    [(0.033, 3e-4, 1e-3), (0.106, 1e-3, 3e-3), (0.288, 6e-3, 1.2e-2)],
)
def test_the_rate_rises_with_the_weights(rms, lowest, highest):
    """The best rates of three encoders of size 128 (docs/log/finetuning.md)."""
    model = BertConfig(hidden_size=128, num_heads=2).to_dict()
    params = {
        "bert/encoder/layer_0/output/kernel": np.array([[rms, -rms]]),
        "bert/embeddings/kernel": np.ones((2, 2)),
        "classifier/kernel": np.ones((2, 2)),
    }
    assert kernel_rms(params) == pytest.approx(rms)
    found = values(finetuning_recipe(model, 1000, True, rms=kernel_rms(params)))
    assert lowest <= found["optimizer.learning_rate"] <= highest


@pytest.mark.parametrize(
    "row, rms, lowest, highest",
    [("pair", 0.033, 1.5e-4, 5e-4), ("pair", 0.106, 4e-4, 1e-3), ("pair", 0.288, 1e-3, 3e-3),
     *(("question", rms, 9e-4, 1.2e-3) for rms in (0.033, 0.106, 0.288))],
)  # fmt: skip
def test_pairs_and_spans_have_lower_rates(row, rms, lowest, highest):
    """The best rates of the same three encoders; larger ones keep theirs."""
    model = BertConfig(hidden_size=128, num_heads=2).to_dict()
    found = values(finetuning_recipe(model, 1000, True, rms=rms, row=row))
    assert lowest <= found["optimizer.learning_rate"] <= highest
    base = BertConfig().to_dict()
    of_text, of_row = (finetuning_recipe(base, 1000, True, rms=rms, row=r) for r in ("text", row))
    assert of_text == of_row


def test_the_first_token_is_read_only_where_it_was_trained():
    with_pairs, without = (
        values(finetuning_recipe(BertConfig(next_sentence=has).to_dict(), 1000, True))
        for has in (True, False)
    )
    assert "task.pool" not in with_pairs
    assert (without["task.pool"], without["task.pooler"]) == ("mean", False)


@pytest.mark.parametrize(
    "lengths, limit, expected",
    [([10] * 100, 512, 128), ([10] * 99 + [400], 512, 128), ([10] * 98 + [140] * 2, 512, 192),
     ([900], 512, 512), ([900], 8192, 512), ([90], 64, 64), ([], 512, 128)],
)  # fmt: skip
def test_the_length_covers_nearly_all_texts(lengths, limit, expected):
    model = {"max_position_embeddings": limit}
    assert values(length_recipe(model, 128, lengths)) == {"max_length": expected}


def test_classes_are_skewed_above_four_fifths():
    assert skewed_recipe({"a": 80, "b": 20}) == skewed_recipe({"a": 1, "b": 1, "c": 1}) == {}
    found = values(skewed_recipe({"rare": 1, "most": 160, "ü": 10}))
    assert (found["task.weighting"], found["epochs"]) == ("logits", 19)  # 16 * 200 / 171
    assert values(skewed_recipe({"a": 950, "b": 50}))["epochs"] == 3
    assert values(skewed_recipe({"a": 3800, "b": 200}))["epochs"] == 2
    # 160^(3/4) = 4 * 10^(3/4), 16^(3/4) = 8.
    weights = parse_class_weights("task.class_weights", found["task.class_weights"])
    assert weights == {"rare": pytest.approx(44.987, abs=0.01), "most": 1, "ü": 8}
