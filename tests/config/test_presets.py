"""Presets: the fields they set, and the numbers that each of them then really computes."""

import dataclasses
import json
import pathlib
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from bert_jax.config import defaults, presets, store
from bert_jax.config.presets import PRESETS
from bert_jax.data import init_from
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.models.layers.dense import activate
from bert_jax.models.layers.masks import attention_bias, can_attend
from bert_jax.models.layers.norm import layer_norm
from bert_jax.tasks import masking
from bert_jax.tasks.losses import loss_names
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training import evaluate as evaluate_lib
from bert_jax.training import metrics
from bert_jax.training.run import Run, make_run_task
from bert_jax.training.state import init_params
from bert_jax.training.train import train
from tests import tiny
from tests.inference.conftest import predict_file

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

CLS, SEP, MASK, VOCAB = 2, 3, 4, 1000


@dataclasses.dataclass(frozen=True)
class Known:
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


GOOGLE = Known()
HUGGING_FACE = Known(
    mask_value=-3.4028234663852886e38,
    next_sentence=False,
    segments="full_sentences",
    static=False,
    counts_masks="bernoulli",
    corrects_bias=True,
    epsilon=1e-8,
    line_starts_at_zero=False,
)
KNOWN = {
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
of_each_preset = pytest.mark.parametrize("name, known", KNOWN.items(), ids=KNOWN)


def make_config(preset: str = "", explicit: tuple[str, ...] = (), **changes):
    config = defaults.pretraining().to_config_dict()
    config.update_from_flattened_dict({"preset": preset, **changes})
    return init_from.resolve(config, explicit)


def make_run(name: str, **changes) -> Run:
    """A run of the preset on the paper's schedule; of data and vocabulary it has the sizes only."""
    small = {f"model.{size}": 16 for size in ("hidden_size", "intermediate_size")}
    small |= {"model.num_heads": 2, "model.num_layers": 1, "model.vocab_size": VOCAB}
    config = make_config(name, **small | {"phases": ((128, 1.0),)} | changes)
    tokenizer = SimpleNamespace(
        pieces=tuple(map(str, range(VOCAB))),
        mask_id=MASK,
        cls_id=CLS,
        sep_id=SEP,
        is_continuation=np.zeros(VOCAB, bool),
    )
    data = make_run_task(config)
    return Run(
        config=config,
        workdir="",
        mesh=cast(Any, None),
        tokenizer=cast(Any, tokenizer),
        vocabulary_path="",
        phases=config.make_phases(config.steps),
        task=data,
        training=(cast(Any, SimpleNamespace(rows_per_epoch=10**6)),),
        evaluation=((),),
        fingerprint="",
    )


# --------------------------------------------------------------------------------- the table


def test_every_preset_fixes_the_same_fields_and_passes_the_checks():
    base = make_config().fields()
    for values in PRESETS.values():
        assert values.keys() == PRESETS["paper"].keys() <= base.keys()
        assert all(type(value) is type(base[field]) for field, value in values.items())
    assert PRESETS.keys() == KNOWN.keys()


def test_no_two_presets_are_the_same():
    assert len({str(values) for values in PRESETS.values()}) == len(PRESETS)


@of_each_preset
def test_a_preset_sets_its_fields_and_no_other(name, known):
    config, base = make_config(name), make_config()
    assert config.model.next_sentence == known.next_sentence
    assert config.data.segments == known.segments
    assert config.data.mode == ("static" if known.static else "dynamic")
    assert config.data.mask_rounding == known.counts_masks
    others = base.fields().keys() - PRESETS[name].keys() - {"preset"}
    assert all(config[field] == base[field] for field in others)


def test_without_a_preset_nothing_changes_and_nothing_is_said():
    config = make_config()
    assert config.model.activation == "gelu_tanh" and config.data.mode == "dynamic"
    assert presets.describe(config) == []


def test_the_default_differs_from_google_2019_in_when_masks_are_drawn_only():
    base = make_config()
    different = {f: v for f, v in PRESETS["google_2019"].items() if base[f] != v}
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


def test_a_preset_is_refused_where_its_fields_do_not_exist():
    with pytest.raises(ValueError, match="sets config.model.mask_value, which this configuration"):
        init_from.resolve(defaults.bidirectional_lm().replace({"preset": "paper"}).to_dict(), ())


def test_the_table_in_the_documentation_has_every_preset_and_field():
    text = (REPOSITORY / "docs" / "presets.md").read_text()
    section = text.partition("\n## Values and their sources\n")[2].partition("\n## ")[0]
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
def test_gelu(name, known):
    config = make_config(name).model
    x = np.linspace(-4, 4, 81)
    exact = x * (1 + erf(x / np.sqrt(2))) / 2
    by_tanh = x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    assert np.abs(exact - by_tanh).max() > 4e-4
    expected = exact if known.gelu_is_exact else by_tanh
    np.testing.assert_allclose(activate(config, jnp.float32(x)), expected, atol=1e-6)


@of_each_preset
def test_layer_norm_of_values_so_small_that_epsilon_counts(name, known):
    x = np.array([[1e-6, -1e-6, 3e-6, -3e-6]])
    expected = x / np.sqrt(x.var() + known.layer_norm_epsilon)
    module = layer_norm(make_config(name).model)
    found = module.apply({"params": {"scale": jnp.ones(4), "bias": jnp.zeros(4)}}, jnp.float32(x))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


@of_each_preset
def test_what_is_added_to_a_score_that_must_not_be_seen(name, known):
    config = make_config(name).model
    visible = can_attend(jnp.array([[1, 1, 0]]), jnp.arange(3)[None], "bidirectional")
    bias = np.asarray(attention_bias(visible, config.mask_value))[0, 0]
    assert bias[0].tolist() == [0, 0, known.mask_value]
    # With float32 scores some 10,000 apart, -10000 is seen and the lowest number is not.
    seen = jax.nn.softmax(jnp.float32([-20_000.0, -20_000.0, 0.0]) + bias[0])[2]
    assert seen == (1.0 if known.mask_value == -10_000.0 else 0.0)
    # Where nothing may be seen, all is equal, and finite.
    np.testing.assert_allclose(jax.nn.softmax(jnp.float32([3.0, -5.0, 0.0]) + bias[2]).sum(), 1)


@of_each_preset
def test_the_heads_and_the_losses(name, known):
    run = make_run(name)
    task = run.task_at(run.phases[0])
    params = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    assert ("next_sentence" in params) == ("pooler" in params["bert"]) == known.next_sentence
    terms = ("masked_lm_loss", "next_sentence_loss")
    # Static masks come with the batch; others are drawn by `transform`, which replaces these.
    ids = np.zeros((2, 19), np.int32)
    masks = {"masked_lm_positions": ids, "masked_lm_ids": ids, "masked_lm_weights": ids * 1.0}
    batch = jax.eval_shape(task.transform, jax.random.key(0), tiny.make_batch(2, 128) | masks)
    outputs = jax.eval_shape(
        lambda params, batch: task.make_model().apply(
            {"params": params}, batch, deterministic=True
        ),
        params,
        batch,
    )
    sums = jax.eval_shape(task.losses, outputs, batch)
    assert loss_names(sums) == (terms if known.next_sentence else terms[:1])


# --------------------------------------------------------------------------------- the optimizer


@of_each_preset
def test_the_first_updates_of_a_parameter(name, known):
    """Against the formulas, with the warm-up's rates 0, 1e-8 and 2e-8 times a billion."""
    run = make_run(name, **{"optimizer.learning_rate": 1e5})
    tx, _ = run.optimizer()
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
        v = known.beta2 * v + (1 - known.beta2) * factor**2
        correct_m, correct_v = 1.0, 1.0
        if known.corrects_bias:
            correct_m, correct_v = 1 - 0.9 ** (step + 1), 1 - known.beta2 ** (step + 1)
        for leaf, size in (("kernel", 3e-6), ("bias", 1e-6), ("scale", 2e-6)):
            direction = m * size / correct_m / (np.sqrt(v / correct_v) * size + known.epsilon)
            decay = 0.01 if leaf == "kernel" or known.bias_decays else 0.0
            values[leaf] -= rate * (direction + decay * values[leaf])
    found = {"kernel": params["kernel"], "bias": params["bias"], **params["layer_norm"]}
    for leaf, value in values.items():
        assert float(found[leaf][0]) == pytest.approx(value, rel=1e-4), leaf


@of_each_preset
def test_a_large_gradient_is_clipped_or_not(name, known):
    run = make_run(name)
    tx, _ = run.optimizer()
    params = {"kernel": jnp.zeros(4)}
    _, state = tx.update({"kernel": jnp.full(4, 50.0)}, tx.init(params), params)
    (mu,) = {
        float(leaf[0])
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if "mu" in jax.tree_util.keystr(path)
    }
    # The norm is 100; clipped to 1, each of the four is 0.5.
    assert mu == pytest.approx(0.1 * (0.5 if known.clips else 50.0))


@of_each_preset
def test_the_learning_rate(name, known):
    _, rate = make_run(name).optimizer()
    after_warmup = (9.9e-5, 5e-5) if known.line_starts_at_zero else (1e-4, 1e-4 * 50 / 99)
    expected = [0, 9.999e-5, *after_warmup, 0, 0]
    found = [rate(step) for step in (0, 9_999, 10_000, 500_000, 1_000_000, 1_000_001)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# --------------------------------------------------------------------------------- the masks


@of_each_preset
def test_how_many_of_fifty_tokens_are_masked(name, known):
    """7.5 of them: 8; or 7 and 8, as often; or any number, as coins fall for 47 words."""
    run = make_run(name)
    (phase,) = run.phases
    rows = 4000
    ids = np.full((rows, 128), 10, np.int32)
    ids[:, 0], ids[:, 20], ids[:, 49] = CLS, SEP, SEP
    is_token = np.tile(np.arange(128) < 50, (rows, 1)).astype(np.int32)
    batch = {"input_ids": ids * is_token, "example_ids": is_token}
    batch["cls_positions"] = np.zeros((rows, 1), np.int32)
    task = run.task_at(phase)
    if known.static:  # the masks come with the data then
        assert task.transform(jax.random.key(0), batch) == batch
        return
    masked = jax.jit(masking.mask_batch, static_argnums=2)(jax.random.key(0), batch, task.rule)
    counts = np.asarray(masked["masked_lm_weights"].sum(1))
    if known.counts_masks == "half_even":
        assert (counts == 8).all()
    elif known.counts_masks == "stochastic":
        assert set(counts) == {7, 8}
        assert counts.mean() == pytest.approx(7.5, abs=0.04)
    else:
        assert counts.mean() == pytest.approx(47 * 0.15, abs=0.2)
        assert counts.var() == pytest.approx(47 * 0.15 * 0.85, rel=0.1)
    most = {"half_even": 19, "stochastic": 20, "bernoulli": 44}[known.counts_masks]
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
        # What the first two choose is what the other runs of the tests have.
        pytest.param("paper", marks=pytest.mark.slow),
        pytest.param("google_2019", marks=pytest.mark.slow),
        pytest.param("hf", marks=pytest.mark.slow),
        "google_2018",  # static masks
        "roberta",  # no pairs
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
            "data.line_format": "sentences",
            "data.vocab": f"{corpus}/vocab.txt",
            "data.dupe_factor": 2,
            "data.validation_share": 0.2,
            "data.num_processes": 1,
            "log.every": "2",
        },
    )
    workdir = str(tmp_path / "run")
    train(config, workdir, listener=training_listener())
    shown = capsys.readouterr().out
    assert f"preset     {name}\n" in shown
    assert ("NSP accuracy" in shown) == ("NSP loss" in shown) == KNOWN[name].next_sentence

    *_, last = metrics.read_metrics(workdir)
    values = evaluate_lib.evaluate(store.load(workdir), workdir)
    assert values == {key: last[key] for key in values}
    terms = [value for key, value in values.items() if key.endswith("_loss")]
    assert values["loss"] == pytest.approx(sum(terms))
    assert len(terms) == (2 if KNOWN[name].next_sentence else 1)

    (tmp_path / "in.jsonl").write_text('{"text_a": "kas [MASK]", "text_b": "lot"}\n')
    predict_file(config, workdir, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), top_k=2)
    answer = json.loads((tmp_path / "out.jsonl").read_text())
    assert len(answer["masks"][0]["candidates"]) == 2
    assert (answer["next_sentence"] is not None) == KNOWN[name].next_sentence

    rows = Manifest.load(f"{workdir}/data").rows("train", 32)
    batch = rows.read(np.arange(8))
    assert ("masked_lm_positions" in batch) == KNOWN[name].static
    assert batch["next_sentence_weights"].any() == (KNOWN[name].segments == "pairs")
