"""The command: groups, the last line, exit codes, and what it leaves alone."""

import json
import os
import pathlib
import subprocess
import sys

from bert_jax.tools.cli import doctor
from bert_jax.tools.doctor.finding import note, ok, problem, warning

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def start(*flags):
    return subprocess.run(
        [sys.executable, "-m", "bert_jax", "doctor", *flags],
        cwd=REPOSITORY,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=200,
    )


FOUND = [
    ("machine", ok("All is well.")),
    ("data", note("A note.", "Nothing.")),
    ("data", warning("Odd.", "--config.x=1")),
    ("time", problem("It will not end.", "Wait.")),
]


def test_findings_are_printed_in_groups_with_their_fixes(capsys):
    doctor.report(iter(FOUND), False)
    assert capsys.readouterr().out == (
        "machine\n"
        "  ok       All is well.\n"
        "data\n"
        "  note     A note.\n"
        "           -> Nothing.\n"
        "  warning  Odd.\n"
        "           -> --config.x=1\n"
        "time\n"
        "  problem  It will not end.\n"
        "           -> Wait.\n"
        "1 problem, 1 warning, 1 note, 1 ok: this will not work\n"
    )


def test_the_last_line_counts(capsys):
    doctor.report(iter(FOUND[:1] * 2), False)
    assert capsys.readouterr().out.endswith("0 problems, 0 warnings, 0 notes, 2 ok\n")


def test_json_is_one_object(capsys):
    doctor.report(iter(FOUND), True)
    content = json.loads(capsys.readouterr().out)
    assert content["counts"] == {"ok": 1, "note": 1, "warning": 1, "problem": 1}
    assert content["findings"][3] == {
        "group": "time",
        "level": "problem",
        "what": "It will not end.",
        "fix": "Wait.",
    }


def test_a_machine_that_works(tmp_path):
    done = start()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("machine\n  ok ")
    assert "Devices:" in done.stdout and "0 problems" in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_the_first_line_comes_before_jax_is_imported():
    """The import takes longer than all before it."""
    program = (
        "import sys\n"
        "from bert_jax.tools.cli import doctor\n"
        "from bert_jax.tools.cli.command_line import parse\n"
        "flags = parse('bert_jax doctor', '', doctor.FLAGS, ['--compilation_cache=off'])\n"
        "found = doctor.findings(flags)\n"
        "print(next(found)[0], 'jax' in sys.modules)\n"
        "print(list(found)[-1][0], 'jax' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.stdout == "machine False\nmachine True\n", done.stderr


def test_a_problem_exits_with_1_and_leaves_the_folder_alone(tmp_path):
    done = start(
        "--config=configs/tiny.py",
        f"--workdir={tmp_path / 'run'}",
        "--config.data.source=text:/no/such/file",
    )
    assert done.returncode == 1, done.stderr
    assert "problem  No file matches" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("this will not work")
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_no_run_can_have_is_a_problem(tmp_path):
    done = start("--config=configs/tiny.py", "--config.mesh.data=3")
    assert done.returncode == 1
    assert "problem  The mesh data=3 x fsdp=1 x tensor=1 does not use" in done.stdout
