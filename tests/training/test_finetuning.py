"""Fine-tuning runs learn, resume exactly, and score the same however they are batched."""

import contextlib
import json
import random

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.data.labelled.batching import choose_lengths
from bert_jax.devices import sharding
from bert_jax.files.atomic import read_json_lines
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.scores.classification import Counts, micro
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.evaluate import make_evaluator
from bert_jax.training.open import open_run
from bert_jax.training.workdir import open_workdir
from tests.resuming import assert_same_run, train_until
from tests.tiny import make_mesh
from tests.training.conftest import CHANGES, Run
from tests.training.labelled_files import NUM_EVAL, NUM_TRAIN, VOCABULARY, write_choices

EPOCH = -(-NUM_TRAIN // 8)

# ------------------------------------------------------------------ learning


ENTITIES = ("f1", "precision", "recall", "accuracy", "PER_f1", "LOC_f1")
TAGS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
# Name -> metrics, the least value of the first, where the baseline's is, labels.
EXPECTED = {
    "classification": (("accuracy",), 0.9, (0.5, 0.8), ["bad", "good"]),
    "multi_label": (("f1", "accuracy", "macro_f1"), 0.85, (0.4, 0.8), ["fine", "nice"]),
    "regression": (("pearson", "spearman"), 0.8, (0, 0), []),
    "windows": (("accuracy",), 0.85, (0.5, 0.8), ["bad", "good"]),
    "tagging": (ENTITIES, 0.9, (0, 0), TAGS),
    "crf": (ENTITIES, 0.9, (0, 0), TAGS),
    "span": (("f1", "exact", "best_f1", "best_exact"), 80, (20, 60), []),
    "multiple_choice": (("accuracy",), 0.9, (1 / 3, 0.7), []),
    "embedding": (("spearman", "pearson", "spearman_dim_4", "pearson_dim_4"), 0.7, (0, 0), []),
}
# What is like another run but for the loss, which tests/tasks/test_losses.py computes by hand.
ALIKE = ("multi_label", "regression", "tagging")
each_run = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in CHANGES]
)


@each_run
def test_a_run_learns_the_rule_and_records_its_data(finished, name):
    metrics, least, baseline, labels = EXPECTED[name]
    run = finished(name)
    results, task = run.results, CHANGES[name][0]
    expected = {"eval", "step", "seed", "task", "init_from", "baseline", "data"}
    assert set(results) - {"fitted"} == expected | {"goodput"}
    assert next(iter(results["eval"])) == metrics[0] == run.config.metrics[0]
    assert {*metrics, "loss"} <= set(results["eval"])
    assert baseline[0] <= results["baseline"] <= baseline[1] < least
    assert results["eval"][metrics[0]] >= least
    assert (results["task"], results["seed"], results["init_from"]) == (task, 0, "")
    for split, size in {"train": NUM_TRAIN, "eval": NUM_EVAL}.items():
        path = run.config[f"data.{split}"]
        expected = {"source": path, "sha256": file_sha256(path), "examples": size}
        assert results["data"][split] == expected
    assert "health: good" in run.printed
    assert run.labels == labels
    assert store.load(str(run.workdir)).to_dict() == run.config.to_dict()


def test_the_best_checkpoint_is_the_one_evaluated(finished):
    run = finished("classification")
    values = {row["step"]: row["accuracy"] for row in run.rows()}
    assert list(values) == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    best = max(values, key=lambda step: (values[step], -step))
    row = next(row for row in run.rows() if row["step"] == best)
    assert run.results["step"] == best
    assert run.results["eval"] == {n: v for n, v in row.items() if n not in ("step", "split")}
    assert run.params("best")[1] == best and run.params("newest")[1] == 3 * EPOCH
    assert f"best       step {best}" in run.printed


@each_run
def test_evaluating_from_the_workdir_gives_the_same_scores(finished, name):
    run = finished(name)
    before = run.results
    values = run.evaluate()
    after = run.results
    assert values == before["eval"]
    del before["data"]["train"]  # which evaluation does not read
    assert after == before


def test_more_files_are_evaluated_under_their_names(finished):
    run = finished("classification")
    values = run.results["eval"]
    assert list(values) == ["accuracy", "loss", "trained_accuracy", "trained_loss"]
    alone = run.evaluate(**{"data.eval": run.config.data.train, "data.more_eval": ()})
    assert alone == {"accuracy": values["trained_accuracy"], "loss": values["trained_loss"]}
    run.evaluate()  # restores results.json


