"""Samples of rows for the statistics of heads, against single texts and whole splits."""

import json
import os
import random

import numpy as np
import pytest

from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.labelled.texts import Text
from bert_jax.inference.attention import AttentionReader
from bert_jax.tools.outputs.samples import sample_batches
from tests.data.corpus.corpora import make_config
from tests.inference.conftest import WORDS, open_model

TEXTS = ["the list is returned .", "naive", "unaffable list , the list is naive returned ."]


def sample(workdir, path="", most=200):
    reader = AttentionReader(open_model(workdir))
    return reader.statistics(sample_batches(reader.model, path, most))


def mean_of_texts(workdir, texts):
    """The statistics of each text for itself, averaged by hand."""
    reader = AttentionReader(open_model(workdir))
    rows = [reader.encode(text) for text in texts]
    sizes = [len(row.word_positions) for row in rows]
    values = [reader.read(row)["text_statistics"] for row in rows]
    return np.average(values, axis=0, weights=sizes), sum(sizes)


@pytest.fixture(scope="module")
def classification(make_run):
    changes = {"task__text_b": "text_b", "max_length": 40}
    return make_run("classification", **changes)[1]


def test_a_sample_of_a_file_is_the_mean_of_its_texts(workdir, tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    found, rows, tokens = sample(workdir, str(path))
    want, attending = mean_of_texts(workdir, [Text(text) for text in TEXTS])
    np.testing.assert_allclose(found, want, atol=1e-5, rtol=0)
    assert (rows, tokens) == (3, attending)


def test_a_sample_of_labelled_pairs(classification, tmp_path):
    """Read and encoded as the task does; only some examples, at even distances."""
    pairs = [(text, other) for text in TEXTS for other in TEXTS]
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"text_a": a, "text_b": b}) for a, b in pairs]
    path.write_text("\n".join(lines) + "\n")
    found, rows, tokens = sample(classification, str(path), most=3)
    want, attending = mean_of_texts(classification, [Text(*pairs[i]) for i in (0, 4, 8)])
    np.testing.assert_allclose(found, want, atol=1e-5, rtol=0)
    assert (rows, tokens) == (3, attending)


def test_a_sample_of_the_held_out_split(make_workdir, tmp_path):
    """All rows of the longest length, as the corpus has them, or some."""
    workdir = make_workdir()
    rng = random.Random(0)
    documents = ["\n".join(" ".join(rng.choices(WORDS, k=9)) for _ in range(6)) for _ in range(40)]
    (tmp_path / "0.txt").write_text("\n\n".join(documents))
    vocab = os.path.join(workdir, "vocab.txt")
    sizes = {"sequence_lengths": (32, 40), "num_predictions": (6, 8)}
    data = make_config(tmp_path, vocab=vocab, validation_share=0.3, short_seq_prob=0.8, **sizes)
    manifest = prepare(data, os.path.join(workdir, "data"), 1, log=lambda line: None)

    rows = manifest.rows("validation", 40)
    batch = rows.read(np.arange(len(rows)))
    padding = -len(rows) % 8  # the batch is split over the devices
    whole = {name: np.pad(a, [(0, padding), (0, 0)]) for name, a in batch.items()}
    want, _, _ = AttentionReader(open_model(workdir)).statistics([whole])
    found, count, tokens = sample(workdir)
    assert count == len(rows)
    assert tokens == ((batch["example_ids"] > 0) & ~np.isin(batch["input_ids"], (2, 3))).sum()
    np.testing.assert_allclose(found, want, atol=2e-5, rtol=0)
    assert sample(workdir, most=2)[1] == 2
