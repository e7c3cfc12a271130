"""What features, scores and answers share: reading texts, batches, errors at the edge."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from bert_jax.config import settings as config_lib
from bert_jax.examples.texts import Text
from bert_jax.inference import model as model_lib
from bert_jax.inference.masked_words import Predictor, predict
from bert_jax.inference.model import TrainedModel, in_order
from bert_jax.inference.scoring import Scorer
from bert_jax.inference.input_files import check_files
from bert_jax.training.evaluate import evaluate

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(workdir) -> TrainedModel:
    return TrainedModel(config_lib.load(workdir), workdir, batch_tokens=256)


# --------------------------------------------------------------------------------- batches


def ids_and_shape(params, batch):
    """A "model" that gives back what it gets."""
    rows, length = batch["input_ids"].shape
    shape = jax.numpy.tile(jax.numpy.array([[rows, length]]), (rows, 1))
    return {
        "ids": batch["input_ids"],
        "types": batch["token_type_ids"],
        "shape": shape,
    }


def rows_of(model, sizes):
    return [model.row(Text(f"{n} " * (size - 2))) for n, size in enumerate(sizes)]


def test_every_row_comes_once_with_its_own_numbers_in_a_shape_of_its_length(model):
    sizes = np.random.default_rng(0).integers(2, 41, 500).tolist()
    rows = rows_of(model, sizes)
    forward = model.compile(ids_and_shape)
    results = list(model.run(forward, iter(rows)))
    assert sorted(number for number, _, _ in results) == list(range(500))
    for number, row, out in results:
        assert row is rows[number]
        size = len(row.input_ids)
        np.testing.assert_array_equal(out["ids"][:size], row.input_ids)
        assert not out["ids"][size:].any()
        batch, length = out["shape"]
        assert (batch, length) in ((16, 16), (8, 32), (8, 40))  # of 8 devices, 256 tokens
        assert length >= size
    assert forward._cache_size() == 3
    ordered = list(in_order((number, row) for number, row, _ in results))
    assert all(a is b for a, b in zip(ordered, rows, strict=True))


def test_rows_are_read_a_window_at_a_time(model):
    """Eight batches of 256 tokens are ahead at most, whatever the number of rows."""
    read = 0

    def rows():
        nonlocal read
        for row in rows_of(model, [32] * 1000):
            read += 1
            yield row

    for done, _ in enumerate(model.run(model.compile(ids_and_shape), rows())):
        assert read - done <= 8 * 256 // 32


def test_pairs_have_token_types(model):
    row = model.row(Text("the list", "is"))
    (_, _, out), *_ = model.run(model.compile(ids_and_shape), [row])
    assert out["types"].tolist() == [0, 0, 0, 0, 1, 1] + [0] * 10
    assert row.word_positions.tolist() == [1, 2, 4]
    assert model.row(Text("")).word_positions.tolist() == []


# --------------------------------------------------------------------------------- the input


def write(path: pathlib.Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_files_are_looked_at_before_the_work(tmp_path):
    source = write(tmp_path / "in.txt", b"a\n")
    check_files(source, str(tmp_path / "out.npz"))
    check_files("", "")
    for output, message in (
        (f"{tmp_path}/lost/out.npz", "there is no folder .*lost"),
        (str(tmp_path), "is a folder: name a file in it"),
        (f"{tmp_path}/./in.txt", "is the input: name another file"),
    ):
        with pytest.raises(ValueError, match=message):
            check_files(source, output)
    with pytest.raises(ValueError, match="--input=lost.txt: there is no such file"):
        check_files("lost.txt", "out.npz")


# --------------------------------------------------------------------------------- predictions


def test_predictions_without_next_sentence_prediction(make_workdir, tmp_path):
    workdir = make_workdir(**{"model.next_sentence": False})
    lines = ["the [MASK] is", json.dumps({"text_a": "the", "text_b": "[MASK] list [MASK]"})]
    source = write(tmp_path / "in.txt", "\n".join(lines).encode())
    config = config_lib.load(workdir)
    assert predict(config, workdir, source, str(tmp_path / "out.jsonl"), top_k=2) == 2
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [answer["next_sentence"] for answer in answers] == [None, None]
    places = [[mask["position"] for mask in answer["masks"]] for answer in answers]
    assert places == [[2], [3, 5]]
    assert all(len(m["candidates"]) == 2 for answer in answers for m in answer["masks"])


def test_a_next_sentence_head_that_was_not_imported_says_nothing(make_workdir):
    workdir = make_workdir()
    config = config_lib.load(workdir)

    def pair():
        predictor = Predictor(config, workdir, top_k=1)
        (answer,) = predictor.answer([predictor.question("the", "list")])
        return answer["next_sentence"]

    assert pair().keys() == {"is_next", "random_next"}
    certificate = {"tensors": {"fresh": ["next_sentence/bias", "next_sentence/kernel"]}}
    pathlib.Path(workdir, "certificate.json").write_text(json.dumps(certificate))
    assert pair() is None


def test_a_text_that_is_too_long_is_named_before_the_first_answer(workdir, tmp_path):
    source = write(tmp_path / "in.txt", b"is\n" + b"is " * 39)
    with pytest.raises(ValueError, match="in.txt, line 2 has 41 tokens, .* begins 'is is is"):
        predict(config_lib.load(workdir), workdir, source, str(tmp_path / "out.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_what_has_no_masked_lm_head_is_not_evaluated(make_workdir):
    workdir = make_workdir()
    certificate = {"tensors": {"fresh": ["masked_lm/bias"]}}
    pathlib.Path(workdir, "certificate.json").write_text(json.dumps(certificate))
    with pytest.raises(ValueError, match="cannot fill in or score words before they are trained"):
        evaluate(config_lib.load(workdir), workdir)


@pytest.mark.parametrize("kind", [Predictor, Scorer])
def test_what_has_no_masked_lm_head_neither_fills_in_nor_scores(kind, make_workdir):
    workdir = make_workdir()
    config = config_lib.load(workdir)
    certificate = {"tensors": {"fresh": ["masked_lm/bias", "masked_lm/transform/kernel"]}}
    path = pathlib.Path(workdir, "certificate.json")
    path.write_text(json.dumps(certificate))
    options = (3,) if kind is Predictor else ()
    with pytest.raises(ValueError, match="were imported without a masked-LM head"):
        kind(config, workdir, *options)
    path.unlink()
    config.task = "classification"
    with pytest.raises(ValueError, match="for config.task='classification': it has no masked-LM"):
        kind(config, workdir, *options)


def test_a_vocabulary_that_is_too_large_is_refused(make_workdir):
    workdir = make_workdir()
    vocabulary = pathlib.Path(workdir, "vocab.txt")
    vocabulary.write_text(vocabulary.read_text() + "".join(f"w{n}\n" for n in range(4)))
    with pytest.raises(ValueError, match="has 21 pieces, the model only 20: it is another model's"):
        TrainedModel(config_lib.load(workdir), workdir)


def test_only_one_process_uses_a_model(workdir, monkeypatch):
    monkeypatch.setattr(model_lib.jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="in one process: leave out --num_processes"):
        TrainedModel(config_lib.load(workdir), workdir)


# --------------------------------------------------------------------------------- as a user


def start(
    *flags: str, module="bert_jax.commands.features", **environment
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", module, *flags],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        ("", "--output is missing: give --workdir=DIR --input=FILE --output=FILE."),
        ("--output=x.h5", "--output=x.h5: the ending says the form"),
        ("--output=x.npz --pooling=max", "--pooling is for --level=sentence, and --level is sub"),
        ("--output=x.npz --word=first", "--word is for --level=word, and --level is subword."),
        ("--output=x.npz --weights=1,a", "--weights=1,a are no numbers: give for example 0.1,0.2"),
        ("--output=x.npz --layers=lst", "--layers=lst is none of last, second_to_last,"),
        ("--output=lost/x.npz", "--output=lost/x.npz: there is no folder lost."),
        ("--output=x.npz --input=lost", "--input=lost: there is no such file."),
        ("--output=x.npz --batch_tokens=0", "flag --batch_tokens=0"),
    ],
)
def test_mistakes_are_answered_by_one_line_without_jax(flags, message, workdir, tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('jax was imported')")
    flags = [f"--workdir={workdir}", "--input=setup.py", *flags.split()]
    done = start(*flags, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("module", ["bert_jax.commands.features", "bert_jax.commands.score"])
def test_help_shows_the_flags(module):
    done = start("--help", module=module)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m {module}" in done.stdout
    assert "--batch_tokens" in done.stdout


def test_features_on_the_command_line(workdir, tmp_path):
    source = write(tmp_path / "in.txt", b"the list is returned.\nnaive\n")
    output = tmp_path / "out.npz"
    flags = ["--layers=weighted_sum", "--weights=1,2", "--level=word", "--word=first"]
    done = start(f"--workdir={workdir}", f"--input={source}", f"--output={output}", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hidden_states    float32[1, 2, 5, 16]" in done.stdout
    assert np.load(output)["hidden_states"].shape == (1, 2, 5, 16)
