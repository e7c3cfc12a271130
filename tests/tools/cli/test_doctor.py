"""The command: groups, the last line, exit codes, and what it leaves alone."""

import json
import re
import signal

import jax
import pytest

from bert_jax.tools.cli import doctor
from bert_jax.tools.doctor import target
from bert_jax.tools.doctor.finding import note, ok, problem, warning
from tests.test_main import run, start
from tests.tools.doctor.conftest import SIZES, files  # noqa: F401

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


def test_a_problem_exits_with_1_and_leaves_the_folder_alone(tmp_path, monkeypatch):
    flag, message = "--config.mesh.data=3", "problem  The mesh data=3 x fsdp=1 x tensor=1 does not"
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    workdir = f"--workdir={tmp_path / 'run'}"
    code, out, err = run(["doctor", "--config=configs/tiny.py", workdir, flag])
    assert (code, err) == (1, "")
    assert out.startswith("machine\n  ok ") and message in out
    assert out.splitlines()[-1].endswith("this will not work")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ other hardware

SMALL = [
    "doctor",
    "--config=configs/tiny.py",
    *(f"--config.{name}={value}" for name, value in SIZES.items()),
    "--config.phases=((16,1.0),)",
    "--config.global_batch_size=8",
    "--config.prng_impl=threefry2x32",
]


@pytest.fixture
def elsewhere(monkeypatch):
    """Returns a function (bytes of memory, *words) -> exit code and output for these CPUs."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def start(room, *words):
        here = target.Target(jax.devices(), room)
        monkeypatch.setattr(target, "find_target", lambda name: here)
        return run([*SMALL, "--topology=here", *words])[:2]

    return start


def test_programs_are_compiled_for_other_hardware(elsewhere):
    code, out = elsewhere(0)
    assert code == 0 and out.startswith("machine\n  ok       Devices: 8 x cpu.\nsettings\n")
    program = r"  ok +step, 8 x 16 tokens: compiled in \d+ s\n +memory +fits: "
    assert re.search(program, out) and "  ok       evaluation, 8 x 16 tokens" in out


def test_what_does_not_fit_is_a_problem_with_numbers_in_json(elsewhere):
    code, out = elsewhere(1000, "--json")
    found = [f for f in json.loads(out)["findings"] if f["group"] == "programs"]
    step, evaluation, *advice = found
    assert code == 1 and step["level"] == evaluation["level"] == "problem"
    assert step["values"]["bytes"]["peak"] > step["values"]["bytes"]["parameters"] > 0
    assert advice[-1]["what"] == "No setting with which it fits was found."


def test_details_are_those_of_other_hardware(files, monkeypatch):  # noqa: F811
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    words = [
        f"--config.data.source=text:{files}/corpus.txt",
        f"--config.data.vocab={files}/vocab.txt",
    ]
    words += ["--config.data.num_processes=1", "--config.model.vocab_size=159", "--details"]
    code, out, _ = run([*SMALL, *words, "--notime"])
    assert code == 0, out
    assert re.search(r"steps\n  ok .*\n  ok +step, 8 x 16 tokens: .*\n +memory +fits: ", out)
