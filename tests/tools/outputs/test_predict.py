"""Predictions of fine-tuned runs: their published forms, and refused inputs."""

import csv
import io
import json
import shutil
from collections import Counter

import pytest
from pyarrow import parquet

from bert_jax.tools.listeners.terminal import Terminal
from bert_jax.tools.outputs.inputs import find_inputs
from bert_jax.tools.outputs.predictions import Progress
from tests.data.labelled.tiny_tasks import HIDDEN
from tests.inference.conftest import TAGS, make_texts, predict_file


def predicted(run, tmp_path, content, name="input.tsv", output="output.jsonl"):
    """Returns the text of the output; no other file is left in its folder."""
    (tmp_path / name).write_text(content)
    folder = tmp_path / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    predict_file(*run, str(tmp_path / name), str(folder / output), listener=Terminal())
    names = {path.name for path in folder.iterdir()} - {"output.na_probs.json"}
    assert names == {output}
    return (folder / output).read_text()


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_the_output_is_complete_or_absent(classifier, tmp_path, monkeypatch, set_window, ending):
    """Nothing is left of an interrupted command; the target of a link is replaced."""
    set_window(4)
    source, link, folder = tmp_path / "in.txt", tmp_path / f"link.{ending}", tmp_path / "out"
    source.write_text("\n".join(make_texts(18)))
    folder.mkdir()
    link.symlink_to(folder / "file")

    def interrupt(self, count):
        assert list(folder.glob("*.part/lines"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Progress, "add", interrupt)
        predict_file(*classifier, str(source), str(link))
    assert not list(folder.iterdir())
    assert predict_file(*classifier, str(source), str(link)) == 18
    header = ending == "csv"
    assert len((folder / "file").read_text().splitlines()) == 18 + header
    assert link.is_symlink() and [path.name for path in folder.iterdir()] == ["file"]


# ------------------------------------------------------------------ forms


@pytest.mark.parametrize(
    "name, content, header",
    [
        ("in.csv", 'no,text_a\n7,"the, ""list"""\n3,naive\n', "no,text_a"),
        ("in.jsonl", '{"text_a": "the list", "no": [7, 1]}\n{"text_a": "naive"}\n', "text_a,no"),
        ("in.jsonl", '{"text_a": "the list"}\n{"text_a": "naive", "no": 3}\n', "text_a, no"),
        ("in.csv", "text_a,probability\nthe list,0.5\nnaive,1\n", "text_a,probability"),
        ("in.txt", "the list\nnaive\n", "text"),
    ],
)
def test_a_table_keeps_the_columns_of_its_input(classifier, tmp_path, name, content, header):
    found = list(csv.reader(io.StringIO(predicted(classifier, tmp_path, content, name, "out.csv"))))
    assert found[0] == [*header.replace(" ", "").split(","), "predicted_label", "probability"]
    expected = {
        "no,text_a": [["7", 'the, "list"'], ["3", "naive"]],
        "text_a,no": [["the list", "[7, 1]"], ["naive", ""]],
        "text_a, no": [["the list", ""], ["naive", "3"]],  # only a later object has the field
        "text_a,probability": [["the list", "0.5"], ["naive", "1"]],  # is not replaced
        "text": [["the list"], ["naive"]],
    }[header]
    assert [row[:-2] for row in found[1:]] == expected
    predictions = list(
        map(json.loads, predicted(classifier, tmp_path, content, name, "o.jsonl").splitlines())
    )
    for row, prediction in zip(found[1:], predictions, strict=True):
        assert row[-2] == prediction["label"]
        best = max(prediction["probabilities"].values())
        assert float(row[-1]) == pytest.approx(best, abs=1e-5)


def test_columns_of_the_input_are_kept_as_they_are(classifier, tmp_path):
    """Numbers with all digits; in Parquet, predictions of the same name get another."""
    content = '{"text_a": "the list", "user": 1234567.0, "probability": 0.123456789}\n'
    table = predicted(classifier, tmp_path, content, "in.jsonl", "out.csv").splitlines()
    assert table[1].startswith("the list,1234567.0,0.123456789,")
    predict_file(*classifier, str(tmp_path / "in.jsonl"), str(tmp_path / "out.parquet"))
    (row,) = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert (row["user"], row["probability"]) == (1234567.0, 0.123456789)
    assert row["predicted_label"] and 0 < row["probability_"] <= 1


def test_ids_of_several_files(make_run, tmp_path):
    """Numbers of rows go on; those of a column are kept."""
    for column, ids in (("", ["0", "1", "2", "3"]), ("id", ["1", "0", "0", "1"])):
        run = make_run("classification", task__id=column)
        for name, rows in (("a.csv", "1,the\n0,list\n"), ("b.csv", "0,the\n1,list\n")):
            (tmp_path / name).write_text(f"id,text_a\n{rows}")
        inputs = find_inputs([str(tmp_path / name) for name in ("a.csv", "b.csv")])
        examples = inputs.examples(run[0].task, run[0].task.EXAMPLE, Counter())
        assert [example.id for example in examples] == ids


def test_tables_of_numbers_of_several_labels_and_of_choices(make_run, tmp_path):
    run = make_run("classification", task__problem_type="regression", metrics=("pearson",))
    header, row = predicted(run, tmp_path, "text_a\nthe list\n", output="o.tsv").splitlines()
    assert header == "text_a\tpredicted_value" and float(row.split("\t")[1]) < 1e9
    changes = {"task__problem_type": "multi", "metrics": ("f1",), "labels": ("bad", "good")}
    run = make_run("classification", task__text_a="0", task__label="1", **changes)  # no header
    (row,) = predicted(run, tmp_path, "the list\tx\n", output="o.tsv").splitlines()
    assert row.startswith("the list\tx\t")
    run = make_run("multiple_choice")
    content = "sent1,sent2,ending0,ending1\nthe list,is,naive,returned\n"
    header, row = predicted(run, tmp_path, content, "in.csv", "o.csv").splitlines()
    names = "sent1,sent2,ending0,ending1,predicted_choice,predicted_ending,probability"
    assert header == names
    assert row.split(",")[5] == row.split(",")[2 + int(row.split(",")[4])]


def test_an_object_for_each_line(classifier, tmp_path, capsys):
    content = predicted(classifier, tmp_path, "the list\n\nnaive .", name="input.txt")
    rows = list(map(json.loads, content.splitlines()))
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    assert all(row["label"] in row["probabilities"] for row in rows)
    printed = capsys.readouterr().out
    assert "counted    1 empty texts" in printed
    assert "3 examples of" in printed and "examples/s" in printed


def test_a_split_of_tensorflow_datasets(make_run, tmp_path, monkeypatch, tiny_tasks):
    """Whose labels are hidden, as those of GLUE's test sets."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tiny_tasks))
    output = tmp_path / "MRPC.tsv"
    count = predict_file(
        *make_run("glue:mrpc"), "tfds:tiny_tasks[test]", str(output), listener=Terminal()
    )
    ids = [line.split("\t")[0] for line in output.read_text().splitlines()]
    assert count == len(HIDDEN) and sorted(ids[1:]) == [str(row["idx"]) for row in HIDDEN]


def test_broken_rows_of_a_published_file_are_counted(make_run, tmp_path, capsys):
    content = "id\tquestion1\tquestion2\n0\tthe\tlist\n1\tthe\n2\tis\tnaive\n"
    written = predicted(make_run("glue:qqp"), tmp_path, content, output="QQP.tsv")
    assert [line.split("\t")[0] for line in written.splitlines()] == ["index", "0", "2"]
    assert "counted    1 broken rows" in capsys.readouterr().out


def test_the_files_of_the_squad_script(make_run, tmp_path):
    """A context without tokens has no answer."""
    contexts = {"q": "naive . " * 30, "empty": " \n"}
    paragraphs = [
        {"context": context, "qas": [{"id": id, "question": "the list", "answers": []}]}
        for id, context in contexts.items()
    ]
    content = json.dumps({"data": [{"paragraphs": paragraphs}]})
    run = make_run("span", task__null_answers=True)
    answers = json.loads(predicted(run, tmp_path, content, "input.json", "output.json"))
    odds = json.loads((tmp_path / "out" / "output.na_probs.json").read_text())
    assert answers.keys() == odds.keys() == {"q", "empty"}
    assert (answers["empty"], odds["empty"]) == ("", 1e30)


def test_a_word_and_its_tag_a_line(make_run, tmp_path):
    content = "the\nlist\n\nnaive\n"
    lines = predicted(make_run("tagging"), tmp_path, content, "input.conll", "output.conll")
    words, tags = zip(*(line.split(" ") for line in lines.split("\n") if line), strict=True)
    assert words == ("the", "list", "naive")
    assert set(tags) <= set(TAGS)
    assert [bool(line) for line in lines.split("\n")] == [True, True, False, True, False, False]


@pytest.mark.parametrize(
    "name, output, message",
    [
        ("span", "x.csv", "predictions of the task 'span' for this input have no columns"),
        (
            "classification",
            "x.conll",
            ".conll is for the task 'tagging', and this run's is",
        ),
        ("classification", ".", "is a folder: name a file in it"),
        ("classification", "./input.txt", "is the input: name another file"),
    ],
)
def test_another_form_is_refused_first(make_run, tmp_path, name, output, message):
    (tmp_path / "input.txt").write_text("the\n")
    with pytest.raises(ValueError, match=message):
        predict_file(*make_run(name), str(tmp_path / "input.txt"), f"{tmp_path}/{output}")
    assert [path.name for path in tmp_path.iterdir()] == ["input.txt"]


@pytest.mark.parametrize("output", ["out.csv", "out.tsv"])
def test_a_table_has_a_row_for_each_entity(make_run, tmp_path, output):
    run = make_run("tagging", labels=TAGS)
    content = "the  list\t is\n\nnaive list\n"
    found = predicted(run, tmp_path, content, "in.txt", output)
    table = list(csv.DictReader(io.StringIO(found), delimiter="," if output == "out.csv" else "\t"))
    lines = predicted(run, tmp_path, content, "in.txt", "output.jsonl").splitlines()
    assert {row["id"] for row in table} == {"0", "1", "2"}
    for number, prediction in enumerate(map(json.loads, lines)):
        rows = [row for row in table if row["id"] == str(number)]
        if not prediction["entities"]:
            ((*_, last),) = (row.values() for row in rows)
            assert last == ""
            continue
        for row, entity in zip(rows, prediction["entities"], strict=True):
            assert row["text"][int(row["start"]) : int(row["end"])] == row["entity"]
            assert row["type"] == entity["type"] and row["text"].split() == prediction["words"]
            assert float(row["probability"]) == pytest.approx(entity["probability"], abs=1e-5)


def test_a_table_has_a_row_for_each_tag_of_words(make_run, tmp_path):
    run = make_run("tagging:words", labels=("NOUN", "VERB", "."))
    content = '{"id": "a", "tokens": ["the", "list"]}\n'
    row = json.loads(predicted(run, tmp_path, content, "in.jsonl"))
    assert len(row["tags"]) == len(row["probabilities"]) == 2 and "entities" not in row
    _, *rows = csv.reader(io.StringIO(predicted(run, tmp_path, content, "in.jsonl", "out.csv")))
    assert [row[:3] for row in rows] == [["a", "the list", "the"], ["a", "the list", "list"]]


def test_the_document_around_a_sentence_is_complete(make_run, tmp_path, monkeypatch, set_window):
    """Windows of 4 sentences end where documents of 3 end."""
    set_window(4)
    run = make_run("tagging", task__document_context=True)
    sentences = ["\n".join(text.split()) for text in make_texts(15)]
    documents = ["\n\n".join(sentences[n : n + 3]) for n in range(0, 15, 3)]
    content = "".join(f"-DOCSTART- O\n\n{document}\n\n" for document in documents)
    sizes = []
    monkeypatch.setattr(Progress, "add", lambda self, count: sizes.append(count))
    read = lambda content: list(map(json.loads, content.splitlines()))  # noqa: E731
    answers = read(predicted(run, tmp_path, content, name="input.conll"))
    (tmp_path / "out" / "output.jsonl").rename(tmp_path / "before.jsonl")
    (tmp_path / "out").rmdir()
    set_window(100)
    whole = read(predicted(run, tmp_path, content, name="input.conll"))
    assert sizes == [6, 6, 3, 15]
    for row, expected in zip(answers, whole, strict=True):
        assert row["tags"] == expected["tags"]
        assert row["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