@each_run
def test_what_a_reader_sees_agrees_with_the_scores(finished, name):
    run = finished(name)
    review = json.loads((run.workdir / "evaluation.json").read_text())
    values = run.results["eval"]
    assert review["step"] == run.results["step"]
    assert review["examples"] == run.results["data"]["eval"]["examples"]
    assert len(review["errors"]) == min(review["wrong"], 30)
    counts = {name: Counts(*numbers) for name, numbers in review.get("classes", {}).items()}
    if counts and "f1" in values:
        assert micro(counts).f1 == pytest.approx(values["f1"])
    if "confusion" in review:
        matrix = np.array(review["confusion"])
        assert np.trace(matrix) / matrix.sum() == pytest.approx(values["accuracy"])
    if "values" in review:
        assert np.corrcoef(np.transpose(review["values"]))[0, 1] == pytest.approx(values["pearson"])
    if "calibration" in review and "accuracy" in values:
        _, right, number = np.transpose(review["calibration"])
        assert (right * number).sum() / number.sum() == pytest.approx(values["accuracy"])
    if name in ("classification", "multiple_choice", "multi_label"):
        assert 1 - review["wrong"] / review["examples"] == pytest.approx(values["accuracy"])
    if "exact" in values:
        share = 100 - 100 * review["wrong"] / review["examples"]
        assert share == pytest.approx(values["exact"])
    assert "health: " + review["verdict"][-1].removeprefix("health: ") in run.printed


# ------------------------------------------------------------------ stopping


def test_a_stopped_run_resumes_bit_for_bit(finished, new_run):
    """Stopped in its first epoch, and after its first evaluation and checkpoint."""
    whole, stops = finished("windows"), (5, 17)
    run = Run(whole.config, new_run("classification").workdir).train(*stops)
    for step in stops:
        assert f"Stopped by SIGTERM after step {step}" in run.printed
        assert f"resumed    after step {step}" in run.printed
    starts = read_json_lines(run.workdir / "starts.jsonl")
    assert [start["step"] for start in starts] == [0, *stops]
    assert {start["steps"] for start in starts} == {int(whole.state.step)}
    assert run.results["eval"] == whole.results["eval"]
    assert run.results["step"] == whole.results["step"]
    assert_same_run(run.workdir, whole.workdir)


def test_whoever_reads_an_unfinished_run_is_told(finished, new_run, caplog):
    run = new_run("classification", {"epochs": 1.0})
    train_until(3, run.config, run.workdir)
    run.evaluate()
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.name.startswith("bert_jax.")
    assert record.getMessage() == (
        f"{run.workdir} has done 3 of {EPOCH} steps: this is the model of an unfinished run. Unless"
        " it is still training, continue it with the command that began it."
    )
    caplog.clear()
    open_workdir(str(finished("classification").workdir))
    assert not caplog.records


@pytest.mark.parametrize("meta", [{"steps": 9, "ended_early": True}, {"source": "a file"}])
def test_a_run_that_ended_early_and_an_import_are_not_unfinished(meta, tmp_path):
    with contextlib.closing(Checkpoints(str(tmp_path))) as checkpoints:
        checkpoints.save_params({"bias": np.zeros(2)}, meta)
        assert checkpoints.progress() == (0, 0)


def test_a_run_chooses_lengths_of_its_training_rows_and_keeps_them(new_run):
    run = new_run("tagging", {"data.bucket_lengths": (), "max_length": 32})
    opened = open_run(run.config, str(run.workdir))
    rows = opened.training[0]
    lengths = choose_lengths(rows.rows.lengths, 4)
    assert rows.loader.lengths == lengths and len(lengths) > 1
    assert opened.config.data.bucket_lengths == lengths and run.config.data.bucket_lengths == ()
    # What is evaluated may be longer.
    assert rows.pad_lengths == opened.evaluation[0][0].pad_lengths == (*lengths, 32)
    # A run that has begun keeps those that it began with.
    (run.workdir / "checkpoints" / "5").mkdir(parents=True)
    store.save(run.config.replace({"data.bucket_lengths": (12,)}), str(run.workdir))
    again = open_run(run.config, str(run.workdir))
    assert again.config.data.bucket_lengths == again.training[0].loader.lengths[:1] == (12,)


def test_texts_that_a_loss_compares_are_not_sorted_by_length(new_run, tmp_path):
    """Or the negatives of a text would be of its length, which texts that are searched are not."""
    lines = [f"{n * 'good '}\tbad\t{n / 30}\n" for n in range(1, 29)]
    path = tmp_path / "train.tsv"
    path.write_text("".join(["sentence1\tsentence2\tscore\n", *lines]))
    task, changes = CHANGES["embedding"]
    changes = changes | {"data.bucket_lengths": (), "max_length": 32, "data.train": str(path)}
    run = new_run(task, changes)
    rows = open_run(run.config, str(run.workdir)).training[0]
    assert len(choose_lengths(rows.rows.lengths, 4)) == 4
    assert rows.loader.lengths == (32,)


def test_a_begun_run_refuses_other_training_data(finished, tmp_path):
    first = finished("multiple_choice")
    path = tmp_path / "train.csv"
    write_choices(path, random.Random(5), 20)
    changes = {"data.train": str(path), "checkpoint.allow_changes": False}
    config = first.config.replace(changes)
    with pytest.raises(ValueError, match="was trained with other settings"):
        Run(config, first.workdir).train()


