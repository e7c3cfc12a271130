"""Two checkpoints compared, a checkpoint listed, on the command line."""

import pathlib
import re

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.tools.convert.outputs import Outputs, largest_differences
from tests.tools.convert.hf_folders import edit, from_hf


@pytest.fixture
def verify(capsys):
    """Returns a function (two folders) -> {output: largest difference}, as the command prints."""

    def run(a: pathlib.Path, b: pathlib.Path) -> dict[str, float]:
        capsys.readouterr()
        run_command(["convert", "verify", str(a), str(b)])
        printed = capsys.readouterr().out
        programs = re.findall(r"run by (\w+)", printed)
        is_run = (a / "checkpoints").is_dir(), (b / "checkpoints").is_dir()
        assert programs == [("transformers", "bert_jax")[run] for run in is_run]
        return {n: float(x) for n, x in re.findall(r"^  (\S.*?)  +(\S+)   \(", printed, re.M)}

    return run


def add_numbers(tensor: str):
    def change(arrays):
        arrays[tensor] += np.arange(len(arrays[tensor]))

    return change


def test_a_difference_of_any_parameter_is_seen_in_the_outputs_behind_it(save, verify):
    """So the two programs are run, and each output is compared with its own."""
    folder, _ = save(num_hidden_layers=1)
    from_hf(folder)
    out = folder.parent / "out"
    assert set(verify(out, out).values()) == {0.0}
    before = verify(out, folder)
    outputs = {"hidden states", "pooled", "masked-LM logits", "next-sentence logits"}
    assert before.keys() == outputs and 0 < max(before.values()) < 1e-5
    for tensor, behind in {
        "bert.encoder.layer.0.output.dense.bias": outputs,
        "bert.pooler.dense.bias": {"pooled", "next-sentence logits"},
        "cls.predictions.bias": {"masked-LM logits"},
    }.items():
        folder, _ = save(num_hidden_layers=1)
        edit(folder, add_numbers(tensor))
        after = verify(out, folder)
        assert {name for name in outputs if after[name] > 0.01} == behind
        assert all(after[name] == before[name] for name in outputs - behind)


def test_inspect_lists_every_format(google, capsys):
    folder, _ = google()
    from_hf(folder.parent / "theirs")
    run_command(["convert", "inspect", str(folder)])
    printed = capsys.readouterr().out
    assert "cls/predictions/output_bias/adam_m " in printed
    assert "format      google-research/bert; 46 of the names are parameters of bert" in printed
    run_command(["convert", "inspect", str(folder.parent / "theirs")])
    assert (
        "format      Hugging Face; 46 of the names are parameters of bert"
        in capsys.readouterr().out
    )
    run_command(["convert", "inspect", str(folder.parent / "out")])
    printed = capsys.readouterr().out
    assert "bert/pooler/bias" in printed and "a workdir of bert_jax" in printed


def test_models_of_other_sizes_are_not_compared():
    a, b = (Outputs("a program", {"pooled": np.zeros(size)}) for size in (2, 3))
    with pytest.raises(ValueError, match="have different sizes: pooled"):
        largest_differences(a, b)


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "The conversion is missing. Available: from_hf"),
        (["fom_hf"], "Unknown conversion 'fom_hf'. Did you mean from_hf. Available: from_hf"),
        (["from_hf"], "are required: PATH, OUT"),
        (["from_hf", "a", "b", "--activation=relu"], "--activation: invalid choice: 'relu'"),
        (["from_hf", "/nowhere", "b"], "/nowhere: no such file"),
        (["from_google", "/nowhere", "b"], "nowhere.index is missing|no such"),
        (["inspect", "/"], "is neither a workdir"),
        (["inspect", "/nowhere"], "no such file or folder"),
        (["to_stablehlo", "a"], "are required: OUT"),
        (["verify", "a"], "required: B"),
    ],
)
def test_invalid_command_lines_are_reported(words, message):
    with pytest.raises(ValueError, match=message):
        run_command(["convert", *words])
