"""Whole fine-tuning runs of a really small model on files whose rule is easily learned."""

import contextlib
import csv
import io
import json
import os
import pathlib
import random
import signal
import sys

import jax
import numpy as np
import pytest
from bert_jax.training.experiments import open_experiment
from jax.sharding import Mesh

from bert_jax.commands import init_from
from bert_jax.config import settings as config_lib
from bert_jax.devices import sharding
from bert_jax.devices.trees import flatten
from bert_jax.files.checksums import file_sha256
from bert_jax.training import evaluate, finetuning, reporting
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.train import Patience, train

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY))  # for configs

FILLERS = "the a of moon river stone tree cloud leaf sand hill".split()
SIGNS = "good bad gold silver lead right wrong ann bob rome".split()
VOCABULARY = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *FILLERS, *SIGNS, *"?.x"]
SMALL = {
    "epochs": 5.0,
    "phases": ((24, 1.0),),
    "global_batch_size": 8,
    "prng_impl": "threefry2x32",
    "model.vocab_size": len(VOCABULARY),
    "model.hidden_size": 16,
    "model.num_layers": 2,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "model.max_position_embeddings": 32,
    "model.initializer_range": 0.1,
    "data.lengths": (24,),
    "optimizer.name": "adamw",
    "optimizer.schedule": "constant",
    "optimizer.learning_rate": 5e-3,
    "optimizer.warmup": "0",
}
NUM_TRAIN, NUM_EVAL = 100, 21  # neither fills its last batch of 8


# ------------------------------------------------------------------ files


def filler(rng, least=2, most=18):
    return rng.choices(FILLERS, k=rng.randint(least, most))


def with_words(rng, *words, **sizes):
    """Filler with these words somewhere in it."""
    text = filler(rng, **sizes)
    for word in words:
        text.insert(rng.randint(0, len(text)), word)
    return text


def write_rows(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t").writerows(
            [header, *rows]
        )


def write_texts(path, rng, count):
    """Good or bad; of the numbers, how good; of the labels, which."""
    rows = []
    for number in range(count):
        label = ("good", "bad")[number % 2]
        more = rng.sample(("gold", "silver"), rng.randint(0, 2))
        text = with_words(rng, label, *more, least=1, most=9)
        labels = {"good": "fine|nice", "bad": ""}[label]
        rows.append((" ".join(text), label, labels, 2.5 if label == "good" else -1))
    write_rows(path, ("text_a", "label", "labels", "number"), rows)


def write_words(path, rng, count):
    """Persons of one or two words, and a place."""
    tags = {"ann": "B-PER", "bob": "I-PER", "rome": "B-LOC"}
    sentences = []
    for _ in range(count):
        text = filler(rng, 1, 6) + ["ann", "bob"][: rng.randint(0, 2)] + filler(rng, 1, 6)
        text += ["rome"] * rng.randint(0, 1)
        sentences.append("\n".join(f"{word} {tags.get(word, 'O')}" for word in text))
    path.write_text("\n\n".join(sentences) + "\n")


def write_questions(path, rng, count):
    """The answer is what shines, and lead does not."""
    questions = []
    for number in range(count):
        answer = rng.choice(("gold", "silver", "lead"))
        context = " ".join(with_words(rng, answer, least=6, most=26))
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        question = {
            "id": f"q{number}",
            "question": "the good stone ?",
            "answers": [] if answer == "lead" else answers,
            "is_impossible": answer == "lead",
        }
        questions.append({"context": context, "qas": [question]})
    content = {"version": "v2.0", "data": [{"title": "stones", "paragraphs": questions}]}
    path.write_text(json.dumps(content))


