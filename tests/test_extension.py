"""A new task and a new encoder: a file, a row and a configuration each, and nothing else changes.

tests/extension/ holds them. Each combination trains on a mesh of 8 devices, evaluates and predicts
through the same functions as the tasks and the encoder of the package.
"""

import functools
import importlib.util
import json
import pathlib
import random
import sys
from importlib.metadata import EntryPoint

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

import bert_jax
from bert_jax import api
from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.config.encoders import ENCODERS
from bert_jax.config.task import add_task, default_config
from bert_jax.data.init_from import resolve
from bert_jax.data.labelled.texts import Text
from bert_jax.files.errors import UserError
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor
from bert_jax.models import MODELS
from bert_jax.optim.optimizers import OPTIMIZERS
from bert_jax.optim.schedules import SCHEDULES
from bert_jax.tasks import TASKS, find_task
from bert_jax.tools.listeners.make import evaluation_listener, training_listener
from bert_jax.training.evaluate import evaluate
from bert_jax.training.train import train
from tests import tiny
from tests.extension import toy_configs, toy_corpus_task, toy_encoder, toy_task
from tests.inference.conftest import predict_file
from tests.resuming import metrics_of

WORDS = "moon river stone tree cloud leaf sand hill good bad".split()
VOCABULARY = [*tiny.SPECIAL, *WORDS, "."]
PAD_TO = 8  # rows of the table of words, which the mesh splits
COMMON = {
    "global_batch_size": 16,
    "prng_impl": tiny.PRNG_IMPL,
    "mesh.data": 2,
    "mesh.fsdp": 2,
    "mesh.tensor": 2,
    "model.pad_vocab_to_multiple_of": PAD_TO,
    "optimizer.name": "adamw",
    "optimizer.schedule": "constant",
    "optimizer.learning_rate": 1e-2,
    "optimizer.warmup": "0",
    "log.every": "4",
    "checkpoint.every": "0",
}
# A small BERT.
SIZES = {f"model.{name}": size for name, size in tiny.SIZES.items()}
SIZES |= {"model.vocab_size": len(VOCABULARY), "model.num_layers": 1}


