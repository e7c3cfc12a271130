"""The command: groups, the last line, exit codes, and what it leaves alone."""

import json
import signal

import pytest

from bert_jax.tools.cli import doctor
from bert_jax.tools.doctor.finding import note, ok, problem, warning
from tests.test_main import run, start

FOUND = [
    ("machine", ok("All is well.")),
    ("data", note("A note.", "Nothing.")),
    ("data", warning("Odd.", "--config.x=1")),
    ("time", problem("It will not end.", "Wait.")),
]
PRINTED = """\
machine
  ok       All is well.
data
  note     A note.
           -> Nothing.
  warning  Odd.
           -> --config.x=1
time
  problem  It will not end.
           -> Wait.
1 problem, 1 warning, 1 note, 1 ok: this will not work
"""


def test_findings_are_printed_in_groups_with_their_fixes(capsys):
    doctor.report(iter(FOUND), False)
    assert capsys.readouterr().out == PRINTED
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


def test_the_first_finding_comes_before_jax_is_imported():
    """The import takes longer than all before it."""
    program = (
        "import sys\n"
        "from bert_jax.tools.cli import doctor\n"
        "from bert_jax.tools.cli.command_line import parse\n"
        "flags = parse('bert_jax doctor', '', doctor.FLAGS, ['--compilation_cache=off'])\n"
        "found = doctor.findings(flags)\n"
        "print(next(found)[0], 'jax' in sys.modules)\n"
        "found = [finding for _, finding in found]\n"
        "print('jax' in sys.modules, [f for f in found if f.level == 'problem'])\n"
    )
    done = start("-c", program)
    assert done.stdout == "machine False\nTrue []\n", done.stderr


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--config.data.source=text:/no/such/file", "problem  No file matches"),
        ("--config.mesh.data=3", "problem  The mesh data=3 x fsdp=1 x tensor=1 does not use"),
    ],
)
def test_a_problem_exits_with_1_and_leaves_the_folder_alone(flag, message, tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    workdir = f"--workdir={tmp_path / 'run'}"
    code, out, err = run(["doctor", "--config=configs/tiny.py", workdir, flag])
    assert (code, err) == (1, "")
    assert out.startswith("machine\n  ok ") and message in out
    assert out.splitlines()[-1].endswith("this will not work")
    assert not list(tmp_path.iterdir())
