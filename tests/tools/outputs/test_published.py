"""Files that the GLUE server takes."""

import pathlib

import pytest

from bert_jax.data.labelled.published_sets import GLUE
from bert_jax.tools.outputs.published import write_submission


@pytest.mark.parametrize(
    "name, split, prediction, file, written",
    [
        ("cola", "test", "acceptable", "CoLA.tsv", "1"),
        ("sst2", "test", "negative", "SST-2.tsv", "0"),
        ("mrpc", "test", "equivalent", "MRPC.tsv", "1"),
        ("qqp", "test", "not_duplicate", "QQP.tsv", "0"),
        ("stsb", "test", "5.25", "STS-B.tsv", "5.000"),
        ("stsb", "test", "1.23456", "STS-B.tsv", "1.235"),
        ("mnli", "test_matched", "neutral", "MNLI-m.tsv", "neutral"),
        ("mnli", "test_mismatched", "contradiction", "MNLI-mm.tsv", "contradiction"),
        ("qnli", "test", "entailment", "QNLI.tsv", "entailment"),
        ("rte", "test", "not_entailment", "RTE.tsv", "not_entailment"),
        ("wnli", "test", "entailment", "WNLI.tsv", "1"),
        ("mnli", "test_diagnostic", "neutral", "AX.tsv", "neutral"),
        ("ax", "test", "neutral", "AX.tsv", "neutral"),
    ],
)
def test_submissions(tmp_path, name, split, prediction, file, written):
    path = write_submission(str(tmp_path), GLUE[name], split, [("3", prediction)])
    assert pathlib.Path(path) == tmp_path / file
    assert pathlib.Path(path).read_text() == f"index\tprediction\n3\t{written}\n"


@pytest.mark.parametrize(
    "name, split, rows, message",
    [
        ("rte", "validation", [], "There is no submission for 'validation', only for test"),
        ("rte", "test", [("1", "entailment")] * 2, "id '1' has two predictions for RTE.tsv"),
        ("rte", "test", [("1", "neutral")], "id '1' has the unknown label 'neutral'"),
        ("stsb", "test", [("1", "nan")], "id '1' has 'nan', which is not a number"),
    ],
)
def test_submissions_that_the_server_would_refuse(tmp_path, name, split, rows, message):
    with pytest.raises(ValueError, match=message):
        write_submission(str(tmp_path), GLUE[name], split, rows)
    assert not list(tmp_path.iterdir())