@pytest.fixture(scope="module", autouse=True)
def rows():
    """The rows that an extension adds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "count_words", toy_task.CountWords)
        patch.setitem(TASKS, "next_token", toy_corpus_task.NextToken)
        patch.setitem(MODELS, "bag", toy_encoder.BAG)
        patch.setitem(ENCODERS, "bag", toy_encoder.BAG.config)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """A folder with a vocabulary, texts, labelled texts and a corpus."""
    folder, rng = tmp_path_factory.mktemp("files"), random.Random(0)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    for name, count in (("train", 200), ("eval", 40)):
        texts = [" ".join(rng.choices(WORDS[:8], k=rng.randint(1, 9))) for _ in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")
        labels = [WORDS[8 + rng.randrange(2)] for _ in texts]
        rows = [f"{text} {label}\t{label}" for text, label in zip(texts, labels, strict=True)]
        (folder / f"{name}.tsv").write_text("\n".join(["text_a\tlabel", *rows]) + "\n")
    documents = (
        "".join(f"{' '.join([word] * rng.randint(3, 6))} .\n" for _ in range(4))
        for word in rng.choices(WORDS, k=120)
    )
    (folder / "corpus.txt").write_text("\n".join(documents))
    (folder / "masks.txt").write_text("moon [MASK] moon .\nsand sand [MASK] .\n")
    return folder


def labelled(config, files, suffix):
    values = {
        "epochs": 4.0,
        "data.train": str(files / f"train{suffix}"),
        "data.eval": str(files / f"eval{suffix}"),
        "data.vocab": str(files / "vocab.txt"),
        "data.bucket_lengths": (16,),
    }
    return config.replace(values), files / f"eval{suffix}"


def count_words(files):
    config = toy_configs.count_words()
    return labelled(config.replace(SIZES | {"max_length": 16}), files, ".txt")


def classification_of_bags(files):
    config = toy_configs.use_bag(default_config("classification"), len(VOCABULARY))
    return labelled(config, files, ".tsv")


def pretraining_of_bags(files):
    config = toy_configs.use_bag(default_config("pretraining"), len(VOCABULARY))
    return on_corpus(config, files, "bag"), files / "masks.txt"


def next_token(files):
    config = toy_configs.next_token().replace(SIZES | {"phases": ((16, 1.0),)})
    return on_corpus(config, files, "next_token"), files / "masks.txt"


def on_corpus(config, files, name):
    values = {
        "steps": 60,
        "data.source": f"text:{files}/corpus.txt",
        "data.line_format": "sentences",
        "data.vocab": str(files / "vocab.txt"),
        "data.dupe_factor": 1,
        "data.validation_share": 0.1,
        "data.dir": str(files / name),
        "data.num_processes": 1,
        "eval.every": "30",
    }
    return config.replace(values)


class Run:
    """A finished run, and the input of its predictions."""

    def __init__(self, make, files, workdir):
        config, self.input = make(files)
        self.config = config.replace(COMMON)
        self.workdir = str(workdir)
        result = train(self.config, self.workdir)
        self.state, self.is_complete = result.state, not result.stopped_by


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    """Returns the function (makes a configuration) -> finished run."""
    return functools.cache(lambda make: Run(make, files, tmp_path_factory.mktemp(make.__name__)))


@pytest.fixture(
    params=[
        count_words,
        pretraining_of_bags,
        pytest.param(classification_of_bags, marks=pytest.mark.slow),
        pytest.param(next_token, marks=pytest.mark.slow),
    ],
)
def run(request, finished) -> Run:
    return finished(request.param)


def test_it_learns_more_than_the_same_answer_to_everything(run, capsys):
    assert run.is_complete
    rows = [row for row in metrics_of(run.workdir) if row["split"] == "validation"]
    least = {"accuracy": 0.8, "masked_lm_accuracy": 0.8, "next_token_accuracy": 0.6}
    (score,) = least.keys() & rows[-1].keys()
    assert rows[-1][score] > least[score]
    capsys.readouterr()
    values = evaluate(store.load(run.workdir), run.workdir, listener=evaluation_listener())
    has_baseline = run.config.task.name != "count_words"
    assert ("health: good" in capsys.readouterr().out) == has_baseline
    best = run.config.best_metric
    uses_best = run.config.checkpoint.use == "best"
    expected = max(rows, key=lambda row: row[best]) if uses_best else rows[-1]
    assert {name: expected[name] for name in values} == values
    assert json.loads(pathlib.Path(run.workdir, "results.json").read_text())["eval"] == values


def test_parameters_and_moments_are_split_over_the_mesh(run):
    """The table of words by both axes, so that a device has a quarter of it."""
    params = run.state.params[run.config.model.name]
    table = params["words" if "words" in params else "embeddings"]
    table = table.get("word_embeddings", table)["embedding"]
    assert table.sharding.spec == PartitionSpec("tensor", "fsdp")
    (moments,) = {
        leaf.sharding.shard_shape(leaf.shape)
        for leaf in jax.tree.leaves(run.state.opt_state)
        if leaf.shape == table.shape
    }
    rows, features = table.shape
    assert rows % PAD_TO == 0
    assert moments == table.addressable_shards[0].data.shape == (rows // 2, features // 2)
    assert len(table.addressable_shards) == 8


def test_every_example_is_predicted(run, tmp_path):
    output = tmp_path / "output.jsonl"
    if run.config.task.name == "next_token":
        with pytest.raises(ValueError, match="config.task.name='next_token' makes no predictions"):
            predict_file(store.load(run.workdir), run.workdir, str(run.input), str(output))
        return
    count = predict_file(store.load(run.workdir), run.workdir, str(run.input), str(output), top_k=1)
    rows = list(map(json.loads, output.read_text().splitlines()))
    texts = run.input.read_text().splitlines()
    if run.input.suffix == ".tsv":
        del texts[0]
    assert count == len(rows) == len(texts)
    right = {
        "words": lambda text, row: row["words"] == len(text.split()),
        "label": lambda text, row: row["label"] == text.split("\t")[1],
        "masks": lambda text, row: row["masks"][0]["candidates"][0]["token"] in text.split()[:2],
    }
    (kind,) = right.keys() & rows[0].keys()
    hits = [right[kind](text, row) for text, row in zip(texts, rows, strict=True)]
    assert np.mean(hits) > 0.8
    if kind == "words":
        assert bert_jax.load(run.workdir).predict(texts) == rows


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> pathlib.Path:
    """A table of texts with as many stars as they have good words, and one."""
    path, rng = tmp_path_factory.mktemp("ratings") / "ratings.csv", random.Random(0)
    rows = ((rng.randint(0, 2), rng.choices(WORDS[:8], k=4)) for _ in range(120))
    lines = [f"{' '.join([*['good'] * n, *words])},{n + 1}" for n, words in rows]
    path.write_text("\n".join(["text,stars", *lines]) + "\n")
    return path


def test_a_task_in_a_file_of_ones_own_works_with_every_command(
    files, finished, ratings, tmp_path, monkeypatch, capsys
):
    """Its own fields, sentence vectors, the server, ONNX, a sweep, and as a teacher.

    The workdir remembers its module: it is imported again where it is unknown.
    """
    pytest.importorskip("starlette", reason="needs the extra serve")
    from bert_jax.tools.serve.service import Service
    from tests.tools.serve.conftest import client_of

    source, run = finished(count_words), str(tmp_path / "run")
    module = "my_rating"
    own = pathlib.Path(__file__).parent / "extension" / "toy_rating.py"
    (tmp_path / f"{module}.py").write_text(own.read_text())
    monkeypatch.setitem(TASKS, "rating", "")  # afterwards it is unknown again
    monkeypatch.delitem(TASKS, "rating")
    common = [f"--import={module}", "--task=rating", f"--config.prng_impl={tiny.PRNG_IMPL}"]
    common += ["--config.epochs=2", "--config.task.levels=3", f"--model={source.workdir}"]
    with pytest.raises(UserError, match=f"imports: Python finds no module '{module}': run in"):
        run_command(["finetune", str(ratings), f"--workdir={run}", *common])
    monkeypatch.syspath_prepend(tmp_path)
    run_command(["finetune", str(ratings), f"--workdir={run}", *common])
    monkeypatch.delitem(TASKS, "rating")
    monkeypatch.delitem(sys.modules, module)
    assert store.load(run).task.levels == 3 and store.load(run).imports == (module,)
    assert "accuracy" in json.loads((tmp_path / "run" / "results.json").read_text())["eval"]
    with pytest.raises(UserError, match="config.task.levels=1 must be at least 2"):
        run_command(["finetune", str(ratings), f"--workdir={run}2", *common[:-2], common[-1],
                     "--config.task.levels=1"])  # fmt: skip

    run_command(["evaluate", f"--workdir={run}"])
    output = tmp_path / "out.jsonl"
    run_command(["predict", str(ratings), f"--model={run}", f"--output={output}"])
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(found) == 120 and found[0].keys() == {"id", "stars", "above"}
    run_command(["encode", str(ratings), f"--model={run}", f"--output={tmp_path / 'x.npz'}"])
    run_command(["report", f"--workdir={run}"])
    client = client_of(Service(load_model(run)))
    asked = {"inputs": [{"text_a": "good good moon"}]}
    (answer,) = client.post("/api/predict", json=asked).json()["predictions"]
    assert answer["stars"] in (1, 2, 3) and len(answer["above"]) == 2
    assert "What the model answers." in client.get("/").text

    taught = ["--config.epochs=1", f"--config.distillation.teacher={run}"]
    run_command(["finetune", str(ratings), f"--workdir={tmp_path / 'taught'}", *common, *taught])
    rows = metrics_of(str(tmp_path / "taught"))
    assert any("task_distilled_loss" in row for row in rows)

    if importlib.util.find_spec("onnx"):
        run_command(["convert", "to_onnx", run, str(tmp_path / "onnx")])
    (tmp_path / "mine.py").write_text(
        f"import {module}\nfrom bert_jax.tasks import default_config\n"
        "from bert_jax.tools.sweep.plan import Run, Sweep\n\n\n"
        'def get_config():\n    return default_config("rating").to_config_dict()\n\n\n'
        "def get_sweep():\n"
        f'    files = {{"data.train": {str(ratings)!r}, "data.eval": {str(ratings)!r}}}\n'
        f'    more = {{"init_from": {source.workdir!r}, "task.levels": 3, "max_length": 16}}\n'
        '    return Sweep("ratings", [Run("rate", __file__, files | more)])\n'
    )
    capsys.readouterr()
    sweep = [f"--sweep={tmp_path / 'mine.py'}", f"--workdir={tmp_path / 'sweep'}", "--dry_run"]
    run_command(["sweep", *sweep])
    assert "1 jobs" in capsys.readouterr().out


def test_configurations_remember_the_modules_of_tasks_and_encoders(finished, files):
    """Also of an encoder that a run starts from, which nobody names again."""
    config, _ = count_words(files)
    assert api.resolve(config, "").imports == ("tests.extension.toy_task",)
    source = finished(pretraining_of_bags)
    config, _ = classification_of_bags(files)
    resolved = resolve(config.replace({"init_from": source.workdir}).to_dict(), ())
    assert resolved.imports == ("tests.extension.toy_encoder",)
    again = store.with_own_modules(resolved.replace({"imports": ("tests.extension.toy_configs",)}))
    assert again.imports == ("tests.extension.toy_configs",)


def test_a_task_of_an_installed_package_is_found(monkeypatch):
    point = EntryPoint("count", "tests.extension.toy_task:CountWords", "bert_jax.tasks")
    monkeypatch.setattr("bert_jax.config.task.entry_points", lambda group, name: [point])
    assert find_task("count") is toy_task.CountWords
    monkeypatch.delitem(TASKS, "count")


def test_an_optimizer_and_a_schedule_of_optax_train(files, tmp_path, monkeypatch):
    for table, name in ((OPTIMIZERS, "lion"), (SCHEDULES, "one_cycle")):
        monkeypatch.setitem(table, name, None)  # afterwards it is unknown again
    config, _ = count_words(files)
    names = {"optimizer.name": "lion", "optimizer.schedule": "one_cycle", "optimizer.warmup": "25%"}
    names |= {"imports": ("tests.extension.toy_optimizer",), "epochs": 1.0, "log.every": "1"}
    monkeypatch.delitem(sys.modules, "tests.extension.toy_optimizer", raising=False)
    config = store.parse(config.replace(COMMON | names).to_dict())  # imports it
    workdir = tmp_path / "whole"
    state = train(config, str(workdir)).state
    steps = int(state.step)
    expected = optax.cosine_onecycle_schedule(steps, 1e-2, pct_start=round(0.25 * steps) / steps)
    rates = [row["learning_rate"] for row in metrics_of(str(workdir)) if row["split"] == "train"]
    np.testing.assert_allclose(rates, [np.asarray(expected(n)) for n in range(steps)], rtol=1e-5)
    shapes = {leaf.shape for leaf in jax.tree.leaves(state.params)}
    moments = [leaf.shape for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim]
    assert {*moments} == shapes and len(moments) == len(jax.tree.leaves(state.params))


def test_a_pretrained_encoder_of_a_new_kind_is_fine_tuned_and_gives_features(
    files, finished, tmp_path, capsys
):
    source = finished(pretraining_of_bags)
    config, _ = count_words(files)
    config = toy_configs.use_bag(config, len(VOCABULARY)).replace(
        COMMON | {"init_from": source.workdir, "epochs": 1.0}
    )
    result = train(config, str(tmp_path / "run"), listener=training_listener())
    state, is_complete = result.state, not result.stopped_by
    assert is_complete and state.params.keys() == {"bag", "classifier"}
    printed = capsys.readouterr().out
    assert f"from the parameters of {source.workdir}, step 60" in printed
    assert ", with new, random ones for classifier" in printed
    predictor = Predictor(load_model(source.workdir))
    extractor = FeatureExtractor(predictor, Choice(level="sentence"))
    ((_, features),) = extractor.run([extractor.row(Text("moon river"))])
    assert features["embeddings"].shape == (32,)


def test_a_class_that_is_defined_again_replaces_itself_but_no_task_of_the_package(monkeypatch):
    for name in ("count_words", "classification"):
        monkeypatch.setitem(TASKS, name, find_task(name))
    again = type("CountWords", (toy_task.CountWords,), {})
    assert add_task(again) == "count_words" and find_task("count_words") is again
    taken = type("Mine", (toy_task.CountWords,), {"name": "classification"})
    for kind, message in (
        (taken, "task=Mine has the name of a task of the package"),
        (int, "a task without a name"),
    ):
        with pytest.raises(UserError, match=message):
            add_task(kind)
