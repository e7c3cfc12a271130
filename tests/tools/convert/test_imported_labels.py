"""Classifiers whose config.json says little of their labels: the answers are transformers'."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.exchange import export
from bert_jax.training.workdir import open_model
from tests.tools.convert.hf_folders import edit_config, from_hf

TEXTS = ["abc", "the cab is bad"]


def their_logits(folder, model, texts=TEXTS):
    """Returns float[texts, rows]; the pieces of the vocabulary are letters, so ids are simple."""
    import torch

    tokenizer = open_model(str(folder)).tokenizer
    rows = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in texts]
    with torch.no_grad():
        return np.array([model(torch.tensor([row])).logits[0].numpy() for row in rows])


def test_equal_names_keep_both_probabilities(save):
    folder, model = save("BertForSequenceClassification", num_labels=3)
    edit_config(folder, id2label={"0": "a", "1": "b", "2": "a"}, label2id={"a": 2, "b": 1})
    (answer, _) = bert_jax.load(folder).predict(TEXTS)
    (logits, _) = their_logits(folder, model)
    np.testing.assert_allclose(
        [answer["probabilities"][name] for name in ("a", "b", "a (LABEL_2)")],
        np.exp(logits) / np.exp(logits).sum(),
        atol=1e-6,
    )


def test_one_label_is_a_number(save, tmp_path):
    folder, model = save("BertForSequenceClassification", num_labels=1)
    from_hf(folder)
    for source in (folder, folder.parent / "out"):
        values = [answer["value"] for answer in bert_jax.load(source).predict(TEXTS)]
        np.testing.assert_allclose(values, their_logits(folder, model)[:, 0], atol=1e-5)
    export(open_model(str(folder)), "huggingface", tmp_path / "exported")
    assert json.loads((tmp_path / "exported/config.json").read_text())["problem_type"] == (
        "regression"
    )


@pytest.mark.parametrize("labels", [None, ["O", "O", "B-X"]])
def test_a_tagger_without_names_or_with_equal_ones(save, labels):
    folder, model = save("BertForTokenClassification", num_labels=3)
    edit_config(folder, id2label=dict(enumerate(labels)) if labels else None, label2id=None)
    logits = their_logits(folder, model, ["a b c"])[0, 1:-1]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = labels or ["LABEL_0", "LABEL_1", "LABEL_2"]
    (answer,) = bert_jax.load(folder).predict([["a", "b", "c"]])
    assert answer["tags"] == [names[number] for number in logits.argmax(axis=1)]
    np.testing.assert_allclose(answer["probabilities"], expected.max(axis=1), atol=1e-6)