def write_choices(path, rng, count):
    rows = []
    for _ in range(count):
        label = rng.randrange(3)
        signs = ["right" if number == label else "wrong" for number in range(3)]
        endings = [" ".join(with_words(rng, sign, least=1, most=5)) for sign in signs]
        rows.append((" ".join(filler(rng, 1, 5)), "the", *endings, label))
    write_rows(path, ("sent1", "sent2", "ending0", "ending1", "ending2", "label"), rows)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name of a configuration: (training file, evaluation file)}, and `vocab.txt`."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    found = {"vocab": folder / "vocab.txt"}
    for name, write, suffix in (
        ("classification", write_texts, ".tsv"),
        ("tagging", write_words, ".conll"),
        ("span", write_questions, ".json"),
        ("multiple_choice", write_choices, ".csv"),
    ):
        found[name] = folder / f"{name}-train{suffix}", folder / f"{name}-eval{suffix}"
        for path, seed, count in zip(found[name], (0, 1), (NUM_TRAIN, NUM_EVAL), strict=True):
            write(path, random.Random(seed), count)
    return found


# ------------------------------------------------------------------ runs


class Run:
    """A run in this process: its folder, what it printed, and its newest parameters."""

    def __init__(self, config, workdir):
        self.config, self.workdir = config, pathlib.Path(workdir)

    def train(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.state = train(self.config, str(self.workdir))
        self.printed = printed.getvalue()
        return self

    def evaluate(self, **changes):
        """As --mode=evaluate: what config.json says, but for the changes."""
        config = config_lib.load(str(self.workdir))
        config.update_from_flattened_dict(changes)
        config_lib.check(config)
        with contextlib.redirect_stdout(io.StringIO()):
            return evaluate.evaluate(config, str(self.workdir))

    @property
    def results(self):
        return json.loads((self.workdir / "results.json").read_text())

    @property
    def labels(self):
        return json.loads((self.workdir / "labels.json").read_text())

    def rows(self, split="validation"):
        lines = (self.workdir / "metrics.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["split"] == split]

    def params(self, use="newest"):
        """Parameters of a checkpoint by path, and its step."""
        name = self.config.checkpoint.best_metric
        reading = Checkpoints(str(self.workdir), best_metric=name, read_only=True)
        with contextlib.closing(reading) as checkpoints:
            step = checkpoints.chosen_step(use)
            return flatten(checkpoints.read_params(step)), step


@pytest.fixture(scope="module")
def new_run(tmp_path_factory, files):
    """Returns a function (task, changes of the configuration) -> Run that has not begun."""
    import importlib

    def make(task, changes=None, workdir=None):
        config = importlib.import_module(f"configs.{task}").get_config()
        train_file, eval_file = files[task]
        values = {"data.train": str(train_file), "data.eval": str(eval_file)}
        if not (changes or {}).get("init_from"):
            values["data.vocab"] = str(files["vocab"])
        config.update_from_flattened_dict(SMALL | values | (changes or {}))
        workdir = str(workdir or tmp_path_factory.mktemp("run"))
        init_from.resolve(config, (), workdir)
        config_lib.check(config)
        return Run(config, workdir)

    return make


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """What one run has compiled, the others find."""
    from jax.experimental.compilation_cache import compilation_cache

    before = (
        jax.config.jax_compilation_cache_dir,
        jax.config.jax_persistent_cache_min_compile_time_secs,
    )
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    compilation_cache.reset_cache()


CHANGES = {
    "classification": ("classification", {"data.lengths": (12,)}),
    "multi_label": (
        "classification",
        {
            "model.num_layers": 1,
            "head.labels": "multi",
            "data.label": "labels",
            "data.label_separator": "|",
            "metrics": ("f1", "accuracy", "macro_f1"),
            "checkpoint.best_metric": "f1",
        },
    ),
    "regression": (
        "classification",
        {
            "model.num_layers": 1,
            "head.labels": "regression",
            "data.label": "number",
            "metrics": ("pearson", "spearman"),
            "checkpoint.best_metric": "pearson",
        },
    ),
    "tagging": ("tagging", {"model.num_layers": 1, "phases": ((14, 1.0),), "data.lengths": (14,)}),
    "words": (
        "tagging",
        {
            "model.num_layers": 1,
            "head.entities": False,
            "metrics": ("accuracy",),
            "checkpoint.best_metric": "accuracy",
            "epochs": 2.0,
        },
    ),
    "crf": ("tagging", {"model.num_layers": 1, "head.tagging": "crf"}),
    "span": (
        "span",
        {
            "phases": ((24, 1.0),),
            "head.null_answers": True,
            "head.doc_stride": 8,
            "metrics": ("f1", "exact"),
        },
    ),
    "multiple_choice": ("multiple_choice", {"model.num_layers": 1}),
}


@pytest.fixture(scope="module")
def finished(new_run, files):
    """Returns the function name (of CHANGES) -> finished run."""
    runs = {}

    def make(name):
        if name not in runs:
            task, changes = CHANGES[name]
            if name == "classification":
                more = {"data.more_eval": (f"trained={files[task][0]}",)}
                changes = changes | more
            runs[name] = new_run(task, changes).train()
        return runs[name]

    return make


# ------------------------------------------------------------------ learning


@pytest.mark.parametrize(
    "name, metrics, least, baseline",
    [
        ("classification", ("accuracy",), 0.9, (0.5, 0.8)),
        ("multi_label", ("f1", "accuracy", "macro_f1"), 0.85, (0.4, 0.8)),
        ("regression", ("pearson", "spearman"), 0.8, (0, 0)),
        ("tagging", ("f1", "precision", "recall", "accuracy", "PER_f1", "LOC_f1"), 0.9, (0, 0)),
        ("words", ("accuracy",), 0.95, (0.8, 0.93)),
        ("crf", ("f1", "precision", "recall", "accuracy", "PER_f1", "LOC_f1"), 0.9, (0, 0)),
        ("span", ("f1", "exact", "best_f1", "best_exact"), 80, (20, 60)),
        ("multiple_choice", ("accuracy",), 0.9, (1 / 3, 0.7)),
    ],
)
def test_a_run_learns_the_rule_and_says_on_what(finished, name, metrics, least, baseline):
    run = finished(name)
    results, task = run.results, CHANGES[name][0]
    assert set(results) == {"eval", "step", "seed", "task", "init_from", "baseline", "data"}
    assert next(iter(results["eval"])) == metrics[0] == run.config.metrics[0]
    assert {*metrics, "loss"} <= set(results["eval"])
    assert baseline[0] <= results["baseline"] <= baseline[1] < least
    assert results["eval"][metrics[0]] >= least
    assert (results["task"], results["seed"], results["init_from"]) == (task, 0, "")
    sizes = {"train": NUM_TRAIN, "eval": NUM_EVAL}
    for split, size in sizes.items():
        path = run.config.data[split]
        expected = {"source": path, "sha256": file_sha256(path), "examples": size}
        assert results["data"][split] == expected
    assert "health: good" in run.printed
    assert config_lib.load(str(run.workdir)).to_dict() == run.config.to_dict()


def test_labels_are_those_of_the_training_file_in_order(finished):
    assert finished("classification").labels == ["bad", "good"]
    assert finished("multi_label").labels == ["fine", "nice"]
    assert finished("regression").labels == finished("span").labels == []
    assert finished("tagging").labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def test_the_best_checkpoint_is_the_one_evaluated(finished):
    run = finished("classification")
    values = {row["step"]: row["accuracy"] for row in run.rows()}
    epoch = -(-NUM_TRAIN // 8)
    assert list(values) == [epoch * number for number in range(1, 6)]
    best = max(values, key=lambda step: (values[step], -step))
    row = next(row for row in run.rows() if row["step"] == best)
    assert run.results["step"] == best
    assert run.results["eval"] == {n: v for n, v in row.items() if n not in ("step", "split")}
    assert run.params("best")[1] == best and run.params("newest")[1] == 5 * epoch
    assert f"best       step {best}" in run.printed


@pytest.mark.parametrize("name", ["classification", "crf", "span"])
def test_evaluating_from_the_workdir_gives_the_same_scores(finished, name):
    run = finished(name)
    before = run.results
    values = run.evaluate()
    after = run.results
    assert values == before["eval"]
    del before["data"]["train"]  # which evaluation does not read
    assert after == before


def test_more_files_are_evaluated_under_their_names(finished):
    values = finished("classification").results["eval"]
    assert list(values) == ["accuracy", "loss", "trained_accuracy", "trained_loss"]
    run = finished("classification")
    alone = run.evaluate(**{"data.eval": run.config.data.train, "data.more_eval": ()})
    assert alone == {"accuracy": values["trained_accuracy"], "loss": values["trained_loss"]}
    run.evaluate()  # leaves what was there


# ------------------------------------------------------------------ stopping


@pytest.mark.parametrize("name, stop_at", [("classification", (5, 31)), ("crf", (20,))])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    finished, new_run, monkeypatch, name, stop_at
):
    whole = finished(name)
    run = Run(whole.config, new_run(CHANGES[name][0]).workdir)
    push = reporting.Reporter.push

    def push_and_stop(self, step, *rest):
        push(self, step, *rest)
        if step in stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(reporting.Reporter, "push", push_and_stop)
    for step in stop_at:
        assert int(run.train().state.step) == step
        assert f"Stopped by SIGTERM after step {step}" in run.printed
    run.train()
    assert f"resumed    after step {stop_at[-1]}" in run.printed
    assert run.results["eval"] == whole.results["eval"]
    assert run.results["step"] == whole.results["step"]
    assert run.rows() == whole.rows()
    (params, step), (expected, last) = run.params(), whole.params()
    assert step == last
    for path, array in expected.items():
        assert params[path].tobytes() == array.tobytes(), path


def stopping_early(new_run, **changes):
    """Without learning no evaluation is better than the first."""
    values = {
        "optimizer.learning_rate": 0.0,
        "eval.every": "2",
        "checkpoint.every": "2",
        "eval.patience": 2,
        **changes,
    }
    return new_run("classification", values)


def test_a_run_that_does_not_become_better_stops_early_and_says_so_again(new_run):
    run = stopping_early(new_run).train()
    assert int(run.state.step) == 6
    assert [row["step"] for row in run.rows()] == [2, 4, 6]
    assert run.results["step"] == 2  # the first of equals
    assert "health: " in run.printed
    again = Run(run.config, run.workdir).train()
    assert int(again.state.step) == 6
    assert "This run is complete: it ended early, after 6 of" in again.printed
    assert run.params()[1] == 6


def test_the_best_evaluation_is_saved_where_no_checkpoint_is_due(new_run):
    """Without learning it is the first; and what says so is written again if it was lost."""
    changes = {"optimizer.learning_rate": 0.0, "eval.every": "5", "checkpoint.every": "1000 steps"}
    run = new_run("classification", {**changes, "epochs": 1.0}).train()
    assert [row["step"] for row in run.rows()] == [5, 10, 13]
    results = run.results
    assert results["step"] == 5 == run.params("best")[1] and run.params()[1] == 13
    (run.workdir / "results.json").unlink()
    run.train()
    assert "This run is complete: all its 13 steps were done before." in run.printed
    assert run.results == results


def patience_of(workdir, limit, name, step=100):
    config = config_lib.ConfigDict(
        {"eval": {"patience": limit}, "checkpoint": {"best_metric": name}}
    )
    return Patience(config, str(workdir), step)


@pytest.mark.parametrize(
    "name, limit, values, over_after",
    [
        ("f1", 1, (0.1, 0.2, 0.2), 3),
        ("f1", 2, (0.1, 0.3, 0.2, 0.25, 0.9), 4),
        ("f1", 2, (0.1, 0.3, 0.2, 0.4, 0.3), None),
        ("loss", 2, (3.0, 2.0, 2.5, 2.0), 4),
        ("f1", 0, (0.3, 0.2, 0.1, 0.0), None),
        ("loss", 2, (3.0, float("nan"), None), 3),
        ("loss", 2, (None, float("nan"), 3.0, 2.0), None),
    ],
)
def test_patience_counts_evaluations_since_the_best(tmp_path, name, limit, values, over_after):
    patience = patience_of(tmp_path, limit, name)
    over = []
    for value in values:
        patience.add({name: value})
        over.append(patience.is_over)
    expected = over_after is not None
    assert any(over) == expected
    if expected:
        assert over.index(True) + 1 == over_after


def test_patience_counts_what_was_evaluated_before_a_resumption(tmp_path):
    rows = [(10, 0.5), (20, 0.9), (30, 0.8), (40, 0.7)]
    lines = [{"step": s, "split": "validation", "f1": v} for s, v in rows]
    lines.insert(1, {"step": 15, "split": "train", "loss": 1.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert patience_of(tmp_path, 2, "f1", step=40).is_over
    patience = patience_of(tmp_path, 2, "f1", step=30)
    assert not patience.is_over
    patience.add({"f1": 0.9})
    assert patience.is_over


# ------------------------------------------------------------------ what scores depend on


def found_by(run, split, batch_size, lengths, mesh):
    """(predictions, loss) of the run's newest parameters."""
    config = config_lib.load(str(run.workdir))
    config.data.lengths = lengths
    experiment = open_experiment(config, str(run.workdir), to_train=False)
    data, rows = experiment.data, experiment.splits[split].rows
    answers = data.collect(experiment.splits[split].examples, rows)
    task = experiment.task(experiment.phases[0])
    params = jax.device_put(run.state.params, sharding.replicated(mesh))
    totals = finetuning.answer(task, params, mesh, rows, answers, batch_size, config)
    return answers.predictions(), totals.means()["task_loss"]


def numbers_in(prediction):
    """(what is no float, the floats) of a prediction."""
    leaves = jax.tree.leaves(prediction, is_leaf=lambda x: x is None)
    floats = [leaf for leaf in leaves if isinstance(leaf, float)]
    return [leaf for leaf in leaves if not isinstance(leaf, float)], floats


@pytest.mark.parametrize(
    "name", ["classification", "tagging", "crf", "span", "multiple_choice", "regression"]
)
def test_scores_do_not_depend_on_batches_padding_or_devices(finished, name):
    run = finished(name)
    longest = run.config.phases[0][0]
    one = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    eight, two_ways = sharding.make_mesh(), sharding.make_mesh(fsdp=2)
    predictions, loss = found_by(run, "eval", 1, (longest,), one)  # each row by itself
    # A batch of 8 and of 16 has a last one that is not full; 64 takes all rows at once.
    for batch_size, lengths, mesh in (
        (8, (longest,), eight),
        (16, (9, 13, longest), eight),
        (64, (longest,), two_ways),
    ):
        others, other_loss = found_by(run, "eval", batch_size, lengths, mesh)
        np.testing.assert_allclose(other_loss, loss, rtol=1e-5, atol=1e-5)
        for prediction, other in zip(predictions, others, strict=True):
            (same, floats), (other_same, other_floats) = map(numbers_in, (prediction, other))
            assert other_same == same
            np.testing.assert_allclose(other_floats, floats, atol=2e-5, rtol=1e-4)


# ------------------------------------------------------------------ what is trained


def test_a_frozen_encoder_stays_as_it_was_bit_for_bit(finished, new_run):
    """Also under weight decay, and split over devices; the BiLSTM-CRF on it learns all the same."""
    first = finished("span")
    changes = {
        "init_from": str(first.workdir),
        "head.tagging": "bilstm_crf",
        "head.layers": "scalar_mix",
        "head.lstm_size": 16,
        "head.lstm_layers": 1,
        "optimizer.frozen_layers": -1,
        "optimizer.learning_rate": 2e-2,
        "optimizer.weight_decay": 0.1,
        "mesh.fsdp": 2,
    }
    run = new_run("tagging", changes).train()
    assert run.results["eval"]["f1"] > 0.6
    assert run.results["init_from"] == str(first.workdir)
    before, after = first.params("best")[0], run.params()[0]
    encoder = {path for path in before if path.startswith(("bert/embeddings", "bert/encoder"))}
    assert encoder == {path for path in after if path.startswith("bert/")}
    for path in encoder:
        assert after[path].tobytes() == before[path].tobytes(), path
    assert after["scalar_mix/weights"].any() and after["transitions"].any()


def test_first_layers_are_frozen_and_last_ones_made_anew(finished, new_run):
    first = finished("classification")
    changes = {
        "init_from": str(first.workdir),
        "reinit_layers": 1,
        "optimizer.frozen_layers": 1,
        "optimizer.weight_decay": 0.1,
        "optimizer.learning_rate": 1e-5,
        "model.initializer_range": 0.01,
        "epochs": 0.0,
        "steps": 2,
    }
    run = new_run("classification", changes).train()
    assert "with new, random ones for bert/encoder/layer_1, bert/pooler" in run.printed
    before, after = first.params("best")[0], run.params()[0]
    for path, array in before.items():
        if path.startswith(("bert/embeddings", "bert/encoder/layer_0")):
            assert after[path].tobytes() == array.tobytes(), path
        elif path.startswith(("bert/encoder/layer_1", "bert/pooler")):
            if path.endswith("kernel"):  # as drawn, two small steps on
                assert np.abs(after[path]).max() < 0.05 < np.abs(array).max(), path
        else:  # the head goes on from where it was
            np.testing.assert_allclose(after[path], array, atol=1e-4)
            assert (after[path] != array).any()


# ------------------------------------------------------------------ what cannot be


def refuses(new_run, message, task="classification", changes=None, to_train=True, workdir=None):
    run = new_run(task, changes, workdir)
    with pytest.raises(ValueError, match=message):
        open_experiment(run.config, str(run.workdir), to_train)


@pytest.mark.parametrize(
    "task, changes, message",
    [
        ("classification", {"data.train": ""}, r"data\.train is missing: the file to train on"),
        ("classification", {"data.eval": ""}, r"data\.eval is missing: the file to evaluate on"),
        ("classification", {"data.vocab": ""}, r"config\.init_from is missing: the pre-trained"),
        (
            "classification",
            {"data.more_eval": ("other.tsv",)},
            r"more_eval: 'other\.tsv' is not NAME=FILE with a name of its own",
        ),
        ("classification", {"data.more_eval": ("eval=other.tsv",)}, "not NAME=FILE with a name"),
        ("classification", {"data.more_eval": ("a=x", "a=y")}, "'a=y' is not NAME=FILE"),
        (
            "classification",
            {"metrics": ("f2",), "checkpoint.best_metric": "f2"},
            r"metrics: 'f2' is none of accuracy, f1, macro_f1, matthews, which there are for"
            r" head\.labels='single'",
        ),
        (
            "classification",
            {"head.labels": "regression"},
            "metrics: 'accuracy' is none of pearson, spearman",
        ),
        ("classification", {"head.labels": "some"}, "'some' is none of single, multi, regression"),
        (
            "classification",
            {"data.published": "cola2"},
            r"data\.published='cola2'. Available: cola",
        ),
        ("classification", {"data.text_a": ""}, r"data\.text_a is missing: the column of the text"),
        (
            "tagging",
            {"metrics": ("f2",), "checkpoint.best_metric": "f2"},
            "metrics: 'f2' is none of f1, precision, recall, accuracy",
        ),
        (
            "tagging",
            {"head.tagging": "lstm"},
            r"head\.tagging: 'lstm' is none of linear, crf, bilstm, bilstm_crf",
        ),
        ("tagging", {"head.layers": "first"}, r"head\.layers: 'first' is none of last, embeddings"),
        ("span", {"metrics": ("f2", "f1")}, "metrics: 'f2' is none of f1, exact_match, which"),
        ("span", {"data.published": "squad"}, r"data\.published='squad'. Available: cmrc2018"),
        (
            "multiple_choice",
            {"metrics": ("accuracy", "f1")},
            r"metrics=\('accuracy', 'f1'\) must be \('accuracy',\) for multiple choice",
        ),
        ("multiple_choice", {"data.text_a": ""}, "text_a is missing: the column of the context"),
        (
            "classification",
            {"metrics": ("f1",), "checkpoint.best_metric": "f1", "data.label": "text_a"},
            r"metrics: f1 is of one of two labels, and there are \d+ \(.*\): take macro_f1",
        ),
        (
            "tagging",
            {"head.entities": False},
            r"metrics: 'f1' is none of accuracy",
        ),
        (
            "span",
            {"model.vocab_size": 9},
            r"has \d+ entries, the model a table of",
        ),
        ("classification", {"optimizer.name": "lamb"}, "Unknown optimizer 'lamb'"),
        ("classification", {"global_batch_size": 4}, "global_batch_size=4 is not divisible by 8"),
    ],
)
def test_what_cannot_be_is_said(new_run, task, changes, message):
    refuses(new_run, message, task, changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"checkpoint.best_metric": "f1"}, "best_metric='f1' is none of loss, accuracy"),
        ({"phases": ((8, 0.5), (24, 0.5))}, r"fine-tuning has one, such as \(\(128, 1\.0\),\)"),
        ({"data.lengths": (24, 8)}, "are not ascending lengths of rows"),
        ({"data.lengths": ()}, "are not ascending lengths of rows"),
        ({"metrics": (), "checkpoint.best_metric": "loss"}, "config.metrics is empty"),
        ({"reinit_layers": 3}, "config.reinit_layers=3 of 2 layers"),
        ({"optimizer.frozen_layers": -2}, "must be 0 or above, or -1 for all layers"),
    ],
)
def test_settings_that_cannot_be_are_said_at_once(new_run, changes, message):
    with pytest.raises(ValueError, match=message):
        new_run("classification", changes)


def test_a_label_that_training_has_not_seen_is_named_with_its_line(finished, new_run, tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("text_a\tlabel\nthe moon\tgood\nthe sand\tugly\n")
    message = rf"{path}, line 3: the label 'ugly' is not one of those in training: bad, good\."
    changes = {"data.eval": str(path)}
    refuses(new_run, message, changes=changes, workdir=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    workdir = finished("classification").workdir
    refuses(new_run, message, changes=changes, to_train=False, workdir=workdir)
    path = tmp_path / "new.conll"
    path.write_text("ann B-PER\nsand B-ORG\n")
    message = r"the label 'B-ORG' is not one of those in training: O, B-LOC, I-LOC"
    refuses(new_run, message, "tagging", {"data.eval": str(path)})


def test_a_folder_without_a_run_is_not_evaluated(new_run, files, tmp_path):
    refuses(new_run, "holds no vocabulary", to_train=False, workdir=tmp_path)
    (tmp_path / "vocab.txt").write_text(files["vocab"].read_text())
    refuses(new_run, r"has no labels\.json: train first", to_train=False, workdir=tmp_path)


def test_other_training_data_are_refused_by_a_run_that_has_begun(finished, new_run, tmp_path):
    first = finished("multiple_choice")
    path = tmp_path / "train.csv"
    write_choices(path, random.Random(5), 20)
    config = first.config.copy_and_resolve_references()
    config.data.train = str(path)
    config.checkpoint.allow_changes = False
    with pytest.raises(ValueError, match="was trained with other settings"):
        Run(config, first.workdir).train()
