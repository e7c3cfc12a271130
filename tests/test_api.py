"""The Python API, as a notebook uses it."""

import json
import pathlib
import pickle
import random
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import bert_jax
from bert_jax.__main__ import main as run_command
from bert_jax.config.group import flatten
from bert_jax.files.errors import UserError
from bert_jax.plans.adaptation import plan_adaptation
from bert_jax.plans.finetuning import plan_finetuning
from bert_jax.tasks.classification.task import Classification
from bert_jax.training.listener import Listener
from tests import tiny
from tests.resuming import StopAfter

WORDS = "moon river stone tree cloud leaf sand hill good bad".split()
VOCABULARY = [*tiny.SPECIAL, *WORDS, "."]
SIZES = {
    "prng_impl": tiny.PRNG_IMPL,
    "model__vocab_size": len(VOCABULARY),
    "model__pad_vocab_to_multiple_of": 8,
    "model__hidden_size": 16,
    "model__num_layers": 1,
    "model__num_heads": 2,
    "model__intermediate_size": 32,
    "model__max_position_embeddings": 32,
}
TEXTS = ["moon river", "good", "stone tree cloud leaf sand hill", "bad moon"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """A folder with a vocabulary, a corpus and labelled texts."""
    folder, rng = tmp_path_factory.mktemp("files"), random.Random(0)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    documents = (
        "".join(f"{' '.join([word] * rng.randint(3, 6))} .\n" for _ in range(4))
        for word in rng.choices(WORDS, k=60)
    )
    (folder / "corpus.txt").write_text("\n".join(documents))
    for name, count in (("train", 64), ("dev", 24)):
        lines = [
            f"{' '.join(rng.choices(WORDS[:8], k=3))} {rng.choice(WORDS[8:])}" for _ in range(count)
        ]
        rows = [f"{line}\t{line.split()[-1]}" for line in lines]
        (folder / f"{name}.tsv").write_text("\n".join(["text_a\tlabel", *rows]) + "\n")
    return folder


def read_lines(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics_of(workdir: pathlib.Path) -> list[dict]:
    """Returns the metrics of a run, without its speed."""
    rows = read_lines(workdir / "metrics.jsonl")
    return [{name: row[name] for name in row if name != "speed"} for row in rows]


def make_config(files: pathlib.Path, **values):
    return bert_jax.get_config(
        "tiny",
        **SIZES
        | {
            "steps": 6,
            "phases": ((16, 1.0),),
            "global_batch_size": 16,
            "data__source": f"text:{files / 'corpus.txt'}",
            "data__vocab": str(files / "vocab.txt"),
            "data__line_format": "sentences",
            "data__num_processes": 1,
            "data__validation_share": 0.2,
            "log__every": "2",
            "eval__every": "6",
            "optimizer__warmup": "1",
        }
        | values,
    )


@pytest.fixture(scope="module")
def model(files) -> bert_jax.Model:
    return bert_jax.train(make_config(files), files / "run")


@pytest.fixture(scope="module")
def classifier(model, files) -> bert_jax.Model:
    return bert_jax.finetune(
        model,
        train=files / "train.tsv",
        evaluate=files / "dev.tsv",
        task="classification",
        workdir=files / "reviews",
        epochs=1.0,
        max_length=16,
        prng_impl=tiny.PRNG_IMPL,
    )


def test_importing_the_package_does_not_import_jax():
    code = "import sys, bert_jax; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ------------------------------------------------------------------ training


def test_training_is_that_of_the_command(model, files, tmp_path):
    """Preset, init_from, data and every number."""
    given, default = (
        dict(flatten(config)) for config in (make_config(files), bert_jax.get_config("tiny"))
    )
    values = [f"--config.{n}={v}" for n, v in given.items() if default[n] != v]
    argv = ["train", "--config=configs/tiny.py", f"--workdir={tmp_path}", *values]
    run_command(argv)
    assert metrics_of(files / "run") == metrics_of(tmp_path)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_progress_line_shows_step_and_loss(is_terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    line = bert_jax.api.ProgressLine()
    for step in range(1, 4):
        line.progress(step, 10)
    line.metrics(3, "train", {"loss": 2.5}, {})
    line.metrics(3, "validation", {"loss": 3.5}, {})
    line.close()
    shown = capsys.readouterr().out
    last = "step 3/10  loss 2.5000  held-out loss 3.5000\n"
    if is_terminal:  # the first step, since a second has not passed, and both reports
        assert shown.split("\r")[1:] == ["step 1/10", "step 3/10  loss 2.5000", last]
    else:
        assert shown == "step 3/10  loss 2.5000\n" + last


def test_the_progress_line_of_an_evaluation_before_the_first_step_has_no_number_of_steps(capsys):
    line = bert_jax.api.ProgressLine()
    line.metrics(0, "validation", {"loss": 3.5}, {})
    assert capsys.readouterr().out == "step 0  held-out loss 3.5000\n"


# ------------------------------------------------------------------ models


def test_vectors_come_in_order_and_normalized(model):
    vectors = model.encode(TEXTS, normalize=True)
    assert vectors.shape == (4, 16) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[::-1], model.encode(TEXTS[::-1], normalize=True), atol=1e-5)
    assert model.encode([]).shape == (0, 16)
    states = model.hidden_states(TEXTS[:1], layers="all")[0]
    first = model.encode(TEXTS[:1], layer=0)[0]
    np.testing.assert_allclose(states["hidden_states"][0].mean(0), first, atol=1e-5)
    assert states["tokens"] == ["[CLS]", "moon", "river", "[SEP]"]


def test_a_second_call_traces_and_compiles_nothing(model, caplog):
    def ask():
        model.encode(["the list"])
        model.fill_mask(["the [MASK]"])
        model.score(["the list"])
        model.attention("the list")

    ask()
    with jax.log_compiles():
        ask()
    assert "Compiling" not in caplog.text and "Finished tracing" not in caplog.text


def test_masks_scores_and_attention(model):
    ((first, second),) = model.fill_mask(["moon [MASK] river [MASK] ."], top_k=3)
    assert len(first) == len(second) == 3 and first[0].keys() == {"token", "probability"}
    scores = model.score(TEXTS)
    assert [score["tokens"] for score in scores] == [2, 1, 6, 2]
    arrays = model.attention("moon [MASK] river")
    assert arrays["attention"].shape == (1, 2, 5, 5)
    with pytest.raises(UserError, match="only a model that was trained to predict the next token"):
        model.generate(["moon"])


def test_the_module_is_pure_and_takes_the_batch(model):
    batch = model.batch(TEXTS)
    apply = jax.jit(lambda p, b: model.module.apply({"params": p}, b, deterministic=True))
    hidden = apply(model.params, batch)
    assert hidden.shape == (4, 8, 16)
    is_token = (batch["example_ids"] > 0)[..., None]
    means = (hidden * is_token).sum(1) / is_token.sum(1)
    np.testing.assert_allclose(means, model.encode(TEXTS), atol=1e-5)
    gradient = jax.grad(lambda p: jnp.square(apply(p, batch)).sum())(model.params)
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


def test_batches_of_one_shape_compile_once(model):
    batch = model.batch(TEXTS[:3], length=12, rows=4)
    assert {name: x.shape[0] for name, x in batch.items()} == dict.fromkeys(batch, 4)
    assert batch["input_ids"].shape == (4, 12)
    assert not batch["example_ids"][3].any()  # the row of padding
    alone = model.batch(TEXTS[:3])
    length = alone["input_ids"].shape[1]
    for name in ("input_ids", "token_type_ids", "position_ids", "example_ids"):
        np.testing.assert_array_equal(batch[name][:3, :length], alone[name])
    cut = model.batch(["moon " * 9], length=5, truncate=True)
    np.testing.assert_array_equal(cut["input_ids"], model.batch(["moon " * 3])["input_ids"])


def test_a_model_says_what_it_is(model, classifier):
    assert repr(model) == f"<bert for pretraining: 1 layers, hidden 16, {model.folder}, step 6>"
    assert "<bert for classification: " in repr(classifier)
    titles = [Classification(problem_type=kind).title for kind in ("multi", "regression")]
    assert titles == ["multi_label", "regression"]


def test_parameters_of_a_loop_of_ones_own_are_kept(model, tmp_path):
    doubled = jax.tree.map(lambda x: 2 * np.array(x), model.params)
    other = model.with_params(doubled)
    expected = other.encode(TEXTS)
    doubled["bert"]["embeddings"]["word_embeddings"]["embedding"][:] = 0
    np.testing.assert_array_equal(other.encode(TEXTS), expected)
    assert not np.allclose(expected, model.encode(TEXTS), atol=1e-3)
    other.export("huggingface", tmp_path / "exported")
    for again in (bert_jax.load(tmp_path / "exported"), pickle.loads(pickle.dumps(other))):
        np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-6)
    with pytest.raises(UserError, match="are in no folder: export it"):
        bert_jax.finetune(other, (["a", "b"], ["x", "y"]), workdir=tmp_path / "run")
    with pytest.raises(UserError, match=r"params are not those of the model .*embeddings"):
        model.with_params(model.params["bert"])


def test_a_step_on_one_device_compiles_once(model, monkeypatch):
    mesh = tiny.make_mesh()
    monkeypatch.setattr("bert_jax.devices.sharding.make_mesh", lambda: mesh)
    encoder = bert_jax.load(model.folder)
    params, batch = {"head": jnp.ones(16), "bert": encoder.params}, encoder.batch(TEXTS)

    @jax.jit
    def step(params):
        apply = lambda p: encoder.module.apply({"params": p["bert"]}, batch) @ p["head"]  # noqa: E731
        return jax.tree.map(lambda x, y: x - y, params, jax.grad(lambda p: apply(p).sum())(params))

    for _ in range(3):
        params = step(params)
    assert step._cache_size() == 1


def test_a_model_of_single_texts_does_not_rank(classifier):
    with pytest.raises(UserError, match="was trained on single texts: only models of pairs"):
        classifier.rank("moon", ["river", "stone"])


def test_a_model_is_pickled_as_its_folder(classifier):
    model = bert_jax.load(classifier.folder, dtype="bfloat16", task__long_texts="windows")
    assert 0 < np.abs(model.encode(TEXTS) - classifier.encode(TEXTS)).max() < 0.1
    data = pickle.dumps(model)
    again = pickle.loads(data)
    assert len(data) < 1000 and again.config.task.long_texts == "windows"
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.predict(TEXTS) == model.predict(TEXTS)


def test_predictions_are_those_of_the_command_bit_for_bit(classifier, files, tmp_path):
    lines = (files / "dev.tsv").read_text().splitlines()[1:]
    texts = [line.split("\t")[0] for line in lines]
    (tmp_path / "in.tsv").write_text("\n".join(["text_a", *texts]) + "\n")
    output = tmp_path / "out.jsonl"
    folder = classifier.folder
    run_command(
        [
            "predict",
            f"--model={folder}",
            f"{tmp_path / 'in.tsv'}",
            f"--output={output}",
        ]
    )
    found = [json.loads(json.dumps(prediction)) for prediction in classifier.predict(texts)]
    assert found == read_lines(output)
    assert found[0].keys() == {"id", "label", "probabilities"}


def test_a_file_and_a_model_are_enough_to_finetune(model, files, tmp_path, monkeypatch):
    """The task, the columns and the recipe are found, a tenth is held out; as by the command."""
    lines = []
    listener = Listener()
    listener.line = lines.append
    values = {"epochs": 1.0, "prng_impl": tiny.PRNG_IMPL}
    train = files / "train.tsv"
    new = bert_jax.finetune(model, train, workdir=tmp_path / "ours", listener=listener, **values)
    config = new.config
    assert (config.task.name, config.epochs, config.global_batch_size) == (
        "classification",
        1.0,
        16,
    )
    # 1/45 of the weights, which are drawn with 0.02
    rate = config.optimizer.learning_rate
    assert config.optimizer.name == "adamw" and 3e-4 < rate < 5e-4
    assert config.max_length == 32  # all that the model has
    assert not any(line.startswith("recipe     epochs") for line in lines)
    assert any(f"learning_rate={rate}: hidden size 16" in line for line in lines)
    parts = [
        (tmp_path / "ours/split" / f"{name}.csv").read_text().splitlines()[1:]
        for name in ("train", "evaluate")
    ]
    rows = [line.replace("\t", ",") for line in train.read_text().splitlines()[1:]]
    assert sorted(parts[0] + parts[1]) == sorted(rows) and 3 <= len(parts[1]) <= 10

    flags = [f"--config.{name}={value}" for name, value in values.items()]
    run_command(
        [
            "finetune",
            str(train),
            f"--model={model.folder}",
            f"--workdir={tmp_path / 'commands'}",
            *flags,
        ]
    )
    assert metrics_of(tmp_path / "ours") == metrics_of(tmp_path / "commands")

    # A copy is evaluated on its own files, from any folder.
    (tmp_path / "commands").rename(tmp_path / "copy")
    (tmp_path / "copy/results.json").unlink()
    monkeypatch.chdir(tmp_path / "copy")
    run_command(["evaluate", "--workdir=."])
    found = json.loads((tmp_path / "copy/results.json").read_text())
    assert found["eval"] == json.loads((tmp_path / "ours/results.json").read_text())["eval"]


def test_data_in_memory_are_those_of_a_file(model, classifier, files, tmp_path):
    lines = [line.split("\t") for line in (files / "train.tsv").read_text().splitlines()[1:]]
    texts, labels = zip(*lines, strict=True)
    rows = [{"text": text, "label": label} for text, label in lines]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "epochs": 1.0,
        "max_length": 16,
        "prng_impl": tiny.PRNG_IMPL,
        "listener": Listener(),
    }
    for name, data in (("file", tmp_path / "rows.jsonl"), ("memory", (list(texts), labels))):
        bert_jax.finetune(model, data, workdir=tmp_path / name, **settings)
    assert metrics_of(tmp_path / "memory") == metrics_of(tmp_path / "file")

    table = pandas.DataFrame({"text_a": texts, "label": labels})
    assert classifier.predict(table) == classifier.predict(texts)
    np.testing.assert_array_equal(model.encode(table), model.encode(texts))
    memory = bert_jax.load(tmp_path / "memory")
    rows = [{"text": text} for text in texts[:3]]  # the column that it was trained on
    assert memory.predict(rows) == memory.predict([{"text_a": text} for text in texts[:3]])
    with pytest.raises(UserError, match=r"^inputs\[0\] has both 'text' and 'text_a'"):
        memory.predict([{"text": "good", "text_a": "good"}])
    with pytest.raises(UserError, match="^workdir is missing"):
        bert_jax.finetune(model, table)


