"""The command: what it refuses, what it prints, and that the sweep files make valid runs."""

import importlib
import json
import pathlib
import re

import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.config.store import parse
from bert_jax.models.layer_choice import LAYER_CHOICES
from bert_jax.scores import squad
from bert_jax.scores.classification import micro
from bert_jax.scores.entities import entity_counts
from bert_jax.tools.sweep import record, schedule
from bert_jax.tools.sweep.jobs import Job
from configs.sweeps.systems import SYSTEMS
from configs.sweeps.tasks import TASKS, column

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FILES = sorted(
    path.stem
    for path in (REPOSITORY / "configs" / "sweeps").glob("*.py")
    if "def get_sweep" in path.read_text()
)
CORPUS = ["--set", "corpus=text:corpus.txt"]
SWEEP = """
from bert_jax.tools.sweep.plan import Column, Run, Sweep, Table

def get_sweep(steps: int = 3):
    ner = {"data.train": __file__, "data.eval": __file__}
    bert = {"data.source": "text:x", "steps": steps}
    runs = (
        Run("bert", "configs/tiny.py", bert, system="bert", task="pretraining"),
        Run("ner", "configs/ner.py", ner, "bert", 0, 0, "bert", "ner"),
    )
    return Sweep("Mine", runs, (Table("T", {"bert": "BERT"}, (Column("ner", "f1"),)),))
"""


@pytest.fixture
def mine(tmp_path):
    """The flags of a small sweep in a folder of its own."""
    (tmp_path / "mine.py").write_text(SWEEP)
    return [f"--sweep={tmp_path}/mine.py", f"--workdir={tmp_path}/out"]


