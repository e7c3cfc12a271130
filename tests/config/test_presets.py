"""Presets: the fields they set, those of the documentation, and a whole run."""

import pathlib

import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.layers import PRESETS, describe_preset
from bert_jax.config.task import default_config
from bert_jax.data import init_from
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training import evaluate as evaluate_lib
from bert_jax.training import metrics
from bert_jax.training.train import train

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def make_config(preset: str = "", explicit: tuple[str, ...] = (), **changes):
    config = default_config("pretraining").to_config_dict()
    config.update_from_flattened_dict({"preset": preset, **changes})
    return init_from.resolve(config, explicit)


# --------------------------------------------------------------------------------- the table


def test_every_preset_fixes_the_same_fields_and_passes_the_checks():
    base = make_config().fields()
    for values in PRESETS.values():
        assert values.keys() == PRESETS["paper"].keys() <= base.keys()
        assert all(type(value) is type(base[field]) for field, value in values.items())
    for name, values in PRESETS.items():
        config = make_config(name)
        others = base.keys() - values.keys() - {"preset"}
        assert all(config[field] == base[field] for field in others)


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
    assert describe_preset(config) == [
        "preset     roberta, but model.activation='gelu_tanh'",
    ]
    assert describe_preset(make_config("roberta")) == ["preset     roberta"]
    assert describe_preset(make_config()) == []


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


def test_presets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="Unknown preset 'xlnet'. Available: paper, google_2018"):
        make_config("xlnet")
    elmo = default_config("bidirectional_lm").replace({"preset": "paper"}).to_dict()
    with pytest.raises(ValueError, match="sets config.model.mask_value, which this configuration"):
        init_from.resolve(elmo, ())


# --------------------------------------------------------------------------------- a whole run


@pytest.fixture
def corpus(tmp_path) -> pathlib.Path:
    folder, rng = tmp_path, np.random.default_rng(0)
    words = [a + b for a in ("ka", "lo", "mu", "ni") for b in ("s", "t", "r")]
    documents = (
        "\n".join(" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(6))
        for _ in range(40)
    )
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return folder


def test_a_preset_prepares_trains_and_evaluates(corpus, tmp_path, capsys):
    """The one with static masks: what the others choose, other runs of the tests have."""
    config = make_config(
        "google_2018",
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
    assert "preset     google_2018\n" in shown
    assert "NSP accuracy" in shown and "NSP loss" in shown

    *_, last = metrics.read_metrics(workdir)
    values = evaluate_lib.evaluate(store.load(workdir), workdir)
    assert values == {key: last[key] for key in values}
    terms = [value for key, value in values.items() if key.endswith("_loss")]
    assert values["loss"] == pytest.approx(sum(terms))
    assert len(terms) == 2

    rows = Manifest.load(f"{workdir}/data").rows("train", 32)
    batch = rows.read(np.arange(8))
    assert "masked_lm_positions" in batch and batch["next_sentence_weights"].any()
