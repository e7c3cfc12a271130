"""`bert_jax compile`: lines, JSON, exit code and mistakes."""

import json

import jax
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.tools.compile import target
from tests.tools.compile.conftest import SIZES

WORDS = [
    "compile",
    "--config=configs/tiny.py",
    *(f"--config.{name}={value}" for name, value in SIZES.items()),
    "--config.phases=((16,1.0),)",
    "--config.global_batch_size=8",
    "--config.prng_impl=threefry2x32",
]

# ml_collections loads configuration files by it.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def test_each_program_has_its_lines(capsys):
    run_command(WORDS)
    text = capsys.readouterr().out
    assert text.startswith("8 x cpu (data=8, fsdp=1, tensor=1); float32\n")
    assert "\nstep, 8 x 16 tokens: compiled in" in text
    assert "\nevaluation, 8 x 16 tokens: compiled in" in text


def test_json_is_one_object_and_what_does_not_fit_exits_with_1(capsys, monkeypatch):
    monkeypatch.setattr(target, "find", lambda name: target.Target(jax.devices(), 1000))
    with pytest.raises(SystemExit) as exit:
        run_command([*WORDS, "--json"])
    assert exit.value.code == 1
    result = json.loads(capsys.readouterr().out)
    assert result["settings"] == [] and result["run"] is None  # 1000 bytes are too few for any
    step, evaluation = result["programs"]
    assert (step["program"], evaluation["program"]) == ("step", "evaluation")
    assert not step["fits"] and step["bytes"]["peak"] > step["bytes"]["parameters"] > 0


def test_the_largest_microbatch_is_searched(capsys):
    run_command([*WORDS, "--largest_batch"])
    text = capsys.readouterr().out
    assert "phase of 16 tokens, batches of 8 rows" in text
    assert "microbatch of 8 rows: fits" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compile"], "--config"),
        ([*WORDS, "--topology=v5e"], "such as v5e:4x4, or the number of chips, v5e-16"),
        ([*WORDS, "--config.mesh.tensor=3"], "does not use the 8 devices"),
        ([*WORDS, "--config.optimizer.name=sgd"], "Unknown optimizer"),
    ],
    ids=["no configuration", "no slice", "no mesh", "no optimizer"],
)
def test_mistakes_are_one_line(words, message):
    with pytest.raises(ValueError, match=message) as error:
        run_command(words)
    assert "\n" not in str(error.value)
