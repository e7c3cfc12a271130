"""Presets: the fields they set, and the numbers that each of them then really computes."""

import dataclasses
import json
import pathlib
import sys
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from bert_jax.config import presets
from bert_jax.config import settings as config_lib
from bert_jax.config.phases import make_phases
from bert_jax.config.presets import PRESETS
from bert_jax.config.settings import value_of
from bert_jax.corpus.manifest import Manifest
from bert_jax.inference.masked_words import predict
from bert_jax.models.bert import attention_bias
from bert_jax.models.layers import activate, layer_norm
from bert_jax.tasks import masking
from bert_jax.training import evaluate as evaluate_lib
from bert_jax.training import metrics
from bert_jax.training.experiment import make_model_config
from bert_jax.training.pretraining import PretrainingExperiment
from bert_jax.training.state import init_params
from bert_jax.training.train import train

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY))  # for configs

CLS, SEP, MASK, VOCAB = 2, 3, 4, 1000


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a program, written down apart from the table of presets."""

    gelu_is_exact: bool = True
    layer_norm_epsilon: float = 1e-12
    mask_value: float = -10_000.0
    next_sentence: bool = True
    segments: str = "pairs"
    static: bool = True
    counts_masks: str = "half_even"
    corrects_bias: bool = False
    beta2: float = 0.999
    epsilon: float = 1e-6
    clips: bool = True
    bias_decays: bool = False
    line_starts_at_zero: bool = True


GOOGLE = Facts()
HUGGING_FACE = Facts(
    mask_value=-3.4028234663852886e38,
    next_sentence=False,
    segments="full_sentences",
    static=False,
    counts_masks="bernoulli",
    corrects_bias=True,
    epsilon=1e-8,
    line_starts_at_zero=False,
)
FACTS = {
    "paper": dataclasses.replace(GOOGLE, static=False),
    "google_2018": GOOGLE,
    "google_2019": dataclasses.replace(GOOGLE, gelu_is_exact=False),
    "hf": HUGGING_FACE,
    "roberta": dataclasses.replace(
        HUGGING_FACE,
        layer_norm_epsilon=1e-5,
        counts_masks="stochastic",
        beta2=0.98,
        epsilon=1e-6,
        clips=False,
        bias_decays=True,
    ),
}
of_each_preset = pytest.mark.parametrize("name, facts", FACTS.items(), ids=FACTS)


def make_config(preset: str = "", explicit: tuple[str, ...] = (), **changes):
    from configs import base

    config = base.get_config()
    config.update_from_flattened_dict({"preset": preset, **changes})
    presets.apply(config, explicit)
    return config


def make_experiment(name: str, **changes) -> PretrainingExperiment:
    """A run of the preset on the paper's schedule; of data and vocabulary only sizes are asked."""
    small = {f"model.{size}": 16 for size in ("hidden_size", "intermediate_size")}
    small |= {"model.num_heads": 2, "model.num_layers": 1, "model.vocab_size": VOCAB}
    config = make_config(name, **small | {"phases": ((128, 1.0),)} | changes)
    tokenizer = SimpleNamespace(
        pieces=range(VOCAB),
        mask_id=MASK,
        cls_id=CLS,
        sep_id=SEP,
        is_continuation=np.zeros(VOCAB, bool),
    )
    return PretrainingExperiment(
        config=config,
        workdir="",
        mesh=cast(Any, None),
        manifest=cast(Any, SimpleNamespace(num_rows=lambda split, length: 10**6)),
        tokenizer=cast(Any, tokenizer),
        phases=make_phases(config, config.steps),
    )


# --------------------------------------------------------------------------------- the table


def test_every_preset_fixes_the_same_fields_and_passes_the_checks():
    base = dict(config_lib.fields(make_config()))
    for name, values in PRESETS.items():
        assert values.keys() == PRESETS["paper"].keys() <= base.keys()
        assert all(type(value) is type(base[field]) for field, value in values.items())
        config_lib.check(make_config(name))
    assert PRESETS.keys() == FACTS.keys()


