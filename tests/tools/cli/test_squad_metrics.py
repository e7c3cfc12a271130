"""The command `bert_jax squad_metrics`: its files, its output, its errors."""

import json
import pathlib

import pytest

from bert_jax.__main__ import main as run_command

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


@pytest.mark.parametrize(
    "data, is_version_2",
    [
        (squad(QUESTION), False),
        (squad(QUESTION, version="v2.0"), True),
        (squad(QUESTION, {"id": "b", "answers": [], "is_impossible": True}), True),
    ],
)
def test_the_rules_are_those_of_the_data(data, is_version_2, write, capsys):
    predictions = b'\xef\xbb\xbf{"a":\r\n"yes", "b": ""}\r\n'  # with a byte order mark
    files = write("data.json", data), write("predictions.json", predictions)
    printed = scores_of(capsys, *files)
    assert printed.get("exact" if is_version_2 else "exact_match") == 100
    assert ("HasAns_total" in printed) == is_version_2


def test_chinese_in_both_forms_of_the_data(write, capsys):
    predictions = write("predictions.json", {"q": "北京"})
    expected = {"AVERAGE": "100.000", "F1": "100.000", "EM": "100.000", "TOTAL": 1, "SKIP": 0}
    own = [{"context_id": "c", "qas": [{"query_id": "q", "answers": ["北京", "上海"]}]}]
    for data in (own, squad({"id": "q", "answers": [{"text": "北京。"}]})):
        printed = scores_of(capsys, write("data.json", data), predictions, "--cmrc")
        assert printed == expected | {"FILE": predictions}


GOOD = {"data": squad(QUESTION), "predictions": {"a": "yes"}, "na": {"a": -2}}
BAD = [
    ("data", b'{"data":\n [,]}', "data.json, line 2: not JSON"),
    ("data", b'{"data": "\xff"}', "data.json is not UTF-8 (byte 10)"),
    ("data", {"paragraphs": []}, "data.json is not in SQuAD's format (data > paragraphs > qas), n"),
    ("data", squad(), "data.json has no questions."),
    ("data", squad({"id": "a"}), 'without answers that have a text: {"id"'),
    ("data", squad(QUESTION, QUESTION), "data.json: the id 'a' occurs twice."),
    ("predictions", ["yes"], "predictions.json must be a JSON object that maps ids to a text."),
    ("predictions", {"a": ["yes"]}, "'a' must have a text, but has [\"yes\"]."),
    *(
        ("na", {"a": value}, "na.json: 'a' must have a finite number, but has")
        for value in ("0.5", True, float("nan"), 10**400)
    ),
]


@pytest.mark.parametrize("name, content, message", BAD)
def test_a_file_that_cannot_be_used_is_named(name, content, message, write):
    files = {kind: write(f"{kind}.json", each) for kind, each in (GOOD | {name: content}).items()}
    words = [files["data"], files["predictions"], "--na_prob", files["na"]]
    with pytest.raises(ValueError) as error:
        run_command(["squad_metrics", *words])
    assert message in str(error.value) and "\n" not in str(error.value)
