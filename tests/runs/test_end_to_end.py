"""A model that learns: trained, evaluated and used for prediction, as a user would."""

import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.texts import Text
from bert_jax.inference.loading import TrainedModel, load_model
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.inference.scoring import Scorer
from bert_jax.tools.outputs.samples import held_out_sentences
from bert_jax.training import metrics
from bert_jax.training.train import train
from tests import tiny
from tests.runs.conftest import ENVIRONMENT, REPOSITORY, Run
from tests.tools.pages.made_runs import figure_of, read_page

TOPICS = [first + second for first in "klmn" for second in ("aka", "olo", "umu")]
STEPS = 200


def sentence(word: str, length: int = 6, mask: int | None = None) -> str:
    """ "kaka kaka [MASK] kaka .", for a length of 4 and the mask at 2."""
    return " ".join("[MASK]" if place == mask else word for place in range(length)) + " ."


def write_corpus(folder: pathlib.Path) -> None:
    """Writes documents of a single word each: every neighbour gives the masked token away."""
    rng = np.random.default_rng(0)
    documents = [
        "".join(f"{sentence(word, rng.integers(3, 8))}\n" for _ in range(8))
        for word in rng.choice(TOPICS, 200)
    ]
    (folder / "corpus.txt").write_text("\n".join(documents))
    vocabulary = [*tiny.SPECIAL, *TOPICS, "."]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


def config_of(run: Run) -> RunConfig:
    return store.load(str(run.workdir))


def load_run(run: Run) -> TrainedModel:
    return load_model(str(run.workdir))


def rows_of(run: Run, split: str) -> list[dict]:
    return [row for row in metrics.read_metrics(str(run.workdir)) if row["split"] == split]


@pytest.fixture(scope="module")
def make_run(corpus, tmp_path_factory):
    """Returns a function (**changes) -> a run of the small model on the corpus, not begun."""
    sizes = {"vocab_size": 24, "hidden_size": 32, "num_layers": 1}
    values = tiny.make_overrides(**{f"model__{k}": v for k, v in sizes.items()}) | {
        "steps": STEPS,
        "phases": ((24, 1.0),),
        "global_batch_size": 16,
        "model.initializer_range": 0.1,
        "data.source": f"text:{corpus}/corpus.txt",
        "data.line_format": "sentences",
        "data.vocab": f"{corpus}/vocab.txt",
        "data.dupe_factor": 2,
        "data.validation_share": 0.1,
        "data.dir": str(corpus / "data"),
        "data.num_processes": 1,
        "optimizer.learning_rate": 1e-2,
        "optimizer.warmup": "10%",
        "log.every": "50",
        "eval.every": "0",
        "checkpoint.every": "0",
    }

    def make(**changes) -> Run:
        return Run(tmp_path_factory.mktemp("run"), values | changes, optimized=True)

    return make


@pytest.fixture(scope="module")
def run(make_run) -> Run:
    """A run of the program, as users start it."""
    run = make_run()
    code, _, err = run.finish()
    assert code == 0, err
    return run


@pytest.fixture(scope="module")
def predictor(run) -> TaskPredictor:
    return TaskPredictor(Predictor(load_run(run)), top_k=3)


