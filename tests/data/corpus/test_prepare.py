"""Preparation as a whole: equal bytes on any number of processes, and finished work is kept."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bert_jax.data.corpus import dump, stages
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.corpus.request import lock
from tests.data.corpus.corpora import (
    REPOSITORY,
    contents,
    count_done,
    make_config,
    quiet,
    write_text,
)

pytestmark = pytest.mark.usefixtures("small_units")


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab": "train:wordpiece"},
        {"mode": "static", "masking": "phrase", "max_examples_per_row": 6, "short_seq_prob": 0.5},
    ],
    ids=str,
)
def test_bytes_do_not_depend_on_the_number_of_processes(changes, text, tmp_path):
    """test_tasks.py has more cases."""
    if changes.get("masking") == "phrase":
        (tmp_path / "lexicon.txt").write_text("ba co\ndu\n")
        changes = changes | {"lexicon": str(tmp_path / "lexicon.txt")}
    config, found = make_config(text, **changes), []
    for num_processes in (1, 2):
        folder = tmp_path / str(num_processes)
        prepare(config, str(folder), num_processes, log=quiet)
        found.append(contents(folder))
    assert found[0] == found[1]
    assert {"manifest.json", "validation-64-00000-of-00001.array_record"} < set(found[0])
    assert "vocab.txt" in found[0] and "unfinished" not in found[0]


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
    manifest = prepared
    for split, length in (("train", 32), ("validation", 64)):
        statistics = manifest.statistics(split, length)
        batch = manifest.rows(split, length).read(np.arange(statistics["rows"]))
        is_token = batch["example_ids"] > 0
        assert statistics["tokens"] == is_token.sum()
        assert statistics["padding_share"] == pytest.approx(1 - is_token.mean())
        assert statistics["random_next_share"] == batch["next_sentence_labels"].mean()
        b_tokens = batch["token_type_ids"].sum() / statistics["rows"] - 1
        assert statistics["mean_b_length"] == pytest.approx(b_tokens)
        ids = batch["input_ids"][is_token]
        counts = np.bincount(ids[ids > 3])
        assert statistics["most_frequent_token"]["id"] == counts.argmax()
        shares = counts[counts > 0] / counts.sum()
        assert statistics["unigram_entropy"] == pytest.approx(-(shares * np.log(shares)).sum())
    assert manifest.content["corpus"]["duplicate_documents"] == 12
    assert "repeated: 12 documents" in dump.summarize(manifest)


def test_a_second_run_finds_the_data(text, prepared):
    """Also with other masks, which are drawn in training."""
    before, lines = contents(pathlib.Path(prepared.folder)), []
    other = make_config(
        text, masking="span", masked_lm_prob=0.3, num_predictions=(9, 20), vocab_size=200
    )
    for config in (make_config(text), other):
        again = prepare(config, prepared.folder, 1, lines.append)
        assert again.fingerprint == prepared.fingerprint
    assert lines == [f"Using the prepared data in {prepared.folder}."] * 2
    assert contents(pathlib.Path(prepared.folder)) == before


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


def test_a_failure_of_the_text_leaves_no_unfinished_work(tmp_path):
    """With the text repaired, the same folder can be used immediately."""
    write_text(tmp_path, 3)
    (tmp_path / "2.txt").write_bytes(b"ba\xff\n")
    config, folder = make_config(tmp_path, on_bad_text="error"), tmp_path / "data"
    with pytest.raises(ValueError, match="2.txt"):
        prepare(config, str(folder), 2, log=quiet)
    assert not (folder / "unfinished").exists()
    write_text(tmp_path, 20)
    prepare(config, str(folder), 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "There is no text in data.source="),
        (" \n\n\t\n", "There is no text in data.source="),
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


def test_settings_that_cannot_work_are_refused_before_anything_is_built(text, tmp_path):
    folder = tmp_path / "data"
    with pytest.raises(ValueError, match="masking='span' needs config.data.mode='dynamic'"):
        prepare(make_config(text, mode="static", masking="span"), str(folder))
    with pytest.raises(ValueError, match="has 22 entries.* set model.vocab_size=22"):
        prepare(make_config(text, vocab_size=21), str(folder))
    with pytest.raises(ValueError, match="Unknown data.vocab='train:letters'.*train:wordpiece"):
        prepare(make_config(text, vocab="train:letters"), str(folder))
    with pytest.raises(ValueError, match="Unknown data.source='here'"):
        prepare(make_config(text, source="here"), str(folder))
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


def command(text: pathlib.Path, *arguments: str) -> list[str]:
    config = make_config(text)
    names = ("source", "line_format", "vocab", "dupe_factor", "validation_share")
    values = [f"--config.data.{name}={getattr(config, name)}" for name in names]
    phases = "--config.phases=((32, 0.5), (64, 0.5))"
    start = [sys.executable, "-m", "bert_jax", "prepare", "--config=configs/base.py", phases]
    return [*start, *values, "--config.data.num_processes=2", *arguments]


def test_the_command_prepares_and_dumps(text, tmp_path):
    records = tmp_path / "records.jsonl"
    dumps = ("--dump=2", f"--dump_jsonl={records}")
    arguments = command(
        text, f"--data_dir={tmp_path / 'data'}", "--config.data.mode=static", *dumps
    )
    done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.count("A: [CLS]") == done.stdout.count("\nB: ") == 2
    assert done.stdout.count("\nis_next\n") + done.stdout.count("\nrandom_next\n") == 2
    assert done.stdout.count("\nmasked: ") == 2
    manifest = Manifest.load(str(tmp_path / "data"))
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(lines) == sum(
        manifest.num_rows(split, length) for split in manifest.splits for length in (32, 64)
    )
    tokenizer = manifest.tokenizer()
    for line in lines:
        length = len(line["input_ids"])
        assert length in (32, 64) and len(line["segment_ids"]) == len(line["input_mask"]) == length
        used = sum(line["input_mask"])
        assert [tokenizer.pieces[i] for i in line["input_ids"][:used]] == line["tokens"]
        assert not any(line["input_ids"][used:])
        num_masked = int(sum(line["masked_lm_weights"]))
        assert 1 <= num_masked <= len(line["masked_lm_ids"]) == len(line["masked_lm_positions"])
        assert line["next_sentence_labels"] in ([0], [1])


def test_dynamic_examples_have_no_masks_to_dump(prepared):
    example = next(dump.examples(prepared, "train", 32))
    assert example["masked_lm_positions"] == example["masked_lm_ids"] == []
    assert "masked" not in dump.describe(example, prepared.tokenizer())


def test_killed_at_any_moment_it_goes_on_and_leaves_no_process_behind(tmp_path):
    write_text(tmp_path, 600)
    arguments = command(tmp_path, f"--data_dir={tmp_path / 'data'}")
    # Immediately, and then at a random moment, when a fast machine may already be done.
    for delay in (0, random.Random(0).uniform(0, 1)):
        started = subprocess.Popen(
            arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        wait_for(tmp_path / "data" / "unfinished")
        time.sleep(delay)
        started.send_signal(signal.SIGKILL)
        # The output ends when the last of its writers is gone: the workers too.
        started.communicate(timeout=30)
        assert started.returncode in (-signal.SIGKILL, 0)
    for folder in ("data", "expected"):
        again = command(tmp_path, f"--data_dir={tmp_path / folder}")
        subprocess.run(again, cwd=REPOSITORY, capture_output=True, check=True)
    assert contents(tmp_path / "data") == contents(tmp_path / "expected")


def wait_for(path: pathlib.Path) -> None:
    for _ in range(3000):
        if path.exists() or (path.parent / "manifest.json").exists():
            return
        time.sleep(0.01)


def test_preparation_does_not_import_jax():
    code = "import bert_jax.data.corpus.prepare, sys; assert not {'jax', 'flax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_rows_of_full_sentences_hold_the_text_once_in_order(text, tmp_path):
    """Joined, the rows of a unit are its documents with a [SEP] between them, or a new row."""
    lengths = {"sequence_lengths": (32,), "num_predictions": (6,)}
    config = make_config(text, segments="full_sentences", **lengths)
    manifest = prepare(config, str(tmp_path / "full"), 1)
    pairs = prepare(make_config(text, dupe_factor=1, **lengths), str(tmp_path / "pairs"), 1)
    assert manifest.content["corpus"] == pairs.content["corpus"]
    examples = list(dump.examples(manifest, "train", 32))
    sizes = [sum(example["input_mask"]) for example in examples]
    assert max(sizes) <= 32 and sum(sizes) / len(sizes) > 24
    words = []
    for example, size in zip(examples, sizes, strict=True):
        first, *inner, last = example["tokens"]
        assert (first, last) == ("[CLS]", "[SEP]")
        assert inner[0] != "[SEP]" and inner[-1] != "[SEP]"
        assert not any(example["segment_ids"]) and example["next_sentence_labels"] == []
        words += [word for word in inner if word != "[SEP]"]
        assert example["input_mask"] == [1] * size + [0] * (32 - size)
    assert len(words) == manifest.content["splits"]["train"]["tokens"]
    statistics = manifest.statistics("train", 32)
    assert (statistics["mean_b_length"], statistics["random_next_share"]) == (0, 0)
    assert any("[SEP]" in example["tokens"][1:-1] for example in examples)

    shown = dump.describe(examples[0], manifest.tokenizer())
    assert shown.startswith("A: [CLS] ") and "\n" not in shown
    assert "random next" not in dump.summarize(manifest)
    assert "random next" in dump.summarize(pairs)


def test_settings_of_pairs_do_not_matter_to_full_sentences(text, tmp_path):
    config = make_config(text, segments="full_sentences")
    manifest = prepare(config, str(tmp_path), 1)
    again = dataclasses.replace(config, dupe_factor=7, short_seq_prob=0.5)
    assert prepare(again, str(tmp_path), 1).fingerprint == manifest.fingerprint
    with pytest.raises(ValueError, match="segments: full_sentences there, pairs requested"):
        prepare(make_config(text), str(tmp_path), 1)
