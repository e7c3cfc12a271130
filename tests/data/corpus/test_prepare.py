"""Preparation as a whole: equal bytes on any number of processes, and finished work is kept."""

import functools
import json
import os
import pathlib
import threading
import time

import numpy as np
import pytest

from bert_jax.data.corpus import dump, stages
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.corpus.request import lock
from bert_jax.files.errors import UserError
from bert_jax.text import files as text_files
from bert_jax.text import parquet
from tests.data.corpus.corpora import contents, count_done, make_config, quiet, write_text
from tests.text.arrow_files import make_table, save_to_disk, write_parquet

pytestmark = pytest.mark.usefixtures("small_units")


def test_bytes_do_not_depend_on_the_number_of_processes(text, tmp_path):
    """test_tasks.py has more forms of rows."""
    (tmp_path / "lexicon.txt").write_text("ba co\ndu\n")
    config = make_config(
        text,
        vocab="train:wordpiece",
        masking="phrase",
        lexicon=str(tmp_path / "lexicon.txt"),
        max_examples_per_row=6,
        short_seq_prob=0.5,
    )
    found = []
    for num_processes in (1, 2):
        folder = tmp_path / str(num_processes)
        prepare(config, str(folder), num_processes, log=quiet)
        found.append(contents(folder))
    assert found[0] == found[1]
    assert {"manifest.json", "validation-64-00000-of-00001.array_record"} < set(found[0])
    assert "vocab.txt" in found[0] and "unfinished" not in found[0]


def test_parquet_gives_the_bytes_of_the_same_json_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "RANGE_BYTES", 1 << 12)
    monkeypatch.setattr(parquet, "RANGE_BYTES", 1 << 13)
    (tmp_path / "text").mkdir()
    write_text(tmp_path / "text", 60)
    paths = sorted((tmp_path / "text").glob("[0-9].txt"))
    texts = [document for path in paths for document in path.read_text().split("\n\n")]
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    table = make_table({"text": texts})
    sources = [
        (f"jsonl:{lines}", 1),
        (f"parquet:{write_parquet(tmp_path / 'a.parquet', table)}", 1),
        (f"parquet:{save_to_disk(tmp_path / 'set', table)}", 2),
    ]
    found = []
    for number, (source, num_processes) in enumerate(sources):
        folder = tmp_path / str(number)
        config = make_config(tmp_path, source=source, vocab="train:wordpiece")
        prepare(config, str(folder), num_processes, log=quiet)
        found.append(contents(folder))
        for name in ("manifest.json", "manifest.json.sha256"):  # they name the files of the text
            del found[-1][name]
    assert found[0] == found[1] == found[2] and "vocab.txt" in found[0]


def test_rows_are_the_documents_of_their_split(text, prepared):
    """Every run of ids of every row is in one document of its split."""
    manifest, tokenizer = prepared, prepared.tokenizer()
    documents = "\n".join(path.read_text() for path in sorted(text.glob("[0-9].txt"))).split("\n\n")
    ids = [" ".join(map(str, tokenizer.encode(document))) for document in documents]
    sides: dict[str, set[int]] = {}
    for split in manifest.splits:
        assert manifest.num_rows(split, 32) == len(manifest.rows(split, 32))
        sides[split] = set()
        for example in dump.examples(manifest, split, 32):
            tokens = example["input_ids"][: sum(example["input_mask"])]
            first = tokens.index(tokenizer.sep_id)
            owners = []
            for segment in (tokens[1:first], tokens[first + 1 : -1]):
                wanted = f" {' '.join(map(str, segment))} "
                owners.append({n for n, document in enumerate(ids) if wanted in f" {document} "})
                assert owners[-1]
                if len(segment) > 12:
                    sides[split] |= owners[-1]
            if example["next_sentence_labels"] == [0]:
                assert owners[0] & owners[1]
    assert sides["train"] and sides["validation"]
    assert not sides["train"] & sides["validation"]