def run(*words):
    run_command(["sweep", *words])


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "--workdir is missing"),
        (["--workdir={0}/none", "--seeds=3"], "--seeds changes the runs of a sweep file"),
        (
            ["--sweep={0}/mine.py", "--workdir={0}/out", "--stage=2", "--number=7"],
            "--stage=2 --number=7 is not a job: the sweep has stages with 1, 1, 1 jobs",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(words, message, mine, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(*(word.format(tmp_path) for word in words))


def test_what_a_run_lacks_is_refused_before_anything_runs(mine, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(SWEEP.replace('"data.eval"', '"task.published": "third", "data.eval"'))
    with pytest.raises(ValueError, match="Run ner: .*third"):  # only the task knows
        run(*mine)
    path.write_text(SWEEP.replace('"data.eval": __file__', '"data.eval": "nowhere.conll"'))
    with pytest.raises(ValueError, match="Missing file: nowhere.conll, of the run ner-seed0"):
        run(*mine)
    run(*mine, "--dry_run")
    assert "missing  nowhere.conll, of the run ner-seed0\n" in capsys.readouterr().out


@pytest.fixture
def scripted(monkeypatch):
    """Replaces each training by a script that writes a run's files; `bad` jobs fail."""
    import sys

    code = (
        "import json, os, sys\n"
        "name, folder = sys.argv[1:]\n"
        "with open(folder + '/../../calls', 'a') as f: print(name, file=f)\n"
        "if os.path.exists(folder + '/../../fail-' + name): sys.exit('error: as asked')\n"
        "rows = [['a', '5042', 'float32', '()', 5042]]\n"
        "json.dump(rows, open(folder + '/parameters.json', 'w'))\n"
        "if 'seed' in name:\n"
        "    score = 0.5 + 0.1 * int(name[-1])\n"
        "    json.dump({'eval': {'f1': score}}, open(folder + '/results.json', 'w'))\n"
    )

    def command(job, workdir):
        folder = record.folder_of(job.name, workdir)
        return [sys.executable, "-c", code, job.name, str(folder)]

    monkeypatch.setattr(Job, "command", command)
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)


def calls(tmp_path) -> list[str]:
    return [name for name in (tmp_path / "out/calls").read_text().split() if name[:4] != "data"]


def test_a_sweep_runs_reports_and_is_not_repeated(mine, scripted, tmp_path, capsys):
    run(*mine, "--seeds=2")
    shown = capsys.readouterr().out
    assert "4 jobs, 0 of them complete before" in shown
    assert "| BERT | 55.00 ± 7.07 (2) |" in shown
    assert calls(tmp_path) == ["bert", "ner-seed0", "ner-seed1"]
    lines = (tmp_path / "out/results.jsonl").read_text().splitlines()
    results = list(map(json.loads, lines))
    assert [(r["name"], r["parameters"]) for r in results] == [
        *(("bert", 5042), ("ner-seed0", 5042), ("ner-seed1", 5042)),
    ]
    assert "| BERT | 55.00 ± 7.07 (2) |" in (tmp_path / "out/results.md").read_text()

    run(*mine, "--seeds=2")
    run(f"--workdir={tmp_path}/out")  # the plan is in the folder
    assert "4 jobs, 4 of them complete before" in capsys.readouterr().out
    assert len(calls(tmp_path)) == 3
    run(f"--workdir={tmp_path}/out", "--report")
    assert "| BERT | 55.00 ± 7.07 (2) |" in capsys.readouterr().out
    run(*mine, "--seeds=3")  # one more seed is one more run
    assert calls(tmp_path)[3:] == ["ner-seed2"]


def test_a_failure_is_reported_at_the_end_with_exit_code_1(mine, scripted, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/fail-ner-seed0").touch()
    with pytest.raises(SystemExit, match="^1$"):
        run(*mine, "--seeds=2")
    shown = capsys.readouterr().out
    assert "| BERT | 60.00 (1) |" in shown
    assert shown.rstrip().endswith("error: as asked")
    (tmp_path / "out/fail-ner-seed0").unlink()
    run(*mine, "--seeds=2", "--only=ner-seed0")
    assert calls(tmp_path) == ["bert", "ner-seed0", "ner-seed1", "ner-seed0"]


def test_changed_settings_are_refused_before_anything_runs(
    mine, scripted, tmp_path, capsys, caplog
):
    run(*mine)
    before = (tmp_path / "out/sweep.json").read_text()
    with pytest.raises(ValueError, match=r"bert was started with .*: steps: 3 -> 4\. "):
        run(*mine, "--set", "steps=4")
    assert (tmp_path / "out/sweep.json").read_text() == before
    run(*mine, "--config.log.every=7")  # has no effect on results
    assert len(calls(tmp_path)) == 2
    # A run may be resumed with another number of batches, but its results are others.
    with pytest.raises(ValueError, match=r"bert was started with .*: eval.max_batches: 0 there, 3"):
        run(*mine, "--config.eval.max_batches=3")
    capsys.readouterr()
    run(*mine, "--set", "steps=4", "--report")
    assert "60.00" not in capsys.readouterr().out
    assert "Left out of the tables" in caplog.text and "steps: 3 -> 4" in caplog.text


def test_the_jobs_of_a_cluster_run_one_by_one(mine, scripted, tmp_path, capsys):
    run(*mine, "--seeds=2", "--slurm")
    assert "--array=0-1" in capsys.readouterr().out
    workdir = f"--workdir={tmp_path}/out"
    with pytest.raises(SystemExit, match="^1$"):  # the stage before has not run
        run(workdir, "--stage=2", "--number=1")
    assert "ner-seed1: skipped, since it needs bert, which is not complete" in (
        capsys.readouterr().out
    )
    for stage, number in ((0, 0), (1, 0), (2, 1), (2, 0)):
        run(workdir, f"--stage={stage}", f"--number={number}")
    assert calls(tmp_path) == ["bert", "ner-seed1", "ner-seed0"]
    assert "55.00" in (tmp_path / "out/results.md").read_text()


# ---------------------------------------------------------------------------- the sweep files


def settings(name: str, bert_folder) -> list[str]:
    """Returns the settings without which a sweep file has nothing to run on."""
    if name in ("grid", "table7"):
        return ["--set", f"init_from={bert_folder}", "--set", "data=D"]
    return [*CORPUS, "--set", "data=D"]


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    """A workdir as `init_from` reads it: configuration and vocabulary."""
    from bert_jax.config import store
    from configs import base

    folder = tmp_path_factory.mktemp("bert")
    store.save(parse(base.get_config()), str(folder))
    (folder / "checkpoints").mkdir()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return folder


SCALED = [f"{name}.py:{scale}" for name in FILES[1:] for scale in ("paper", "tiny")]


@pytest.mark.parametrize("file", ["grid.py", *SCALED])
def test_every_run_of_every_sweep_file_is_valid(file, bert_folder, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    words = [f"--sweep=configs/sweeps/{file}", *settings(file.split(".")[0], bert_folder)]
    run(*words, "--dry_run", "--seeds=2")
    *_, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ jobs in \d stages", last)


@pytest.mark.parametrize("name", ["table7", "table8"])
def test_features_are_of_layers_that_the_model_has(name):
    module = importlib.import_module(f"configs.sweeps.{name}")
    more = {"entities": "wikigold"} if name == "table8" else {}
    runs = module.get_sweep("tiny", corpus="text:x", data="D", **more).runs
    sizes = [
        run.overrides["model.num_layers"] for run in runs if "model.num_layers" in run.overrides
    ]
    chosen = {run.overrides["task.layers"] for run in runs if "task.layers" in run.overrides}
    assert chosen
    for choice in chosen:
        assert LAYER_CHOICES[choice].min_layers <= min(sizes)


@pytest.mark.parametrize(
    "words, message",
    [
        (["table5"], "The text to pre-train on is missing: --set corpus=SOURCE"),
        (["table5:huge"], "Unknown scale 'huge'. Available: paper, mini, tiny."),
        (["table5", "tasks=mnl"], "Unknown task 'mnl'. Available: mnli, qnli"),
        (["table5", "corpus=text:x"], "The task squad needs --set data=FOLDER with squad/train"),
        (
            ["table5", "corpus=text:x", "pretraining=steps"],
            "'steps' is not FIELD=VALUE or NAME:FIELD=VALUE",
        ),
        (["table6", "corpus=text:x", "sizes=3-768"], "'3-768' is not LAYERS-HIDDEN-HEADS"),
        (["table8", "corpus=text:x", "data=D", "rates=80/20"], "'80/20' is not MASK/SAME/RND"),
        (["learning_curve", "corpus=text:x", "points=0"], "points=0 must be at least 1."),
        (["learning_curve", "corpus=text:x", "points=7"], "1000000 steps are not divisible by"),
        (["grid"], "The model to fine-tune is missing: --set init_from=FOLDER."),
    ],
)
def test_wrong_settings_of_the_sweep_files_are_refused(words, message, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    name, *settings = words
    file, colon, scale = name.partition(":")
    flags = [word for setting in settings for word in ("--set", setting)]
    with pytest.raises(ValueError, match=re.escape(message)):
        run(f"--sweep=configs/sweeps/{file}.py{colon}{scale}", *flags, "--dry_run")


@pytest.mark.parametrize("scale", ["paper", "mini", "tiny"])
def test_every_system_can_be_a_row_of_table_5(scale, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    words = [f"--sweep=configs/sweeps/table5.py:{scale}", *CORPUS, "--set", "data=D"]
    run(*words, "--set", f"systems={','.join(SYSTEMS)}", "--set", "tasks=texts", "--dry_run")
    lines = capsys.readouterr().out.splitlines()
    assert all(any(f"/runs/{system}-" in line for line in lines) for system in SYSTEMS)


def planned(capsys, *words) -> dict[str, str]:
    """Returns name -> command line of the planned runs."""
    run(*words, "--dry_run")
    lines = capsys.readouterr().out.splitlines()
    found = (re.search(r"--workdir=DIR/runs/(\S+)", line) for line in lines)
    return {match[1]: match.string for match in found if match}


def test_overrides_of_one_task_or_system_concern_nothing_else(capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    made = planned(
        capsys,
        *("--sweep=configs/sweeps/table5.py:tiny", *CORPUS, "--set", "data=D"),
        *("--set", "tasks=wikigold,squad", "--set", "systems=bert,no_nsp"),
        *("--set", "pretraining=steps=40;no_nsp:optimizer.learning_rate=2e-3"),
        *("--set", "finetuning_of=epochs=5;squad:epochs=7;bert-squad:epochs=9"),
    )
    assert all("--config.steps=40 " in made[name] for name in ("bert", "no_nsp"))
    assert ["learning_rate=2e-3" in made[name] for name in ("bert", "no_nsp")] == [False, True]
    epochs = {name: re.findall(r"config.epochs=(\S+)", line) for name, line in made.items()}
    assert epochs["bert-wikigold-seed0"] == ["5"] and epochs["no_nsp-squad-seed0"] == ["7"]
    assert epochs["bert-squad-seed0"] == ["9"]


def test_a_perfect_score_is_100_in_every_column():
    answers = squad.squad_v1({"q": ["an answer"]}, {"q": "an answer"})
    perfect = {"classification": {"accuracy": 1.0, "matthews": 1.0, "spearman": 1.0, "f1": 1.0}}
    perfect |= {"tagging": {"f1": micro(entity_counts([["B-X"]], [["B-X"]])).f1}, "span": answers}
    for name, task in TASKS.items():
        assert column(name).scale * perfect[task.kind][task.metric] == 100, name
