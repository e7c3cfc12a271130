"""Planning writes nothing, and a workdir with something else is refused before it changes."""

import contextvars
import json
import pathlib
import shutil

import pytest

import bert_jax
from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.files.errors import UserError
from bert_jax.files.locks import lock
from bert_jax.plans.adaptation import plan_adaptation
from bert_jax.plans.finetuning import plan_finetuning
from bert_jax.tools.cli import train as cli_train
from bert_jax.training.multitask import train_tasks
from bert_jax.training.seeds import train_seeds
from bert_jax.training.train import train
from tests.tools.convert.conftest import make_workdir, random_params  # noqa: F401


@pytest.fixture
def model(make_workdir) -> str:  # noqa: F811
    return str(make_workdir())


def write_table(path: pathlib.Path, words: str = "a b c") -> str:
    rows = [f"{words} {n},{'good' if n % 2 else 'bad'}" for n in range(40)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return str(path)


def contents(folder) -> dict[str, bytes]:
    paths = pathlib.Path(folder).rglob("*")
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture
def done(model, tmp_path) -> str:
    """The workdir of a complete fine-tuning of table.csv, as far as it is looked at."""
    workdir = str(tmp_path / "done")
    plan = plan_finetuning(model, write_table(tmp_path / "table.csv"), "", "", workdir, {})
    assert not pathlib.Path(workdir).exists()
    with plan.begin(workdir, print):
        store.save(plan.config, workdir)
        pathlib.Path(workdir, "checkpoints", "50", "train_state").mkdir(parents=True)
    return workdir


def test_the_same_call_continues_the_run(model, done, tmp_path):
    before = contents(done)
    assert set(before) == {
        f"{done}/{name}" for name in ("config.json", "split/train.csv", "split/evaluate.csv")
    }
    with plan_finetuning(model, str(tmp_path / "table.csv"), "", "", done, {}).begin(done, print):
        pass
    assert contents(done) == before


def test_rare_classes_are_decided_for_like_frequent_ones_unless_the_user_says_how(model, tmp_path):
    path = tmp_path / "table.csv"
    rows = [f"a b c {n},{'bad' if n % 8 == 0 else 'good'}" for n in range(80)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    config = plan_finetuning(model, str(path), "", "", str(tmp_path / "new"), {}).config
    names = ("task.class_weights", "task.weighting", "epochs")
    weights = "{'bad': 4.3, 'good': 1.0}"  # 7^0.75
    assert [config[name] for name in names] == [weights, "logits", 20.0]
    for given in ({"task.class_weights": "none"}, {"task.thresholds": "tuned"}):
        config = plan_finetuning(model, str(path), "", "", str(tmp_path / "new"), given).config
        assert [config[name] for name in names] == ["none", "loss", 20.0]
    given = {"epochs": 5.0}
    config = plan_finetuning(model, str(path), "", "", str(tmp_path / "new"), given).config
    assert [config[name] for name in names] == [weights, "logits", 5.0]


def test_questions_without_an_answer_may_be_answered_so(model, tmp_path):
    def write(impossible):
        questions = [
            {"id": n, "question": "which", "context": f"a b c {n}", "is_impossible": n < impossible}
            | {"answers": [] if n < impossible else [{"text": "b", "answer_start": 2}]}
            for n in range(20)
        ]
        (path := tmp_path / "q.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
        return str(path)

    new = str(tmp_path / "new")
    config = plan_finetuning(model, write(4), "", "", new, {}).config
    assert (config["task.null_answers"], config.metrics[1]) == (True, "exact")
    config = plan_finetuning(model, write(4), "", "", new, {"task.null_answers": False}).config
    assert (config["task.null_answers"], config.metrics[1]) == (False, "exact_match")
    assert not plan_finetuning(model, write(0), "", "", new, {}).config["task.null_answers"]


def test_words_that_only_entities_divide_are_reported(model, tmp_path):
    def lines_of(text):
        rows = [{"text": f"{text} {n}", "entities": [[6, 10, "LOC"]]} for n in range(20)]
        (path := tmp_path / "e.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        lines = plan_finetuning(model, str(path), "", "", str(tmp_path / "new"), {}).lines
        return [line for line in lines if "are divided where an entity begins or ends" in line]

    assert lines_of("live (rome) too")[0].startswith("warning    20 words")
    assert not lines_of("abide rome  too")


def test_the_rate_of_a_small_encoder_depends_on_what_is_learnt(model, tmp_path):
    rows = [f"a b {n},b c {n},{'good' if n % 2 else 'bad'}" for n in range(40)]
    (tmp_path / "pairs.csv").write_text("\n".join(["question,sentence,label", *rows]) + "\n")
    answers = [{"text": "c", "answer_start": 4}]
    questions = [{"id": str(n), "question": f"b {n}", "answers": answers} for n in range(40)]
    data = {"data": [{"paragraphs": [{"context": "a b c", "qas": questions}]}]}
    (tmp_path / "answers.json").write_text(json.dumps(data))
    rows = [f"a b {n},b c {n}" for n in range(40)]
    (tmp_path / "embedded.csv").write_text("\n".join(["anchor,positive", *rows]) + "\n")
    files = [write_table(tmp_path / "texts.csv"), *map(str, tmp_path.glob("[pae]*.*"))]
    rates = {}
    for file in files:
        config = plan_finetuning(model, file, "", "", str(tmp_path / "new"), {}).config
        rates[pathlib.Path(file).stem] = config.optimizer.learning_rate
    assert rates["pairs"] == pytest.approx(rates["texts"] / 4, rel=0.06)  # two digits
    assert rates["embedded"] == rates["pairs"]
    assert rates["answers"] == 1e-3


def test_a_length_of_training_replaces_that_of_the_recipe(model, tmp_path):
    table = write_table(tmp_path / "table.csv")
    plan = plan_finetuning(model, table, "", "", str(tmp_path / "new"), {"steps": "6"})
    assert plan.config.total_steps((100,)) == 6
    assert not any(" epochs=" in line for line in plan.lines)
    with pytest.raises(UserError, match="epochs=0 trains nothing"):
        plan_finetuning(model, table, "", "", str(tmp_path / "new"), {"epochs": "0"})


def test_another_file_is_refused_before_anything_changes(model, done, tmp_path):
    before = contents(done)
    with pytest.raises(UserError, match="split/train.csv: other content. Choose another --work"):
        plan_finetuning(model, write_table(tmp_path / "b.csv", "b a"), "", "", done, {})
    with pytest.raises(UserError, match=r"epochs: 20.0 -> 3.0. Choose another --workdir"):
        plan_finetuning(model, str(tmp_path / "table.csv"), "", "", done, {"epochs": "3"})
    assert contents(done) == before
    given = {"checkpoint.allow_changes": "true"}
    plan = plan_finetuning(model, str(tmp_path / "b.csv"), "", "", done, given)
    with plan.begin(done, print):
        assert contents(done)[f"{done}/split/train.csv"].startswith(b"text,label\nb a ")


def test_the_workdir_of_another_task_is_refused(model, done, tmp_path):
    (tmp_path / "text.txt").write_text("a b c.\n" * 40)
    for before, call in (
        (done, lambda: plan_adaptation(model, str(tmp_path / "text.txt"), "", done, {})),
        (done, lambda: bert_jax.train(bert_jax.get_config("tiny"), done)),
    ):
        files = contents(before)
        with pytest.raises(UserError, match=r"task: 'classification' -> 'pretraining'\. Choose"):
            call()
        assert contents(before) == files


def test_the_model_is_no_workdir(model, tmp_path):
    before, text = contents(model), tmp_path / "text.txt"
    text.write_text("a b c.\n" * 40)
    table, given = write_table(tmp_path / "table.csv"), {"distillation.teacher": model}
    new = str(tmp_path / "new")
    for call in (
        lambda: plan_finetuning(model, table, "", "", model, {}),
        lambda: plan_finetuning(model, table, "", "", f"{new}/../{pathlib.Path(model).name}", {}),
        lambda: plan_adaptation(model, str(text), "", model, {}),
    ):
        with pytest.raises(UserError, match="config.init_from=.* is the folder of the new run too"):
            call()
    shutil.copytree(model, tmp_path / "copy")
    with pytest.raises(UserError, match="config.distillation.teacher=.* is the folder of the new"):
        plan_finetuning(str(tmp_path / "copy"), table, "", "", model, given)
    assert contents(model) == before


def test_one_run_and_several_seeds_have_folders_of_their_own(model, done, tmp_path):
    table = str(tmp_path / "table.csv")
    with pytest.raises(UserError, match="holds one run, and this is seeds=3: choose another"):
        plan_finetuning(model, table, "", "", done, {"seeds": "3"})
    several = str(tmp_path / "several")
    plan = plan_finetuning(model, table, "", "", several, {"seeds": "2"})
    with plan.begin(several, print):
        store.save(plan.config, several)
    assert plan_finetuning(model, table, "", "", several, {"seeds": "3"}).config.get("seeds") == 3
    with pytest.raises(UserError, match="holds several seeds, and this is seeds=1: choose"):
        plan_finetuning(model, table, "", "", several, {})


def test_a_sweep_is_no_run(model, tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(UserError, match="holds a sweep: name the folder of one of its runs"):
        plan_finetuning(model, write_table(tmp_path / "a.csv"), "", "", str(tmp_path), {})


def test_a_folder_in_use_is_refused_unchanged(model, done, tmp_path):
    plan = plan_finetuning(model, str(tmp_path / "table.csv"), "", "", done, {})
    calls = (
        lambda: plan.begin(done, print).__enter__(),
        lambda: train(plan.config, done),
        lambda: train_seeds(plan.config, done),
        lambda: train_tasks(dict.fromkeys(("done", "b"), plan.config), str(tmp_path)),
    )
    with lock(done):
        before = contents(tmp_path)
        for call in calls:
            with pytest.raises(UserError, match=f"{done} is in use by process .* on .*since"):
                contextvars.Context().run(call)  # as another thread
        assert contents(tmp_path) == before


def test_a_run_is_continued_with_the_configuration_that_it_has(done, monkeypatch):
    found = []
    monkeypatch.setattr(cli_train, "train_and_report", lambda config, *_: found.append(config))
    run_command(["train", f"--workdir={done}", "--config.eval.patience=2"])
    assert found == [store.load(done).replace({"eval.patience": 2})]
    with pytest.raises(UserError, match="--config is missing"):
        run_command(["train", f"--workdir={done}/other"])