def test_statistics_agree_with_the_rows(prepared):
    for split, length in (("train", 32), ("validation", 64)):
        statistics = prepared.statistics(split, length)
        batch = prepared.rows(split, length).read(np.arange(statistics["rows"]))
        is_token = batch["example_ids"] > 0
        assert statistics["tokens"] == is_token.sum()
        assert statistics["random_next_share"] == batch["next_sentence_labels"].mean()
        ids = batch["input_ids"][is_token]
        assert statistics["most_frequent_token"]["id"] == np.bincount(ids[ids > 3]).argmax()
    assert prepared.content["corpus"]["duplicate_documents"] == 12
    assert "repeated: 12 documents" in dump.summarize(prepared)


def test_words_are_counted_beside_what_identifies_the_data(text, prepared, manifest):
    """Without a count, as in data of an earlier version, nothing else differs."""
    words = sum(len(path.read_text().split()) for path in text.glob("[0-9].txt"))
    train, held_out = (prepared.words_per_epoch(split) for split in ("train", "validation"))
    assert train / 2 + held_out == words and held_out > 0  # dupe_factor is 2
    assert f" {words:,} words," in dump.summarize(prepared)
    del manifest.content["words"]
    manifest.save()
    again = prepare(make_config(text), manifest.folder, 1, quiet)
    assert again.fingerprint == prepared.fingerprint and again.words_per_epoch("train") == 0
    assert " words," not in dump.summarize(again)
    with pytest.raises(UserError, match="did not count words, so data.max_words=10 cannot be che"):
        prepare(make_config(text, max_words=10), manifest.folder, 1, quiet)


@pytest.mark.parametrize("segments", ["pairs", "full_sentences", "running_text", "stream"])
def test_a_text_of_too_many_words_is_refused(segments, text, tmp_path):
    """Before rows are made, and again where the data are there."""
    words = sum(len(path.read_text().split()) for path in text.glob("[0-9].txt"))
    config = functools.partial(make_config, text, segments=segments, sequence_lengths=(32,))
    config = functools.partial(config, num_predictions=(6,))
    message = f"has {words:,} words, held-out ones included, more than data.max_words={words - 1:,}"
    for prepares in (False, True):
        with pytest.raises(ValueError, match=message):
            prepare(config(max_words=words - 1), str(tmp_path), 1, quiet)
        assert (tmp_path / "manifest.json").exists() == prepares
        prepare(config(max_words=words), str(tmp_path), 1, quiet)


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        # Masks are drawn in training.
        ({}, {"masking": "span", "num_predictions": (9, 20), "vocab_size": 200}),
        ({"segments": "full_sentences"}, {"dupe_factor": 7, "short_seq_prob": 0.5}),
    ],
)
def test_data_are_used_again_with_settings_that_do_not_matter(changes, others, text, tmp_path):
    first = prepare(make_config(text, **changes), str(tmp_path), 1, quiet)
    before, lines = contents(tmp_path), []
    for config in (make_config(text, **changes), make_config(text, **changes | others)):
        again = prepare(config, str(tmp_path), 1, lines.append)
        assert again.fingerprint == first.fingerprint
    assert lines == [f"Using the prepared data in {tmp_path}."] * 2
    assert contents(tmp_path) == before


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_other_settings_are_refused(state, text, prepared, tmp_path, monkeypatch):
    folder = pathlib.Path(prepared.folder)
    if state == "unfinished":
        folder = tmp_path
        with pytest.raises(KeyboardInterrupt):
            count_done(monkeypatch, "write_shard", stop_after=1)
            prepare(make_config(text), str(folder), 1)
    before = contents_of_tree(folder)
    changed = make_config(text, seed=2, dupe_factor=3)
    message = (
        f"{folder}.* settings \\(dupe_factor: 2 there, 3 requested; seed: 1 there, 2 requested"
    )
    with pytest.raises(ValueError, match=message):
        prepare(changed, str(folder), 1)
    many = make_config(text, seed=2, dupe_factor=3, lowercase=False, short_seq_prob=0.2)
    with pytest.raises(ValueError, match="and 1 more"):
        prepare(many, str(folder), 1)
    assert contents_of_tree(folder) == before


