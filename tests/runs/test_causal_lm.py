"""Runs of next-token prediction: left-to-right BERT and GPT learn, evaluate and predict."""

import json
import pathlib
import random

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.config.store import parse
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.labelled.texts import Text
from bert_jax.devices.trees import flatten
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.scoring import Scorer
from bert_jax.tools.listeners.make import evaluation_listener
from bert_jax.training.evaluate import evaluate
from bert_jax.training.train import train
from configs import gpt, left_to_right
from tests import tiny
from tests.inference.conftest import predict_file
from tests.resuming import metrics_of

WORDS = "the cat dog bird saw heard a small old tree river and then it slept".split()
COMMON = {
    "steps": 60,
    "phases": ((16, 1.0),),
    "global_batch_size": 16,
    "microbatch_size": 8,
    "mesh.data": 2,
    "mesh.fsdp": 2,
    "mesh.tensor": 2,
    "model.num_layers": 1,
    "model.vocab_size": 22,
    "model.pad_vocab_to_multiple_of": 8,
    "optimizer.learning_rate": 1e-2,
    "optimizer.warmup": "5",
    "data.line_format": "sentences",
    "data.dupe_factor": 1,
    "data.validation_share": 0.1,
    "data.num_processes": 1,
    "eval.every": "30",
    "log.every": "4",
    "checkpoint.every": "0",
}
NAMES = (pytest.param("left_to_right", marks=pytest.mark.slow), "gpt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A vocabulary, a corpus in which most words follow from the one before, and texts."""
    folder, rng = tmp_path_factory.mktemp("files"), random.Random(0)
    (folder / "vocab.txt").write_text("\n".join([*tiny.SPECIAL, *WORDS, ".", "##s"]) + "\n")

    def sentence() -> str:
        subject, thing = rng.choice(["cat", "dog", "bird"]), rng.choice(["tree", "river"])
        return f"the {subject} saw a {rng.choice(['small', 'old'])} {thing} and then it slept."

    documents = ("\n".join(sentence() for _ in range(rng.randint(1, 6))) for _ in range(80))
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    (folder / "texts.txt").write_text("the cat saw a tree.\nslept tree a it the.\n\n")
    return folder


def make_config(name: str, folder: pathlib.Path):
    config = parse((gpt if name == "gpt" else left_to_right).get_config("tiny"))
    config = config.replace(tiny.make_overrides() | COMMON)
    config = config.replace(
        {
            "data.source": f"text:{folder}/corpus.txt",
            "data.vocab": str(folder / "vocab.txt"),
            "data.dir": str(folder / name),
            "optimizer.name": "gpt_adam" if name == "gpt" else "adamw",
            "optimizer.schedule": "gpt_cosine" if name == "gpt" else "constant",
        }
    )
    if name == "gpt":
        config = config.replace({"checkpoint.best_metric": "bits_per_character"})
    return config


class Run:
    """A finished run."""

    def __init__(self, name: str, folder: pathlib.Path, workdir: pathlib.Path):
        self.name, self.folder, self.workdir = name, folder, str(workdir)
        self.config = make_config(name, folder)
        result = train(self.config, self.workdir)
        self.state, self.is_complete = result.state, not result.stopped_by


@pytest.fixture(scope="module", params=NAMES)
def run(request, folder, tmp_path_factory) -> Run:
    return Run(request.param, folder, tmp_path_factory.mktemp(request.param))


def test_it_learns_what_follows_what(run, capsys):
    assert run.is_complete
    training = [row["loss"] for row in metrics_of(run.workdir) if row["split"] == "train"]
    assert training[0] > 2 > 1 > training[-1]
    values = evaluate(store.load(run.workdir), run.workdir, listener=evaluation_listener())
    assert values["causal_lm_loss"] < 1 and values["causal_lm_accuracy"] > 0.6
    assert values["perplexity"] == pytest.approx(np.exp(values["causal_lm_loss"]))
    assert "health: good" in capsys.readouterr().out
    last = [row for row in metrics_of(run.workdir) if row["split"] == "validation"][-1]
    assert {name: last[name] for name in values} == values
    written = json.loads(pathlib.Path(run.workdir, "results.json").read_text())
    assert written["eval"] == values
    extra = {"word_perplexity", "bits_per_character"} if run.name == "gpt" else set()
    names = {"loss", "causal_lm_loss", "causal_lm_accuracy", "perplexity"}
    assert values.keys() == names | extra


def test_bits_per_character_are_those_of_the_held_out_text(run):
    if run.name != "gpt":
        pytest.skip("rows of pairs are not a text")
    values = evaluate(store.load(run.workdir), run.workdir)
    text = Manifest.load(run.config.data.dir).content["splits"]["validation"]["text"]
    nats = values["causal_lm_loss"] * text["predicted_tokens"]
    bits = nats / np.log(2) / text["characters"]
    assert values["bits_per_character"] == pytest.approx(bits, rel=1e-9)
    assert np.log(values["word_perplexity"]) * text["words"] == pytest.approx(nats, rel=1e-9)
    assert text["characters"] > 4 * text["words"]


def test_parameters_are_split_over_the_mesh_and_the_head_is_as_configured(run):
    parts = {"gpt": {"gpt"}, "left_to_right": {"bert", "masked_lm"}}[run.name]
    assert run.state.params.keys() == parts
    table = flatten(run.state.params[run.config.model.name])["embeddings/word_embeddings/embedding"]
    assert table.addressable_shards[0].data.shape == (12, 8)  # of 24 rows of 16
    moments = [leaf for leaf in jax.tree.leaves(run.state.opt_state) if leaf.shape == table.shape]
    assert len(moments) == 2 and all(leaf.sharding == table.sharding for leaf in moments)


def test_likely_texts_are_more_probable(run, tmp_path):
    output = tmp_path / "output.jsonl"
    config = store.load(run.workdir)
    count = predict_file(config, run.workdir, str(run.folder / "texts.txt"), str(output))
    likely, unlikely, empty = map(json.loads, output.read_text().splitlines())
    assert count == 3
    assert likely["tokens"] == unlikely["tokens"] == 6
    assert likely["log_probability"] > unlikely["log_probability"] + 5
    assert empty == {"tokens": 0, "log_probability": 0.0, "perplexity": None}

    texts = [Text(line) for line in (run.folder / "texts.txt").read_text().splitlines()]
    scorer = Scorer(Predictor(load_model(run.workdir), batch_tokens=64))
    scores = list(scorer.score(map(scorer.row, texts)))
    for score, prediction in zip(scores, (likely, unlikely, empty), strict=True):
        assert score["tokens"] == prediction["tokens"] == len(score["log_probabilities"])
        expected = pytest.approx(prediction["log_probability"], rel=1e-5)
        assert score["log_likelihood"] == expected
        assert sum(e["log_probability"] for e in score["log_probabilities"]) == expected
        assert score["unknown_tokens"] == 0
    assert [e["token"] for e in scores[0]["log_probabilities"]] == "the cat saw a tree .".split()
