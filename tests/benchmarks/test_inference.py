"""The inference benchmark: its table, its texts, and that both programs give the same."""

import numpy as np
import pytest

from benchmarks import command, inference
from benchmarks.side_by_side import installed

NEEDS_THEM = pytest.mark.skipif(
    len(installed("torch", "transformers")) < 2, reason="needs transformers"
)

HAS_ONNX = len(installed(*inference.ONNX)) == len(inference.ONNX)
HAS_OPENVINO = len(installed(*inference.OPENVINO, "nncf")) == len(inference.OPENVINO) + 1


@NEEDS_THEM
def test_batches_by_length_fill_the_token_budget():
    from benchmarks.rivals.inference_torch import by_length

    lengths = np.random.default_rng(0).integers(3, 512, 1000).tolist()
    batches = by_length(lengths, 4096)
    assert sorted(number for batch in batches for number in batch) == list(range(1000))
    for batch, following in zip(batches, batches[1:], strict=False):
        longest = lengths[batch[0]]
        assert longest == max(lengths[i] for i in batch) >= lengths[following[0]]
        assert len(batch) * longest <= 4096 < (len(batch) + 1) * longest
    assert by_length([9, 5000, 8], 4096) == [[1], [0, 2]]


@pytest.mark.slow
@NEEDS_THEM
def test_both_programs_give_the_same_vectors(make_workdir, tmp_path, capfd):
    from tests import tiny

    words = "the list is returned by this function".split()
    vocabulary = [*tiny.SPECIAL, *words]
    sizes = {f"model__{name}": size for name, size in tiny.SIZES.items()}
    sizes |= {"model__vocab_size": len(vocabulary), "model__activation": "gelu"}
    workdir = make_workdir("\n".join(vocabulary) + "\n", **sizes)
    (tmp_path / "in.txt").write_text(
        "".join(f"{' '.join(words[: i % 7 + 1])}\n" for i in range(50))
    )
    flags = [f"--model={workdir}", f"--input={tmp_path}/in.txt", "--rounds=1"]
    command.main("inference", flags)
    lines = capfd.readouterr().out.splitlines()
    limits = {
        "bert_jax float32": 1e-5,
        "bert_jax bfloat16_products": 0.1,
        "transformers float32": 0.0,
        "transformers bfloat16 by autocast": 0.1,
        "transformers bfloat16 weights": 0.1,
    }
    limits |= {"onnxruntime float32": 1e-5, "onnxruntime int8": 0.5} if HAS_ONNX else {}
    limits |= {"OpenVINO float32": 1e-5, "OpenVINO int8": 0.5} if HAS_OPENVINO else {}
    for name, limit in limits.items():
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        assert float(line.split()[-1]) <= limit, line
    assert any(line.startswith("cosine of float32: bert_jax") for line in lines)
