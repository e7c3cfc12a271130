"""README's lines make ONNX of an exported folder, and onnxruntime gives transformers' numbers."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from bert_jax.convert import to_huggingface

for package in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
WORDS = "the of list is returned it a . [unused]"
COMPARE = """
import numpy as np

for texts in (["it"], ["the list", "a list is returned", "."], ["the list of it " * 9] * 2):
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    with torch.no_grad():
        theirs = model(**batch)
    found = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
    is_text = batch["attention_mask"].numpy() > 0
    wanted = theirs.prediction_logits.numpy(), theirs.seq_relationship_logits.numpy()
    np.testing.assert_allclose(found[0][is_text], wanted[0][is_text], atol=1e-4, rtol=0)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-4, rtol=0)
"""


@pytest.mark.parametrize("activation", ["gelu_tanh", pytest.param("gelu", marks=pytest.mark.slow)])
def test_the_lines_of_readme_give_the_same_logits(make_workdir, tmp_path, activation):
    vocabulary = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()])
    workdir = make_workdir(vocabulary, model__activation=activation)
    to_huggingface.export(str(workdir), str(tmp_path / "runs" / "mine-hf"), compare=False)
    (tmp_path / "program.py").write_text(readme_code("torch.onnx.export") + COMPARE)
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


def readme_code(word: str) -> str:
    """The block of code in README that has a word."""
    section = README.read_text().split("## Take it away\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", section, re.MULTILINE)
    (block,) = [block for block in blocks if word in block]
    return re.sub(r"^    ", "", block, flags=re.MULTILINE)
