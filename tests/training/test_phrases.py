"""A run with phrases as units of masking: sharded, in microbatches, stopped and resumed."""

import json

import pytest

from bert_jax.config import store
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.evaluate import evaluate
from bert_jax.training.train import train
from tests.runs.conftest import SMALL, Run, write_corpus
from tests.runs.test_exactness import assert_same_run, stop_after


@pytest.fixture
def make_run(tmp_path):
    """Returns a function that makes a run with the phrases of a lexicon in two classes."""
    corpus = tmp_path / "corpus.txt"
    write_corpus(corpus)
    words = sorted(set(corpus.read_text().split()))
    lexicon = tmp_path / "lexicon.txt"
    lines = (f"{word}\t{'odd' if i % 2 else 'even'}\n" for i, word in enumerate(words[:40]))
    lexicon.write_text("".join(lines))

    def make(name: str) -> Run:
        changes = {
            "data__source": f"text:{corpus}",
            "data__dir": str(tmp_path / "data"),
            "data__masking": "phrase",
            "data__lexicon": str(lexicon),
            "data__lexicon_weights": ("odd=5", "even=0"),
            "phases": ((16, 1.0),),
            "steps": 6,
            "mesh__data": 2,
            "mesh__fsdp": 2,
            "mesh__tensor": 2,
            "microbatch_size": 4,
            "eval__every": "3",
            "checkpoint__every": "2",
        }
        values = {name.replace("__", "."): value for name, value in changes.items()}
        (tmp_path / name).mkdir()
        return Run(tmp_path / name, SMALL | values)

    return make


@pytest.mark.slow
def test_a_run_with_phrases_resumes_bit_for_bit(make_run, monkeypatch, capsys):
    whole, stopped = make_run("whole"), make_run("stopped")
    assert train(whole.config, str(whole.workdir), listener=training_listener()).is_complete
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        assert not train(
            stopped.config, str(stopped.workdir), listener=training_listener()
        ).is_complete
    assert train(stopped.config, str(stopped.workdir), listener=training_listener()).is_complete
    assert_same_run(stopped, whole, 6)
    shares = [row["masked_phrases"] for row in whole.metrics()]
    assert all(0 < share < 1 for share in shares)
    assert "masked phrases" in capsys.readouterr().out

    # About a half of the phrases have weight 0, those of the other half are masked first.
    manifest = Manifest.load(str(whole.values["data.dir"]))
    units = manifest.statistics("validation", 16)["mask_units"]
    assert set(units["phrases_by_class"]) == {"", "even", "odd"}
    evaluate(whole.config, str(whole.workdir))
    results = json.loads((whole.workdir / "results.json").read_text())
    assert (
        0 < results["eval"]["masked_phrases"] < units["phrases_by_class"]["odd"] / units["phrases"]
    )


def test_other_weights_are_a_difference_on_resumption(make_run):
    run = make_run("run")
    begun = run.config
    run.values["data.lexicon_weights"] = ("even=2", "odd=1")
    (difference,) = store.differences(begun, run.config)
    assert difference.startswith("data.lexicon_weights: ('odd=5', 'even=0') -> ")