def test_texts_in_memory_are_enough_to_adapt(model, tmp_path):
    texts = [f"{word} {other} ." for word in WORDS for other in WORDS]  # too short for pairs
    settings = {"steps": 2, "global_batch_size": 8, "prng_impl": tiny.PRNG_IMPL}
    workdir = tmp_path / "adapted"
    adapted = bert_jax.adapt(model, iter(texts), workdir, listener=Listener(), **settings)
    assert adapted.config.data.source == f"jsonl:{workdir / 'texts' / 'text.jsonl'}"
    assert not adapted.encoder.next_sentence
    with pytest.raises(UserError, match=r"texts/text\.jsonl: other content"):
        bert_jax.adapt(model, texts[1:], workdir, listener=Listener(), **settings)


@pytest.mark.parametrize("scores", [False, True])
def test_pairs_and_a_model_are_enough_to_train_embeddings(model, files, tmp_path, scores):
    """A tenth is held out, also of numbers; a row is as long as one of the two texts."""
    words = (files / "vocab.txt").read_text().split()[-1:]
    rows = [f"{' '.join(words * 5)} {i}\t{' '.join(words * 9)}\t{i / 9}" for i in range(100)]
    header = ("sentence1\tsentence2\tscore", "anchor\tpositive\tauthor")[not scores]
    path, task = str(tmp_path / "pairs.tsv"), "embedding" if scores else ""
    pathlib.Path(path).write_text("\n".join([header, *rows]))
    given = {"task.pool": "max"}
    plan = plan_finetuning(model.folder, path, "", task, str(tmp_path / "r"), given)
    config = plan.config
    assert (config.task.name, config.global_batch_size, config.max_length) == ("embedding", 32, 32)
    expected = ("cosent", "spearman") if scores else ("in_batch", "mrr_at_10")
    assert (config.task.loss, config.metrics[0]) == expected and config.task.pool == "max"
    assert len(plan.files[config.data.eval].decode().splitlines()) == 11


