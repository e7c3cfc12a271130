"""The documented code converts an exported folder to ONNX, which computes the same numbers."""

import os
import subprocess
import sys

import pytest

from bert_jax.tools.convert import conversions
from tests.tools.convert.documented import documented_code

for package in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

WORDS = "the of list is returned it a . [unused]"
COMPARE = """
import numpy as np

for texts in (["it"], ["the list", "a list is returned", "."], ["the list of it " * 9] * 2):
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    with torch.no_grad():
        theirs = model(**batch)
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
    is_text = batch["attention_mask"].numpy() > 0
    expected = theirs.prediction_logits.numpy(), theirs.seq_relationship_logits.numpy()
    np.testing.assert_allclose(outputs[0][is_text], expected[0][is_text], atol=1e-4, rtol=0)
    np.testing.assert_allclose(outputs[1], expected[1], atol=1e-4, rtol=0)
"""


@pytest.mark.slow  # torch.onnx.export takes half a minute
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu"])
def test_the_documented_code_gives_the_same_logits(make_workdir, tmp_path, activation):
    vocabulary = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()])
    workdir = make_workdir(vocabulary, model__activation=activation, model__num_layers=1)
    conversions.to_huggingface(str(workdir), str(tmp_path / "runs" / "mine-hf"), compare=False)
    (tmp_path / "program.py").write_text(documented_code("torch.onnx.export") + COMPARE)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "mine.onnx").is_file()
