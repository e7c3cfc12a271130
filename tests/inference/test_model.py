"""A trained model: texts in batches by length, and workdirs that it refuses."""

import pathlib

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.data.labelled.texts import Text
from bert_jax.inference import model as model_lib
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.feature_extraction import FeatureExtractor
from bert_jax.inference.model import TrainedModel, in_order


@pytest.fixture(scope="module")
def model(workdir) -> TrainedModel:
    return TrainedModel(store.load(workdir), workdir, batch_tokens=256)


def ids_and_shape(params, batch):
    """A "model" that returns its input."""
    rows, length = batch["input_ids"].shape
    shape = jax.numpy.tile(jax.numpy.array([[rows, length]]), (rows, 1))
    return {
        "ids": batch["input_ids"],
        "types": batch["token_type_ids"],
        "shape": shape,
    }


def rows_of(model, sizes):
    return [model.row(Text(f"{n} " * (size - 2))) for n, size in enumerate(sizes)]


def test_every_row_comes_once_with_its_own_numbers_in_a_shape_of_its_length(model):
    sizes = np.random.default_rng(0).integers(2, 41, 500).tolist()
    rows = rows_of(model, sizes)
    forward = model.compile(ids_and_shape)
    results = list(model.run(forward, iter(rows)))
    assert sorted(number for number, _, _ in results) == list(range(500))
    for number, row, out in results:
        assert row is rows[number]
        size = len(row.input_ids)
        np.testing.assert_array_equal(out["ids"][:size], row.input_ids)
        assert not out["ids"][size:].any()
        batch, length = out["shape"]
        assert (batch, length) in ((16, 16), (8, 32), (8, 40))  # of 8 devices, 256 tokens
        assert length >= size
    assert forward._cache_size() == 3
    ordered = list(in_order((number, row) for number, row, _ in results))
    assert all(a is b for a, b in zip(ordered, rows, strict=True))


@pytest.mark.parametrize(("held_bytes", "most"), [(1 << 28, 32), (0, 8)])
def test_rows_are_read_a_window_at_a_time(model, held_bytes, most, monkeypatch):
    """`most` batches of 256 tokens are ahead at most, whatever the number of rows."""
    monkeypatch.setattr(model_lib, "_HELD_BYTES", held_bytes)
    read = 0

    def rows():
        nonlocal read
        for row in rows_of(model, [32] * 2000):
            read += 1
            yield row

    results = model.run(model.compile(ids_and_shape), rows())
    ahead = [read - done for done, _ in enumerate(results)]
    assert ahead[0] == 8 * 256 // 32
    assert max(ahead) == most * 256 // 32


@pytest.mark.parametrize(("for_requests", "later"), [(False, 24), (True, 40)])
def test_after_the_first_window_texts_are_padded_less(workdir, for_requests, later, monkeypatch):
    monkeypatch.setattr(model_lib, "MANY_LENGTHS", (16, 24, 32))
    monkeypatch.setattr(model_lib, "FEW_LENGTHS", (16,))
    model = TrainedModel(store.load(workdir), workdir, 256, for_requests=for_requests)
    results = list(model.run(model.compile(ids_and_shape), rows_of(model, [20] * 500)))
    first = -(-8 * 256 // 20)
    assert {out["shape"][1] for number, _, out in results if number < first} == {40}
    assert {out["shape"][1] for number, _, out in results if number >= first} == {later}


def test_pairs_have_token_types(model):
    row = model.row(Text("the list", "is"))
    (_, _, out), *_ = model.run(model.compile(ids_and_shape), [row])
    assert out["types"].tolist() == [0, 0, 0, 0, 1, 1] + [0] * 10
    assert row.word_positions.tolist() == [1, 2, 4]
    assert model.row(Text("")).word_positions.tolist() == []


# ------------------------------------------------------------------ errors


def test_a_vocabulary_that_is_too_large_is_refused(make_workdir):
    workdir = make_workdir()
    vocabulary = pathlib.Path(workdir, "vocab.txt")
    vocabulary.write_text(vocabulary.read_text() + "".join(f"w{n}\n" for n in range(4)))
    with pytest.raises(ValueError, match="has 21 pieces, the model only 20: it is another model's"):
        TrainedModel(store.load(workdir), workdir)


def test_only_one_process_uses_a_model(workdir, monkeypatch):
    monkeypatch.setattr(model_lib.jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="in one process: leave out --num_processes"):
        TrainedModel(store.load(workdir), workdir)


@pytest.mark.parametrize("field, value", [("pool", "mean"), ("pooler", False)])
def test_a_classifier_without_a_pooler_of_its_first_token_has_no_pooled_vector(
    make_run, field, value
):
    config, workdir = make_run("classification", **{f"head__{field}": value})
    assert config.model.next_sentence
    model = TrainedModel(store.load(workdir), workdir)
    assert not model.has_pooler
    extractor = FeatureExtractor(model, Choice(level="sentence"))
    ((_, _, features),) = extractor.run([model.row(Text("the list"))])
    assert "embeddings" in features and "pooled" not in features
