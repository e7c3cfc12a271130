"""The exported program gives our numbers in a process that has jax and nothing of this package."""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.devices.trees import unflatten
from bert_jax.models.heads import PreTrainingModel
from bert_jax.tasks.causal_lm.model import CausalLMModel
from bert_jax.tools.convert import conversions
from tests.tools.convert.documented import documented_code

# Changes of the configuration -> outputs of the program.
MODELS = {
    "pairs": (
        {"model__pad_vocab_to_multiple_of": 50, "dtype": "bfloat16"},
        {"hidden", "masked_lm_logits", "next_sentence_logits"},
    ),
    "left to right": (
        {
            "task": "causal_lm",
            "model__attention_pattern": "causal",
            "model__next_sentence": False,
            "model__vocab_size": 60,
        },
        {"next_word_logits"},
    ),
}


@pytest.fixture
def export(make_workdir, tmp_path):
    """Returns a function (**changes) -> folder of the run, exported folder, program, weights."""

    def make(**changes):
        workdir, folder = make_workdir(**changes), tmp_path / "model"
        run_command(["convert", "to_stablehlo", str(workdir), str(folder)])
        program = jax.export.deserialize(bytearray((folder / "model.stablehlo").read_bytes()))
        return workdir, folder, program, dict(np.load(folder / "weights.npz"))

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


def our_outputs(config, params, inputs) -> dict[str, Any]:
    """Returns all outputs of our model by the program's names."""
    model, tree = config.model, {"params": unflatten(params)}
    batch = {name: x for name, x in inputs.items() if name != "attention_mask"}
    rows, seq = batch["input_ids"].shape
    batch["position_ids"] = np.broadcast_to(np.arange(seq), (rows, seq))
    batch["example_ids"] = inputs["attention_mask"]
    batch["cls_positions"] = np.zeros((rows, 1), np.int32)
    if config.task.name == "causal_lm":
        scores: Any = CausalLMModel(model).apply(tree, batch, deterministic=True)
        return {"next_word_logits": scores.logits()[..., : model.vocab_size]}
    module = PreTrainingModel(model, model.next_sentence)
    outputs: Any = module.apply(tree, batch, deterministic=True)
    found = {"hidden": outputs.hidden}
    found["masked_lm_logits"] = outputs.masked_lm_logits[..., : model.vocab_size]
    if model.next_sentence:
        found["next_sentence_logits"] = outputs.next_sentence_logits[:, 0]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_any_size_gives_our_numbers(export, random_params, name):
    changes, names = MODELS[name]
    workdir, folder, program, weights = export(**changes)
    config = store.load(str(workdir))
    params = random_params(config)
    assert weights.keys() == params.keys()
    description = json.loads((folder / "model.json").read_text())
    assert description["outputs"].keys() == names
    for batch, seq, predictions in [(1, 1, 1), (3, 7, 2), (2, 40, 5)]:
        inputs = make_inputs(batch, seq, predictions)
        inputs = {name: inputs[name] for name in description["inputs"]}
        outputs = jax.jit(program.call)(weights, inputs)
        expected = our_outputs(config.replace({"dtype": "float32"}), params, inputs)
        assert outputs.keys() == expected.keys() == names
        for output, array in expected.items():
            np.testing.assert_allclose(outputs[output], array, atol=1e-5, rtol=0, err_msg=output)


def test_the_program_is_lowered_for_all_platforms_described_and_strict(export):
    workdir, folder, program, weights = export()
    assert program.platforms == ("cpu", "cuda", "tpu")
    description = json.loads((folder / "model.json").read_text())
    files = {"model.stablehlo", "vocab.txt", "weights.npz"}
    assert description["sha256"].keys() == files
    assert {path.name for path in folder.iterdir()} == {"model.json", *files}
    assert (folder / "vocab.txt").read_bytes() == (workdir / "vocab.txt").read_bytes()
    assert description["inputs"]["input_ids"] == {"dtype": "int32", "shape": ["batch", "seq"]}
    assert description["outputs"] == {
        "hidden": {"dtype": "float32", "shape": ["batch", "seq", 16]},
        "masked_lm_logits": {"dtype": "float32", "shape": ["batch", "predictions", 64]},
        "next_sentence_logits": {"dtype": "float32", "shape": ["batch", 2]},
    }
    assert description["longest_sequence"] == 40 and description["step"] == 7
    vocabulary = description["vocabulary"]
    assert (vocabulary["file"], vocabulary["mask_id"]) == ("vocab.txt", 4)
    with pytest.raises(ValueError, match="refining shapes"):
        program.call(weights, make_inputs(1, 41, 1))  # it has 40 positions
    with pytest.raises(ValueError, match="dtype|int64|float32"):
        program.call(weights, {k: v.astype(np.float32) for k, v in make_inputs(1, 4, 1).items()})


def test_the_documented_code_runs_without_this_package(export, tmp_path):
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the of list is returned ."
    _, folder, *_ = export(vocabulary="\n".join(words.split()), model__vocab_size=11)
    code = documented_code("deserialize").replace("runs/mine-stablehlo", str(folder))
    assert str(folder) in code
    absent = "sys.modules.update(dict.fromkeys(('bert_jax', 'flax', 'optax', 'orbax')))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {absent}\n{code}"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout.replace("'", '"'))) == 5, done.stdout


@pytest.mark.parametrize(
    "changes, heads, message",
    [
        ({"model__copy_head": True}, {"copy_head__gate_bias": (1,)}, "copy_head=True: other"),
        ({"task": "span"}, {"span__bias": (2,)}, "was trained for 'span': to_stablehlo writes"),
    ],
)
def test_other_models_are_refused(make_workdir, tmp_path, changes, heads, message):
    with pytest.raises(ValueError, match=message):
        conversions.to_stablehlo(str(make_workdir(heads=heads, **changes)), str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_heads_with_random_parameters_are_left_out_or_refused(export, make_workdir, tmp_path):
    def with_random(workdir, *paths):
        fresh = json.dumps({"tensors": {"fresh": paths}})
        (workdir / "certificate.json").write_text(fresh)
        return str(workdir)

    workdir = with_random(make_workdir(), "next_sentence/kernel", "next_sentence/bias")
    conversions.to_stablehlo(workdir, str(tmp_path / "model"))
    outputs = json.loads((tmp_path / "model" / "model.json").read_text())["outputs"]
    assert "masked_lm_logits" in outputs and "next_sentence_logits" not in outputs
    with_random(tmp_path / "run", "masked_lm/bias")
    with pytest.raises(ValueError, match="were imported without a masked-LM head"):
        conversions.to_stablehlo(workdir, str(tmp_path / "other"))
