"""Learning rates and lengths beside those that are known, for optimizers, sizes and kinds."""

import dataclasses
import importlib

import pytest

from bert_jax.config.run import parse
from bert_jax.optim.optimizers import OPTIMIZERS
from bert_jax.tools.doctor import known, recipe
from bert_jax.tools.doctor.trial import Trial
from tests.tools.doctor.conftest import bad, found


def make(name="base", argument=None, **changes):
    arguments = [argument] if argument else []
    config = parse(importlib.import_module(f"configs.{name}").get_config(*arguments))
    named = {field.replace("__", "."): value for field, value in changes.items()}
    config = config.replace(named)
    return config


@dataclasses.dataclass
class Opened:
    """The part of a Run that durations need."""

    config: object
    phases: tuple

    @property
    def steps(self):
        return self.phases[-1].last_step

    def evaluation_rows(self, phase):
        return ("rows",)


def trial(config, steps, rows=1_000_000):
    run = Opened(config, config.make_phases(steps))
    return Trial(run, (rows,) * len(run.phases), (1000,) * len(run.phases))  # pyright: ignore


CONFIGURATIONS = [
    *[(name, None) for name in ("base", "large", "medium", "small", "mini", "tiny")],
    *[("fast", size) for size in ("base", "mini", "tiny")],
    *[("gpt", size) for size in ("base", "tiny")],
    *[("elmo", size) for size in ("published", "small")],
    ("left_to_right", None),
]


@pytest.mark.parametrize("name, argument", CONFIGURATIONS)
def test_the_packages_own_configurations_are_known_to_work(name, argument):
    config = make(name, argument)
    steps = config.steps if not config.epochs else 100_000
    findings = [*recipe.check_rate(config), *recipe.check_warmup(config, trial(config, steps))]
    findings += recipe.check_batch(config, trial(config, steps, 10**8))
    assert bad(findings) == []


@pytest.mark.parametrize(
    "name, argument",
    [
        ("classification", None),
        ("ner", "conll2003"),
        ("ner", "wikigold"),
        ("squad", "v1"),
        ("swag", None),
    ],
)
def test_fine_tuning_of_the_package_is_known_to_work(name, argument):
    for hidden in (384, 768):
        config = make(name, argument, init_from="BERT", model__hidden_size=hidden)
        findings = [*recipe.check_rate(config), *recipe.check_warmup(config, trial(config, 1000))]
        findings += recipe.check_batch(config, trial(config, 1000))
        findings += recipe.check_length(
            config, trial(config, 3 * 1000, 1000 * config.global_batch_size)
        )
        assert bad(findings) == []


def test_every_optimizer_has_a_family():
    assert known.FAMILIES.keys() == OPTIMIZERS.keys()


@pytest.mark.parametrize(
    "changes, level",
    [
        ({"optimizer__learning_rate": 0.0}, "problem"),
        ({"optimizer__learning_rate": 1e-2}, "problem"),
        ({"optimizer__learning_rate": 2e-3}, "warning"),
        ({"optimizer__learning_rate": 6e-4}, "ok"),
        ({"optimizer__learning_rate": 1e-6}, "warning"),
        # pre-norm takes more than post-norm, small models more than large ones
        ({"optimizer__learning_rate": 2e-3, "model__norm_place": "pre"}, "ok"),
        ({"optimizer__learning_rate": 2e-3, "model__hidden_size": 384}, "ok"),
        ({"optimizer__learning_rate": 5e-3, "model__hidden_size": 384}, "warning"),
        # continued: less
        ({"optimizer__learning_rate": 2e-5, "init_from": "X"}, "ok"),
        ({"optimizer__learning_rate": 2e-5}, "warning"),
        # LAMB's goes with the square root of the batch: 6.25e-4 at 512
        (
            {"optimizer__name": "lamb", "optimizer__learning_rate": 6e-4, "global_batch_size": 512},
            "ok",
        ),
        (
            {
                "optimizer__name": "lamb",
                "optimizer__learning_rate": 6e-4,
                "global_batch_size": 32768,
            },
            "warning",
        ),
        (
            {
                "optimizer__name": "lamb",
                "optimizer__learning_rate": 5e-3,
                "global_batch_size": 32768,
            },
            "ok",
        ),
        ({"optimizer__name": "muon", "optimizer__learning_rate": 5e-4}, "ok"),
        ({"optimizer__name": "muon", "optimizer__learning_rate": 0.2}, "problem"),
        ({"optimizer__name": "adagrad", "optimizer__learning_rate": 0.2}, "ok"),
        ({"optimizer__name": "adagrad", "optimizer__learning_rate": 1e-4}, "warning"),
    ],
)
def test_learning_rates_of_pretraining(changes, level):
    (finding,) = recipe.check_rate(make("base", **changes))
    assert finding.level == level, finding.what
    assert f"config.optimizer.learning_rate={changes['optimizer__learning_rate']:g}" in finding.what


