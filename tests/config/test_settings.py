"""Checks, phases, durations in every unit, and what may change when a run goes on."""

import dataclasses
import json
import math
import pathlib
import sys

import pytest

from bert_jax.config import settings as config_lib
from bert_jax.config.phases import Phase, duration_steps, make_phases, most_masks, total_steps

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))  # for configs

PHASE = Phase(
    sequence_length=128,
    batch_size=32,
    max_predictions_per_seq=19,
    share=1.0,
    first_step=0,
    last_step=1000,
)


@pytest.fixture
def make_config():
    """Returns a function that makes BERT-Base's configuration with other values."""
    from configs import base

    def make(**values):
        config = base.get_config()
        config.update_from_flattened_dict(values)
        return config

    return make


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
        ("10%", 100),
        (" 1 % ", 10),
        ("1 token", 1),  # never less than one step
        ("0", 0),
        ("0%", 0),
    ],
)
def test_a_duration_in_any_unit(text, steps, make_config):
    config = make_config(**{"eval.every": text})
    assert duration_steps(config.eval.every, "eval.every", PHASE, 640, 1000) == steps


@pytest.mark.parametrize("text", ["", "often", "-1", "1.2.3", ".", "1e999", "1 year", "1 epochs 2"])
def test_what_is_no_duration(text, make_config):
    with pytest.raises(ValueError, match=r"config\.log\.every=.* is no duration: give steps"):
        config_lib.check(make_config(**{"log.every": text}))


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
    assert total_steps(config, rows=(160, 80)) == steps


@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
def test_whole_epochs_are_whole_batches(epochs, make_config):
    config = make_config(phases=((32, 1.0, 16),), epochs=float(epochs))
    for batches in range(1, 1000):
        assert total_steps(config, rows=(16 * batches,)) == epochs * batches


# --------------------------------------------------------------------------------- phases


def test_the_phases_of_the_paper(make_config):
    first, second = make_phases(make_config(), steps=1_000_000)
    assert dataclasses.astuple(first) == (128, 256, 19, 0.9, 0, 900_000)
    assert dataclasses.astuple(second) == (512, 256, 77, 0.1, 900_000, 1_000_000)


def test_a_phase_has_its_own_batch_size_and_predictions(make_config):
    config = make_config(phases=((128, 0.5), (256, 0.3, 64), (512, 0.2, 32, 80)))
    found = [(p.batch_size, p.max_predictions_per_seq) for p in make_phases(config, steps=10)]
    assert found == [(256, 19), (64, 38), (32, 80)]
    config.data.max_predictions_per_seq = 20
    numbers = [p.max_predictions_per_seq for p in make_phases(config, steps=10)]
    assert numbers == [20, 20, 80]


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 17, 999_999])
def test_phases_follow_one_another_without_a_gap(steps, make_config):
    shares = (0.1, 0.2, 0.3, 0.15, 0.25)
    config = make_config(phases=tuple((32 * (i + 1), share) for i, share in enumerate(shares)))
    phases = make_phases(config, steps)
    bounds = [p.first_step for p in phases] + [phases[-1].last_step]
    assert bounds[1:] == [p.last_step for p in phases]
    assert (bounds[0], bounds[-1]) == (0, steps)
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(
    "phases",
    [
        (),
        (128,),
        ((128,),),
        ((128, 1.0, 8, 8, 8),),
        ((128, "1"),),
        ((1.5, 1.0),),
        ((128, 1.0, -8),),
    ],
)
def test_phases_of_another_form(phases, make_config):
    with pytest.raises(
        ValueError, match=r"is not a tuple of \(sequence length, share of the steps"
    ):
        make_phases(make_config(phases=phases), steps=10)


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.0, 1.0), (1.5, -0.5)])
def test_shares_must_add_up_to_one(shares, make_config):
    config = make_config(phases=tuple((128, share) for share in shares))
    with pytest.raises(ValueError, match="shares of the steps in config.phases add up to"):
        make_phases(config, steps=10)


