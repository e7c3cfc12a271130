"""Suites of minimal pairs in the forms of their authors, and what is no suite."""

import dataclasses
import json
import zipfile

import pytest

from bert_jax.data import minimal_pairs
from bert_jax.data.minimal_pairs import SUITES, MinimalPair, read_pairs
from bert_jax.files.errors import UserError

BLIMP = {"sentence_good": "Who left?", "sentence_bad": "Left who?", "UID": "wh", "pairID": "0"}


def write_zorro(folder, pairs=3):
    folder.mkdir(parents=True)
    lines = [f"this dogs {n} .\nthis dog {n} ." for n in range(pairs)]
    (folder / "agreement-in_1_word.txt").write_text("\n".join(lines) + "\n")
    (folder / "island-effects-adjunct.txt").write_text("bad .\ngood .\n")


def test_a_file_of_zorro_has_the_wrong_sentence_first(tmp_path):
    write_zorro(tmp_path / "suite")
    pairs = read_pairs(str(tmp_path / "suite"))
    assert pairs[0] == MinimalPair(
        "this dog 0 .", "this dogs 0 .", "agreement-in_1_word", "agreement"
    )
    assert pairs[3] == MinimalPair("good .", "bad .", "island-effects-adjunct", "island-effects")


def test_blimp_and_tables_of_ones_own(tmp_path):
    rows = [BLIMP | {"field": "syntax/semantics"}, BLIMP | {"UID": "other", "field": "syntax"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_pairs(str(tmp_path))
    assert first == MinimalPair("Who left?", "Left who?", "wh", "syntax_semantics")
    assert (second.paradigm, second.field) == ("other", "syntax")
    (tmp_path / "own.csv").write_text('good,bad\n"A, b.","A b."\n')
    assert read_pairs(str(tmp_path / "own.csv")) == [MinimalPair("A, b.", "A b.", "own", "")]


def test_paradigms_without_a_column_have_the_name_of_the_field_or_the_file(tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "other.txt").write_text("no pair\n")
    (tmp_path / "a.csv").write_text("good,bad,field\nA,B,syntax\nC,D,form\n")
    (tmp_path / "v1.2_of-words.csv").write_text("good,bad\nE,F\n")
    (tmp_path / "deeper" / "v1.2_b.txt").write_text("good\tbad\nG\tH\nI\tJ\nK\tL\n")
    found = [(p.good, p.bad, p.paradigm, p.field) for p in read_pairs(str(tmp_path))]
    assert found == [
        ("A", "B", "syntax", "syntax"),
        ("C", "D", "form", "form"),
        *((good, bad, "v1.2_b", "") for good, bad in ["GH", "IJ", "KL"]),
        ("E", "F", "v1.2_of-words", ""),
    ]


def test_files_of_one_name_in_several_folders_are_several_paradigms(tmp_path):
    for folder in ("syntax", "form"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "easy.txt").write_text("bad .\ngood .\n")
    (tmp_path / "form" / "hard.csv").write_text("good,bad\nA,B\n")
    paradigms = [pair.paradigm for pair in read_pairs(str(tmp_path))]
    assert paradigms == ["form/easy.txt", "hard", "syntax/easy.txt"]


@pytest.mark.parametrize("count, kept", [(1, [0]), (3, [0, 4, 7]), (10, [*range(10)])])
def test_a_sample_has_evenly_spaced_pairs_of_each_paradigm(tmp_path, count, kept):
    write_zorro(tmp_path / "suite", pairs=10)
    *pairs, island = read_pairs(str(tmp_path / "suite"), count)
    assert [int(pair.good.split()[2]) for pair in pairs] == kept
    assert island.good == "good ."


@pytest.mark.parametrize(
    "name, text, message",
    [
        (
            "a.csv",
            "good,worse\na,b\n",
            "no column bad or sentence_bad: its columns are good, w",
        ),
        ("a.csv", 'good,bad\na,""\n', "line 2 has an empty sentence"),
        ("a.jsonl", '{"good": "a", "bad": 3}\n', "is a JSON int, 3, instead of text"),
        ("a.txt", "one\ntwo\nthree\n", "one sentence per line, the wrong"),
        ("a.txt", "", "no pairs"),
        (
            "a.csv",
            "good,bad,paradigm,field\nA,B,p,x\nC,D,p,y\n",
            "the paradigm 'p' has the fields 'x' and 'y': give each field",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_pairs(str(tmp_path / name))
    with pytest.raises(
        UserError, match="neither a file or folder nor a suite: give a path, or blimp"
    ):
        read_pairs("blip")


def test_a_suite_is_downloaded_once_and_must_be_complete(tmp_path, monkeypatch):
    write_zorro(tmp_path / "made" / "Zorro-1" / "sentences" / "babyberta")
    (tmp_path / "made" / "Zorro-1" / "README.txt").write_text("of another folder\n")
    with zipfile.ZipFile(tmp_path / "suite.zip", "w") as archive:
        for path in (tmp_path / "made").rglob("*"):
            archive.write(path, path.relative_to(tmp_path / "made"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = (tmp_path / "suite.zip").as_uri()
    suite = dataclasses.replace(SUITES["zorro"], url=url)
    monkeypatch.setitem(minimal_pairs.SUITES, "zorro", suite)
    with pytest.raises(UserError, match="has 4 pairs instead of 46,000"):
        read_pairs("zorro")
    monkeypatch.setitem(minimal_pairs.SUITES, "zorro", dataclasses.replace(suite, pairs=4))
    first = read_pairs("zorro")
    (tmp_path / "suite.zip").unlink()
    assert read_pairs("zorro") == first and len(first) == 4
    (tmp_path / "cache" / "bert_jax" / "suites" / "zorro").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="could not be downloaded from file://.*: unpack it else"):
        read_pairs("zorro")
