"""The predictor: packed rows, few shapes, answers in order, and workdirs that it refuses."""

import dataclasses
import json
import pathlib
import threading
from collections import Counter

import jax
import numpy as np
import pytest

from bert_jax.data.labelled.texts import EncodedTexts, Text, encode_text
from bert_jax.inference import loading
from bert_jax.inference.examples import make_examples
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.loading import load_model
from bert_jax.inference.predictor import Predictor, TaskPredictor
from tests.inference.conftest import WORDS, close, make_texts, open_model


@pytest.fixture(scope="module")
def model(workdir) -> Predictor:
    return open_model(workdir, batch_tokens=256)


def token_ids(params, batch):
    """A "model" that returns its input."""
    return {"ids": batch["input_ids"], "positions": batch["position_ids"]}


def rows_of(model: Predictor, sizes):
    texts = (Text(" ".join([WORDS[n % 3]] * (size - 2))) for n, size in enumerate(sizes))
    return [encode_text(text, model.model.tokenizer, None) for text in texts]


def test_texts_come_in_order_each_with_its_own_tokens_in_few_shapes(model):
    rows = rows_of(model, np.random.default_rng(0).integers(2, 41, 500).tolist())
    forward = model.model.compile(token_ids)
    results = list(model.stream(forward, iter(rows)))
    assert [row for row, _ in results] == rows
    for row, found in results:
        np.testing.assert_array_equal(found["ids"], row.input_ids)
        np.testing.assert_array_equal(found["positions"], np.arange(len(row.input_ids)))
    assert forward.jitted._cache_size() <= 2  # the batches of windows, and the last one


@pytest.mark.parametrize("dtype", ["float32", "bfloat16_products"])
def test_kernels_rounded_beforehand_give_equal_bits(make_workdir, dtype):
    model = open_model(make_workdir(dtype=dtype))
    predictor = TaskPredictor(model)
    program = predictor._forward
    kernel = program.params["bert"]["encoder"]["layer_0"]["output"]["kernel"]
    assert kernel.dtype == ("float32" if dtype == "float32" else "bfloat16")
    exact = dataclasses.replace(program, params=model.model.params)
    rows = EncodedTexts(rows_of(model, [3, 9, 20]), model.model.tokenizer)
    for _, found in model.run(exact, rows):
        for _, other in model.run(program, rows):
            jax.tree.map(np.testing.assert_array_equal, other, found)


@pytest.mark.parametrize("packs", [True, False])
def test_batches_have_every_row_once_and_hardly_any_padding(model, packs):
    lengths = np.random.default_rng(0).integers(3, 20, 300)
    filled = 0
    seen = []
    for numbers, length in model.batches(lengths, packs):
        assert numbers.ndim == 2 and len(numbers) % model.model.batch_shards == 0
        row_lengths = np.where(numbers >= 0, lengths[numbers], 0).sum(axis=1)
        assert row_lengths.max() <= length <= 40
        filled += len(numbers) * length
        seen += numbers[numbers >= 0].tolist()
    assert sorted(seen) == list(range(300))
    assert lengths.sum() / filled > (0.8 if packs else 0.5)


def test_rows_are_read_a_window_at_a_time(model, monkeypatch):
    read = 0

    def rows():
        nonlocal read
        for row in rows_of(model, [32] * 2000):
            read += 1
            yield row

    results = model.stream(model.model.compile(token_ids), rows())
    ahead = [read - done for done, _ in enumerate(results)]
    assert max(ahead) == 2 * 64 * 256 // 32  # the next one while the last batches are computed


def test_a_single_short_text_is_one_short_row(make_workdir):
    long = open_model(make_workdir(model__max_position_embeddings=600, phases=((40, 1.0),)))
    ((numbers, length),) = long.batches(np.array([9]), packs=True)
    assert (length, len(numbers)) == (16, long.model.batch_shards)
    lengths = {length for _, length in long.batches(np.array([9, 64, 65, 256, 257, 600]), True)}
    assert lengths == {64, 256, 600}
    assert {length for _, length in long.batches(np.array([3, 17, 257]), False)} == {16, 32, 512}


