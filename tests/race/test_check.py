"""race/check.py: a valid record, and each way in which one is not."""

import ast
import json
import pathlib

import pytest

from race import check, prepare, rules, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = (ROOT / "race" / "train.py").read_text()
README = "# mine\n\n- Who: somebody\n- New: nothing\n"


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch):
    """No prepared data are needed, and records are in a folder of the test."""
    monkeypatch.setattr(prepare, "fingerprint", lambda: "of the data")
    monkeypatch.setattr(check, "RECORDS", tmp_path)


def write(folder, scores, train=TRAIN, readme=README, **changes):
    """Writes a record whose runs have these scores."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(train)
    (folder / "README.md").write_text(readme)
    facts = {
        **{"class": "cpu-45", "date": "2026-11-28T10:00:00+00:00", "machine": "CPU, 2 cores"},
        **{"train.py": rules.sha256(folder / "train.py"), **rules.fixed_sums()},
        **{"wall": 60.0, "steps": 500, "seconds": 44.9, "part": "report"},
    }
    lines = ['{"step": 25, "seconds": 2.2, "loss": 8.1}']
    for seed, score in enumerate(scores):
        result = facts | {"seed": seed, "bits_per_character": score} | changes
        lines.append(json.dumps(result))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_record_that_beats_the_last_one_is_valid(tmp_path, capsys):
    write(tmp_path / "first", [1.50, 1.51, 1.49], date="2026-11-01T10:00:00+00:00")
    write(tmp_path / "later", [1.10, 1.11, 1.09], date="2026-12-24T10:00:00+00:00")
    write(tmp_path / "other", [1.00, 1.01, 0.99], **{"class": "cpu-290"})
    check.main([str(write(tmp_path / "mine", [1.40, 1.41, 1.39]))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("mine: cpu-45, 1.4000 ± 0.0100 bits per character, 3 seeds")
    assert lines[1].startswith(f"{tmp_path / 'first'}: the last record, 1.5000")
    assert lines[2].startswith("-0.1000 bits") and lines[3] == "valid"


def test_a_record_that_does_not_is_refused(tmp_path):
    write(tmp_path / "first", [1.50, 1.51, 1.49], date="2026-11-01T10:00:00+00:00")
    mine = write(tmp_path / "mine", [1.49, 1.50, 1.48])
    with pytest.raises(ValueError, match="does not beat the last record with p < 0.01"):
        check.main([str(mine)])
    write(mine, [1.40, 1.41, 1.39], machine="another CPU, 2 cores")
    with pytest.raises(ValueError, match="different machines, another CPU, 2 cores and CPU"):
        check.main([str(mine)])


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"train.py": "0"}, "seed 0 has another train.py: 0, not "),
        ({"evaluate.py": "0"}, "seed 0 has another evaluate.py: 0, not "),
        ({"data": "0"}, "seed 0 has another data: 0, not of the data"),
        ({"part": "tune"}, "seed 0 was evaluated on 'tune', not on 'report'"),
        ({"seconds": 45.3}, "seed 0 took 45.3 s of 45"),
        ({"wall": 500.0}, "seed 0 took 455 s beside its training, and may take 60"),
        ({"machine": "CPU, 8 cores"}, "ran on CPU, 8 cores, and the class has 2 cores"),
        ({"class": "h100-290"}, "ran on CPU, 2 cores, and the class has H100"),
        ({"class": "cpu"}, "log.jsonl has the class 'cpu', and needs one of cpu-290, cpu-45"),
        ({"seed": 0}, r"log.jsonl has the seeds \[0, 0, 0\], and needs 0, 1, ..., at least 3"),
        ({"readme": "- Who:\n- New: x\n"}, "README.md has no line that begins with '- Who: '"),
    ],
)
def test_a_doctored_log_is_refused(tmp_path, changes, problem):
    with pytest.raises(ValueError, match=problem):
        check.main([str(write(tmp_path / "mine", [1.40, 1.41, 1.39], **changes))])


@pytest.mark.parametrize(
    "code, problem",
    [
        ("\n" * 600, "train.py has .* lines, and may have 600"),
        (f"# {'x' * 100}", "train.py has a line of 102 characters, and may have 100"),
        ("import os", "train.py imports os, and may import jax"),
        ("from race import prepare", "train.py imports race.prepare, and may import"),
        ("x = np.load('weights.npy')", "calls load, and may read train.npz and vocab.txt only"),
        ("x = open('text.txt')", "calls open, and may read train.npz and vocab.txt only"),
        ("x = np.load(evaluate.DATA / 'held_out.npz')", "names the held-out text"),
        ("evaluate.score = None", "train.py:.* changes evaluate.score"),
        ("x = __import__('os')", "calls __import__, which may run any code"),
        ("x = (", "train.py:.* is not valid Python: '\\(' was never closed"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused(tmp_path, code, problem):
    folder = write(tmp_path / "mine", [1.40, 1.41, 1.39], train=f"{TRAIN}\n{code}\n")
    with pytest.raises(ValueError, match=problem):
        check.main([str(folder)])
    with pytest.raises(ValueError, match=problem):
        run.main([str(folder), "--class=cpu-45", "--seeds=4"])


def test_a_rerun_that_is_worse_than_the_log_is_refused(tmp_path, monkeypatch):
    mine = write(tmp_path / "mine", [1.40, 1.41, 1.39])

    def make_run(worse):
        def run_seed(train, class_name, seed):
            result = rules.read_results(train.parent)[seed]
            return [], result | {"bits_per_character": result["bits_per_character"] + worse}

        return run_seed

    monkeypatch.setattr(check, "run_seed", make_run(0.001))
    check.main([str(mine), "--rerun=3"])
    monkeypatch.setattr(check, "run_seed", make_run(0.1))
    for seeds in (3, 1):
        with pytest.raises(ValueError, match="the rerun has 1.5.* and the log 1.4000"):
            check.main([str(mine), f"--rerun={seeds}"])


FAKE = """
import argparse, json, os
parser = argparse.ArgumentParser()
for name in ("seed", "seconds", "part"):
    parser.add_argument("--" + name)
