"""Validation: every value that no run can use is named."""

import pytest

from bert_jax.config import checks, defaults


@pytest.mark.parametrize(
    "values, message",
    [
        ({"steps": 0}, "config.steps=0 must be above 0."),
        ({"seed": -1}, "config.seed=-1 must be 0 or above."),
        ({"optimizer.learning_rate": float("nan")}, "learning_rate=nan is not a finite number."),
        ({"optimizer.epsilon": float("inf")}, "epsilon=inf is not a finite number."),
        ({"model.dropout_rate": 1.0}, "config.model.dropout_rate=1.0 must be below 1."),
        (
            {"mesh.data": 0},
            "config.mesh.data=0 must be at least 1, or -1 for all remaining devices.",
        ),
        ({"mesh.tensor": -2}, "config.mesh.tensor=-2 must be at least 1"),
        (
            {"dtype": "float16"},
            "config.dtype='float16' is none of float32, bfloat16, bfloat16_products.",
        ),
        ({"prng_impl": "mt"}, "config.prng_impl='mt' is none of threefry2x32,"),
        ({"nonfinite": "hope"}, "config.nonfinite='hope' is none of abort, skip."),
        ({"model.activation": "relu"}, "config.model.activation='relu' is none of gelu_tanh, gelu"),
        ({"checkpoint.best_metric": "f1"}, "config.checkpoint.best_metric='f1' is none of loss,"),
        (
            {"epochs": 1.0, "tokens": 5},
            "The length of training is given twice: config.epochs and config.tokens.",
        ),
        ({"model.num_heads": 7}, "hidden_size=768 is not divisible by config.model.num_heads=7."),
        ({"model.type_vocab_size": 1}, "config.model.type_vocab_size=1 is too few"),
        ({"optimizer.no_decay": ("(",)}, "config.optimizer.no_decay=('(',) are no regular"),
        (
            {"optimizer.phase_schedules": ((1e-3, 0.1),)},
            "phase_schedules=((0.001, 0.1),) is not a pair of a",
        ),
        (
            {"optimizer.phase_schedules": ((1e-3, 0.1), (0.0, 0.1))},
            "for each of config.phases, such as",
        ),
        ({"optimizer.phase_schedules": (1e-3, 0.1)}, "phase_schedules=(0.001, 0.1) is not a pair"),
        ({"phases": ((1024, 1.0),)}, "A sequence length of 1024 in config.phases is above"),
        ({"phases": ((4, 1.0),)}, "A sequence length of 4 in phases is too short"),
        (
            {"microbatch_size": 100},
            "batch size 256 is not divisible by config.microbatch_size=100.",
        ),
        ({"data.mode": "live"}, "data.mode='live' is none of dynamic, static."),
        ({"data.segments": "lines"}, "data.segments='lines' is none of pairs, full_sentences,"),
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
def test_an_invalid_value_is_named(values, message, make_config):
    with pytest.raises(ValueError) as error:
        checks.check(make_config(**values))
    assert message in str(error.value)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"metrics": ()}, "config.metrics is empty: name a score, such as accuracy."),
        (
            {"checkpoint.best_metric": "f1"},
            "config.checkpoint.best_metric='f1' is none of loss, accuracy.",
        ),
        ({"data.batch_by": "words"}, "config.data.batch_by='words' is not rows or tokens."),
        (
            {"data.bucket_lengths": (64, 32)},
            "config.data.bucket_lengths=(64, 32) are not ascending, positive",
        ),
        (
            {"data.bucket_lengths": (0, 32)},
            "config.data.bucket_lengths=(0, 32) are not ascending, positive",
        ),
        ({"reinit_layers": 13}, "config.reinit_layers=13 is above config.model.num_layers=12."),
        ({"reinit_layers": -1}, "config.reinit_layers=-1 must be 0 or above."),
        ({"optimizer.frozen_layers": -2}, "must be at least 0, or -1 for all layers."),
        ({"head.n_best": 0}, "config.head.n_best=0 must be above 0."),
        ({"model.attention_window": -1}, "config.model.attention_window=-1 must be 0 or above."),
    ],
)
def test_an_invalid_value_of_fine_tuning_is_named(values, message, make_labelled):
    with pytest.raises(ValueError) as error:
        checks.check(make_labelled(**values))
    assert message in str(error.value)


@pytest.mark.parametrize("metric", ["loss", "surprise"])
def test_the_metrics_of_a_task_on_a_corpus_are_those_of_its_configuration(metric, make_config):
    config = make_config(**{"checkpoint.best_metric": metric})
    config.metrics = ("surprise", "delight")
    checks.check(config)
    config.checkpoint.best_metric = "masked_lm_loss"
    with pytest.raises(ValueError, match="'masked_lm_loss' is none of loss, surprise, delight"):
        checks.check(config)


def test_a_threshold_may_have_any_sign(make_labelled):
    for value in (-3.5, 0.0, 2.0):
        checks.check(make_labelled(**{"head.null_threshold": value}))


def test_a_task_needs_the_groups_of_its_data(make_config, make_labelled):
    with pytest.raises(ValueError) as error:
        checks.check_labelled(make_config(task="tagging"))
    assert str(error.value) == (
        "config.task='tagging' trains on labelled examples: use a configuration with config.head,"
        " such as configs/classification.py."
    )
    with pytest.raises(ValueError) as error:
        checks.check_corpus(make_labelled(task="pretraining"))
    assert str(error.value) == (
        "config.task='pretraining' trains on a corpus: use a configuration with"
        " config.data.source, such as configs/base.py."
    )


def test_the_kind_of_data_decides_what_is_validated_not_the_name_of_the_task(
    make_config, make_labelled
):
    checks.check(make_config(task="mine"))
    checks.check(make_labelled(task="mine"))
    for config in (defaults.tagging(), defaults.tagging("words"), defaults.span()):
        checks.check(config)
    checks.check(defaults.multiple_choice())
    with pytest.raises(ValueError, match="Unknown tags 'verbs'. Available: entities, words."):
        defaults.tagging("verbs")
