"""The exported program gives our numbers in a process that has jax and nothing of this package."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.devices.trees import unflatten
from bert_jax.exchange import stablehlo
from bert_jax.models.heads import CausalLMModel, PreTrainingModel
from bert_jax.tools.cli import convert
from bert_jax.tools.convert import conversions
from tests.tools.convert.documented import documented_code


@pytest.fixture
def export(make_workdir, tmp_path):
    """Returns a function (**changes) -> (folder of the run, exported folder)."""

    def make(**changes):
        workdir = make_workdir(**changes)
        convert.main(["convert", "to_stablehlo", str(workdir), str(tmp_path / "model")])
        return workdir, tmp_path / "model"

    return make


def make_inputs(batch: int, seq: int, predictions: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seq)
    place = np.arange(seq)
    lengths = rng.integers(min(2, seq), seq + 1, (batch, 1))
    arrays = {
        "input_ids": np.where(place < lengths, rng.integers(0, 57, (batch, seq)), 0),
        "token_type_ids": (place > lengths // 2) & (place < lengths),
        "attention_mask": place < lengths,
        "masked_lm_positions": rng.integers(0, lengths, (batch, predictions)),
    }
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def load(folder: pathlib.Path):
    program = jax.export.deserialize(bytearray((folder / "model.stablehlo").read_bytes()))
    return program, dict(np.load(folder / "weights.npz"))


@pytest.mark.parametrize("next_sentence", [True, False])
def test_any_size_gives_our_numbers(export, random_params, next_sentence):
    workdir, folder = export(
        model__next_sentence=next_sentence, model__pad_vocab_to_multiple_of=50, dtype="bfloat16"
    )
    config = store.load(str(workdir))
    params = random_params(config)
    config = config.replace({"dtype": "float32"})
    model = PreTrainingModel(config.model, next_sentence)
    program, weights = load(folder)
    assert weights.keys() == params.keys()
    for batch, seq, predictions in [(1, 1, 1), (3, 7, 2), (2, 40, 5)]:
        inputs = make_inputs(batch, seq, predictions)
        outputs = jax.jit(program.call)(weights, inputs)
        ours = model.apply(
            {"params": unflatten(params)},
            {
                "input_ids": inputs["input_ids"],
                "token_type_ids": inputs["token_type_ids"],
                "position_ids": np.broadcast_to(np.arange(seq), (batch, seq)),
                "example_ids": inputs["attention_mask"],
                "cls_positions": np.zeros((batch, 1), np.int32),
                "masked_lm_positions": inputs["masked_lm_positions"],
            },
            deterministic=True,
        )
        expected = {"hidden": ours.hidden, "masked_lm_logits": ours.masked_lm_logits[..., :64]}
        if next_sentence:
            expected["next_sentence_logits"] = ours.next_sentence_logits[:, 0]
        assert outputs.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(outputs[name], array, atol=1e-5, rtol=0, err_msg=name)


def test_a_left_to_right_model_gives_the_logits_of_next_words(export, random_params):
    workdir, folder = export(
        task="causal_lm",
        model__attention_pattern="causal",
        model__next_sentence=False,
        model__vocab_size=60,
    )
    config = store.load(str(workdir))
    params, model = random_params(config), CausalLMModel(config.model)
    program, weights = load(folder)
    description = json.loads((folder / "model.json").read_text())
    assert description["inputs"].keys() == {"input_ids", "token_type_ids", "attention_mask"}
    for batch, seq in [(1, 1), (3, 7)]:
        inputs = make_inputs(batch, seq, 1)
        del inputs["masked_lm_positions"]
        outputs = jax.jit(program.call)(weights, inputs)
        rows = {
            "input_ids": inputs["input_ids"],
            "token_type_ids": inputs["token_type_ids"],
            "position_ids": np.broadcast_to(np.arange(seq), (batch, seq)),
            "example_ids": inputs["attention_mask"],
        }
        scores: Any = model.apply({"params": unflatten(params)}, rows, deterministic=True)
        assert outputs.keys() == {"next_word_logits"} == description["outputs"].keys()
        logits = outputs["next_word_logits"]
        np.testing.assert_allclose(logits, scores.logits()[..., :60], atol=1e-5, rtol=0)


def test_the_program_is_lowered_for_all_platforms_and_described(export):
    workdir, folder = export()
    program, _ = load(folder)
    assert program.platforms == ("cpu", "cuda", "tpu")
    assert sorted(p.name for p in folder.iterdir()) == [
        *("model.json", "model.stablehlo", "vocab.txt", "weights.npz")
    ]
    assert (folder / "vocab.txt").read_bytes() == (workdir / "vocab.txt").read_bytes()
    description = json.loads((folder / "model.json").read_text())
    assert description["inputs"]["input_ids"] == {"dtype": "int32", "shape": ["batch", "seq"]}
    assert description["outputs"] == {
        "hidden": {"dtype": "float32", "shape": ["batch", "seq", 16]},
        "masked_lm_logits": {"dtype": "float32", "shape": ["batch", "predictions", 64]},
        "next_sentence_logits": {"dtype": "float32", "shape": ["batch", 2]},
    }
    assert description["longest_sequence"] == 40 and description["step"] == 7
    assert (
        description["vocabulary"]["file"] == "vocab.txt"
        and description["vocabulary"]["mask_id"] == 4
    )
    assert description["sha256"].keys() == {"model.stablehlo", "vocab.txt", "weights.npz"}


def test_invalid_inputs_are_refused(export):
    _, folder = export()
    program, weights = load(folder)
    with pytest.raises(ValueError, match="refining shapes"):
        program.call(weights, make_inputs(1, 41, 1))  # it has 40 positions
    with pytest.raises(ValueError, match="dtype|int64|float32"):
        program.call(weights, {k: v.astype(np.float32) for k, v in make_inputs(1, 4, 1).items()})


def test_the_documented_code_runs_without_this_package(export, tmp_path):
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the of list is returned ."
    _, folder = export(vocabulary="\n".join(words.split()), model__vocab_size=11)
    code = documented_code("deserialize").replace("runs/mine-stablehlo", str(folder))
    assert str(folder) in code
    program = tmp_path / "alone.py"
    program.write_text(
        "import sys\n"
        "sys.modules.update({name: None for name in ('bert_jax', 'flax', 'optax', 'orbax')})\n"
        + code
    )
    environment = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout.replace("'", '"'))) == 5, done.stdout


def test_runs_that_cannot_be_exported_are_reported(make_workdir, tmp_path):
    workdir = make_workdir(task="span", heads={"span__kernel": (16, 2), "span__bias": (2,)})
    with pytest.raises(ValueError, match="are required: OUT"):
        convert.main(["convert", "to_stablehlo", str(workdir)])
    with pytest.raises(ValueError, match="was trained for 'span': to_stablehlo writes masked"):
        conversions.to_stablehlo(str(workdir), str(tmp_path / "model"))
    with pytest.raises(ValueError, match="exists already: name a new folder"):
        conversions.to_stablehlo(str(workdir), str(workdir))
    assert not (tmp_path / "model").exists()


def test_a_failed_export_leaves_no_files(make_workdir, tmp_path, monkeypatch):
    workdir = make_workdir()
    monkeypatch.setattr(stablehlo, "file_sha256", lambda *_: 1 / 0)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        conversions.to_stablehlo(str(workdir), str(tmp_path / "model"))
    assert sorted(tmp_path.iterdir()) == before
