"""Phases, and durations in every unit."""

import dataclasses
import math

import pytest

from bert_jax.config.phases import (
    Pace,
    Phase,
    duration_steps,
    max_masks,
    parse_duration,
    points,
)

PHASE = Phase(
    sequence_length=128,
    batch_size=32,
    max_predictions_per_seq=19,
    share=1.0,
    first_step=0,
    last_step=1000,
)


# --------------------------------------------------------------------------------- durations


@pytest.mark.parametrize(
    "text, steps",
    [
        ("100", 100),
        ("1_000", 1000),
        ("1e3 steps", 1000),
        ("1 step", 1),
        ("2 epochs", 2 * 640 / 32),
        ("0.5 epoch", 10),
        ("320 examples", 10),
        ("1.28e4 tokens", 3),  # 3.125 steps of 32 x 128 tokens
        ("6.4e3 words", 20),  # 640 rows of 10 words
        ("10%", 100),
        (" 1 % ", 10),
        ("1 token", 1),  # never less than one step
        ("0", 0),
        ("0%", 0),
    ],
)
def test_a_duration_in_any_unit(text, steps, make_config):
    config = make_config(**{"eval.every": text})
    assert duration_steps(config.eval.every, Pace(PHASE, 640, 6400), 1000) == steps


def test_words_that_are_not_counted(make_config):
    with pytest.raises(ValueError, match="needs a count of the words of the text, which labelled"):
        duration_steps("5 words", Pace(PHASE, 640), 1000)


def test_durations_across_phases_of_different_batches():
    """10 steps of 32 rows and 10 of 8 rows; an epoch is 80 rows of 5 words, then 40 of 10."""
    phases = [
        dataclasses.replace(PHASE, last_step=10),
        dataclasses.replace(PHASE, batch_size=8, first_step=10, last_step=20),
    ]
    paces = [Pace(phases[0], 80, 400), Pace(phases[1], 40, 400)]
    texts = ["480 words", "1600 words", "1601 words", "2000 words", "2400 words", "2500 words"]
    texts += ["336 examples", "5 epochs", "25%", "1 word", "21 steps"]
    assert points(texts, paces, 20) == {
        1: ("1 word",),
        3: ("480 words",),
        5: ("25%",),
        10: ("1600 words", "1601 words"),
        12: ("336 examples",),
        15: ("2000 words", "5 epochs"),
        20: ("2400 words",),
    }


@pytest.mark.parametrize("texts", [("0 words",), ("1 word", "1 year"), (("1 word",),)])
def test_milestones_that_are_not_points_of_a_run(texts, make_config):
    with pytest.raises(
        ValueError, match=r"config\.checkpoint\.milestones.* not a (duration|point)"
    ):
        make_config(**{"checkpoint.milestones": texts})


@pytest.mark.parametrize("text", ["", "-1", "1.2.3", "1e999", "1 year", "1 epochs 2"])
def test_malformed_durations(text, make_config):
    message = r"config\.log\.every=.* is not a duration: use for example 100 \(steps\)"
    with pytest.raises(ValueError, match=message):
        parse_duration("config.log.every", text)
    with pytest.raises(ValueError, match=message):
        make_config(**{"log.every": text})


@pytest.mark.parametrize(
    "length, steps",
    [
        ({"steps": 7}, 7),
        ({"epochs": 2.0}, 20),  # 0.5 * 16/160 + 0.5 * 8/80 of an epoch a step
        ({"examples": 1200}, 100),  # 12 examples a step
        ({"tokens": 64000}, 100),  # 0.5 * 16 * 32 + 0.5 * 8 * 96 = 640 a step
        ({"tokens": 64001}, 101),
        ({"examples": 1}, 1),
    ],
)
def test_the_length_of_training_in_any_unit(length, steps, make_config):
    config = make_config(phases=((32, 0.5, 16), (96, 0.5, 8)), **length)
    assert config.total_steps((160, 80)) == steps


def test_whole_epochs_are_whole_batches(make_config):
    config = make_config(phases=((32, 1.0, 16),), epochs=3.0)
    for batches in range(1, 1000):
        assert config.total_steps((16 * batches,)) == 3 * batches


# --------------------------------------------------------------------------------- phases


def test_the_phases_of_the_paper(make_config):
    first, second = make_config().make_phases(1_000_000)
    assert dataclasses.astuple(first) == (128, 256, 19, 0.9, 0, 900_000, 0, "")
    assert dataclasses.astuple(second) == (512, 256, 77, 0.1, 900_000, 1_000_000, 900_000, "")


def test_a_phase_has_its_own_batch_size_and_predictions(make_config):
    config = make_config(phases=((128, 0.5), (256, 0.3, 64), (512, 0.2, 32, 80)))
    found = [(p.batch_size, p.max_predictions_per_seq) for p in config.make_phases(10)]
    assert found == [(256, 19), (64, 38), (32, 80)]
    config = config.replace({"data.max_predictions_per_seq": 20})
    numbers = [p.max_predictions_per_seq for p in config.make_phases(10)]
    assert numbers == [20, 20, 80]


