"""Texts as words, in files and on standard input: what is read, and what is printed or written."""

import csv
import io
import json
import types

import pytest
from pyarrow import parquet

from bert_jax.__main__ import main as run_command
from bert_jax.files.errors import UserError
from bert_jax.inference.model import load
from bert_jax.tools.outputs import inputs
from bert_jax.tools.outputs.inputs import find_inputs, read_word
from bert_jax.tools.outputs.readable import readable


@pytest.fixture
def standard_input(monkeypatch):
    """Returns a function that sets what standard input has."""

    def set_to(content: str) -> None:
        stdin = types.SimpleNamespace(buffer=io.BytesIO(content.encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        inputs._standard_input.cache_clear()

    yield set_to
    inputs._standard_input.cache_clear()


def test_words_are_files_standard_input_or_texts(tmp_path, standard_input, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text('one\n{"text_a": "two", "text_b": "three"}\n')
    standard_input("four\n\nfive")
    found = find_inputs(["a text", "in.txt", "-", "and/or not", "U.S.", "in.txt"])
    texts = [(text.text_a, text.text_b) for text in found.texts()]
    pair = [("one", None), ("two", "three")]
    piped = [("four", None), ("", None), ("five", None)]
    words = [("and/or not", None), ("U.S.", None)]
    assert texts == [("a text", None), *pair, *piped, *words, *pair]
    assert str(found) == "the command line, in.txt, standard input, the command line, in.txt"
    assert [text.where for text in found.texts()][:2] == ["Text 1", "in.txt, line 1"]
    standard_input('\n {"text_a": "six"}\n')
    assert [text.text_a for text in find_inputs(["-"]).texts()] == ["", "six"]
    for piped, texts in (
        ("[MASK] is\n[deleted]\n", ["[MASK] is", "[deleted]"]),
        ('[{"text_a": "six"}, {"text_a": "seven"}]', ["six", "seven"]),
    ):
        standard_input(piped)
        assert [text.text_a for text in find_inputs(["-"]).texts()] == texts
    assert read_word("in.txt").startswith("one\n{") and read_word("A. B.") == "A. B."


@pytest.mark.parametrize("word", ["LOST.CSV", "lost.jsonl.gz", "a/b", "中/国"])
def test_a_word_like_a_file_must_be_one(word):
    with pytest.raises(ValueError, match="there is no such file. If it is a text, give it by st"):
        find_inputs([word])


def predict(capsys, run, *words: str) -> str:
    run_command(["predict", f"--model={run[1]}", *words])
    return capsys.readouterr().out


def test_texts_are_predicted_as_in_a_file(classifier, tmp_path, capsys, standard_input):
    texts = ["the list", "naive ."]
    (tmp_path / "in.csv").write_text("no,text_a\n7,is\n8,the\n")
    expected = load(classifier[1]).predict(["is", "the", *texts])
    printed = predict(capsys, classifier, f"{tmp_path / 'in.csv'}", *texts)
    for line, one, text in zip(printed.splitlines(), expected, ["is", "the", *texts], strict=True):
        share, label, *words = line.split()
        assert (label, words) == (one["label"], text.split())
        assert share == f"{one['probabilities'][label]:.1%}"
    standard_input("\n".join(texts))
    output = tmp_path / "out.csv"
    predict(capsys, classifier, f"{tmp_path / 'in.csv'}", "-", f"--output={output}")
    header, *rows = csv.reader(io.StringIO(output.read_text()))
    assert header == ["no", "text_a", "text", "predicted_label", "probability"]
    assert [row[:3] for row in rows[1:3]] == [["8", "the", ""], ["", "", "the list"]]
    assert [row[3] for row in rows] == [one["label"] for one in expected]
    predict(capsys, classifier, f"{tmp_path / 'in.csv'}", f"--output={tmp_path / 'out.parquet'}")
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["no"], row["predicted_label"]) for row in table] == [
        (no, one["label"]) for no, one in zip("78", expected, strict=False)
    ]
    printed = predict(capsys, classifier, *texts, f"{tmp_path / 'in.csv'}", "--output=-")
    found = [json.loads(line) for line in printed.splitlines()]
    assert [one["id"] for one in found] == ["0", "1", "2", "3"]
    assert [one["label"] for one in found] == [
        one["label"] for one in (*expected[2:], *expected[:2])
    ]


def test_questions_about_a_context(make_run, tmp_path, capsys):
    run = make_run("span", task__null_answers=True)
    (tmp_path / "context.txt").write_text("the list is\nreturned .\n" * 9)
    questions = ["the list", "naive"]
    context = (tmp_path / "context.txt").read_text().rstrip("\n")
    expected = load(run[1]).predict([(question, context) for question in questions])
    words = ["answer", f"--model={run[1]}", f"--context={tmp_path / 'context.txt'}"]
    words += [f"--question={question}" for question in questions]
    run_command([*words, "--output=-"])
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["answer"] for line in printed] == [one["answer"] for one in expected]
    with pytest.raises(UserError, match=r"context.txt is the input: name another file"):
        run_command([*words, f"--output={tmp_path / 'context.txt'}"])
    run_command(words)
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines[::2] == questions
    for line, one in zip(lines[1::2], expected, strict=True):
        best = one["n_best"][0]
        assert ("no answer" in line) == (not one["answer"])
        assert not one["answer"] or f"(characters {best['start']} to {best['end']})" in line


