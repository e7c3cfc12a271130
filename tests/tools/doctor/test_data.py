"""Corpora and labelled files, each written with the fault that must be found."""

import gzip
import json
import random
import shutil

import pytest

from bert_jax.data.corpus.prepare import prepare
from bert_jax.tools.doctor import trial
from tests.tools.doctor.conftest import VOCABULARY, bad, found, sentence, write_corpus, write_tags

# ------------------------------------------------------------------ corpora


@pytest.fixture
def look_at(look, tmp_path):
    """Returns a function (text, **changes) -> findings about a run on this text."""

    def run(text: str, **changes):
        path = tmp_path / "corpus.txt"
        path.write_text(text)
        return look(data__source=f"text:{path}", **changes)

    return run


def documents(count, sentences=6, seed=3):
    rng = random.Random(seed)
    return ["\n".join(sentence(rng) + "." for _ in range(sentences)) for _ in range(count)]


def test_a_good_corpus_has_no_warning(look, files, tmp_path):
    before = sorted(path.name for path in files.iterdir())
    findings = look(workdir=str(tmp_path / "run"), data__dir=str(tmp_path / "data"))
    assert bad(findings) == []
    found(findings, "ok", "sampled: 300 documents")
    found(findings, "ok", "0.00% of the tokens are unknown")
    assert not list(tmp_path.iterdir())
    assert sorted(path.name for path in files.iterdir()) == before


def test_a_sample_has_about_the_rows_of_the_whole_corpus(make_config, monkeypatch, tmp_path):
    monkeypatch.setattr(trial, "_SAMPLE_BYTES", 250_000)
    write_corpus(tmp_path / "corpus.txt", documents=6000)
    config = make_config(data__source=f"text:{tmp_path / 'corpus.txt'}", data__dupe_factor=3)
    (tmp_path / "trial").mkdir()
    opened = trial.open_trial(config, "", str(tmp_path / "trial"))
    assert 1000 < len(opened.sample) < 2000
    manifest = prepare(config.data, str(tmp_path / "data"), 1, lambda _: None)
    assert opened.rows[0] == pytest.approx(manifest.num_rows("train", 32), rel=0.1)
    assert opened.held_out[0] == pytest.approx(manifest.num_rows("validation", 32), rel=0.1)
    written = sum(file.stat().st_size for file in (tmp_path / "data").rglob("*.array*"))
    assert written and opened.prepare_bytes == pytest.approx(written, rel=0.3)


def test_a_part_of_a_long_text_is_read(make_config, monkeypatch, tmp_path):
    for number in range(4):  # each is a chunk
        write_corpus(tmp_path / f"{number}.txt", documents=100, seed=number)
    monkeypatch.setattr("bert_jax.text.sources.RANGE_BYTES", 1000)
    monkeypatch.setattr(trial, "_READ_BYTES", 40_000)
    monkeypatch.setattr(trial, "_MAX_CHUNK_BYTES", 60_000)
    texts = [path.read_bytes() for path in tmp_path.glob("*.txt")]
    with gzip.open(tmp_path / "all.gz", "wb") as file:
        file.write(b"\n\n".join(texts))
    for name, error in (("*.txt", 0.05), ("all.gz", 0.3)):
        config = make_config(data__source=f"text:{tmp_path}/{name}")
        sample, text_bytes, _ = trial.take_sample(config.data)
        assert len(sample) < 400
        assert text_bytes == pytest.approx(sum(map(len, texts)), rel=error)


def test_text_that_training_would_refuse_is_a_problem(look):
    findings = look(data__source="text:/no/such/*.txt")
    found(findings, "problem", "No file matches '/no/such/*.txt'")
    found(findings, "note", "need data that can be opened")


def test_documents_of_one_sentence_have_no_next_one_and_nothing_is_held_out(look_at):
    rng = random.Random(0)
    text = "\n\n".join(sentence(rng, 15, 20) + "." for _ in range(900))
    findings = look_at(text, data__validation_share=0.0)
    finding = found(findings, "warning", "of the pairs the second text is random")
    assert "next_sentence=false" in finding.fix
    found(findings, "warning", "Nothing is held out (config.data.validation_share=0)")


def test_unknown_words(look_at):
    rng = random.Random(0)
    texts = documents(300)
    few = [text if rng.random() > 0.5 else text.replace(" ", " quux ", 3) for text in texts]
    finding = found(look_at("\n\n".join(few)), "warning", "are unknown, such as 'quux'")
    assert "train:wordpiece" in finding.fix
    many = [text.replace(" ", " quux ") for text in texts]
    found(look_at("\n\n".join(many)), "problem", "little but [UNK]")


def test_prepared_data_are_used(look, make_config, tmp_path):
    prepare(make_config().data, str(tmp_path), 1, lambda _: None)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    findings = look(data__dir=str(tmp_path))
    found(findings, "ok", f"Prepared data in {tmp_path}: 300 documents")
    assert bad(findings) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    findings = look(data__dir=str(tmp_path), data__short_seq_prob=0.2)
    found(findings, "problem", "has data of other settings (short_seq_prob: 0.1 there, 0.2")
    shard = next(path for path in tmp_path.iterdir() if "train" in path.name)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    found(look(data__dir=str(tmp_path)), "problem", "is corrupt: its SHA-256 is not the one")