def test_a_finished_run_refuses_an_edited_file_to_evaluate_on(files, new_run, tmp_path):
    """Its stored scores are those of the former content."""
    (path := tmp_path / "dev.csv").write_text(files["multiple_choice"][1].read_text())
    run = new_run("multiple_choice", {"data.eval": str(path), "epochs": 1.0}).train()
    Run(run.config, run.workdir).train()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], lines[1]]))
    with pytest.raises(UserError, match=r"other settings: examples to evaluate on \(eval\): "):
        Run(run.config, run.workdir).train()


# ------------------------------------------------------------------ what scores depend on


def evaluate_in(finished_run, batch_size, lengths, mesh):
    """Returns (predictions, loss) of the newest parameters on the evaluation file."""
    config = store.load(str(finished_run.workdir))
    config = config.replace({"data.bucket_lengths": lengths, "eval.batch_size": batch_size})
    run = open_run(config, str(finished_run.workdir), to_train=False, mesh=mesh)
    params = jax.device_put(finished_run.state.params, sharding.replicated(mesh))
    evaluation = make_evaluator(run, run.phases[0])(params)
    return evaluation.predictions, evaluation.values["loss"]


def numbers_in(prediction):
    """Returns the leaves of a prediction that are no floats, and those that are."""
    leaves = jax.tree.leaves(prediction, is_leaf=lambda x: x is None)
    floats = [leaf for leaf in leaves if isinstance(leaf, float)]
    return [leaf for leaf in leaves if not isinstance(leaf, float)], floats


@pytest.mark.parametrize(
    "name",
    ["span", *(pytest.param(x, marks=pytest.mark.slow) for x in ("crf", "multiple_choice"))],
)
def test_scores_do_not_depend_on_batches_padding_or_devices(finished, name):
    run = finished(name)
    longest = run.config.max_length
    predictions, loss = evaluate_in(run, 1, (longest,), make_mesh())  # each row by itself
    # A batch of 16 has a last one that is not full; 64 takes all rows at once.
    for batch_size, lengths, mesh in (
        (16, (13, longest), make_mesh(8)),
        (64, (longest,), make_mesh(4, 2)),
    ):
        others, other_loss = evaluate_in(run, batch_size, lengths, mesh)
        np.testing.assert_allclose(other_loss, loss, rtol=1e-5, atol=1e-5)
        for prediction, other in zip(predictions, others, strict=True):
            (same, floats), (other_same, other_floats) = map(numbers_in, (prediction, other))
            assert other_same == same
            np.testing.assert_allclose(other_floats, floats, atol=2e-5, rtol=1e-4)


# ------------------------------------------------------------------ what is trained


def test_a_frozen_encoder_is_unchanged_bit_for_bit(finished, new_run):
    """Also with weight decay, and split over devices; the CRF on it and the mix are trained."""
    first = finished("span")
    changes = {
        "init_from": str(first.workdir),
        "task.head": "crf",
        "task.layers": "mix_with_embeddings",
        "optimizer.frozen_layers": -1,
        "optimizer.weight_decay": 0.1,
        "mesh.fsdp": 2,
        "epochs": 0.0,
        "steps": 3,
    }
    run = new_run("tagging", changes).train()
    assert run.results["init_from"] == str(first.workdir)
    before, after = first.params("best")[0], run.params()[0]
    encoder = {path for path in before if path.startswith(("bert/embeddings", "bert/encoder"))}
    assert encoder == {path for path in after if path.startswith("bert/")}
    for path in encoder:
        assert after[path].tobytes() == before[path].tobytes(), path
    assert after["scalar_mix/weights"].any() and after["transitions"].any()


def test_first_layers_are_frozen_and_last_layers_reinitialized(new_run, make_workdir):
    source = make_workdir(
        "\n".join(VOCABULARY) + "\n",
        task="classification",
        heads={"classifier__kernel": (16, 2), "classifier__bias": (2,)},
        model__vocab_size=len(VOCABULARY),
    )
    (source / "labels.json").write_text('["bad", "good"]')
    changes = {
        "init_from": str(source),
        "reinit_layers": 1,
        "optimizer.frozen_layers": 1,
        "optimizer.weight_decay": 0.1,
        "optimizer.learning_rate": 1e-5,
        "model.initializer_range": 0.01,
        "model.num_layers": 2,
        "epochs": 0.0,
        "steps": 2,
    }
    run = new_run("classification", changes).train()
    assert "with new, random ones for bert/encoder/layer_1, bert/pooler" in run.printed
    before, after = Run(store.load(str(source)), source).params()[0], run.params()[0]
    for path, array in before.items():
        if path.startswith(("bert/embeddings", "bert/encoder/layer_0")):
            assert after[path].tobytes() == array.tobytes(), path
        elif path.startswith(("bert/encoder/layer_1", "bert/pooler")):
            if path.endswith("kernel"):  # initialized, then two small steps
                assert np.abs(after[path]).max() < 0.05 < np.abs(array).max(), path
        else:  # the head continues
            np.testing.assert_allclose(after[path], array, atol=1e-4)
            assert (after[path] != array).any()
