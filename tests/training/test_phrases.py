"""A run with phrases as units of masking: sharded, in microbatches, stopped and resumed."""

import json

import pytest

from bert_jax.config import store
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.tools.listeners.make import training_listener
from bert_jax.training.evaluate import evaluate
from bert_jax.training.train import train
from configs import tiny
from tests.resuming import assert_same_run, metrics_of, train_in_parts
from tests.runs.conftest import SMALL, write_corpus


@pytest.fixture
def config(tmp_path):
    """A configuration with the phrases of a lexicon in two classes."""
    corpus, lexicon = tmp_path / "corpus.txt", tmp_path / "lexicon.txt"
    write_corpus(corpus)
    words = sorted(set(corpus.read_text().split()))
    lines = (f"{word}\t{'odd' if i % 2 else 'even'}\n" for i, word in enumerate(words[:40]))
    lexicon.write_text("".join(lines))
    changes = {
        "data.source": f"text:{corpus}",
        "data.dir": str(tmp_path / "data"),
        "data.masking": "phrase",
        "data.lexicon": str(lexicon),
        "data.lexicon_weights": ("odd=5", "even=0"),
        "phases": ((16, 1.0),),
        "steps": 6,
        "mesh.data": 2,
        "mesh.fsdp": 2,
        "mesh.tensor": 2,
        "microbatch_size": 4,
        "eval.every": "3",
        "checkpoint.every": "2",
    }
    return store.parse(tiny.get_config()).replace(SMALL | changes)


@pytest.mark.slow
def test_a_run_with_phrases_resumes_bit_for_bit(config, tmp_path, capsys):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(config, str(whole), listener=training_listener())
    assert "masked phrases" in capsys.readouterr().out
    train_in_parts(config, stopped, 3)
    assert_same_run(stopped, whole)
    assert all(0 < row["masked_phrases"] < 1 for row in metrics_of(whole))

    # About a half of the phrases have weight 0, those of the other half are masked first.
    statistics = Manifest.load(config.data.dir).statistics("validation", 16)["mask_units"]
    assert set(statistics["phrases_by_class"]) == {"", "even", "odd"}
    evaluate(config, str(whole))
    results = json.loads((whole / "results.json").read_text())
    odd = statistics["phrases_by_class"]["odd"]
    assert 0 < results["eval"]["masked_phrases"] < odd / statistics["phrases"]


def test_other_weights_are_a_difference_on_resumption(config):
    changed = config.replace({"data.lexicon_weights": ("even=2", "odd=1")})
    (difference,) = store.differences(config, changed)
    assert difference.startswith("data.lexicon_weights: ('odd=5', 'even=0') -> ")
