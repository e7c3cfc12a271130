"""Labels and kinds of classifiers in config.json: what transformers and people write."""

import pytest

from bert_jax.files.errors import UserError
from bert_jax.formats.hf_labels import distinct_labels, read_labels, read_problem_type


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ({}, "LABEL_0 LABEL_1 LABEL_2"),
        ({"id2label": None, "label2id": None, "num_labels": 3}, "LABEL_0 LABEL_1 LABEL_2"),
        ({"id2label": {"2": "c", "0": "a"}}, "a LABEL_1 c"),
        ({"id2label": {"0": 1, "1": 2, "2": 3}}, "1 2 3"),
        ({"label2id": {"c": 2, "a": 0, "b": "1"}}, "a b c"),
        # What a Trainer leaves of the defaults beside names.
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"LABEL_0": 0}}, "a b c"),
        ({"id2label": {"0": "a", "1": "a", "2": "c"}, "label2id": {"a": 1, "c": 2}}, "a a c"),
    ],
)
def test_there_is_a_name_for_each_row(values, labels):
    assert read_labels(values, "config.json", 3) == tuple(labels.split())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_labels": 2}, "num_labels=2, but the head has 3 rows"),
        ({"id2label": {"3": "d"}}, "names a label 3, but the head has 3 rows"),
        ({"label2id": {"d": 3}}, "names a label 3, but the head has 3 rows"),
        ({"id2label": {"0": "a"}, "label2id": {"a": 1}}, "'a' as 1, id2label as 0"),
        ({"id2label": {"x": "a"}}, "with the number 'x'"),
        ({"id2label": ["a", "b", "c"]}, "id2label that is not an object"),
    ],
)
def test_contradictions_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        read_labels(values, "config.json", 3)


def test_equal_names_are_told_apart():
    names, notes = distinct_labels(("a", "b", "a"))
    assert names == ("a", "b", "a (LABEL_2)")
    assert "2 labels 'a'" in notes[0]
    assert distinct_labels(("a", "b")) == (("a", "b"), [])


@pytest.mark.parametrize(
    ("stored", "rows", "kind"),
    [
        (None, 1, "regression"),
        (None, 2, "single"),
        ("regression", 1, "regression"),
        ("multi_label_classification", 1, "multi"),
        ("multi_label_classification", 3, "multi"),
        ("single_label_classification", 1, "always chosen"),
        ("regression", 2, "only one number"),
        ("ranking", 2, "problem_type='ranking': only 'single_label_classification', 'multi"),
    ],
)
def test_one_row_is_a_number(stored, rows, kind):
    values = {"problem_type": stored}
    if kind in ("single", "multi", "regression"):
        assert read_problem_type(values, "config.json", rows)[0] == kind
        return
    with pytest.raises(UserError, match=kind):
        read_problem_type(values, "config.json", rows)