# --------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    "values, message",
    [
        ({"steps": 0}, "config.steps=0 must be above 0."),
        ({"seed": -1}, "config.seed=-1 must be 0 or above."),
        ({"optimizer.learning_rate": float("nan")}, "learning_rate=nan is not a finite number."),
        ({"optimizer.epsilon": float("inf")}, "epsilon=inf is not a finite number."),
        ({"model.dropout_rate": 1.0}, "config.model.dropout_rate=1.0 must be below 1."),
        ({"mesh.data": 0}, "config.mesh.data=0 must be at least 1, or -1 for what is left."),
        ({"mesh.tensor": -2}, "config.mesh.tensor=-2 must be at least 1"),
        ({"dtype": "float16"}, "config.dtype='float16' is none of float32, bfloat16."),
        ({"prng_impl": "mt"}, "config.prng_impl='mt' is none of threefry2x32,"),
        ({"nonfinite": "hope"}, "config.nonfinite='hope' is none of abort, skip."),
        ({"model.activation": "relu"}, "config.model.activation='relu' is none of gelu, gelu_tanh"),
        ({"checkpoint.best_metric": "f1"}, "config.checkpoint.best_metric='f1' is none of loss,"),
        (
            {"epochs": 1.0, "tokens": 5},
            "The length of training is given twice: config.epochs and config.tokens.",
        ),
        ({"model.num_heads": 7}, "hidden_size=768 is not divisible by config.model.num_heads=7."),
        ({"model.type_vocab_size": 1}, "config.model.type_vocab_size=1 is too few"),
        ({"optimizer.no_decay": ("(",)}, "config.optimizer.no_decay=('(',) are no regular"),
        ({"phases": ((1024, 1.0),)}, "A sequence length of 1024 in config.phases is above"),
        ({"phases": ((4, 1.0),)}, "A sequence length of 4 in phases is too short"),
        (
            {"microbatch_size": 100},
            "batch size 256 is not divisible by config.microbatch_size=100.",
        ),
        ({"data.mode": "live"}, "data.mode='live' is none of dynamic, static."),
        ({"data.segments": "lines"}, "data.segments='lines' is none of pairs, full_sentences."),
        ({"data.mask_rounding": "up"}, "data.mask_rounding='up' is none of half_even, stochastic,"),
        ({"model.mask_value": 0.0}, "config.model.mask_value=0.0 must be below 0."),
        ({"model.mask_value": float("-inf")}, "config.model.mask_value=-inf is not a finite"),
        (
            {"data.segments": "full_sentences"},
            "config.model.next_sentence=True needs config.data.segments='pairs', not"
            " 'full_sentences'",
        ),
        (
            {"model.next_sentence": False, "checkpoint.best_metric": "next_sentence_loss"},
            "config.checkpoint.best_metric='next_sentence_loss' is not measured",
        ),
        (
            {"data.mode": "static", "phases": ((128, 0.5, 0, 20), (128, 0.5))},
            "config.phases has sequences of 128 tokens with 20 and with 19 predictions",
        ),
    ],
)
def test_a_value_that_no_run_can_use_is_named(values, message, make_config):
    with pytest.raises(ValueError) as error:
        config_lib.check(make_config(**values))
    assert message in str(error.value)


# --------------------------------------------------------------------------------- in the folder


def test_what_is_saved_is_loaded_tuples_included(make_config, tmp_path):
    config = make_config(phases=((64, 0.5, 8), (128, 0.5)), steps=3)
    config_lib.save(config, str(tmp_path))
    loaded = config_lib.load(str(tmp_path))
    assert loaded.to_dict() == config.to_dict()
    assert config_lib.differences(loaded, config) == []
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 3


def test_differences_name_what_decides_the_numbers(make_config):
    changes = {"seed": 1, "model.num_layers": 6}
    free = {
        "preset": "hf",  # only a name, as long as the fields that it sets are the same
        "log.every": "7",
        "eval.every": "7",
        "checkpoint.keep": 9,
        "mesh.fsdp": 2,
        "data.dir": "x",
    }
    assert config_lib.differences(make_config(), make_config(**changes, **free)) == [
        "model.num_layers: 12 -> 6",
        "seed: 0 -> 1",
    ]


def test_a_field_that_one_side_does_not_have_is_a_difference(make_config):
    old = make_config()
    with old.unlocked():
        del old["seed"]
    assert config_lib.differences(old, make_config()) == ["seed: 'missing' -> 0"]


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run: there is no config.json in it"):
        config_lib.load(str(tmp_path))


def test_data_are_made_for_each_sequence_length_once(make_config):
    config = make_config(phases=((128, 0.5, 0, 20), (64, 0.3), (128, 0.2, 8, 20)))
    data = config_lib.data_config(config)
    assert data.sequence_lengths == (64, 128)
    assert data.max_predictions_per_seq == (10, 20)
    assert data.vocab_size == config.model.vocab_size


def test_without_stored_masks_phases_of_one_length_may_differ_in_predictions(make_config):
    config = make_config(phases=((128, 0.5, 0, 20), (128, 0.5)))
    config_lib.check(config)
    assert [p.max_predictions_per_seq for p in make_phases(config, 10)] == [20, 19]


@pytest.mark.parametrize(
    "rounding, at_128, at_512, at_8",
    [("half_even", 19, 77, 1), ("stochastic", 20, 77, 2), ("bernoulli", 44, 126, 8)],
)
def test_slots_for_the_most_masks(rounding, at_128, at_512, at_8, make_config):
    config = make_config(**{"data.mask_rounding": rounding, "phases": ((128, 0.9), (512, 0.1))})
    found = [p.max_predictions_per_seq for p in make_phases(config, 10)]
    assert found == [at_128, at_512]
    assert most_masks(8, 0.15, rounding) == at_8


@pytest.mark.parametrize("length", [8, 24, 64, 128, 512])
def test_of_ten_million_rows_of_coins_not_one_overflows(length):
    slots = most_masks(length, 0.15, "bernoulli")
    beyond = sum(
        math.comb(length, n) * 0.15**n * 0.85 ** (length - n) for n in range(slots + 1, length + 1)
    )
    assert beyond < 1e-7


def test_data_stand_in_the_run_unless_told_otherwise(make_config):
    assert config_lib.data_dir(make_config(), "/run") == "/run/data"
    assert config_lib.data_dir(make_config(**{"data.dir": "/data"}), "/run") == "/data"