def start(module: str, *flags: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", module, *flags],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )


# --------------------------------------------------------------------------------- training


def test_the_loss_falls_far_below_what_word_frequencies_give(run):
    first, *_, last = rows_of(run, "train")
    assert first["masked_lm_loss"] > 1.5
    assert last["masked_lm_loss"] < 0.8
    assert last["next_sentence_loss"] < first["next_sentence_loss"]


def test_held_out_documents_are_predicted_from_context(run):
    (held_out,) = rows_of(run, "validation")
    assert held_out["step"] == STEPS
    assert held_out["masked_lm_accuracy"] > 0.75
    assert held_out["masked_lm_loss"] < 1.0
    total = held_out["masked_lm_loss"] + held_out["next_sentence_loss"]
    assert held_out["loss"] == pytest.approx(total)


def test_every_report_is_in_metrics_and_in_the_events(run):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(f"{run.workdir}/tensorboard")
    events.Reload()
    assert [row["step"] for row in rows_of(run, "train")] == [50, 100, 150, 200]
    for row in rows_of(run, "train") + rows_of(run, "validation"):
        values = {**row, **row.get("speed", {})}
        for name in values.keys() - {"step", "split", "speed"}:
            written = {e.step: e.value for e in events.Scalars(f"{row['split']}/{name}")}
            assert written[row["step"]] == pytest.approx(values[name], rel=1e-6)


@pytest.mark.slow
def test_all_options_together_learn_too(make_run):
    """bfloat16, AdamW, recomputed activations, and microbatches of a larger batch."""
    changes = {
        "dtype": "bfloat16",
        "optimizer.name": "adamw",
        "optimizer.schedule": "linear",
        "model.remat": True,
        "microbatch_size": 16,
        "phases": ((16, 1.0, 32),),
        "data.dir": "",
    }
    run = make_run(**{"steps": 60, "log.every": "20"} | changes)
    train(run.config, str(run.workdir))
    rows = rows_of(run, "train")
    assert [row["step"] for row in rows] == [20, 40, 60]
    assert rows[-1]["masked_lm_loss"] < rows[0]["masked_lm_loss"] - 0.3


# --------------------------------------------------------------------------------- evaluation


def test_evaluating_the_folder_gives_the_numbers_of_training(run):
    done = start("bert_jax.main", "--mode=evaluate", f"--workdir={run.workdir}")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(pathlib.Path(run.workdir, "results.json").read_text())
    (in_training,) = rows_of(run, "validation")
    assert results["eval"] == {name: in_training[name] for name in results["eval"]}
    assert results["step"] == STEPS
    assert f"checkpoint of step {STEPS}" in done.stdout
    assert "unigram entropy" in done.stdout
    assert "health: " in done.stdout


# --------------------------------------------------------------------------------- prediction


def test_masks_are_filled_with_the_word_of_the_context(predictor):
    asked = [(word, place) for word in TOPICS for place in range(5)]
    texts = [Text(sentence(word, mask=place)) for word, place in asked]
    answers = [answer for window in predictor.predict(texts) for answer in window]
    for (word, place), answer in zip(asked, answers, strict=True):
        (mask,) = answer["masks"]
        assert mask["position"] == place + 1  # after [CLS]
        assert mask["candidates"][0]["token"] == word
        assert mask["candidates"][0]["probability"] > 2 / len(TOPICS)


# --------------------------------------------------------------------------------- as a user


def test_fill_mask_prints_candidates_with_their_probabilities(run, capsys):
    text = sentence("kaka", mask=2)
    run_command(["fill_mask", f"--model={run.workdir}", "--top_k=2", text])
    _, asked, best, second = capsys.readouterr().out.splitlines()
    assert asked == text
    share, word = best.split()
    assert word == "kaka"
    assert float(share.rstrip("%")) >= float(second.split()[0].rstrip("%"))


def test_a_report_shows_held_out_sentences_to_the_model(run, tmp_path):
    words = ["report", f"--workdir={run.workdir}", "--held_out=3"]
    run_command([*words, f"--output={tmp_path / 'a.html'}"])
    page = read_page((tmp_path / "a.html").read_text(encoding="utf-8"))
    found = held_out_sentences(config_of(run), str(run.workdir), 3)
    assert [mark.text for mark in page.find("mark", class_="gold")] == [word for _, word in found]
    scorer = Scorer(Predictor(load_run(run)))
    texts = [Text(text.replace("[MASK]", word)) for text, word in found]
    expected = [
        f"{item['token']}: {math.exp(item['log_probability']):.2%}"
        for score in scorer.score(map(scorer.row, texts))
        for item in score["log_probabilities"]
    ]
    tips = [token.attributes.get("data-tip", "") for token in page.find("span", class_="token")]
    assert [tip.rpartition(", ")[0] for tip in tips if tip] == expected
    evaluation = json.loads((pathlib.Path(run.workdir) / "evaluation.json").read_text())
    verdict = evaluation["verdict"][-1].removeprefix("health: ")
    assert [box.text for box in page.find("div", class_="verdict")][0].startswith(
        f"Health: {verdict}"
    )
    figure = figure_of(page, "Masked tokens: loss (nats)")
    levels = [level.text for level in figure.find("text", class_="level")]
    assert len(levels) == 1 and levels[0].startswith("unigram entropy ")
