"""Predictions of fine-tuned runs: their forms, and that an interruption changes nothing."""

import importlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.config import settings as config_lib
from bert_jax.devices import sharding
from bert_jax.inference import task_predictions
from bert_jax.inference.task_predictions import predict_task
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.experiment import make_model_config
from bert_jax.training.finetuning import make_data, write_labels
from bert_jax.training.state import abstract_params
from tests.examples.tiny_tasks import HIDDEN
from tests.inference.conftest import REPOSITORY, VOCABULARY, WORDS, random_params

LABELS = {
    "classification": ("bad", "good"),
    "tagging": ("O", "B-PER", "I-PER"),
    "span": (),
    "multiple_choice": (),
}
SIZES = {
    "phases": ((24, 1.0),),
    "data.lengths": (12, 24),
    "global_batch_size": 8,
    "model.vocab_size": len(VOCABULARY),
    "model.hidden_size": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "model.max_position_embeddings": 40,
    "head.max_query_length": 8,
    "head.doc_stride": 8,
}


@pytest.fixture(scope="module")
def make_run(tmp_path_factory):
    """Returns the function (configuration, labels, changes) -> (configuration, workdir)."""

    def make(name, labels=None, **changes):
        folder = tmp_path_factory.mktemp("run")
        name, _, argument = name.partition(":")
        make_config = importlib.import_module(f"configs.{name}").get_config
        config = make_config(argument) if argument else make_config()
        changes = {key.replace("__", "."): value for key, value in changes.items()}
        config.update_from_flattened_dict(SIZES | changes)
        data = make_data(config)
        data = data.with_labels(data.labels or labels or LABELS[config.task])
        task = data.make_task(make_model_config(config))
        params = random_params(abstract_params(task, sharding.make_mesh()))
        checkpoints = Checkpoints(str(folder))
        checkpoints.save_params(params, {})
        checkpoints.close()
        config_lib.save(config, str(folder))
        write_labels(str(folder), data.labels)
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return config, str(folder)

    return make


@pytest.fixture(scope="module")
def classifier(make_run):
    return make_run("classification")


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(task_predictions, "WINDOW", 4)


def predict(run, tmp_path, content, name="input.tsv", output="output.jsonl"):
    """The text of the output; nothing else is left in its folder."""
    (tmp_path / name).write_text(content)
    folder = tmp_path / "out"
    folder.mkdir()
    predict_task(*run, str(tmp_path / name), str(folder / output))
    names = {path.name for path in folder.iterdir()} - {"output.na_probs.json"}
    assert names == {output}
    return (folder / output).read_text()


def texts(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 16))) for _ in range(count)]


# ------------------------------------------------------------------ forms


def test_an_object_for_each_line(classifier, tmp_path, capsys):
    content = predict(classifier, tmp_path, "the list\n\nnaive .", name="input.txt")
    rows = list(map(json.loads, content.splitlines()))
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    assert all(row["label"] in row["probabilities"] for row in rows)
    said = capsys.readouterr().out
    assert "counted    1 empty texts" in said
    assert "3 examples of" in said and "examples/s" in said


@pytest.mark.parametrize(
    "name, output, labels, head, row",
    [
        ("cola", "CoLA.tsv", "01", "index\tsentence", "{}\tthe list"),
        (
            "mrpc",
            "MRPC.tsv",
            "01",
            "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
            '{}\t1\t2\t"the\t.',
        ),
        ("mnli", "MNLI-mm.tsv", None, "index\tsentence1\tsentence2", "{}\tthe list\tnaive"),
        ("mnli", "AX.tsv", None, "index\tsentence1\tsentence2", "{}\tthe list\tnaive"),
        ("ax", "AX.tsv", None, "index\tsentence1\tsentence2", "{}\tthe list\tnaive"),
        ("stsb", "STS-B.tsv", "number", "index\tsentence1\tsentence2", "{}\tthe list\tnaive"),
    ],
)
def test_what_glue_takes(make_run, tmp_path, name, output, labels, head, row):
    run = make_run(f"glue:{name}")
    lines = [head, *(row.format(number) for number in (7, 3))]
    written = predict(run, tmp_path, "\n".join(lines), output=output)
    header, *rows = [line.split("\t") for line in written.splitlines()]
    assert header == ["index", "prediction"]
    assert [id for id, _ in rows] == ["7", "3"]
    for _, prediction in rows:
        if labels == "number":
            assert 0 <= float(prediction) <= 5
        else:
            assert prediction in (labels or ("entailment", "neutral", "contradiction"))