def test_a_vocabulary_of_the_other_case(look, look_at, tmp_path):
    text = "\n\n".join(text.title() for text in documents(300))
    findings = look_at(text, data__lowercase=False)
    finding = found(findings, "problem", "the vocabulary has no capitals, and config.data.lower")
    assert finding.fix == "--config.data.lowercase=true"
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCABULARY[:-4], "Good", "Bad", "?", "."]))
    findings = look(data__vocab=str(tmp_path / "vocab.txt"))
    finding = found(findings, "warning", "the vocabulary has words with capitals")
    assert finding.fix == "--config.data.lowercase=false"


# ------------------------------------------------------------------ labelled files


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
    assert {group for group, _ in findings} == {"settings", "data", "run"}


def test_labels_and_texts_with_faults(look, files, texts):
    train, dev = rows(files / "train.tsv"), rows(files / "dev.tsv")
    good = [(text, "good") for text, _ in dev]
    other = [(text, "bad" if label == "good" else "good") for text, label in train[30:40]]
    findings = look("classification", **texts(train + other, good))
    found(findings, "warning", "the same label (('good',),), so a constant answer is right")
    found(findings, "warning", "10 texts are there several times with different labels")
    long = texts([(" ".join([text] * 9), label) for text, label in train], dev)
    finding = found(look("classification", **long), "warning", "96 texts are cut off")
    assert "--config.task.long_texts=windows" in finding.fix
    findings = look("classification", **texts([(text, "good") for text, _ in train], good))
    found(findings, "problem", "a classifier needs two classes")


@pytest.mark.parametrize("number, level", [(1, "warning"), (24, "problem")])
def test_examples_in_both_files_are_found_by_their_text(number, level, look, files, texts):
    train, evaluation = rows(files / "train.tsv"), rows(files / "dev.tsv")
    evaluation[:number] = [(text, "bad") for text, _ in train[:number]]  # with other labels
    findings = look("classification", **texts(train, evaluation))
    found(findings, level, f"{number} of 40 examples of eval")


def test_shares_of_labels_that_differ_by_more_than_chance(look, files, texts):
    train, dev = rows(files / "train.tsv"), rows(files / "dev.tsv")
    good, one_bad = [row for row in train if row[1] == "good"], [("a text", "bad")]
    findings = look("classification", **texts(good + one_bad, dev))
    finding = found(findings, "warning", "50.0% of eval, have the label")
    assert "--config.task.weighting=logits" in finding.fix
    adjusted = {"task__class_weights": "auto", "task__weighting": "logits"}
    findings = look("classification", **texts(good + one_bad, dev), **adjusted)
    assert "--config.task.weighting=loss" in found(findings, "note", "as if all labels").fix
    few = [next(row for row in dev if row[1] == label) for label in ("good", "good", "bad")]
    assert not any(
        "have the label" in f.what for _, f in look("classification", **texts(train, few))
    )


def test_tags_of_two_schemes_in_one_file(look, tmp_path):
    write_tags(tmp_path / "a.conll", 32, scheme="I")
    write_tags(tmp_path / "b.conll", 32, seed=5)
    mixed = tmp_path / "mixed.conll"
    mixed.write_text((tmp_path / "a.conll").read_text() + "\n" + (tmp_path / "b.conll").read_text())
    findings = look("tagging", data__train=str(mixed))
    assert "correct the tags" in found(findings, "warning", "1 mixed scheme files").fix


def write_questions(path, contexts, wrong=0):
    """Writes a question about each context; the answers of the first are not in it."""
    paragraphs = []
    for number, context in enumerate(contexts):
        word = context.split()[2] if number >= wrong else "zzz"
        answers = [{"text": word, "answer_start": max(0, context.find(word))}]
        question = {"id": f"{path.stem}{number}", "question": "good ?", "answers": answers}
        paragraphs.append({"context": context, "qas": [question]})
    article = {"title": "t", "paragraphs": paragraphs}
    path.write_text(json.dumps({"version": "1.1", "data": [article]}))


def test_questions_about_the_same_context(look, files, tmp_path):
    contexts = [text for text, _ in rows(files / "train.tsv")]
    train, dev = tmp_path / "train.json", tmp_path / "dev.json"
    write_questions(train, contexts[:40])
    write_questions(dev, contexts[40:80])
    changes = {"data__train": str(train), "data__eval": str(dev)}
    assert bad(look("span", **changes)) == []
    shutil.copy(train, dev)
    dev.write_text(dev.read_text().replace("good ?", "bad ?"))
    findings = look("span", **changes)
    assert "by articles" in found(findings, "warning", "40 questions of eval").fix
    write_questions(dev, contexts[40:80], wrong=9)
    assert "offsets" in found(look("span", **changes), "warning", "9 questions not found").fix
