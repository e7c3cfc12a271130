"""Fine-tuning runs with a teacher; teachers that are refused. Pre-training: tests/runs."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import bert_jax
from bert_jax import api
from bert_jax.devices.trees import flatten
from bert_jax.exchange import export
from bert_jax.files.errors import UserError
from bert_jax.training.metrics import Totals
from bert_jax.training.open import open_run
from bert_jax.training.resume import check_unchanged, checkpoint_meta
from bert_jax.training.run import flops_per_token
from bert_jax.training.teacher import open_teacher
from bert_jax.training.workdir import open_model, open_workdir, write_labels
from tests.training.conftest import CHANGES
from tests.training.labelled_files import VOCABULARY

SMALLER = {"model.hidden_size": 8, "model.num_heads": 1, "model.intermediate_size": 16}


def with_teacher(teacher, **changes):
    changes = {f"distillation.{name}": value for name, value in changes.items()}
    return {"distillation.teacher": str(teacher.workdir), **changes}


def test_a_smaller_student_learns_of_the_teacher_alone(finished, new_run):
    """Of no label; what is kept and evaluated is the student."""
    teacher = finished("classification")
    changes = SMALLER | with_teacher(teacher, weight=1.0) | {"epochs": 8.0}
    run = new_run("classification", changes).train()
    assert run.results["eval"]["accuracy"] >= 0.9
    opened = open_workdir(str(run.workdir))
    assert opened.params.keys() == open_workdir(str(teacher.workdir)).params.keys()
    lines = run.rows("train")
    assert lines[-1]["task_distilled_loss"] < 0.5 * lines[0]["task_distilled_loss"]
    for line in lines:
        assert line["loss"] == pytest.approx(line["weighted_task_distilled_loss"])
        assert "weighted_task_loss" not in line
    assert set(run.rows()[-1]) == {"step", "split", "accuracy", "loss"}
    assert run.evaluate() == run.results["eval"]
    predictions = bert_jax.load(run.workdir).predict(["the good moon", "bad sand"])
    assert [prediction["label"] for prediction in predictions] == ["good", "bad"]


# Name of CHANGES -> shapes of the teacher's head.
HEADS = {
    "tagging": {"classifier__kernel": (16, 5), "classifier__bias": (5,)},
    "span": {"span__kernel": (16, 2), "span__bias": (2,)},
    "multiple_choice": {"classifier__kernel": (16, 1), "classifier__bias": (1,)},
    "multi_label": {"classifier__kernel": (16, 2), "classifier__bias": (2,)},
}
LABELS = {"tagging": ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"], "multi_label": ["fine", "nice"]}


@pytest.fixture
def make_teacher(make_workdir):
    """Returns a function (name of HEADS) -> folder of a model with random parameters."""

    def make(name):
        task, changes = CHANGES[name]
        own = {key: value for key, value in changes.items() if key.startswith("task.")}
        if name == "multi_label":
            own |= {key: changes[key] for key in ("metrics", "checkpoint.best_metric")}
        own |= {"model.vocab_size": len(VOCABULARY), "model.num_layers": 1}
        own |= {"model.next_sentence": True}  # it has a pooler
        folder = make_workdir(
            "\n".join(VOCABULARY) + "\n",
            task=task,
            heads=HEADS[name],
            **{key.replace(".", "__"): value for key, value in own.items()},
        )
        write_labels(str(folder), LABELS.get(name, []))
        return folder

    return make


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "span" else pytest.mark.slow) for n in HEADS]
)
def test_every_task_has_a_teacher(make_teacher, new_run, name):
    """One step of a student that starts as its teacher, without dropout: they do not differ."""
    folder, (task, changes) = make_teacher(name), CHANGES[name]
    more = {"distillation.teacher": str(folder), "distillation.weight": 1.0}
    more |= {"init_from": str(folder), "model.dropout_rate": 0.0}
    more |= {"model.attention_dropout_rate": 0.0, "epochs": 0.0, "steps": 1, "log.every": "1"}
    run = new_run(task, changes | more).train()
    (line,) = run.rows("train")
    assert line["task_distilled_loss"] == pytest.approx(0, abs=1e-5)
    assert line["task_loss"] > 0.1


def test_another_teacher_is_a_difference_on_resumption(finished, new_run):
    run = new_run("classification", with_teacher(finished("classification")))
    opened: Any = open_run(run.config, str(run.workdir))
    meta = checkpoint_meta(opened, Totals(), False)
    check_unchanged(opened, meta)
    teacher, found = opened.teacher, opened.teacher.sha256
    again: Any = open_run(run.config, str(run.workdir))
    assert found == again.teacher.sha256
    other = dataclasses.replace(opened, teacher=dataclasses.replace(teacher, sha256="0" * 64))
    with pytest.raises(UserError, match=f"weights of the teacher: {found[:12]} -> 0{{12}}"):
        check_unchanged(other, meta)
    with pytest.raises(
        UserError, match=r"distillation.teacher: '.+' -> ''.*: [0-9a-f]{12} -> None"
    ):
        config = run.config.replace({"distillation.teacher": ""})
        check_unchanged(dataclasses.replace(opened, config=config, teacher=None), meta)


def test_a_teacher_is_evaluated_without_dropout_and_counted(finished, new_run):
    run = new_run("classification", with_teacher(finished("classification"), temperature=2.0))
    opened: Any = open_run(run.config, str(run.workdir))
    phase = opened.phases[0]
    task, alone = (opened.task_at(phase, evaluate) for evaluate in (False, True))
    teacher = task.taught.teacher.model
    assert teacher.dropout_rate == teacher.attention_dropout_rate == 0
    assert flops_per_token(task, 24) == pytest.approx(4 / 3 * flops_per_token(alone, 24))
    stored = open_model(str(finished("classification").workdir)).params
    for path, array in flatten(opened.constants["teacher"]).items():
        np.testing.assert_array_equal(array, stored[path])


# ------------------------------------------------------------------ other programs' models


@pytest.fixture
def theirs(make_workdir, tmp_path):
    """A folder of transformers: an encoder with the heads of pre-training."""
    vocabulary = "\n".join(VOCABULARY) + "\n"
    workdir = make_workdir(vocabulary, model__vocab_size=len(VOCABULARY))
    export(open_workdir(str(workdir)), "huggingface", tmp_path / "theirs")
    return tmp_path / "theirs"


def test_finetune_takes_a_teacher(finished, files, monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(api, "_run", lambda config, *_, **__: found.append(config))
    teacher, values = finished("classification"), {"distillation__weight": 0.9}
    train, evaluate = files["classification"]
    options = {"workdir": tmp_path, "task__label": "label", **values}
    bert_jax.finetune(teacher.workdir, train, evaluate, teacher=teacher.workdir, **options)
    assert found[0].distillation.to_dict() == {
        **bert_jax.get_config("classification").distillation.to_dict(),
        "teacher": str(teacher.workdir),
        "weight": 0.9,
    }


# ------------------------------------------------------------------ refused


def test_a_teacher_of_something_else_is_refused(finished, make_teacher, new_run, files, tmp_path):
    teacher = with_teacher(finished("classification"))
    tagger, missing = (
        {"distillation.teacher": str(folder)}
        for folder in (make_teacher("tagging"), tmp_path / "none")
    )
    words = tmp_path / "vocab.txt"
    words.write_text(files["vocab"].read_text().replace("moon", "sun"))
    numbers = {"task.problem_type": "regression", "metrics": ("pearson",), "task.label": "number"}
    numbers |= {"checkpoint.best_metric": "pearson", "distillation.temperature": 2.0}
    longer = {"model.max_position_embeddings": 64, "max_length": 48}
    for task, changes, message in (
        ("tagging", teacher, "was trained for the task 'classification', not 'tagging'"),
        ("classification", teacher | {"task.label": "number"}, "has the labels bad, good, and"),
        ("classification", teacher | CHANGES["multi_label"][1], "has config.task.problem_type="),
        ("tagging", tagger | {"task.head": "crf"}, "cannot be compared if one of them has a CRF"),
        ("classification", teacher | {"data.vocab": str(words)}, "another vocabulary"),
        ("classification", teacher | {"model.vocab_size": 64}, r"the run \(64 tokens\)"),
        ("classification", missing, f"{tmp_path}/none"),
        ("classification", teacher | longer, "has 32 positions, and rows have 48 tok"),
        ("classification", teacher | numbers, "distillation.temperature=2.0 divides logits, and"),
    ):
        with pytest.raises(UserError, match=message):
            run = new_run(task, changes)
            open_run(run.config, str(run.workdir))


def test_a_teacher_teaches_no_phase_and_no_run_of_another_task(theirs, finished, new_run):
    run = new_run("classification", with_teacher(finished("classification")))
    opened = open_run(run.config, str(run.workdir))
    (phase,) = opened.phases
    phases = (dataclasses.replace(phase, task="causal_lm"),)
    with pytest.raises(UserError, match="teaches no phase of 'causal_lm'"):
        open_teacher(dataclasses.replace(opened, phases=phases))
    run = new_run("classification", {"distillation.teacher": str(theirs)})
    with pytest.raises(UserError, match="was trained for the task 'pretraining', not 'cla"):
        open_run(run.config, str(run.workdir))