@pytest.mark.parametrize("task", ["embedding", "cross_encoder"])
def test_negatives_are_for_training_and_an_evaluation_may_have_pairs_only(
    model, files, tmp_path, task
):
    word = (files / "vocab.txt").read_text().split()[-1]
    pairs = [{"anchor": f"{word} {n}", "positive": word * n} for n in range(1, 5)]
    triplets = [{**pair, "negative": f"{word} {word}"} for pair in pairs]
    values = {"task": task, "listener": Listener(), "epochs": 1.0}
    new = bert_jax.finetune(model, triplets, pairs, workdir=tmp_path / "run", **values)
    assert new.config.task.negative == "negative"
    assert np.isfinite(new.history["validation_loss"]).all()
    if task == "cross_encoder":
        assert new.predict(triplets) == new.predict([tuple(pair.values()) for pair in pairs])
    given = values | {"task__negative": "other"}
    with pytest.raises(UserError, match="other"):
        bert_jax.finetune(model, triplets, pairs, workdir=tmp_path / "other", **given)


def test_a_text_and_a_model_are_enough_to_adapt(model, files, tmp_path):
    """The rows follow from the model; step 0 is evaluated."""
    values = {"steps": 4, "optimizer__learning_rate": 0.0}
    text = str(files / "corpus.txt")
    new = bert_jax.adapt(model, text, tmp_path / "run", listener=Listener(), **values)
    config = new.config
    assert (config.data.segments, config.phases) == ("pairs", model.config.phases)
    assert config.data.line_format == "sentences" and config.data.vocab.endswith("vocab.txt")
    assert (config.steps, config.epochs, config.optimizer.name) == (4, 0.0, "adamw")
    history = new.history  # with a rate of 0 nothing changes, and masks are always the same
    assert history["validation_step"].tolist()[:2] == [0, 1]
    assert len(set(history["validation_loss"].tolist())) == 1