def test_no_two_presets_are_the_same():
    assert len({str(values) for values in PRESETS.values()}) == len(PRESETS)


@of_each_preset
def test_a_preset_sets_its_fields_and_no_other(name, facts):
    config, base = make_config(name), make_config()
    assert config.model.next_sentence == facts.next_sentence
    assert config.data.segments == facts.segments
    assert config.data.mode == ("static" if facts.static else "dynamic")
    assert config.data.mask_rounding == facts.counts_masks
    others = dict(config_lib.fields(base)).keys() - PRESETS[name].keys() - {"preset"}
    assert all(value_of(config, field) == value_of(base, field) for field in others)


def test_without_a_preset_nothing_changes_and_nothing_is_said():
    config = make_config()
    assert config.model.activation == "gelu_tanh" and config.data.mode == "dynamic"
    assert presets.describe(config) == []


def test_the_default_differs_from_google_2019_in_when_masks_are_drawn_only():
    base = make_config()
    different = {f: v for f, v in PRESETS["google_2019"].items() if value_of(base, f) != v}
    assert different == {"data.mode": "static"}


def test_what_is_given_wins_and_is_said():
    changes = {"model.activation": "gelu_tanh", "optimizer.beta2": 0.98}
    config = make_config("roberta", tuple(changes), **changes)
    assert config.model.activation == "gelu_tanh"
    assert config.model.layer_norm_epsilon == 1e-5
    # beta2 was given too, but as the preset has it.
    assert presets.describe(config) == [
        "preset     roberta, but model.activation='gelu_tanh'",
    ]
    assert presets.describe(make_config("roberta")) == ["preset     roberta"]


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError) as error:
        make_config("xlnet")
    assert str(error.value) == (
        "Unknown preset 'xlnet'. Available: paper, google_2018, google_2019, hf, roberta."
    )


def test_the_table_in_the_readme_has_every_preset_and_field():
    text = (REPOSITORY / "README.md").read_text()
    section = text.partition("\n## Presets\n")[2].partition("\n## ")[0]
    table = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    (_, *names, _), _, *rows = [[cell.strip() for cell in row] for row in table]
    assert [name.strip("`") for name in names] == list(PRESETS)
    values = {row[0].strip("`"): row[1:-1] for row in rows}
    assert values.keys() == PRESETS["paper"].keys()
    for field, cells in values.items():
        assert cells == [in_words(preset[field]) for preset in PRESETS.values()]


def in_words(value) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "nothing"
    return f"{value:.5g}".replace("+", "") if isinstance(value, float) else str(value)


# --------------------------------------------------------------------------------- the model


@of_each_preset
def test_gelu(name, facts):
    config = make_model_config(make_config(name))
    x = np.linspace(-4, 4, 81)
    exact = x * (1 + erf(x / np.sqrt(2))) / 2
    by_tanh = x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    assert np.abs(exact - by_tanh).max() > 4e-4
    expected = exact if facts.gelu_is_exact else by_tanh
    np.testing.assert_allclose(activate(config, jnp.float32(x)), expected, atol=1e-6)


@of_each_preset
def test_layer_norm_of_values_so_small_that_epsilon_counts(name, facts):
    x = np.array([[1e-6, -1e-6, 3e-6, -3e-6]])
    expected = x / np.sqrt(x.var() + facts.layer_norm_epsilon)
    module = layer_norm(make_model_config(make_config(name)))
    found = module.apply({"params": {"scale": jnp.ones(4), "bias": jnp.zeros(4)}}, jnp.float32(x))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


@of_each_preset
def test_what_is_added_to_a_score_that_must_not_be_seen(name, facts):
    config = make_model_config(make_config(name))
    bias = np.asarray(attention_bias(jnp.array([[1, 1, 0]]), config.mask_value))[0, 0]
    assert bias[0].tolist() == [0, 0, facts.mask_value]
    # With float32 scores some 10,000 apart, -10000 is seen and the lowest number is not.
    seen = jax.nn.softmax(jnp.float32([-20_000.0, -20_000.0, 0.0]) + bias[0])[2]
    assert seen == (1.0 if facts.mask_value == -10_000.0 else 0.0)
    # Where nothing may be seen, all is equal, and finite.
    np.testing.assert_allclose(jax.nn.softmax(jnp.float32([3.0, -5.0, 0.0]) + bias[2]).sum(), 1)