def test_a_split_of_tensorflow_datasets(make_run, tmp_path, monkeypatch, tiny_tasks):
    """Whose labels are hidden, as those of GLUE's test sets."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tiny_tasks))
    output = tmp_path / "MRPC.tsv"
    count = predict_task(*make_run("glue:mrpc"), "tfds:tiny_tasks[test]", str(output))
    ids = [line.split("\t")[0] for line in output.read_text().splitlines()]
    assert count == len(HIDDEN) and sorted(ids[1:]) == [str(row["idx"]) for row in HIDDEN]


def test_broken_rows_of_a_published_file_are_counted(make_run, tmp_path, capsys):
    content = "id\tquestion1\tquestion2\n0\tthe\tlist\n1\tthe\n2\tis\tnaive\n"
    written = predict(make_run("glue:qqp"), tmp_path, content, output="QQP.tsv")
    assert [line.split("\t")[0] for line in written.splitlines()] == ["index", "0", "2"]
    assert "counted    1 broken rows" in capsys.readouterr().out


QUESTION = {"id": "q", "question": "the list", "answers": []}
DATA = {"data": [{"paragraphs": [{"context": "naive . " * 30, "qas": [QUESTION]}]}]}


def test_what_the_script_of_squad_takes(make_run, tmp_path):
    run = make_run("span", head__null_answers=True)
    answers = json.loads(predict(run, tmp_path, json.dumps(DATA), "input.json", "output.json"))
    assert answers.keys() == {"q"}
    odds = json.loads((tmp_path / "out" / "output.na_probs.json").read_text())
    assert odds.keys() == {"q"}


def test_a_context_without_tokens_has_no_answer(make_run, tmp_path):
    run = make_run("span", head__null_answers=True)
    empty = {"data": [{"paragraphs": [{"context": " \n", "qas": [QUESTION]}]}]}
    answers = json.loads(predict(run, tmp_path, json.dumps(empty), "input.json", "output.json"))
    assert answers == {"q": ""}
    odds = json.loads((tmp_path / "out" / "output.na_probs.json").read_text())
    assert odds == {"q": 1e30}


def test_a_word_and_its_tag_a_line(make_run, tmp_path):
    content = "the\nlist\n\nnaive\n"
    lines = predict(make_run("tagging"), tmp_path, content, "input.conll", "output.conll")
    words, tags = zip(*(line.split(" ") for line in lines.split("\n") if line), strict=True)
    assert words == ("the", "list", "naive")
    assert set(tags) <= set(LABELS["tagging"])
    assert [bool(line) for line in lines.split("\n")] == [True, True, False, True, False, False]


@pytest.mark.parametrize(
    "name, output, message",
    [
        ("classification", "MRPC.tsv", "is for what GLUE takes, and this run is none"),
        ("classification", "x.conll", ".conll is for config.task='tagging', and this run's is"),
        ("glue:rte", "MRPC.tsv", "those of this task are RTE.tsv; take .jsonl"),
        ("classification", "lost/x.jsonl", "there is no folder"),
        ("classification", "input.txt", "is the input: name another file"),
    ],
)
def test_other_forms_are_refused_before_the_work(make_run, tmp_path, name, output, message):
    (tmp_path / "input.txt").write_text("the\n")
    with pytest.raises(ValueError, match=message):
        predict_task(*make_run(name), str(tmp_path / "input.txt"), str(tmp_path / output))
    assert [path.name for path in tmp_path.iterdir()] == ["input.txt"]


def test_a_bad_last_example_is_named_before_the_work(classifier, tmp_path):
    (tmp_path / "input.csv").write_text("text_a\nthe\nthe,list\n")
    with pytest.raises(ValueError, match=r"input.csv, line 3: 2 columns where the header has 1"):
        predict_task(*classifier, str(tmp_path / "input.csv"), str(tmp_path / "output.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["input.csv"]


def test_lines_without_words_have_no_tags(make_run, tmp_path, small_windows):
    """Also where a window, or the whole file, has nothing else."""
    run = make_run("tagging")
    content = "the list\n\n\n\n" + "\n" * 4 + "naive\n"
    rows = list(map(json.loads, predict(run, tmp_path, content, name="input.txt").splitlines()))
    assert [row["words"] for row in rows] == [["the", "list"], *[[]] * 7, ["naive"]]
    assert all(len(row["tags"]) == len(row["words"]) for row in rows)
    (tmp_path / "out" / "output.jsonl").unlink()
    (tmp_path / "out").rmdir()
    assert json.loads(predict(run, tmp_path, "\n", name="input.txt"))["tags"] == []


def test_tags_that_are_no_entities(make_run, tmp_path):
    run = make_run("tagging:words", labels=("NOUN", "VERB", "."))
    row = json.loads(predict(run, tmp_path, "the list is naive", name="input.txt"))
    assert len(row["tags"]) == len(row["probabilities"]) == 4 and "entities" not in row


def test_the_entities_of_another_scheme(make_run, tmp_path):
    run = make_run("tagging", labels=("O", "B-PER", "L-PER", "U-PER"))  # BILOU, as imports may have
    row = json.loads(predict(run, tmp_path, "the list is naive", name="input.txt"))
    assert set(row["tags"]) <= {"O", "B-PER", "L-PER", "U-PER"}
    covered = {n for entity in row["entities"] for n in range(entity["start"], entity["end"])}
    assert covered == {n for n, tag in enumerate(row["tags"]) if tag != "O"}


def test_the_document_around_a_sentence_is_read_whole(
    make_run, tmp_path, monkeypatch, small_windows
):
    """Windows of 4 sentences end where documents of 3 end."""
    run = make_run("tagging", head__document_context=True)
    sentences = ["\n".join(text.split()) for text in texts(15)]
    documents = ["\n\n".join(sentences[n : n + 3]) for n in range(0, 15, 3)]
    content = "".join(f"-DOCSTART- O\n\n{document}\n\n" for document in documents)
    append, sizes = task_predictions.Part.append, []
    monkeypatch.setattr(
        task_predictions.Part, "append", lambda self, p: (sizes.append(len(p)), append(self, p))
    )
    read = lambda content: list(map(json.loads, content.splitlines()))  # noqa: E731
    found = read(predict(run, tmp_path, content, name="input.conll"))
    (tmp_path / "out" / "output.jsonl").rename(tmp_path / "before.jsonl")
    (tmp_path / "out").rmdir()
    monkeypatch.setattr(task_predictions, "WINDOW", 100)
    whole = read(predict(run, tmp_path, content, name="input.conll"))
    assert sizes == [6, 6, 3, 15]
    for row, expected in zip(found, whole, strict=True):
        assert row["tags"] == expected["tags"]
        assert row["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)


# ------------------------------------------------------------------ interruptions


def interrupted(run, tmp_path, monkeypatch, number):
    """Breaks off in window `number`, half of which is written."""
    append = task_predictions.Part.append
    windows = []

    def append_half(self, predictions):
        windows.append(predictions)
        if len(windows) < number:
            return append(self, predictions)
        with open(self.path, "a") as file:
            file.write(json.dumps(predictions[0]) + '\n{"id": "hal')
        raise KeyboardInterrupt

    monkeypatch.setattr(task_predictions.Part, "append", append_half)
    with pytest.raises(KeyboardInterrupt):
        predict_task(*run, str(tmp_path / "input.txt"), str(tmp_path / "out" / "output.jsonl"))
    monkeypatch.setattr(task_predictions.Part, "append", append)


def test_it_goes_on_after_the_last_whole_window(
    classifier, tmp_path, monkeypatch, small_windows, capsys
):
    content = "\n".join(texts(18))
    whole = predict(classifier, tmp_path, content, name="input.txt")
    (tmp_path / "out" / "output.jsonl").unlink()
    interrupted(classifier, tmp_path, monkeypatch, number=3)
    assert not (tmp_path / "out" / "output.jsonl").exists()
    capsys.readouterr()
    predict_task(*classifier, str(tmp_path / "input.txt"), str(tmp_path / "out" / "output.jsonl"))
    said = capsys.readouterr().out
    assert "8 examples were done before: going on after them" in said
    assert "10 examples of" in said
    assert (tmp_path / "out" / "output.jsonl").read_text() == whole
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["output.jsonl"]


@pytest.mark.parametrize("change", ["input", "settings", "case", "parameters", "lost"])
def test_what_is_of_something_else_is_done_anew(
    make_run, tmp_path, monkeypatch, small_windows, capsys, change
):
    config, workdir = make_run("classification")
    (tmp_path / "input.txt").write_text("\n".join(texts(18)))
    (tmp_path / "out").mkdir()
    interrupted((config, workdir), tmp_path, monkeypatch, number=3)
    if change == "input":
        (tmp_path / "input.txt").write_text("\n".join(texts(18, seed=1)))
    elif change == "settings":
        config.head.n_best = 3
    elif change == "case":
        config.data.lowercase = False
    elif change == "parameters":  # trained again in the same folder, as many steps
        seal = pathlib.Path(workdir, "checkpoints", "0.sha256.json")
        seal.write_text(seal.read_text().replace('"metrics": {}', '"metrics": {"loss": 1.0}'))
    else:
        (tmp_path / "out" / "output.jsonl.unfinished").unlink()
    output = tmp_path / "out" / "output.jsonl"
    assert predict_task(config, workdir, str(tmp_path / "input.txt"), str(output)) == 18
    assert "were done before" not in capsys.readouterr().out
    assert len(output.read_text().splitlines()) == 18


def done_of(output):
    """Examples that are known to be safe."""
    facts = pathlib.Path(f"{output}.unfinished.json")
    return json.loads(facts.read_text())["done"] if facts.exists() else 0


def test_a_killed_process_is_gone_on_from(classifier, tmp_path):
    config, workdir = classifier
    (tmp_path / "input.txt").write_text("\n".join(texts(20_000)))
    output = tmp_path / "output.jsonl"
    flags = ["--mode=predict", f"--workdir={workdir}", f"--input={tmp_path}/input.txt"]
    command = [sys.executable, "-m", "bert_jax.main", *flags]
    process = subprocess.Popen(
        [*command, f"--output={output}"], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and done_of(output) < task_predictions.WINDOW:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert done_of(output) and not output.exists()
    for flag in (f"--output={output}", f"--output={tmp_path}/whole.jsonl"):
        done = subprocess.run([*command, flag], cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert ("were done before" in done.stdout) == ("output.jsonl" in flag)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
