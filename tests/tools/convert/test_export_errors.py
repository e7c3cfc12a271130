"""Runs that cannot be exported to Hugging Face: one line, and nothing is written."""

import pytest

from bert_jax.exchange import huggingface
from bert_jax.tools.cli import convert
from bert_jax.tools.convert import conversions


def test_a_failed_export_leaves_no_files(make_workdir, tmp_path, monkeypatch):
    workdir = make_workdir()
    monkeypatch.setattr(huggingface, "write_safetensors", lambda *_: 1 / 0)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        conversions.to_huggingface(str(workdir), str(tmp_path / "out"))
    assert sorted(tmp_path.iterdir()) == before


def test_a_head_on_other_layers_has_no_class(make_workdir, tmp_path):
    workdir = make_workdir(
        task="tagging",
        heads={"classifier__kernel": (16, 5), "classifier__bias": (5,)},
        head__layers="sum_last_4",
    )
    with pytest.raises(ValueError, match="config.head.layers='sum_last_4': .* the last layer only"):
        conversions.to_huggingface(str(workdir), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "task, field, value, required",
    [
        ("classification", "pool", "last", "'cls'"),
        ("classification", "pooler", False, "True"),
        ("classification", "both_orders", True, "False"),
        ("multiple_choice", "multiple_choice", "bilstm", "'linear'"),
        ("span", "span", "bilstm", "'linear'"),
        ("tagging", "tagging", "crf", "'linear'"),
        ("span", "lm_weight", 0.5, "0.0"),
    ],
)
def test_heads_that_transformers_lacks_are_refused(
    make_workdir, tmp_path, task, field, value, required
):
    heads = {"classifier__kernel": (16, 1), "classifier__bias": (1,)}
    workdir = make_workdir(task=task, heads=heads, **{f"head__{field}": value})
    message = f"config.head.{field}={value!r}: transformers' classes of BERT have {required} only"
    with pytest.raises(ValueError, match=message):
        conversions.to_huggingface(str(workdir), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "field, value",
    [
        ("norm_place", "pre"),
        ("positions", "rotary"),
        ("attention_pattern", "causal"),
        ("feed_forward", "gated"),
    ],
)
def test_model_options_that_transformers_lacks_are_refused(make_workdir, tmp_path, field, value):
    workdir = make_workdir(**{f"model__{field}": value})
    message = f"transformers' BERT has no config.model.{field}='{value}', only .*to_stablehlo"
    with pytest.raises(ValueError, match=message):
        conversions.to_huggingface(str(workdir), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_runs_that_cannot_be_exported_are_reported(make_workdir, tmp_path):
    workdir = make_workdir(task="translation")
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="are required: OUT"):
        convert.main(["convert", "to_hf", str(workdir)])
    with pytest.raises(ValueError, match="Unknown config.task='translation'. Available: "):
        conversions.to_huggingface(str(workdir), str(out))
    with pytest.raises(ValueError, match="holds no run"):
        conversions.to_huggingface(str(tmp_path / "nowhere"), str(out))
    (workdir / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        conversions.to_huggingface(str(workdir), str(out))
    (workdir / "vocab.txt").unlink()
    with pytest.raises(ValueError, match="has no vocabulary"):
        conversions.to_huggingface(str(workdir), str(out))
    assert not out.exists()
    out.mkdir()
    (out / "something").touch()
    with pytest.raises(ValueError, match="exists already: name a new folder"):
        conversions.to_huggingface(str(workdir), str(out))