def test_a_model_without_a_head_for_tokens_gets_a_new_one(classifier, files, tmp_path):
    text = str(files / "corpus.txt")
    plan = plan_adaptation(classifier.folder, text, text, str(tmp_path / "run"), {})
    data = plan.config.data
    assert (data.segments, plan.config.model.next_sentence) == ("full_sentences", False)
    assert (data.held_out, data.validation_share) == (f"text:{text}", 0.0)
    (line,) = (line for line in plan.lines if line.startswith("head"))
    assert "a loss of ln(16) = 2.8 or more" in line


def test_a_model_is_adapted_to_longer_texts(model, files, tmp_path):
    text, workdir = str(files / "corpus.txt"), str(tmp_path / "run")
    given = {"model.max_position_embeddings": "64", "extend_positions": "tile"}
    config = plan_adaptation(model.folder, text, text, workdir, given).config
    assert config.model.max_position_embeddings == 64 and config.extend_positions == "tile"
    assert config.phases == ((64, 1.0),)
    given["phases"] = "((48, 1.0),)"
    assert plan_adaptation(model.folder, text, text, workdir, given).config.phases == ((48, 1.0),)


def test_a_classifier_reads_long_texts_in_windows(classifier, caplog):
    """The probabilities are those of the mean of the logits of the windows."""
    rng = random.Random(3)
    words, room = rng.choices(WORDS, k=40), 14  # max_length is 16
    windowed = bert_jax.load(classifier.folder, task__long_texts="windows")
    (found,) = windowed.predict([" ".join(words)])
    assert not caplog.records
    starts = (0, 7, 14, 21, 26)
    alone = classifier.predict([" ".join(words[start : start + room]) for start in starts])
    logs = np.log([list(one["probabilities"].values()) for one in alone]).mean(axis=0)
    expected = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_allclose(list(found["probabilities"].values()), expected, rtol=1e-4)
    assert not caplog.records
    classifier.predict([" ".join(words), ("good", "bad")])
    (record,) = caplog.records
    found = set(record.getMessage().split(", "))
    single = "1 pairs for a model trained on single texts"
    assert found == {"1 texts truncated", "26 tokens cut off", single}
    assert record.name.startswith("bert_jax.")
    caplog.clear()
    classifier.encode([" ".join(words), "good"], long="truncate")
    (record,) = caplog.records
    assert record.getMessage() == "1 texts truncated, 10 tokens cut off"


