"""Files that the GLUE server takes."""

import json

import pytest

from bert_jax.data.labelled.published_sets import GLUE
from bert_jax.tasks.classification import Classification
from bert_jax.tools.outputs.inputs import Inputs, Source
from bert_jax.tools.outputs.published import make_writer


def write(folder, name, file, rows):
    """Returns what is written of rows (id, prediction)."""
    data = Classification(published=name)
    key = "label" if GLUE[name].limits is None else "value"
    lines = [json.dumps({"id": id, key: prediction}) for id, prediction in rows]
    (folder / "lines").write_text("\n".join(lines))
    make = make_writer("classification", data, Inputs((Source("in.tsv"),)), str(folder / file))
    assert make is not None
    make(str(folder / "lines"), str(folder / file))
    return (folder / file).read_text()


@pytest.mark.parametrize(
    "name, file, prediction, written",
    [
        ("cola", "CoLA.tsv", "acceptable", "1"),
        ("mrpc", "MRPC.tsv", "equivalent", "1"),
        ("stsb", "STS-B.tsv", 5.25, "5.000"),
        ("stsb", "STS-B.tsv", 1.23456, "1.235"),
        ("mnli", "MNLI-m.tsv", "neutral", "neutral"),
        ("mnli", "MNLI-mm.tsv", "contradiction", "contradiction"),
        ("wnli", "WNLI.tsv", "entailment", "1"),
        ("mnli", "AX.tsv", "neutral", "neutral"),
        ("ax", "AX.tsv", "neutral", "neutral"),
    ],
)
def test_submissions(tmp_path, name, file, prediction, written):
    found = write(tmp_path, name, file, [("3", prediction)])
    assert found == f"index\tprediction\n3\t{written}\n"


@pytest.mark.parametrize(
    "name, file, rows, message",
    [
        ("rte", "MRPC.tsv", [], ".tsv is for what GLUE takes, and those of this task are RTE.tsv;"),
        ("rte", "RTE.tsv", [("1", "entailment")] * 2, "id '1' has two predictions for RTE.tsv"),
        ("rte", "RTE.tsv", [("1", "neutral")], "id '1' has the unknown label 'neutral'"),
        ("stsb", "STS-B.tsv", [("1", float("nan"))], "id '1' has nan, which is not a number"),
    ],
)
def test_submissions_that_the_server_would_refuse(tmp_path, name, file, rows, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path, name, file, rows)
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
