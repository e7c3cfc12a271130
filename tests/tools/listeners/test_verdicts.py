"""The verdict on good metrics and on each kind of bad ones."""

import pytest

from bert_jax.tools.listeners import verdicts

GOOD = {"masked_lm_loss": 3.0, "masked_lm_accuracy": 0.4, "next_sentence_accuracy": 0.8}


def make_statistics(rows: int = 1000, unknown: float = 0.001) -> dict:
    return {
        "rows": rows,
        "unigram_entropy": 6.5,
        "most_frequent_token": {"id": 9, "piece": "the", "share": 0.05},
        "random_next_share": 0.48,
        "unknown_token_share": unknown,
    }


def lines_of(values, **changes) -> list[str]:
    statistics = make_statistics(**changes)
    return verdicts.pretraining_verdict(values, statistics, statistics)


def verdict(**values) -> str:
    return lines_of(GOOD | values)[-1]


def test_good_metrics_give_a_good_verdict():
    *yardsticks, last = lines_of(GOOD)
    assert last == "health: good, it has learned from context."
    loss, accuracy, pairs = (line.split() for line in yardsticks)
    assert "3.000" in loss and loss[-1] == "6.500"
    assert "40.0%" in accuracy and "'the'" in accuracy and accuracy[-1] == "5.0%"
    assert "80.0%" in pairs and pairs[-1] == "52.0%"


@pytest.mark.parametrize(
    "values, advice",
    [
        ({"masked_lm_loss": 6.6}, "no better than knowing how frequent each token is"),
        ({"masked_lm_loss": float("nan")}, "no better than knowing how frequent each token is"),
        ({"masked_lm_accuracy": 0.05}, "better than always predicting the most frequent token"),
        ({"next_sentence_accuracy": 0.52}, "Next-sentence accuracy is at chance"),
        # 0.55 is less than three standard errors (1.6 % each, of 1,000 pairs) above 0.52.
        ({"next_sentence_accuracy": 0.55}, "Next-sentence accuracy is at chance"),
    ],
)
def test_bad_metrics_give_advice(values, advice):
    assert advice in verdict(**values)
    assert "good" not in verdict(**values)


def test_without_next_sentence_prediction_pairs_are_left_out():
    values = {name: value for name, value in GOOD.items() if not name.startswith("next_sentence")}
    lines = lines_of(values)
    assert lines[-1] == "health: good, it has learned from context."
    assert len(lines) == 3 and "NSP" not in "".join(lines)
    values["masked_lm_loss"] = 6.6
    assert "Next-sentence" not in lines_of(values)[-1]


def test_enough_pairs_make_a_small_difference_count():
    values = GOOD | {"next_sentence_accuracy": 0.55}
    assert "good" in lines_of(values, rows=100_000)[-1]


def test_unknown_tokens_are_reported():
    last = lines_of(GOOD, unknown=0.1)[-1]
    assert "10.0% of the tokens are unknown" in last


@pytest.mark.parametrize(
    "loss, accuracy, unknown, verdict",
    [
        (3.0, 0.4, 0.0, "health: good, it has learned from context."),
        (3.0, None, 0.0, "health: good, it has learned from context."),
        (6.5, 0.4, 0.0, "health: The loss is no better than knowing how frequent each token is"),
        (float("nan"), 0.4, 0.0, "health: The loss is no better than knowing"),
        (3.0, 0.05, 0.0, "health: No better than always predicting the most frequent token yet"),
        (3.0, 0.4, 0.03, "health: 3.0% of the tokens are unknown"),
    ],
)
def test_the_verdict_on_next_tokens(loss, accuracy, unknown, verdict):
    statistics = make_statistics(unknown=unknown)
    *yardsticks, last = verdicts.next_token_verdict(loss, accuracy, statistics, statistics)
    assert last.startswith(verdict)
    assert f"{loss:.3f} nats" in yardsticks[0] and yardsticks[0].endswith(" 6.500")
    assert len(yardsticks) == (1 if accuracy is None else 2)