flags = parser.parse_args()
print('{"step": 1, "loss": 2.5}')
with open(os.environ["RACE_RESULT"], "x") as file:
    score = 1.5 + float(flags.seconds) / 100
    json.dump({"part": flags.part, "bits_per_character": score}, file)
print(json.dumps({"seed": int(flags.seed), "seconds": 1.5, "steps": 1, "bits_per_character": 0.1}))
"""


def test_runs_are_logged_once_and_a_changed_file_is_noticed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "check_file", lambda path: ())  # the false one reads what it may not
    (tmp_path / "train.py").write_text(FAKE)
    for seeds in (2, 3):
        run.main([str(tmp_path), "--class=cpu-45", f"--seeds={seeds}"])
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    results = rules.read_results(tmp_path)
    assert len(lines) == 6 and [result["seed"] for result in results] == [0, 1, 2]
    assert all(rules.FIELDS <= result.keys() for result in results)
    assert "1.9500 ± 0.0000 bits per character, 3 seeds" in capsys.readouterr().out
    (tmp_path / "train.py").write_text(FAKE + "raise RuntimeError('too bad')")
    with pytest.raises(ValueError, match="has a run with another train.py"):
        run.main([str(tmp_path), "--class=cpu-45"])
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(ValueError, match="--part=report failed: RuntimeError: too bad"):
        run.main([str(tmp_path), "--class=cpu-45"])
    (tmp_path / "train.py").write_text('print(\'{"seed": 0, "seconds": 1, "steps": 1}\')')
    with pytest.raises(ValueError, match="does not call race.evaluate.score"):
        run.main([str(tmp_path), "--class=cpu-45"])
    (tmp_path / "log.jsonl").write_text("nothing\n")
    with pytest.raises(ValueError, match="log.jsonl:1 is no JSON object"):
        run.main([str(tmp_path), "--class=cpu-45"])
    with pytest.raises(ValueError, match="has no train.py: copy race/train.py into it"):
        run.main([str(tmp_path / "nowhere")])


def test_race_train_is_a_record():
    """The first one of two cores and 290 seconds, which is the one to read first.

    What it computes is the record's; its comments may have become better.
    """
    assert code_of(TRAIN) == code_of((rules.RECORDS / "plain" / "train.py").read_text())
    assert code_of("def f():\n    'Text.'\n    return 1  # one") == code_of("def f(): return 1")
    assert code_of("def f(): return 1") != code_of("def f(): return 2")


def code_of(text):
    """Returns the syntax tree without docstrings, which has neither comments nor line breaks."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def test_missing_data_are_named(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(prepare, "DATA", tmp_path)
    with pytest.raises(ValueError, match="is missing or not complete: run python -m race.prepare"):
        rules.fixed_sums()