def test_windows_change_the_recipe_of_a_fine_tuning(model, files, tmp_path):
    path = tmp_path / "long.tsv"
    lines = [f"{' '.join(WORDS[:8] * 8)} {word}\t{word}" for word in ("good", "bad")] * 40
    path.write_text("\n".join(["text_a\tlabel", *lines]) + "\n")
    given = {"task.long_texts": "windows", "max_length": "16"}

    def epochs(**more):
        values = given | {name.replace("__", "."): value for name, value in more.items()}
        plan = plan_finetuning(
            model.folder, str(path), str(path), "", str(tmp_path / "run"), values
        )
        return plan.config.epochs

    # 80 texts of 65 words have 9 windows of 14 tokens, or 52: 1,000 steps are 8 epochs of these.
    assert (epochs(), epochs(task__stride="1"), epochs(task__windows_per_epoch="1")) == (20, 8, 20)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda m: bert_jax.load(m.folder, data__text="b"), "text does not exist"),
        (lambda m: bert_jax.get_config("nothing"), "there is no such file"),
        (lambda m: bert_jax.get_config("tiny", optimizer__rate=1), "rate"),
        (lambda m: bert_jax.finetune(m, "a", "b", "tiny", "c"), "trains on a corpus"),
        (lambda m: bert_jax.finetune(__file__, m.folder), "the order is \\(model, file\\)"),
        (lambda m: bert_jax.finetune(None, "a.csv"), "model is of type NoneType: give a"),
        (lambda m: bert_jax.finetune(m, 3, workdir="d"), "train is of type int: give a path"),
        (lambda m: bert_jax.multitask({"a": "glue"}, "d"), "configs\\['a'\\] is of type str: give"),
        (
            lambda m: bert_jax.train(m.config, "d", losses={"z": 3}),
            "losses=.* is not a dict of name -> function",
        ),
        (lambda m: m.encode("a text"), "Give a list of inputs"),
        (lambda m: m.encode([3]), "inputs\\[0\\] is 3: give a text, a pair"),
        (
            lambda m: bert_jax.finetune(
                m, pathlib.Path(m.folder).with_name("train.tsv"), text_column="review"
            ),
            "no configuration field 'text_column': did you mean 'task.text_a'",
        ),
        (lambda m: m.encode(["a"], layer=7), "layer=7 must be from -2 to 1"),
        (lambda m: m.batch(["moon " * 9], length=5), "length=5: the longest text has 11 tokens"),
        (lambda m: m.batch(["moon"], length=99), "length=99: the model takes 32 tokens"),
        (lambda m: m.batch(["moon"], rows=0), "rows=0 must be at least 1"),
        (
            lambda m: bert_jax.finetune(m, (["good"] * 9, [*"aabbaabb", None]), workdir="d"),
            'with task__on_missing="skip"',
        ),
        (lambda m: bert_jax.load(m.folder, model__num_layers=2), "does not fit the configuration"),
        (lambda m: m.export("paper", pathlib.Path(m.folder, "exported")), "Unknown form 'paper'"),
    ],
)
def test_errors_say_in_one_line_what_to_do(model, use, message):
    with pytest.raises(UserError, match=message) as caught:
        use(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_saves_the_run_and_ends_the_script(files, tmp_path, number, error):
    config = make_config(files, steps=4)
    with pytest.raises(error) as raised:
        bert_jax.train(config, tmp_path / "run", listener=StopAfter(2, number=number))
    assert error is KeyboardInterrupt or raised.value.code == 128 + signal.SIGTERM
    assert bert_jax.load(tmp_path / "run").step == 2
    assert bert_jax.train(config, tmp_path / "run", listener=Listener()).step == 4
