"""The verdict on good metrics of a corpus and on each kind of bad ones."""

import pytest

from bert_jax.tools.listeners.verdicts import corpus_verdict

GOOD = {"masked_lm_loss": 3.0, "masked_lm_accuracy": 0.4, "next_sentence_accuracy": 0.8}
NEXT = {"loss": 3.0, "causal_lm_accuracy": 0.4}
NAN = float("nan")


def lines_of(values, rows=1000, unknown=0.001):
    statistics = {
        "rows": rows,
        "unigram_entropy": 6.5,
        "most_frequent_token": {"id": 9, "piece": "the", "share": 0.05},
        "random_next_share": 0.48,
        "unknown_token_share": unknown,
    }
    return corpus_verdict(values, statistics, statistics)


@pytest.mark.parametrize(
    "values, lines",
    [
        (
            GOOD,
            [
                "  MLM loss              3.000 nats   unigram entropy      6.500",
                "  MLM accuracy           40.0%       always 'the'         5.0%",
                "  NSP accuracy           80.0%       majority class       52.0%",
            ],
        ),
        (
            NEXT,
            [
                "  next-token loss       3.000 nats   unigram entropy      6.500",
                "  next-token accuracy    40.0%       always 'the'         5.0%",
            ],
        ),
        ({"loss": 3.0}, ["  next-token loss       3.000 nats   unigram entropy      6.500"]),
    ],
)
def test_good_metrics_are_compared_with_simple_baselines(values, lines):
    assert lines_of(values) == [*lines, "health: good, it has learned from context."]


@pytest.mark.parametrize(
    "values, advice",
    [
        (GOOD | {"masked_lm_loss": 6.6}, "The MLM loss is no better than knowing how frequent"),
        (GOOD | {"masked_lm_loss": NAN}, "The MLM loss is no better than knowing how frequent"),
        (GOOD | {"masked_lm_accuracy": 0.05}, "No better than always predicting the most frequent"),
        (GOOD | {"next_sentence_accuracy": 0.52}, "Next-sentence accuracy is at chance"),
        # 0.55 is less than three standard errors (1.6 % each, of 1,000 pairs) above 0.52.
        (GOOD | {"next_sentence_accuracy": 0.55}, "Next-sentence accuracy is at chance"),
        (NEXT | {"loss": 6.5}, "The loss is no better than knowing how frequent each token is"),
        (NEXT | {"loss": NAN}, "The loss is no better than knowing how frequent each token is"),
        (NEXT | {"causal_lm_accuracy": 0.05}, "No better than always predicting the most frequent"),
    ],
)
def test_bad_metrics_give_advice(values, advice):
    assert lines_of(values)[-1].startswith(f"health: {advice}")


def test_without_next_sentence_prediction_pairs_are_left_out():
    *lines, last = lines_of({"masked_lm_loss": 6.6, "masked_lm_accuracy": 0.4})
    assert len(lines) == 2 and "Next-sentence" not in last


def test_enough_pairs_make_a_small_difference_count():
    assert "good" in lines_of(GOOD | {"next_sentence_accuracy": 0.55}, rows=100_000)[-1]


@pytest.mark.parametrize("values", [GOOD, NEXT])
def test_unknown_tokens_are_reported(values):
    assert "health: 10.0% of the tokens are unknown" in lines_of(values, unknown=0.1)[-1]