@of_each_preset
def test_the_heads_and_the_losses(name, facts):
    experiment = make_experiment(name)
    task = experiment.task(experiment.phases[0])
    params = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    assert ("next_sentence" in params) == ("pooler" in params["bert"]) == facts.next_sentence
    terms = ("masked_lm_loss", "next_sentence_loss")
    assert task.loss_terms == (terms if facts.next_sentence else terms[:1])


# --------------------------------------------------------------------------------- the optimizer


@of_each_preset
def test_the_first_updates_of_a_parameter(name, facts):
    """Against the formulas, with the warm-up's rates 0, 1e-8 and 2e-8 times a billion."""
    experiment = make_experiment(name, **{"optimizer.learning_rate": 1e5})
    tx, _ = experiment.optimizer()
    path = {"kernel": 3e-6, "bias": 1e-6, "layer_norm": {"scale": 2e-6}}
    params = jax.tree.map(lambda _: jnp.full(1, 0.5), path)
    state, m, v = tx.init(params), 0.0, 0.0
    values = dict.fromkeys(("kernel", "bias", "scale"), 0.5)
    for step, factor in enumerate((1.0, -0.5, 2.0)):
        grads = jax.tree.map(lambda g, f=factor: jnp.full(1, f * g), path)
        updates, state = tx.update(grads, state, params)
        params = jax.tree.map(jnp.add, params, updates)
        rate = 1e5 * step / 10_000
        m = 0.9 * m + 0.1 * factor
        v = facts.beta2 * v + (1 - facts.beta2) * factor**2
        correct_m, correct_v = 1.0, 1.0
        if facts.corrects_bias:
            correct_m, correct_v = 1 - 0.9 ** (step + 1), 1 - facts.beta2 ** (step + 1)
        for leaf, size in (("kernel", 3e-6), ("bias", 1e-6), ("scale", 2e-6)):
            direction = m * size / correct_m / (np.sqrt(v / correct_v) * size + facts.epsilon)
            decay = 0.01 if leaf == "kernel" or facts.bias_decays else 0.0
            values[leaf] -= rate * (direction + decay * values[leaf])
    found = {"kernel": params["kernel"], "bias": params["bias"], **params["layer_norm"]}
    for leaf, value in values.items():
        assert float(found[leaf][0]) == pytest.approx(value, rel=1e-4), leaf


@of_each_preset
def test_a_large_gradient_is_clipped_or_not(name, facts):
    experiment = make_experiment(name)
    tx, _ = experiment.optimizer()
    params = {"kernel": jnp.zeros(4)}
    _, state = tx.update({"kernel": jnp.full(4, 50.0)}, tx.init(params), params)
    (mu,) = {
        float(leaf[0])
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if "mu" in jax.tree_util.keystr(path)
    }
    # The norm is 100; clipped to 1, each of the four is 0.5.
    assert mu == pytest.approx(0.1 * (0.5 if facts.clips else 50.0))


