"""The command `python -m bert_jax squad_metrics`: its files, its output, its errors."""

import json
import pathlib
import subprocess
import sys

import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.tools.cli.squad_metrics import read_gold

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[2] / "scores" / "goldens" / "squad_metrics.json").read_text(
        encoding="utf-8"
    )
)
QUESTION = {"id": "a", "answers": [{"text": "yes"}]}


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a file, JSON unless bytes are given, and returns its path."""

    def write(name: str, content) -> str:
        path = tmp_path / name
        if not isinstance(content, bytes):
            content = json.dumps(content, ensure_ascii=False).encode()
        path.write_bytes(content)
        return str(path)

    return write


def squad(*questions: dict, **more) -> dict:
    return {"data": [{"paragraphs": [{"qas": list(questions)}]}], **more}


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "bert_jax", "squad_metrics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


def test_the_command_prints_what_the_official_script_prints(write):
    golden = GOLDEN["squad_v2"]
    na_prob = write("na.json", golden["na_probs"])
    files = write("data.json", golden["data"]), write("predictions.json", golden["predictions"])
    done = run(*files, "--na_prob", na_prob)
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed == pytest.approx(golden["scores_with_na_probs"])
    assert list(printed) == list(golden["scores_with_na_probs"])
    done = run(files[0], files[1] + "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {files[1]}x: No such file or directory\n"


def scores_of(capsys, *arguments: str) -> dict:
    run_command(["squad_metrics", *arguments])
    return json.loads(capsys.readouterr().out)


def test_version_1_and_missing_predictions(write, capsys):
    golden = GOLDEN["squad_v1"]
    files = write("data.json", golden["data"]), write("predictions.json", golden["predictions"])
    run_command(["squad_metrics", *files])
    printed = capsys.readouterr()
    assert json.loads(printed.out) == pytest.approx(golden["scores"])
    assert printed.err == (
        "2 of 20 questions have no prediction and score 0, the first of them 'q3'.\n"
        f"9 of 27 predictions are for no question of {files[0]}, the first of them 'q18'.\n"
    )


def test_a_threshold(write, capsys):
    golden = GOLDEN["squad_v2"]
    files = write("data.json", golden["data"]), write("predictions.json", golden["predictions"])
    na_prob = "--na_prob=" + write("na.json", golden["na_probs"])
    printed = scores_of(capsys, *files, na_prob, "--na_prob_thresh=0.5")
    assert printed == pytest.approx(golden["scores_with_threshold"]["0.5"])


@pytest.mark.parametrize(
    "data, is_version_2",
    [
        (squad(QUESTION), False),
        (squad(QUESTION, version="1.1"), False),
        (squad(QUESTION, version="v2.0"), True),
        (squad(QUESTION, {"id": "b", "answers": [], "is_impossible": True}), True),
    ],
)
def test_the_rules_are_those_of_the_data(data, is_version_2, write, capsys):
    files = write("data.json", data), write("predictions.json", {"a": "yes", "b": ""})
    printed = scores_of(capsys, *files)
    assert printed.get("exact" if is_version_2 else "exact_match") == 100
    assert ("HasAns_total" in printed) == is_version_2


def test_na_probs_ask_for_the_rules_of_version_2(write, capsys):
    files = write("data.json", squad(QUESTION)), write("predictions.json", {"a": "yes"})
    printed = scores_of(capsys, *files, "--na_prob=" + write("na.json", {"a": -2}))
    assert (printed["best_f1"], printed["best_f1_thresh"]) == (100, -2)


def test_chinese_in_both_forms_of_the_data(write, capsys):
    predictions = write("predictions.json", {"q": "北京"})
    expected = {"AVERAGE": "100.000", "F1": "100.000", "EM": "100.000", "TOTAL": 1, "SKIP": 0}
    own = [{"context_id": "c", "qas": [{"query_id": "q", "answers": ["北京", "上海"]}]}]
    for data in (own, squad({"id": "q", "answers": [{"text": "北京。"}]})):
        printed = scores_of(capsys, write("data.json", data), predictions, "--cmrc")
        assert printed == expected | {"FILE": predictions}


def test_a_byte_order_mark_is_no_error(write, capsys):
    data = write("data.json", b"\xef\xbb\xbf" + json.dumps(squad(QUESTION)).encode())
    predictions = write("predictions.json", b'\xef\xbb\xbf{"a":\r\n"yes"}\r\n')
    assert scores_of(capsys, data, predictions) == {"exact_match": 100, "f1": 100}


@pytest.mark.parametrize(
    "data, message",
    [
        (b'{"data":\n [,]}', "data.json, line 2: not JSON"),
        (b"", "data.json, line 1: not JSON"),
        (b'{"data": "\xff"}', "data.json is not UTF-8 (byte 10)"),
        ({"paragraphs": []}, "data.json is not in SQuAD's format (data > paragraphs > qas), nor"),
        ({"data": [{"paragraphs": [{}]}]}, "data.json is not in SQuAD's format"),
        ("text", "data.json is not in SQuAD's format"),
        (squad(), "data.json has no questions."),
        (
            squad({"id": "a"}),
            'data.json: a question without an id, or without answers that have a text: {"id"',
        ),
        (squad({"answers": []}), "a question without an id"),
        (
            squad({"id": "a", "answers": [{"text": 3}]}),
            "a question without an id, or without answers",
        ),
        (squad(QUESTION, QUESTION), "data.json: the id 'a' occurs twice."),
    ],
)
def test_data_that_cannot_be_read_is_refused(data, message, write):
    with pytest.raises(ValueError) as error:
        files = write("data.json", data), write("predictions.json", {"a": "yes"})
        run_command(["squad_metrics", *files])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "predictions, message",
    [
        (b"{", "predictions.json, line 1: not JSON"),
        (["yes"], "predictions.json must be a JSON object that maps ids to a text."),
        ({"a": ["yes"]}, "predictions.json: 'a' must have a text, but has [\"yes\"]."),
        ({"a": None}, "'a' must have a text, but has null."),
    ],
)
def test_predictions_that_cannot_be_read_are_refused(predictions, message, write):
    with pytest.raises(ValueError) as error:
        files = write("data.json", squad(QUESTION)), write("predictions.json", predictions)
        run_command(["squad_metrics", *files])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("value", ["0.5", True, float("nan"), float("-inf"), 10**400])
def test_na_probs_must_be_numbers(value, write):
    files = write("data.json", squad(QUESTION)), write("predictions.json", {"a": "yes"})
    with pytest.raises(ValueError, match="na.json: 'a' must have a finite number, but has"):
        run_command(["squad_metrics", *files, "--na_prob", write("na.json", {"a": value})])


def test_flags_that_are_not_right_are_refused(write):
    with pytest.raises(ValueError, match="arguments are required: PREDICTIONS .see --help"):
        run_command(["squad_metrics", "data.json"])
    with pytest.raises(ValueError, match="--na_prob is for SQuAD 2.0"):
        run_command(
            ["squad_metrics", "data.json", "predictions.json", "--cmrc", "--na_prob=na.json"]
        )


def test_real_questions_answered_with_the_gold_are_all_right(shared_data, write, capsys):
    path = str(shared_data / "squad" / "dev-v2.0.3articles.json")
    version, gold = read_gold(path)
    assert version == "v2.0"
    predictions = {key: answers[-1] if answers else "" for key, answers in gold.items()}
    scores = scores_of(capsys, path, write("predictions.json", predictions))
    assert scores["exact"] == scores["HasAns_f1"] == scores["NoAns_f1"] == 100
    assert scores["HasAns_total"] + scores["NoAns_total"] == scores["total"] == len(gold)
