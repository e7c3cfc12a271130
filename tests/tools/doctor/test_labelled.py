"""Labelled files that fit together or not, each written with the fault that must be found."""

import json
from collections import Counter

import pytest

from bert_jax.data.labelled.examples import TextExample
from bert_jax.tools.doctor import labelled, labelled_files
from tests.tools.doctor.conftest import VOCABULARY, bad, found, write_tags, write_texts


@pytest.fixture
def texts(tmp_path):
    """Returns a function (train rows, eval rows) -> changes of a configuration."""

    def write(train, evaluation):
        for name, rows in (("train", train), ("dev", evaluation)):
            lines = "\n".join(["text_a\tlabel", *map("\t".join, rows)]) + "\n"
            (tmp_path / f"{name}.tsv").write_text(lines)
        return {
            "data__train": str(tmp_path / "train.tsv"),
            "data__eval": str(tmp_path / "dev.tsv"),
        }

    return write


def rows(path):
    return [tuple(line.split("\t")) for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("name", ["classification", "tagging"])
def test_good_files_have_no_warning(name, look):
    findings = look(name)
    assert bad(findings) == []
    found(findings, "ok", "No example of eval")
    assert {group for group, _ in findings} == {"data", "recipe"}


def test_one_class_is_a_problem(look, files, texts):
    train = [(text, "good") for text, _ in rows(files / "train.tsv")]
    findings = look("classification", **texts(train, rows(files / "dev.tsv")))
    found(findings, "problem", "a single class, so there is nothing to learn")
    found(findings, "problem", "has the labels bad, which train lacks")


def test_one_class_to_evaluate_is_a_warning(look, files, texts):
    only = [(text, label) for text, label in rows(files / "dev.tsv") if label == "good"] * 2
    only = [(f"{text} {'good ' * i}", label) for i, (text, label) in enumerate(only)]
    findings = look("classification", max_length=32, **texts(rows(files / "train.tsv"), only))
    found(findings, "warning", "a single class, so a constant answer is right")
    found(findings, "note", "lacks the labels bad: they are not evaluated")


def test_a_class_that_is_nearly_always_right(look, files, texts):
    train = rows(files / "train.tsv")
    train = [(text, "good" if i % 20 else "bad") for i, (text, _) in enumerate(train)]
    findings = look("classification", **texts(train, rows(files / "dev.tsv")))
    assert "macro_f1" in found(findings, "warning", "always saying 'good' is right for 95%").fix


@pytest.mark.parametrize(
    "share, level", [(0.02, "warning"), (0.6, "problem"), (1.0, "problem")], ids=str
)
def test_examples_in_both_files_are_found_by_their_text(share, level, look, files, texts):
    train, evaluation = rows(files / "train.tsv"), rows(files / "dev.tsv")
    leaking = [(text, "bad") for text, _ in train[: max(1, round(share * len(evaluation)))]]
    evaluation[: len(leaking)] = leaking  # with other labels
    findings = look("classification", **texts(train, evaluation))
    finding = found(findings, level, f"{len(leaking)} of 40 examples of eval")
    assert "train.tsv, line" not in finding.what and "dev.tsv, line 2" in finding.what


def test_a_single_leak_of_many_is_a_note():
    train = file("train", [TextExample("t", str(i), f"text {i}", labels=("a",)) for i in range(9)])
    others = [TextExample("e", str(i), f"other {i}", labels=("a",)) for i in range(199)]
    leak = [TextExample("e, line 7", "x", "text 3", labels=("a",))]
    found(labelled.check_leak(train, file("eval", others + leak)), "note", "1 of 200 examples")


def file(name, examples):
    return labelled_files.File(name, f"{name}.tsv", examples, Counter())


def test_repetitions_and_contradictions_in_training(look, files, texts):
    train = rows(files / "train.tsv")
    again = train[:30]
    other = [(text, "bad" if label == "good" else "good") for text, label in train[30:40]]
    findings = look("classification", **texts(train + again + other, rows(files / "dev.tsv")))
    found(findings, "warning", "40 of 136 examples repeat another")
    found(findings, "warning", "10 texts are there several times with different labels")


def test_few_repetitions_and_contradictions_are_notes(look, files, texts):
    train = rows(files / "train.tsv")
    other = [(train[0][0], "bad"), train[1]]
    findings = look("classification", **texts(train + other, rows(files / "dev.tsv")))
    found(findings, "note", "2 of 98 examples repeat another")


def test_few_examples(look, files, texts):
    findings = look(
        "classification", **texts(rows(files / "train.tsv")[:9], rows(files / "dev.tsv")[:8])
    )
    found(findings, "warning", "too few to learn from")
    found(findings, "warning", "its score is a guess")


@pytest.mark.parametrize(
    "text, message",
    [
        ("text_a\tlabel\n", "has no"),
        (None, "there is no such file"),
        ("text_a\tx\na\tb\n", "no column"),
    ],
)
def test_files_that_cannot_be_read_are_problems(text, message, look, tmp_path):
    path = tmp_path / "dev.tsv"
    if text is not None:
        path.write_text(text)
    findings = look("classification", data__eval=str(path))
    found(findings, "problem", message)
    found(findings, "note", "need data that can be opened")
    found(findings, "ok", "train (")  # the other file is looked at


def test_a_missing_file_is_named(look):
    found(look("classification", data__eval=""), "problem", "config.data.eval is missing")


def test_texts_that_are_cut(look, files, texts):
    long = [(f"{text} {text} {text} {text}", label) for text, label in rows(files / "train.tsv")]
    changes = texts(long, rows(files / "dev.tsv"))
    findings = look("classification", max_length=16, data__bucket_lengths=(16,), **changes)
    assert (
        "max_length=32" in found(findings, "warning", "96 of 96 examples of train are longer").fix
    )
    findings = look("classification", model__max_position_embeddings=32, **changes)
    finding = found(findings, "warning", "96 examples of train are longer")
    assert "The model reads no longer ones" in finding.fix


def test_unknown_words(look, files, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    few = [piece for i, piece in enumerate(VOCABULARY) if i % 10 or i < 5]
    vocabulary.write_text("\n".join(few) + "\n")
    findings = look("classification", data__vocab=str(vocabulary))
    assert len([f for _, f in findings if f.level == "warning" and "are unknown" in f.what]) == 2


def test_an_encoder_for_the_wrong_case(look, files, texts):
    train = [(text.title(), label) for text, label in rows(files / "train.tsv")]
    changes = texts(train, rows(files / "dev.tsv"))
    findings = look("classification", data__lowercase=False, **changes)
    found(findings, "warning", "config.data.lowercase=False, but the vocabulary has no capitals")
    assert bad(look("classification", **changes)) == []


def test_schemes_of_tags(look, tmp_path):
    write_tags(tmp_path / "iob1.conll", 64, scheme="I")
    findings = look("tagging", data__train=str(tmp_path / "iob1.conll"))
    found(findings, "note", "The tags of train are IOB1, those of eval IOB2")
    assert bad(findings) == []


def test_tags_of_two_schemes_in_one_file(look, files, tmp_path):
    write_tags(tmp_path / "a.conll", 32, scheme="I")
    write_tags(tmp_path / "b.conll", 32, seed=5)
    mixed = tmp_path / "mixed.conll"
    mixed.write_text((tmp_path / "a.conll").read_text() + "\n" + (tmp_path / "b.conll").read_text())
    findings = look("tagging", data__train=str(mixed))
    assert "correct the tags" in found(findings, "warning", "1 mixed scheme files").fix


def test_a_type_of_entity_that_training_lacks(look, files, tmp_path):
    dev = tmp_path / "dev.conll"
    dev.write_text((files / "dev.conll").read_text().replace("PER", "LOC", 3))
    findings = look("tagging", data__eval=str(dev))
    found(findings, "problem", "has the labels B-LOC, I-LOC, which train lacks")


def questions(path, contexts, answers=True):
    data = [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": context,
                    "qas": [
                        {
                            "id": f"{path.stem}{number}",
                            "question": "good ?",
                            "answers": [
                                {
                                    "text": context.split()[2],
                                    "answer_start": context.index(context.split()[2]),
                                }
                            ]
                            if answers
                            else [{"text": "zzz", "answer_start": 0}],
                        }
                    ],
                }
            ],
        }
        for number, context in enumerate(contexts)
    ]
    path.write_text(json.dumps({"version": "1.1", "data": data}))