@of_each_preset
def test_the_learning_rate(name, facts):
    _, rate = make_experiment(name).optimizer()
    after_warmup = (9.9e-5, 5e-5) if facts.line_starts_at_zero else (1e-4, 1e-4 * 50 / 99)
    expected = [0, 9.999e-5, *after_warmup, 0, 0]
    found = [rate(step) for step in (0, 9_999, 10_000, 500_000, 1_000_000, 1_000_001)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# --------------------------------------------------------------------------------- the masks


@of_each_preset
def test_how_many_of_fifty_tokens_are_masked(name, facts):
    """7.5 of them: 8; or 7 and 8, as often; or any number, as coins fall for 47 words."""
    experiment = make_experiment(name)
    (phase,) = experiment.phases
    rows = 4000
    ids = np.full((rows, 128), 10, np.int32)
    ids[:, 0], ids[:, 20], ids[:, 49] = CLS, SEP, SEP
    is_token = np.tile(np.arange(128) < 50, (rows, 1)).astype(np.int32)
    batch = {"input_ids": ids * is_token, "example_ids": is_token}
    batch["cls_positions"] = np.zeros((rows, 1), np.int32)
    task = experiment.task(phase)
    if facts.static:  # the masks come with the data then
        assert task.transform(jax.random.key(0), batch) == batch
        return
    masked = jax.jit(masking.mask_batch, static_argnums=2)(jax.random.key(0), batch, task.rule)
    counts = np.asarray(masked["masked_lm_weights"].sum(1))
    if facts.counts_masks == "half_even":
        assert (counts == 8).all()
    elif facts.counts_masks == "stochastic":
        assert set(counts) == {7, 8}
        assert counts.mean() == pytest.approx(7.5, abs=0.04)
    else:
        assert counts.mean() == pytest.approx(47 * 0.15, abs=0.2)
        assert counts.var() == pytest.approx(47 * 0.15 * 0.85, rel=0.1)
    most = {"half_even": 19, "stochastic": 20, "bernoulli": 44}[facts.counts_masks]
    assert phase.max_predictions_per_seq == most


# --------------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    words = [a + b for a in ("ka", "lo", "mu", "ni") for b in ("s", "t", "r")]
    documents = (
        "\n".join(" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(6))
        for _ in range(40)
    )
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        # What these two choose is what the other runs of the tests have.
        pytest.param("paper", marks=pytest.mark.slow),
        pytest.param("google_2019", marks=pytest.mark.slow),
        "google_2018",
        "hf",
        "roberta",
    ],
)
def test_each_preset_prepares_trains_evaluates_and_answers(name, corpus, tmp_path, capsys):
    config = make_config(
        name,
        steps=4,
        phases=((32, 1.0),),
        global_batch_size=16,
        prng_impl="threefry2x32",
        **{
            "model.vocab_size": 17,
            "model.hidden_size": 16,
            "model.num_layers": 1,
            "model.num_heads": 2,
            "model.intermediate_size": 16,
            "model.max_position_embeddings": 32,
            "data.source": f"text:{corpus}/text.txt",
            "data.form": "sentences",
            "data.vocab": f"{corpus}/vocab.txt",
            "data.dupe_factor": 2,
            "data.validation_share": 0.2,
            "data.num_processes": 1,
            "log.every": "2",
        },
    )
    config_lib.check(config)
    workdir = str(tmp_path / "run")
    train(config, workdir)
    shown = capsys.readouterr().out
    assert f"preset     {name}\n" in shown
    assert ("next-sentence" in shown) == ("NSP loss" in shown) == FACTS[name].next_sentence

    *_, last = metrics.read_metrics(workdir)
    values = evaluate_lib.evaluate(config_lib.load(workdir), workdir)
    assert values == {key: last[key] for key in values}
    terms = [value for key, value in values.items() if key.endswith("_loss")]
    assert values["loss"] == pytest.approx(sum(terms))
    assert len(terms) == (2 if FACTS[name].next_sentence else 1)

    (tmp_path / "in.jsonl").write_text('{"text_a": "kas [MASK]", "text_b": "lot"}\n')
    predict(config, workdir, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), top_k=2)
    answer = json.loads((tmp_path / "out.jsonl").read_text())
    assert len(answer["masks"][0]["candidates"]) == 2
    assert (answer["next_sentence"] is not None) == FACTS[name].next_sentence

    rows = Manifest.load(f"{workdir}/data").rows("train", 32)
    batch = rows.read(np.arange(8))
    assert ("masked_lm_positions" in batch) == FACTS[name].static
    assert batch["next_sentence_weights"].any() == (FACTS[name].segments == "pairs")