@pytest.mark.parametrize(
    "name, words, message",
    [
        ("span", ["predict", "who?"], "'who?' is not an example for this model's task: bert_jax"),
        ("multiple_choice", ["predict", "it is"], 'write {"context": ..., "endings": [...]} on a'),
        ("glue:mrpc", ["predict", "it is"], "'it is' is one text, and this model reads pairs:"),
        ("tagging", ["answer", "--question=a", "--context=b"], "only a model that was trained on"),
        ("base", ["predict", "the " * 50], "Text 1 has 52 tokens, special ones included, and the"),
    ],
)
def test_what_a_model_cannot_do_is_refused(name, words, message, make_run):
    with pytest.raises(ValueError) as error:
        run_command([words[0], f"--model={make_run(name)[1]}", *words[1:]])
    assert message in str(error.value) and "\n" not in str(error.value)


PAIR = types.SimpleNamespace(text_a="a", text_b="b")
ENTITY = {"type": "PER", "text": "Ann", "probability": 0.5, "start": 0, "end": 3}


@pytest.mark.parametrize(
    "prediction, lines",
    [
        ({"labels": ["x"], "probabilities": {"x": 0.75, "y": 0.1}}, ["  x 75.0%   a | b"]),
        ({"value": 1.5}, ["    1.5000   a | b"]),
        ({"words": ["Ann", "is"], "tags": ["N", "V"]}, ["Ann/N  is/V"]),
        (
            {"words": ["Ann", "is"], "tags": ["B-PER", "O"], "entities": [ENTITY]},
            ["\nAnn is", "   50.0%  PER  Ann   (characters 0 to 3)"],
        ),
        (
            {
                "masks": [{"candidates": [{"token": "x", "probability": 1.0}]}],
                "next_sentence": None,
            },
            ["\na | b", "  100.0%  x"],
        ),
        ({"id": "0", "perplexity": 2.0}, ['a | b\n  {"perplexity": 2.0}']),
    ],
    ids=str,
)
def test_predictions_as_lines(prediction, lines):
    assert list(readable(PAIR, prediction)) == lines


@pytest.mark.parametrize(
    "name, content, column, texts",
    [
        ("a.csv", "id,text\n1,one two\n2,\n", "", ["one two", ""]),
        ("a.csv", "review\nso it is\n", "", ["so it is"]),
        ("a.csv", "7;so, it is\n8;so, it was\n", "", ["so, it is", "so, it was"]),
        ("a.csv", "id,title,body\n1,a b,c d\n", "title", ["a b"]),
        ("a.csv", "1,c d\n", "1", ["c d"]),
        ("a.csv", "c d,1\n", "0", ["c d"]),
        ("a.jsonl", '{"id": 1, "text": "x"}\n{"id": 2, "text": null}\n', "", ["x", ""]),
        ("a.json", '[{"id": 1, "review": "x"}]', "", ["x"]),
        ("a.json", '[\n{"text_a": "x"},\n{"text_a": "y", "text_b": "z"}]', "", ["x", "y | z"]),
        ("a.txt", "one\rtwo\r", "", ["one", "two"]),
        ("a.csv", "text_a,text_b\na,b\n", "", ["a | b"]),
    ],
)
def test_the_column_of_texts(tmp_path, name, content, column, texts):
    (path := tmp_path / name).write_bytes(content.encode())
    assert [str(text) for text in find_inputs([str(path)], column).texts()] == texts


@pytest.mark.parametrize(
    "content, column, message",
    [
        ("id,n\n1,2\n", "", "has no column of texts: 'id' has one value"),
        ("a text\nanother one\n", "", "is 'a text' a text or the name of the column? choose one"),
        ("id,text\n1,x\n", "review", "no column 'review' (its texts); it has 'id', 'text'"),
        ("sentence1,sentence2\na b,c d\n", "", "two columns of texts, 'sentence1', 'sentence2'"),
        ("anchor,positive\na b,c d\n", "", "two columns of texts, 'anchor', 'positive'"),
    ],
)
def test_a_column_that_cannot_be_told_is_asked_for(tmp_path, content, column, message):
    (path := tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError) as error:
        list(find_inputs([str(path)], column).texts())
    assert message in str(error.value)
