"""Statistics of heads against loops over tokens."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from bert_jax.inference import head_statistics
from bert_jax.models import make_encoder
from bert_jax.scores.attention import STATISTICS
from tests import tiny

TEXTS = ["the list is returned .", "naive", "unaffable list , the list is naive returned ."]


@dataclasses.dataclass(frozen=True)
class Specials:
    """The special ids of a tokenizer; GPT's ends rows with another one than it separates by."""

    cls_id: int = 2
    sep_id: int = 3
    end_id: int = 4


def slowly(config, attention, batch, specials=(2, 3)):
    """{statistic: float[layers, heads]}, each mean over the tokens of all rows that attend."""
    values = {name: [] for name in STATISTICS}
    ids, places, examples = (batch[n] for n in ("input_ids", "position_ids", "example_ids"))
    for layer, probs in enumerate(attention):
        for head in range(config.num_heads):
            of_tokens = {name: [] for name in STATISTICS}
            for row, i in np.ndindex(ids.shape):
                if examples[row, i] == 0 or ids[row, i] in specials:
                    continue
                p = probs[row, head, i].astype(np.float64)
                own = [j for j in range(len(p)) if examples[row, j] == examples[row, i]]
                away = {j: int(places[row, j]) - int(places[row, i]) for j in own}
                seen = own
                if config.attention_pattern == "causal":
                    seen = [j for j in own if away[j] <= 0]
                elif config.attention_pattern == "window" and not config.is_global(layer):
                    seen = [j for j in own if abs(away[j]) <= config.attention_window]
                assert sum(p[j] for j in seen) == pytest.approx(1, abs=1e-5)
                entropy = -sum(p[j] * math.log(p[j]) for j in seen if p[j])
                of_tokens["entropy"].append(entropy)
                of_tokens["evenness"].append(entropy / math.log(max(len(seen), 2)))
                of_tokens["distance"].append(sum(p[j] * abs(away[j]) for j in own))
                of_tokens["separator"].append(sum(p[j] for j in own if ids[row, j] in specials[1:]))
                of_tokens["first"].append(sum(p[j] for j in own if places[row, j] == 0))
                for name, offset in (("previous", -1), ("self", 0), ("next", 1)):
                    of_tokens[name].append(sum(p[j] for j in own if away[j] == offset))
            for name, found in of_tokens.items():
                values[name].append(np.mean(found))
    return {name: np.reshape(v, (-1, config.num_heads)) for name, v in values.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_pattern": "causal"},
        {"attention_pattern": "window", "attention_window": 2, "global_every": 2, "num_layers": 3},
    ],
    ids=["bidirectional", "causal", "window"],
)
def test_statistics_are_those_of_a_loop(changes):
    """Rows of several examples, with padding; weights that make attention uneven."""
    config = tiny.make_model(initializer_range=0.5, **changes)
    batch = tiny.make_batch(3)
    # The second row has two examples.
    cut = 6
    batch["example_ids"][1, cut:] *= 2
    batch["position_ids"][1, cut:] = np.maximum(batch["position_ids"][1, cut:] - cut, 0)
    encoder = make_encoder(config)
    params = encoder.init(jax.random.key(0), batch, deterministic=True)["params"]

    @jax.jit
    def forward(params):
        encoded = encoder.apply({"params": params}, batch, deterministic=True, keep_attention=True)
        sums = head_statistics.sum_heads(config, Specials(), encoded.attention, batch)
        return encoded.attention, sums

    attention, found = jax.tree.map(np.asarray, forward(params))
    means = head_statistics.mean_statistics(found["sums"].sum(0), found["attending"].sum(), "It")
    assert means.shape == (len(STATISTICS), config.num_layers, config.num_heads)
    for (name, want), values in zip(
        slowly(config, attention, batch, (2, 3, 4)).items(), means, strict=True
    ):
        np.testing.assert_allclose(values, want, atol=2e-5, rtol=0, err_msg=name)
        assert want.std() > 1e-4 or (name == "next" and config.is_causal), name
