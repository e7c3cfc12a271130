"""Cross-encoders: the pairs of an epoch, ranks and scores, files with scores, messages."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.examples import TextExample
from bert_jax.files.errors import UserError
from bert_jax.tasks.cross_encoder import CrossEncoder
from bert_jax.text.tokenizers import load_tokenizer
from tests.tiny import SPECIAL

TEXTS = [("a", "b"), ("a", "c"), ("d", "b"), ("e", "f"), ("g", "h"), ("i", "j")]
METRICS = ("mrr_at_10", "accuracy")


def examples(negative=None):
    return [TextExample("", str(n), *pair, ("1",), negative) for n, pair in enumerate(TEXTS)]


def test_drawn_negatives_belong_to_other_texts_and_depend_on_the_file_alone():
    task = CrossEncoder(drawn_negatives=3)
    groups = list(task.with_negatives(examples()))
    assert groups == list(task.with_negatives(examples()))
    for pair, group in zip(TEXTS, groups, strict=True):
        assert (group[0].text_a, group[0].text_b, group[0].labels) == (*pair, ("1",))
        own = {b for a, b in TEXTS if a == pair[0]} | {pair[0]}
        drawn = [row.text_b for row in group[1:]]
        assert len(set(drawn)) == 3 and not own & set(drawn)
        assert {(row.text_a, row.labels) for row in group[1:]} == {(pair[0], ("0",))}
    assert len({tuple(row.text_b for row in group[1:]) for group in groups}) > 1
    few = list(task.with_negatives(examples()[:2]))  # both belong to one first text
    assert [len(group) for group in few] == [1, 1]


def test_rows_are_those_of_pairs_and_their_negatives(tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*SPECIAL, *"abcdefghijn"]) + "\n")
    tokenizer = load_tokenizer(str(vocab), True)
    rows = CrossEncoder(negative="negative").encode(examples("n"), tokenizer, Counter())
    assert rows.example.tolist() == np.repeat(np.arange(6), 2).tolist()
    assert rows.fields["labels"].tolist() == [1, 0] * 6
    batch = rows.take(np.arange(2), 8)
    pieces = [[tokenizer.pieces[i] for i in row] for row in batch["input_ids"]]
    assert pieces[0][:5] == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert pieces[1][:5] == ["[CLS]", "a", "[SEP]", "n", "[SEP]"]

    logits = np.array([2, 1, 1, 1, 0, 3, 1, -1, 5, 4, 0, 0], np.float32)
    task = CrossEncoder(negative="negative", metrics=METRICS)
    found = task.collect(examples("n"), rows, [{"logit": logit} for logit in logits])
    assert [row["rank"] for row in found] == [1, 2, 2, 1, 1, 2]  # a tie is no success
    assert found[0]["score"] == pytest.approx(1 / (1 + np.exp(-2)))
    assert task.score(examples("n"), found) == {"mrr_at_10": 0.75, "accuracy": 0.5}


def test_scores_of_files(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("anchor,positive,score\na,b,0.5\na,c,1\n")
    task = CrossEncoder(label="score", metrics=("spearman",))
    found = list(task.read(str(path), Counter(), True))
    assert [len(group) for group in task.with_negatives(found)] == [1, 1]
    assert task.score(found, [{"score": 0.1}, {"score": 0.2}]) == {"spearman": pytest.approx(1.0)}
    path.write_text("anchor,positive,score\na,b,3\n")
    with pytest.raises(UserError, match=r"pairs.csv.*3.* is not from 0 to 1"):
        list(task.read(str(path), Counter(), True))
    with pytest.raises(UserError, match="pairs have scores or negatives"):
        CrossEncoder.default_config().replace({"task.label": "score", "task.negative": "n"})
