"""Workdirs of version 0.1.0 are evaluated, predict, are exported and resume with its numbers.

BERT_JAX_CHECKOUT names another checkout to test than the one that this file is in.
"""

import importlib.metadata
import json
import os
import pathlib
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CHECKOUT = pathlib.Path(os.environ.get("BERT_JAX_CHECKOUT", REPOSITORY)).resolve()
FIXTURE = REPOSITORY / "tests" / "fixtures" / "v0.1.0"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())
TOLERANCE = 1e-5
# What `pretraining` was started with, beside configs/tiny.py.
SETTINGS = {
    "steps": 12,
    "phases": "((16, 0.67), (24, 0.33))",
    "global_batch_size": 8,
    "prng_impl": "threefry2x32",
    "model.vocab_size": 64,
    "model.hidden_size": 16,
    "model.num_layers": 1,
    "model.intermediate_size": 32,
    "model.initializer_range": 0.3,
    "model.max_position_embeddings": 24,
    "model.dropout_rate": 0.1,
    "model.attention_dropout_rate": 0.1,
    "data.source": "text:corpus.txt",
    "data.line_format": "sentences",
    "data.dupe_factor": 1,
    "data.validation_share": 0.2,
    "data.num_processes": 1,
    "optimizer.learning_rate": 1e-2,
    "optimizer.warmup": "3",
    "log.every": "3",
    "eval.every": "4",
    "checkpoint.every": "4",
    "checkpoint.keep": 1,
}


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    """Both workdirs and the files they were made from."""
    with tarfile.open(FIXTURE / "workdirs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    manifest = json.loads((tmp_path / "pretraining" / "data" / "manifest.json").read_text())
    if manifest["source"]["sentencex"] != importlib.metadata.version("sentencex"):
        # Other rules for sentences would be other data, unless the text is gone.
        (tmp_path / "corpus.txt").unlink()
    return tmp_path


def run(folder: pathlib.Path, *words: str) -> str:
    """Runs `python -m` with these words in the folder, with the checkout's package."""
    ended = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), "JAX_NUM_CPU_DEVICES": "1"},
        text=True,
        capture_output=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def assert_close(found, expected) -> None:
    """JSON values with the same names, texts and whole numbers, and floats within TOLERANCE."""
    if isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(found[name], value)
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_close(*pair)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    else:
        assert found == expected


def read_lines(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def weighted_sums(path: pathlib.Path) -> dict[str, float]:
    """Sums of the elements of each tensor of a safetensors file times cos(0), cos(1) ..."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    sums = {}
    for name, facts in header.items():
        assert facts["dtype"] == "F32"
        array = np.frombuffer(data[slice(*facts["data_offsets"])], np.float32).astype(np.float64)
        sums[name] = float(array @ np.cos(np.arange(array.size)))
    return sums


def test_a_workdir_of_0_1_0_is_evaluated(folder):
    run(folder, "bert_jax.main", "--mode=evaluate", "--workdir=pretraining")
    results = json.loads((folder / "pretraining" / "results.json").read_text())
    results["eval"].pop("masked_lm_bits_per_character")  # a later addition
    assert_close(results["eval"], EXPECTED["pretraining"]["eval"])


@pytest.mark.parametrize(
    "name, texts", [("pretraining", "masked.txt"), ("classification", "texts.txt")]
)
def test_a_workdir_of_0_1_0_predicts(folder, name, texts):
    files = f"--input={texts}", "--output=answers.jsonl"
    run(folder, "bert_jax.main", "--mode=predict", f"--workdir={name}", *files)
    assert_close(read_lines(folder / "answers.jsonl"), EXPECTED[name]["predictions"])


def test_a_workdir_of_0_1_0_is_exported(folder):
    has_main = (CHECKOUT / "bert_jax" / "__main__.py").is_file()
    module = ["bert_jax", "convert"] if has_main else ["bert_jax.tools.convert"]
    run(folder, *module, "to_hf", "pretraining", "exported", "--nocomparison")
    found = weighted_sums(folder / "exported" / "model.safetensors")
    assert_close(found, EXPECTED["pretraining"]["export"])


def test_a_run_of_0_1_0_resumes_with_the_same_metrics(folder):
    metrics = folder / "pretraining" / "metrics.jsonl"
    before = read_lines(metrics)
    flags = [f"--config.{name}={value}" for name, value in SETTINGS.items()]
    config = f"--config={CHECKOUT / 'configs' / 'tiny.py'}"
    printed = run(folder, "bert_jax.main", "--workdir=pretraining", config, *flags)
    assert "after step 8 of 12" in printed
    rows = read_lines(metrics)
    assert rows[: len(before)] == before
    for row in rows:
        row.pop("speed", None)
        row.pop("masked_lm_bits_per_character", None)
    assert_close(rows[len(before) :], EXPECTED["pretraining"]["resumed"])
    steps = (folder / "pretraining" / "checkpoints").glob("*.sha256.json")
    assert "12.sha256.json" in {path.name for path in steps}