def test_the_name_of_a_task_ends_a_phase(make_config):
    config = make_config(
        phases=((128, 0.5, "causal_lm"), (256, 0.3, 64, "causal_lm"), (512, 0.2, 32, 80)), **SINGLE
    )
    found = [(p.batch_size, p.max_predictions_per_seq, p.task) for p in config.make_phases(10)]
    assert found == [(256, 19, "causal_lm"), (64, 38, "causal_lm"), (32, 80, "")]
    config = make_config(phases=((64, 0.5, 8, "causal_lm"), (64, 0.5)), **STAGES | SINGLE)
    found = [(p.first_step, p.task) for p in config.make_phases(12)]
    assert found == [(0, "causal_lm"), (4, "causal_lm"), (6, ""), (8, "")]


# A phase on next tokens is for models without other heads.
SINGLE = {"model.next_sentence": False}
STAGES = {
    "data.mask_rounding": "row",
    "data.masked_lm_prob": 0.3,
    "data.final_masked_lm_prob": 0.15,
    "data.mask_stages": 3,
}


def test_stages_of_the_masking_rate_are_phases_that_go_on_with_the_rows(make_config):
    """Thirds of the run with the mean rates 27.5, 22.5 and 17.5 %."""
    config = make_config(phases=((64, 1.0),), **STAGES)
    found = [(p.max_predictions_per_seq, p.first_step, p.data_step) for p in config.make_phases(9)]
    assert found == [(18, 0, 0), (14, 3, 0), (11, 6, 0)]
    config = make_config(phases=((128, 0.5), (512, 0.25), (64, 0.25)), **STAGES)
    found = [
        (p.sequence_length, p.max_predictions_per_seq, p.first_step, p.last_step, p.data_step)
        for p in config.make_phases(120)
    ]
    assert found == [
        (128, 35, 0, 40, 0),
        (128, 29, 40, 60, 0),
        (512, 115, 60, 80, 60),
        (512, 90, 80, 90, 60),
        (64, 11, 90, 120, 90),
    ]
    assert config.optimizer.phase_shares == (0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    "shares, stages", [((1.0,), 2), ((0.9, 0.1), 7), ((1 / 3, 1 / 3, 1 / 3), 3), ((0.1,) * 10, 3)]
)
def test_stages_follow_one_another_without_a_gap(shares, stages, make_config):
    entries = tuple((32, share) for share in shares)
    config = make_config(phases=entries, **{**STAGES, "data.mask_stages": stages})
    for steps in (1, 10, 997):
        phases = config.make_phases(steps)
        bounds = [p.first_step for p in phases] + [phases[-1].last_step]
        assert bounds[1:] == [p.last_step for p in phases]
        assert (bounds[0], bounds[-1]) == (0, steps) and bounds == sorted(bounds)
        assert math.isclose(sum(p.share for p in phases), 1)


@pytest.mark.parametrize(
    "phases, message",
    [
        ((), "is not a tuple of .sequence length, fraction"),
        ((128,), "is not a tuple of .sequence length, fraction"),
        (((128, 1.0, 8, 8, 8),), "is not a tuple of .sequence length, fraction"),
        (((128, "causal_lm", 1.0),), "is not a tuple of .sequence length, fraction"),
        (((1.5, 1.0),), "is not a tuple of .sequence length, fraction"),
        (((128, 1.0, -8),), "is not a tuple of .sequence length, fraction"),
        (((128, 0.5), (128, 0.4)), "has fractions of the steps that add up to"),
        (((128, 1.5), (128, -0.5)), "has fractions of the steps that add up to"),
    ],
)
def test_malformed_phases(phases, message, make_config):
    with pytest.raises(ValueError, match=message):
        make_config(phases=phases)
    with pytest.raises(ValueError, match="has numbers of predictions, which .*mask_rounding='row'"):
        make_config(phases=((64, 1.0, 8, 20),), **STAGES)


@pytest.mark.parametrize(
    "rounding, at_128, at_512, at_8",
    [
        ("half_even", 19, 77, 1),
        ("stochastic", 20, 77, 2),
        ("bernoulli", 44, 126, 8),
        ("row", 19, 77, 1),
    ],
)
def test_slots_for_the_max_masks(rounding, at_128, at_512, at_8, make_config):
    config = make_config(**{"data.mask_rounding": rounding, "phases": ((128, 0.9), (512, 0.1))})
    found = [p.max_predictions_per_seq for p in config.make_phases(10)]
    assert found == [at_128, at_512]
    assert max_masks(8, 0.15, rounding) == at_8


@pytest.mark.parametrize("length", [8, 128, 512])
def test_of_ten_million_rows_of_coins_not_one_overflows(length):
    slots = max_masks(length, 0.15, "bernoulli")
    beyond = sum(
        math.comb(length, n) * 0.15**n * 0.85 ** (length - n) for n in range(slots + 1, length + 1)
    )
    assert beyond < 1e-7


def test_labelled_examples_have_no_predictions(make_labelled):
    (phase,) = make_labelled().make_phases(10)
    assert dataclasses.astuple(phase) == (128, 32, 0, 1.0, 0, 10, 0, "")
