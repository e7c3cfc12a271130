"""Corpora that fit together or not, each written with the fault that must be found."""

import gzip
import random
import shutil

import pytest

from bert_jax.data.corpus.prepare import prepare
from bert_jax.tools.doctor import corpus, sample
from tests.tools.doctor.conftest import WORDS, bad, found, sentence, write_corpus


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


def test_a_good_corpus_has_no_warning(look):
    findings = look()
    assert bad(findings) == []
    found(findings, "ok", "read: all of it, 300 documents, 1,800 sentences")
    found(findings, "ok", "0.00% of")
    found(findings, "ok", "0 of 300 documents (0.0%) repeat")


def test_nothing_is_written_to_the_folders_of_the_run(look, files, tmp_path):
    before = sorted(path.name for path in files.iterdir())
    look(workdir=str(tmp_path / "run"), data__dir=str(tmp_path / "data"))
    assert not list(tmp_path.iterdir())
    assert sorted(path.name for path in files.iterdir()) == before


def test_a_sample_has_about_the_rows_of_the_whole_corpus(make_config, monkeypatch, tmp_path):
    monkeypatch.setattr(sample, "SAMPLE_BYTES", 250_000)
    write_corpus(tmp_path / "corpus.txt", documents=6000)
    config = make_config(data__source=f"text:{tmp_path / 'corpus.txt'}", data__dupe_factor=3)
    from bert_jax.tools.doctor.trial import open_sample

    (tmp_path / "trial").mkdir()
    trial = open_sample(config, str(tmp_path / "trial"))
    assert 3 < trial.text.scale < 6
    manifest = prepare(config.data, str(tmp_path / "data"), 1, lambda _: None)
    assert trial.rows[0] == pytest.approx(manifest.num_rows("train", 32), rel=0.1)
    assert trial.held_out[0] == pytest.approx(manifest.num_rows("validation", 32), rel=0.1)
    written = sum(file.stat().st_size for file in (tmp_path / "data").rglob("*.array*"))
    assert written and trial.prepare_bytes == pytest.approx(written, rel=0.3)


def test_a_part_of_a_long_text_is_read(make_config, monkeypatch, tmp_path):
    for number in range(4):  # each is a chunk
        write_corpus(tmp_path / f"{number}.txt", documents=100, seed=number)
    monkeypatch.setattr("bert_jax.text.sources.RANGE_BYTES", 1000)
    monkeypatch.setattr(sample, "READ_BYTES", 40_000)
    config = make_config(data__source=f"text:{tmp_path}/*.txt")
    taken = sample.take(config.data)
    total = sum(path.stat().st_size for path in tmp_path.glob("*.txt"))
    assert not taken.is_whole
    assert taken.num_documents < 400
    assert taken.text_bytes == pytest.approx(total, rel=0.05)


def test_compressed_text_is_not_read_to_its_end(make_config, monkeypatch, tmp_path):
    write_corpus(tmp_path / "corpus.txt", documents=400)
    with gzip.open(tmp_path / "corpus.txt.gz", "wb") as file:
        file.write((tmp_path / "corpus.txt").read_bytes())
    monkeypatch.setattr(sample, "_MOST_BYTES", 40_000)
    config = make_config(data__source=f"text:{tmp_path / 'corpus.txt.gz'}")
    taken = sample.take(config.data)
    assert not taken.is_whole and taken.num_documents < 400
    assert taken.text_bytes == pytest.approx((tmp_path / "corpus.txt").stat().st_size, rel=0.3)


def test_text_that_does_not_exist_is_a_problem(look):
    findings = look(data__source="text:/no/such/*.txt")
    found(findings, "problem", "No file matches '/no/such/*.txt'")


def test_too_few_documents_are_a_problem(look_at):
    findings = look_at("\n\n".join(documents(3, sentences=30)))
    found(findings, "problem", "The corpus needs at least four documents")


@pytest.mark.parametrize("copies, level", [(6, "note"), (200, "warning")])
def test_documents_that_repeat(copies, level, look_at):
    texts = documents(300)
    findings = look_at("\n\n".join([*texts, *texts[:1] * copies]))
    found(findings, level, f"{copies} of {300 + copies} documents")


def test_documents_of_one_sentence_have_no_next_one(look_at):
    rng = random.Random(0)
    text = "\n\n".join(sentence(rng, 15, 20) + "." for _ in range(900))
    finding = found(look_at(text), "warning", "100% of the documents have one sentence")
    assert "next_sentence=false" in finding.fix