def test_questions_about_the_same_context(look, files, tmp_path):
    contexts = [text for text, _ in rows(files / "train.tsv")]
    train, dev = tmp_path / "train.json", tmp_path / "dev.json"
    questions(train, contexts[:40])
    questions(dev, contexts[40:80])
    changes = {"data__train": str(train), "data__eval": str(dev)}
    assert bad(look("span", **changes)) == []
    dev.write_text(train.read_text().replace("good ?", "bad ?").replace("train", "dev"))
    findings = look("span", **changes)
    assert "by articles" in found(findings, "warning", "40 questions of eval").fix


def test_answers_that_are_not_in_their_text(look, files, tmp_path):
    contexts = [text for text, _ in rows(files / "train.tsv")]
    train, dev = tmp_path / "train.json", tmp_path / "dev.json"
    questions(train, contexts[:40], answers=False)
    content = json.loads(train.read_text())
    questions(train, contexts[40:80])
    good = json.loads(train.read_text())
    for number, item in enumerate(content["data"]):
        item["paragraphs"][0]["qas"][0]["id"] = f"x{number}"
    good["data"] += content["data"]
    train.write_text(json.dumps(good))
    questions(dev, contexts[80:])
    findings = look("span", data__train=str(train), data__eval=str(dev))
    found(findings, "warning", "40 questions not found")
    found(findings, "warning", "40 of 80 questions of train have no answer in their text")


def test_impossible_questions_are_counted(look, files, tmp_path):
    train, dev = tmp_path / "train.json", tmp_path / "dev.json"
    contexts = [text for text, _ in rows(files / "train.tsv")]
    questions(train, contexts[:40])
    questions(dev, contexts[40:80])
    content = json.loads(dev.read_text())
    content["data"][0]["paragraphs"][0]["qas"][0] |= {"answers": [], "is_impossible": True}
    dev.write_text(json.dumps(content))
    findings = look("span", data__train=str(train), data__eval=str(dev))
    found(findings, "note", "1 of 40 questions have no answer")


def test_more_files_are_looked_at_too(look, files, tmp_path):
    write_texts(tmp_path / "more.tsv", 40, seed=7)
    findings = look("classification", data__more_eval=(f"more={tmp_path / 'more.tsv'}",))
    found(findings, "ok", "No example of more")
