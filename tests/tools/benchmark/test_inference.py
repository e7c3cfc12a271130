"""The inference benchmark: its table, its texts, and that both programs give the same."""

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.tools.benchmark import inference
from bert_jax.tools.benchmark.side_by_side import installed

NEEDS_THEM = pytest.mark.skipif(
    len(installed("torch", "transformers")) < 2, reason="needs transformers"
)


def test_the_table_has_speeds_ratios_and_differences():
    def turns(seconds, value):
        outputs = np.full((100, 2), value)
        turn = {"latencies": [0.003, 0.004, 0.005], "outputs": outputs}
        return [{"seconds": s, **turn} for s in (9.5, *seconds)]

    answers = {"bert_jax float32": turns([2.0], 1.0), "transformers float32": turns([4, 6], 1.25)}
    header, ours, other = inference.rows(answers)
    assert header.split()[:2] == ["texts/s", "x"]
    assert ours.split() == ["bert_jax", "float32", "50.0", "1.00", "9.5", "4.0", "5.0"]
    assert other.split()[2:] == ["20.0", "0.40", "9.5", "4.0", "5.0", "1.000000", "2.5e-01"]


def test_blank_lines_are_left_out_and_long_ones_are_cut(tmp_path):
    (tmp_path / "in.txt").write_text("a  b\n\n" + "c " * 300 + "\nd\n")
    first, second = inference.read_texts(f"{tmp_path}/in.txt", 2)
    assert first == "a b" and second.split() == ["c"] * 200
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(ValueError, match="blank.txt has no texts"):
        inference.read_texts(f"{tmp_path}/blank.txt", 2)


@NEEDS_THEM
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
    run_command(["benchmark", "inference", *flags])
    lines = capfd.readouterr().out.splitlines()
    ours, float32, bfloat16 = lines[lines.index(next(x for x in lines if "texts/s" in x)) + 2 :][:3]
    for line, name, limit in (
        (ours, "bert_jax bfloat16_products", 0.1),
        (float32, "transformers float32", 1e-5),
        (bfloat16, "transformers bfloat16", 0.1),
    ):
        assert line.startswith(f"{name} ") and 0 < float(line.split()[-1]) < limit