def test_rows_that_are_mostly_padding(look_at):
    rng = random.Random(0)
    text = "\n\n".join(f"{sentence(rng, 2, 3)}\n{sentence(rng, 2, 3)}" for _ in range(900))
    finding = found(look_at(text), "warning", "of them padding: documents are short")
    assert "config.data.max_examples_per_row" in finding.fix
    assert not any("padding:" in f.what for f in bad(look_at(text, data__max_examples_per_row=4)))


def test_unknown_words(look_at):
    rng = random.Random(0)
    texts = documents(300)
    few = [text if rng.random() > 0.5 else text.replace(" ", " quux ", 3) for text in texts]
    found(look_at("\n\n".join(few)), "warning", "are unknown, such as 'quux'")
    many = [text.replace(" ", " quux ") for text in texts]
    assert "'quux'" in found(look_at("\n\n".join(many)), "problem", "are unknown, such as").what


def test_a_vocabulary_without_capitals_for_text_that_is_not_lower_cased(look_at):
    text = "\n\n".join(text.title() for text in documents(300))
    found(look_at(text, data__lowercase=False), "warning", "the vocabulary has no capitals")


def test_a_vocabulary_that_is_too_large_for_the_text(look):
    findings = look(data__vocab="train:wordpiece", model__vocab_size=2000)
    finding = found(findings, "warning", "config.model.vocab_size=2,000 is large for a text of")
    assert "--config.model.vocab_size=" in finding.fix


def test_rows_of_the_table_that_no_entry_has(look):
    finding = found(look(model__vocab_size=2000), "warning", "the other rows are never used")
    assert finding.fix == "--config.model.vocab_size=159"


def test_little_or_nothing_is_held_out(look):
    found(look(data__validation_share=0.02), "warning", "too few for a reliable loss")
    findings = look(data__validation_share=0.0)
    found(findings, "warning", "Nothing is held out (config.data.validation_share=0)")


@pytest.mark.parametrize("lines, level", [(3, "note"), (200, "warning")])
def test_malformed_text(lines, level, look, tmp_path):
    path = tmp_path / "corpus.txt"
    text = "\n\n".join(documents(300)).encode()
    path.write_bytes(text.replace(b".\n", b"\xff.\n", lines))
    found(look(data__source=f"text:{path}"), level, f"{lines} invalid utf8 lines")


def test_prepared_data_are_used(look, make_config, tmp_path):
    config = make_config()
    prepare(config.data, str(tmp_path / "data"), 1, lambda _: None)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    findings = look(data__dir=str(tmp_path / "data"))
    found(findings, "ok", f"Prepared data in {tmp_path / 'data'}: 300 documents")
    found(findings, "ok", "0.00% of the tokens of the prepared data are unknown")
    assert bad(findings) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    findings = look(data__dir=str(tmp_path / "data"), data__short_seq_prob=0.2)
    found(findings, "problem", "has data of other settings (short_seq_prob: 0.1 there, 0.2")


def test_prepared_data_that_are_corrupt_are_a_problem(look, make_config, tmp_path):
    prepare(make_config().data, str(tmp_path), 1, lambda _: None)
    shard = next(path for path in tmp_path.iterdir() if "train" in path.name)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    found(look(data__dir=str(tmp_path)), "problem", "is corrupt: its SHA-256 is not the one")


@pytest.mark.parametrize("share, level", [(0.001, "ok"), (0.05, "warning"), (0.3, "problem")])
def test_unknown_tokens_of_prepared_data(share, level):
    class Prepared:
        def statistics(self, split, length):
            return {"unknown_token_share": share}

    finding = found(corpus.check_unknown(Prepared(), 32), level, "of the prepared data")  # pyright: ignore
    assert f"{share:.2%}" in finding.what


def test_texts_of_other_sources(look, tmp_path):
    lines = ('{"text": "' + text.replace("\n", " ") + '"}' for text in documents(300))
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(lines) + "\n")
    findings = look(data__source=f"jsonl:{path}", data__line_format="paragraphs")
    found(findings, "ok", "read: all of it, 300 documents")
    shutil.copy(path, tmp_path / "again.jsonl")
    findings = look(data__source=f"jsonl:{tmp_path}/*.jsonl", data__line_format="paragraphs")
    found(findings, "warning", "300 of 600 documents (50.0%) repeat")


def test_words_are_those_of_the_vocabulary():
    assert len({*WORDS}) == 150
