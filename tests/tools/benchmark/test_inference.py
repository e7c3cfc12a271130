"""The inference benchmark: its table, its texts, and that both programs give the same."""

import numpy as np
import pytest

from bert_jax.tools.benchmark import inference
from bert_jax.tools.benchmark.machine import has_transformers
from bert_jax.tools.cli import benchmark

OTHER = "transformers float32"


def test_the_table_has_speeds_ratios_and_differences():
    seconds = {inference.OURS: 2.0, OTHER: 5.0}
    outputs = {inference.OURS: np.zeros((3, 2)), OTHER: np.full((3, 2), 0.25)}
    header, ours, other = inference.table(seconds, dict.fromkeys(seconds, 9.5), outputs, 100)
    assert header.split()[:2] == ["texts/s", "x"]
    assert ours.split() == ["bert_jax", "float32", "50.0", "1.00", "9.5"]
    assert other.split()[-4:] == ["20.0", "0.40", "9.5", "2.5e-01"]


def test_blank_lines_are_left_out_and_long_ones_are_cut(tmp_path):
    (tmp_path / "in.txt").write_text("a  b\n\n" + "c " * 300 + "\nd\n")
    assert inference._write_texts(f"{tmp_path}/in.txt", 2, f"{tmp_path}/out.txt") == 2
    first, second = (tmp_path / "out.txt").read_text().splitlines()
    assert first == "a b" and second.split() == ["c"] * 200
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(ValueError, match="blank.txt has no texts"):
        inference._write_texts(f"{tmp_path}/blank.txt", 2, f"{tmp_path}/out.txt")


def test_flags_are_needed():
    with pytest.raises(ValueError, match="--input is missing: give --workdir=DIR --input=FILE"):
        benchmark.main(["benchmark", "inference", "--workdir=x"])


@pytest.mark.skipif(not has_transformers(), reason="needs transformers")
def test_batches_by_length_fill_the_token_budget():
    from bert_jax.tools.benchmark.rivals.inference_torch import by_length

    lengths = np.random.default_rng(0).integers(3, 512, 1000).tolist()
    batches = by_length(lengths, 4096)
    assert sorted(number for batch in batches for number in batch) == list(range(1000))
    for batch, following in zip(batches, batches[1:], strict=False):
        longest = lengths[batch[0]]
        assert longest == max(lengths[i] for i in batch) >= lengths[following[0]]
        assert len(batch) * longest <= 4096 < (len(batch) + 1) * longest
    assert by_length([9, 5000, 8], 4096) == [[1], [0, 2]]


@pytest.mark.slow
@pytest.mark.skipif(not has_transformers(), reason="needs transformers")
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
    flags = [f"--workdir={workdir}", f"--input={tmp_path}/in.txt", "--rounds=1"]
    benchmark.main(["benchmark", "inference", *flags])
    *_, ours, by_length, bfloat16, in_order = capfd.readouterr().out.splitlines()
    for line, name, limit in (
        (ours, "bert_jax bfloat16_products", 0.1),
        (by_length, "transformers float32", 1e-5),
        (bfloat16, "transformers bfloat16", 0.1),
        (in_order, "transformers float32, in order", 1e-5),
    ):
        assert line.startswith(f"{name} ") and 0 < float(line.split()[-1]) < limit