def test_threads_of_one_device_give_the_answers_of_a_batch_at_a_time(model, monkeypatch):
    # A device of its own: those of the other tests are eight.
    mesh = jax.sharding.Mesh(
        np.array(jax.devices()[:1]).reshape(1, 1, 1), model.model.mesh.axis_names
    )
    params = jax.device_put(jax.device_get(model.model.params), jax.devices()[0])
    alone = Predictor(dataclasses.replace(model.model, mesh=mesh, params=params), batch_tokens=128)
    rows = rows_of(model, np.random.default_rng(1).integers(2, 41, 200).tolist())

    def vectors(predictor):
        extractor = FeatureExtractor(predictor, Choice(level="sentence"))
        return np.stack([found["embeddings"] for _, found in extractor.run(rows)])

    threads = set()
    take = EncodedTexts.take

    def recorded(*args):
        threads.add(threading.get_ident())
        return take(*args)

    monkeypatch.setattr(EncodedTexts, "take", recorded)
    np.testing.assert_allclose(vectors(alone), vectors(model), rtol=0, atol=1e-5)
    assert len(threads) > 1


# ------------------------------------------------------------------ packing changes no result

QUESTIONS = [{"question": "is the list ?", "context": text} for text in make_texts(9, seed=1)]
CHOICES = [(text, ["the list", "is returned", "naive"]) for text in make_texts(5, seed=2)]
MASKED = [f"the list {text[:20]} [MASK] , is {text[:9]} [MASK]" for text in make_texts(9, seed=3)]
TEXTS = make_texts(24)
BILSTM = {"task__head": "bilstm", "task__lstm_size": 4, "task__lstm_layers": 1}
TASKS = {
    "layers": (("classification", {"task__layers": "scalar_mix", "task__pool": "mean"}), TEXTS),
    "bilstm": (("classification", BILSTM), TEXTS),
    "tagging": (("tagging", {}), TEXTS),
    "span": (("span", {}), QUESTIONS),
    "choice": (("multiple_choice", {}), CHOICES),
    "masks": (("base", {}), [*MASKED, *((text, "naive") for text in MASKED)]),
    "next_tokens": (("left_to_right", {}), TEXTS),
}


@pytest.mark.parametrize("name", TASKS)
def test_packed_predictions_are_those_of_one_example_in_each_row(name, make_run, monkeypatch):
    (config, changes), inputs = TASKS[name]
    run = make_run(config, **changes)
    opened = open_model(run[1], config=run[0])
    task = TaskPredictor(opened)
    examples = list(make_examples(opened.model.task.EXAMPLE, inputs))
    packed = task.predict_window(examples, Counter())
    monkeypatch.setattr(loading.TrainedModel, "packs", False)
    single = TaskPredictor(opened)
    alone = [single.predict_window([example], Counter())[0] for example in examples]
    assert len(packed) == len(inputs)
    close(json.loads(json.dumps(packed)), json.loads(json.dumps(alone)))


# ------------------------------------------------------------------ workdirs


def test_a_vocabulary_that_is_too_large_is_refused(make_workdir):
    workdir = make_workdir()
    vocabulary = pathlib.Path(workdir, "vocab.txt")
    vocabulary.write_text(vocabulary.read_text() + "".join(f"w{n}\n" for n in range(4)))
    with pytest.raises(ValueError, match="has 21 pieces, the model only 20: it is another model's"):
        open_model(workdir)


def test_only_one_process_uses_a_model(workdir, monkeypatch):
    monkeypatch.setattr(loading.jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="in one process: leave out --num_processes"):
        load_model(workdir)


def test_a_classifier_without_a_pooler_of_its_first_token_has_no_pooled_vector(make_run):
    for field, value in (("pool", "mean"), ("pooler", False)):
        config, workdir = make_run("classification", **{f"task__{field}": value})
        assert config.model.next_sentence and not open_model(workdir).model.has_pooler
