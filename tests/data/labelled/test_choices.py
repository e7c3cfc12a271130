"""SWAG's csv and JSON, and other numbers of endings."""

import pytest

from bert_jax.data.labelled.choices import ChoiceColumns, read_choices
from bert_jax.data.labelled.examples import ChoiceExample

HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"


@pytest.fixture
def read(read_file):
    def read(content, name="f.csv", **arguments):
        return read_file(read_choices, content, name, **arguments)

    return read


def test_the_csv_of_swag(read, tmp_path):
    row = '0,v,1,"One, two. A",One,A,gold,"goes, and",stops,turns,sings'
    expected = ("goes, and", "stops", "turns", "sings")
    examples, counts = read(f"{HEADER},label\n{row},2\n")
    where = f"{tmp_path}/f.csv, line 2"
    assert examples == [ChoiceExample(where, "0", "One", expected, "A", 2)] and not counts
    examples, _ = read(f"{HEADER}\n{row}\n", labelled=False)
    assert examples == [ChoiceExample(where, "0", "One", expected, "A")]


def test_columns_of_ones_own(read):
    endings = {f"ending{i}": f"e{i}" for i in reversed(range(12))}
    (example,), _ = read({"sent1": "c", "sent2": "s", "label": 11} | endings, "f.json")
    assert example.endings == tuple(reversed(endings.values())) and example.label == 11
    columns = ChoiceColumns("ctx", None, ("endings",), "answer", id="name")
    row = {"ctx": "", "endings": ["x", "y", "z"], "answer": "1", "name": 7}
    examples, counts = read(row, "f.jsonl", columns=columns)
    (example,) = examples
    assert (example.id, example.context, example.start) == ("7", "", "")
    assert (example.endings, example.label) == (("x", "y", "z"), 1)
    assert counts == {"empty_texts": 1}
    columns = ChoiceColumns("q", None, ("right", "wrong"), "label")
    examples, _ = read("q\tright\twrong\tlabel\na\tb\tc\t0\n", "f.tsv", columns=columns)
    assert examples[0].endings == ("b", "c")


SWAG = "sent1,sent2,ending0,ending1,label\n"
ROW = {"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": 0}


@pytest.mark.parametrize(
    "content, message",
    [
        (SWAG, "f.csv has no examples"),
        (ROW | {"ending1": 5}, "line 1: an ending is a JSON int"),
        (ROW | {"label": True}, "the label True is not a number"),
        ("sent1,ending0,ending1,label\na,b,c,0\n", r"line 2: no column 'sent2' .*; it has 'sent1'"),
        ("sent1,sent2,ending0,label\na,b,c,0\n", "line 2: 1 endings, .* set task.endings"),
        (SWAG + "a,b,c,d,0\na,b,c, ,0\n", "line 3: ending 1 is empty"),
        (SWAG + "a,b,c,d,2\n", "line 2: the label '2' is not a number of an ending, 0 to 1"),
    ],
)
def test_errors(read, content, message):
    with pytest.raises(ValueError, match=message):
        read(content, "f.csv" if isinstance(content, str) else "f.json")