@pytest.mark.parametrize(
    "changes, level",
    [
        ({"optimizer__learning_rate": 1e-3}, "warning"),
        ({"optimizer__learning_rate": 5e-3}, "problem"),
        ({"optimizer__learning_rate": 5e-5}, "ok"),
        ({"optimizer__learning_rate": 3e-4, "model__hidden_size": 384}, "ok"),
        ({"optimizer__learning_rate": 1e-3, "optimizer__frozen_layers": -1}, "ok"),
        ({"optimizer__learning_rate": 2e-5, "optimizer__frozen_layers": -1}, "warning"),
        ({"optimizer__learning_rate": 0.1, "optimizer__name": "adagrad"}, "note"),
        ({"optimizer__learning_rate": 1e-3, "init_from": "", "model__hidden_size": 384}, "ok"),
    ],
)
def test_learning_rates_of_finetuning(changes, level):
    (finding,) = recipe.check_rate(make("classification", **{"init_from": "BERT"} | changes))
    assert finding.level == level, finding.what


def test_a_fix_is_inside_of_the_range():
    for rate in (1e-7, 1.0):
        (finding,) = recipe.check_rate(make("base", optimizer__learning_rate=rate))
        value = float(finding.fix.removeprefix("--config.optimizer.learning_rate="))
        assert (
            list(recipe.check_rate(make("base", optimizer__learning_rate=value)))[0].level == "ok"
        )


@pytest.mark.parametrize(
    "warmup, steps, level, text",
    [
        ("10000", 4000, "problem", "10,000 of 4,000 updates: the learning rate never reaches"),
        ("10000", 20_000, "warning", "(50%) is long"),
        ("10000", 1_000_000, "ok", "(1.0%)"),
        ("0", 4000, "warning", "a warm-up keeps them small"),
        ("0", 10, "note", "is a try"),
    ],
)
def test_warmups(warmup, steps, level, text):
    config = make("base", optimizer__warmup=warmup)
    found(recipe.check_warmup(config, trial(config, steps)), level, text)


def test_adagrad_and_fine_tuning_need_no_warmup():
    for config in (make("elmo"), make("classification", init_from="B", optimizer__warmup="0")):
        assert bad(recipe.check_warmup(config, trial(config, 4000))) == []


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"global_batch_size": 16_384}, "16,384 sequences are large"),
        ({"global_batch_size": 4}, "4 sequences are small"),
    ],
)
def test_batches(changes, text):
    config = make("base", **changes)
    assert (
        "global_batch_size"
        in found(recipe.check_batch(config, trial(config, 1000)), "warning", text).fix
    )


def test_lamb_takes_large_batches_and_fine_tuning_small_ones():
    config = make("base", optimizer__name="lamb", global_batch_size=32_768)
    assert bad(recipe.check_batch(config, trial(config, 1000))) == []
    config = make("classification", init_from="B", global_batch_size=512)
    found(recipe.check_batch(config, trial(config, 1000)), "warning", "are large")


def test_a_corpus_that_is_smaller_than_a_batch():
    config = make("base")
    findings = recipe.check_batch(config, trial(config, 1000, rows=100))
    found(findings, "warning", "An epoch has 100 sequences, fewer than a batch")


@pytest.mark.parametrize(
    "rows, level, text",
    [
        (64_000_000, "ok", "4 epochs of the training data, in which each document is 10 times"),
        (640_000, "warning", "will know them by heart"),
        (10**10, "note", "a part of the text is not read"),
    ],
)
def test_epochs_of_a_corpus(rows, level, text):
    config = make("base")
    found(recipe.check_length(config, trial(config, 1_000_000, rows)), level, text)


@pytest.mark.parametrize("steps, level", [(3000, "ok"), (1000, "note"), (60_000, "warning")])
def test_epochs_of_labelled_files(steps, level):
    config = make("classification", init_from="B")
    findings = recipe.check_length(config, trial(config, steps, 32_000))
    found(findings, level, f"{steps:,} updates are {steps / 1000:.3g} epochs")


def test_one_checkpoint_for_a_long_run():
    config = make("base", checkpoint__every="0")
    findings = recipe.check_rhythm(config, trial(config, 100_000))
    assert "checkpoint.every=5%" in found(findings, "warning", "all is lost").fix


def test_the_best_checkpoint_needs_evaluations():
    config = make("base", checkpoint__use="best")
    opened = trial(config, 100_000)
    opened.run.evaluation_rows = lambda _: ()  # pyright: ignore
    found(recipe.check_rhythm(config, opened), "problem", "the run never evaluates")


def test_times_of_evaluations_are_those_of_training():
    """Of phases of 900 and 100 updates, every 300: 300, 600, 900; and 1,000, the last."""
    config = make("base", eval__every="300", checkpoint__every="250")
    opened = trial(config, 1000)
    assert [opened.evaluations(phase) for phase in opened.run.phases] == [3, 1]
    assert opened.checkpoints() == 4


def test_small_sets_and_adam_without_bias_correction():
    config = make("classification", init_from="B")
    opened = trial(config, 1000)

    class Rows:
        examples = ("example",) * 500

    opened.run.training_rows = lambda _: Rows  # pyright: ignore
    assert "adamw" in found(recipe.check_small_set(config, opened), "note", "500 examples").fix
    config = config.replace({"optimizer.name": "adamw"})
    assert not list(recipe.check_small_set(config, opened))
