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
    assert examples == [ChoiceExample(where, "0", "One", "A", expected, 2)] and not counts
    examples, _ = read(f"{HEADER}\n{row}\n", labelled=False)
    assert examples == [ChoiceExample(where, "0", "One", "A", expected, None)]


@pytest.mark.parametrize("count", [2, 3, 12])
def test_any_number_of_endings(read, count):
    endings = [f"e{i}" for i in range(count)]
    row = {"sent1": "c", "sent2": "s", "label": count - 1}
    row |= {f"ending{i}": ending for i, ending in reversed(list(enumerate(endings)))}
    examples, _ = read(row, "f.json")
    assert examples[0].endings == tuple(endings) and examples[0].label == count - 1


def test_columns_of_ones_own(read):
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


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "f.csv has no examples"),
        (SWAG, "has no examples"),
        ("sent1,ending0,ending1,label\na,b,c,0\n", r"line 2: no column 'sent2' .*; it has 'sent1'"),
        ("sent1,sent2,ending0,label\na,b,c,0\n", "line 2: 1 endings, .* set task.endings"),
        (SWAG + "a,b,c,d,0\na,b,c, ,0\n", "line 3: ending 1 is empty"),
        (SWAG + "a,b,c,d,2\n", "line 2: the label '2' is not a number of an ending, 0 to 1"),
        (SWAG + "a,b,c,d,\n", "the label '' is not a number"),
        (SWAG + "a,b,c,d,-1\n", "the label '-1' is not a number"),
        (SWAG + "a,b,c,0\n", "line 2: 4 columns where the header has 5"),
    ],
)
def test_errors(read, content, message):
    with pytest.raises(ValueError, match=message):
        read(content)


def test_endings_and_labels_of_json_are_checked(read):
    row = {"sent1": "a", "sent2": "b", "ending0": "c", "ending1": 5, "label": 0}
    with pytest.raises(ValueError, match="line 1: an ending is a JSON int"):
        read(row, "f.json")
    with pytest.raises(ValueError, match="the label True is not a number"):
        read(row | {"ending1": "d", "label": True}, "f.json")
    with pytest.raises(ValueError, match="the label 0.5 is not a number"):
        read(row | {"ending1": "d", "label": 0.5}, "f.json")
