"""Text of transcripts: each form of files, what is left out, and the marks of CHAT."""

import argparse

import pytest

from benchmarks import speech
from bert_jax.files.errors import UserError

CHAT = """@Begin
*CHI:\tI want that one .
*MOT:\twhat (a)bout the <big@c big> [//] big_truck ? \x1510_20\x15
%mor:\tpro:int|what prep|about
*FAT:\t&=laughs we (1.5) are
\tgoing home +...
*MOT1:\t+" where is ↑daddy (.) +..?
*MOT:\tlook at xxx over there .
*MOT:\toh , no .
"""
XML = """<?xml version="1.0" encoding="UTF-8"?>
<CHAT xmlns="http://www.talkbank.org/ns/talkbank">
  <Participants>
    <participant id="EVE" role="Target_Child"/><participant id="BRO" role="Child"/>
    <participant id="MOT" role="Mother"/>
  </Participants>
  <comment type="Date">01-MAR-1965</comment>
  <u who="EVE" uID="u0"><w>I</w><w>want</w><w>that</w><t type="p"/></u>
  <u who="BRO" uID="u1"><w>you</w><w>are</w><w>next</w><t type="p"/></u>
  <u who="MOT" uID="u2">
    <w>gettin<shortening>g</shortening><mor type="mor"><mw><stem>get</stem></mw></mor></w>
    <g><w>a</w><k type="retracing"/></g> <w type="fragment">tra</w> <e><action/></e>
    <w>choo<wk type="cmp"/>choo<replacement><w>train</w></replacement></w>
    <tagMarker type="comma"><mor type="mor"><mw><stem>cm</stem></mw></mor></tagMarker>
    <w>New_York</w><t type="trail off question"/>
  </u>
  <u who="MOT" uID="u3"><w>look</w><w untranscribed="unintelligible">xxx</w><w>there</w></u>
  <u who="MOT" uID="u4"><w>come</w><pause/><w>b<p type="drawl"/>ack</w><w>here</w><t type="e"/></u>
</CHAT>
"""
TABLE = """id,gloss,type,speaker_role
1,is that a choo_choo,question,Mother
2,mine is this one,declarative,Target_Child
3,I had it first,declarative,Child
4,come back here now,imperative_emphatic,Father
5,NA,declarative,Mother
"""
LINES = """52
is it too big
put it there is it
do it again
don't you dare do that
what a nice dog
baby willn't fit in
hair
"""


def run(folder, output):
    speech.run(argparse.Namespace(folder=str(folder), output=str(output)))


def test_reads_all_forms_in_the_order_of_paths(tmp_path, capsys):
    folder, output = tmp_path / "in", tmp_path / "speech.txt"
    (folder / "c").mkdir(parents=True)
    (folder / "a.cha").write_text(CHAT)
    (folder / "b.csv").write_text(TABLE)
    (folder / "b.xml").write_text(XML)
    (folder / "c" / "one.txt").write_text(LINES)
    (folder / "notes.pdf").write_bytes(b"\xff")
    run(folder, output)
    assert output.read_text().removesuffix("\n").split("\n\n") == [
        "what about the big big big truck ?",
        "we are going home .",
        "where is daddy ?",
        "is that a choo choo ?",
        "come back here now !",
        "getting a choo choo , New York ?",
        "come back here !",
        "is it too big ?",
        "put it there is it ?",
        "do it again .",
        "don't you dare do that .",
        "what a nice dog .",
        "baby won't fit in .",
    ]
    assert "13 utterances, 71 words" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "output", "message"),
    [
        ("a.pdf", "x", "speech.txt", "has no utterances"),
        ("a.csv", "a,b\n1,2\n", "speech.txt", "a.csv lacks the columns gloss"),
        ("a.xml", "no", "speech.txt", "a.xml is not XML .syntax error: line 1"),
        ("a.xml", "<page/>", "speech.txt", "a.xml is not a transcript of TalkBank"),
        ("a.txt", LINES, "in/speech.txt", "whose files are read: choose another"),
    ],
)
def test_what_is_refused(name, content, output, message, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(content)
    with pytest.raises(UserError, match=message):
        run(tmp_path / "in", tmp_path / output)
