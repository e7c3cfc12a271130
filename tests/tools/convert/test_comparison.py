"""Two checkpoints compared, a checkpoint listed, on the command line."""

import json
import pathlib

import pytest

from bert_jax.__main__ import main as run_command
from tests.tools.convert.hf_folders import edit_config, from_hf, read_certificate


def test_verify_finds_a_difference_only_if_there_is_one(save, capsys):
    folder, _ = save()
    from_hf(folder)
    out = str(folder.parent / "out")
    run_command(["convert", "verify", out, out])
    assert "hidden states          0.0e+00" in capsys.readouterr().out
    edit_config(folder, hidden_act="gelu_new")
    run_command(["convert", "verify", out, str(folder)])
    printed = capsys.readouterr().out
    assert "run by bert_jax" in printed and "run by transformers" in printed
    line = next(line for line in printed.splitlines() if "masked-LM logits" in line)
    assert 1e-5 < float(line.split()[2]) < 1e-1


def test_verify_refuses_other_sizes(save):
    folder, _ = save()
    from_hf(folder)
    other, _ = save(hidden_size=32)
    with pytest.raises(ValueError, match="have different sizes"):
        run_command(["convert", "verify", str(folder.parent / "out"), str(other)])


def test_an_export_names_parameters_that_the_import_lacked(save, capsys):
    folder, _ = save("BertModel")
    from_hf(folder)
    out = str(folder.parent / "back")
    run_command(["convert", "to_hf", str(folder.parent / "out"), out, "--nocomparison"])
    assert "random      next_sentence/bias: the import did not have it" in capsys.readouterr().out
    certificate = json.loads(pathlib.Path(out, "certificate.json").read_text())
    assert certificate["tensors"]["random"] == read_certificate(folder)["tensors"]["fresh"]


def test_inspect_lists_every_format(google, capsys):
    folder, _, _ = google()
    run_command(["convert", "inspect", str(folder)])
    printed = capsys.readouterr().out
    assert "cls/predictions/output_bias/adam_m " in printed
    assert "format      google-research/bert; 46 of the names are parameters of bert" in printed
    run_command(["convert", "inspect", str(folder.parent / "theirs")])
    assert (
        "format      Hugging Face; 46 of the names are parameters of bert"
        in capsys.readouterr().out
    )
    run_command(["convert", "inspect", str(folder.parent / "from_hf")])
    printed = capsys.readouterr().out
    assert "bert/pooler/bias" in printed and "a workdir of bert_jax" in printed


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