def contents_of_tree(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


def test_other_text_is_refused_and_missing_text_is_said(tmp_path):
    (tmp_path / "text").mkdir()
    write_text(tmp_path / "text", 20)
    config, folder = make_config(tmp_path / "text"), str(tmp_path / "data")
    prepare(config, folder, 1)
    with open(tmp_path / "text" / "2.txt", "a") as file:
        file.write("ba ba.\n")
    with pytest.raises(
        ValueError, match=r"settings \(source.files.2.txt.bytes: \d+ there, \d+ request"
    ):
        prepare(config, folder, 1)
    for path in (tmp_path / "text").glob("[0-9].txt"):
        path.unlink()
    lines: list[str] = []
    prepare(config, folder, 1, lines.append)
    assert "The text cannot be compared" in lines[0]
    with open(tmp_path / "text" / "vocab.txt", "a") as file:
        file.write("ba\n")
    with pytest.raises(ValueError, match=r"\(vocab: vocab.txt \(SHA-256 "):
        prepare(config, folder, 1)


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_interrupted_work_is_continued(mode, text, tmp_path, monkeypatch):
    config = make_config(text, mode=mode, vocab="train:wordpiece")
    prepare(config, str(tmp_path / "expected"), 1)
    folder = tmp_path / "data"
    sample = "sample" if mode == "dynamic" else "sample_static"
    lines: list[str] = []
    stops = [("count_words", 0), ("tokenize", 0), (sample, 0), (sample, 2)]
    stops += [("write_shard", 0), ("write_shard", 3)]
    for stage, after in stops:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            count_done(patch, stage, after)
            prepare(config, str(folder), 1, lines.append)
        with pytest.raises(ValueError, match="has no prepared data"):
            Manifest.load(str(folder))
    with monkeypatch.context() as patch:
        done = {stage: count_done(patch, stage) for stage in dict(stops)}
        prepare(config, str(folder), 1, lines.append)
    assert contents(folder) == contents(tmp_path / "expected")
    assert [stage for stage, some in done.items() if some] == ["write_shard"]
    assert sum("Continuing the unfinished work" in line for line in lines) == len(stops)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "There is no text in data.source="),
        ("\u200b\n\n\u200b\n", "that gives any token .2 documents were read"),
        ("ba co.\ndu.\n", "needs at least four documents"),
        ("ba.\n\nco.\n\ndu.\n", "or set data.validation_share=0"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_refused(content, message, tmp_path):
    write_text(tmp_path, 1)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(content if number == 0 else "")
    with pytest.raises(ValueError, match=message):
        prepare(make_config(tmp_path), str(tmp_path / "data"), 1)
    assert not (tmp_path / "data" / "unfinished").exists()  # with other text it can be used


def test_settings_that_cannot_work_are_refused_before_anything_is_built(text, tmp_path):
    folder = tmp_path / "data"
    (tmp_path / "names.txt").write_text("ba co\tperson\n")
    lexicon = {"masking": "phrase", "lexicon": str(tmp_path / "names.txt")}
    for changes, message in (
        ({"mode": "static", "masking": "span"}, "needs config.data.mode='dynamic'"),
        ({"vocab_size": 21}, "has 22 entries"),
        ({"vocab": "train:letters"}, "Unknown data.vocab='train:letters'"),
        ({"source": "here"}, "Unknown data.source='here'"),
        (lexicon | {"lexicon_weights": ("persn=2",)}, "'persn', which no phrase in"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(make_config(text, **changes), str(folder))
    assert not (folder / "manifest.json").exists()


def test_a_full_disk_is_one_clear_line_and_the_work_goes_on(text, prepared, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "join_files", full_disk)
        with pytest.raises(ValueError, match="stopped: .*pairs-train-32: No space left on device"):
            prepare(make_config(text), str(folder), 1)
    prepare(make_config(text), str(folder), 1)
    assert contents(folder) == contents(pathlib.Path(prepared.folder))


def full_disk(parts: list[str], target: str) -> None:
    raise OSError(28, "No space left on device", target)


def test_one_prepares_and_the_others_wait(text, tmp_path):
    lines: list[str] = []
    with lock(str(tmp_path), lines.append):
        other = threading.Thread(
            target=prepare, args=(make_config(text), str(tmp_path), 1, lines.append)
        )
        other.start()
        while not lines:
            time.sleep(0.01)
        assert lines[0].startswith(f"Waiting for process {os.getpid()} on ")
        assert not (tmp_path / "unfinished").exists()
    other.join()
    Manifest.load(str(tmp_path))
