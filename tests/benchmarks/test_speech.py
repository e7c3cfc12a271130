"""Text of transcripts: each form of files, what is left out, and the marks of CHAT."""

import argparse

import pytest

from benchmarks import speech
from bert_jax.files.errors import UserError

CHAT = """@Begin
*CHI:\tI want that one .
*MOT:\twhat (a)bout the <big@c big> [//] big_truck ? \x1510_20\x15
%mor:\tpro:int|what prep|about
*FAT:\t&=laughs we (...) are
\tgoing home +...
*MOT:\tlook at xxx over there .
*MOT:\toh no .
"""
TABLE = """id,gloss,type,speaker_role
1,is that a choo_choo,question,Mother
2,mine is this one,declarative,Target_Child
3,come back here now,imperative_exclamation,Father
4,NA,declarative,Mother
"""
LINES = """5
is it too big
put it there is it
and what about that
baby willn't fit in
hair
"""


def run(folder):
    speech.run(argparse.Namespace(folder=str(folder), output=str(folder / "speech.out")))
    return (folder / "speech.out").read_text().removesuffix("\n").split("\n\n")


def test_reads_all_forms_in_the_order_of_paths(tmp_path, capsys):
    (tmp_path / "c").mkdir()
    (tmp_path / "a.cha").write_text(CHAT)
    (tmp_path / "b.csv").write_text(TABLE)
    (tmp_path / "c" / "one.txt").write_text(LINES)
    (tmp_path / "notes.pdf").write_bytes(b"\xff")
    assert run(tmp_path) == [
        "what about the big big big truck ?",
        "we are going home",
        "is that a choo choo ?",
        "come back here now !",
        "is it too big ?",
        "put it there is it ?",
        "and what about that ?",
        "baby won't fit in .",
    ]
    assert "8 utterances, 44 words" in capsys.readouterr().out


def test_refuses_a_folder_without_utterances(tmp_path):
    with pytest.raises(UserError, match="has no utterances"):
        run(tmp_path)
