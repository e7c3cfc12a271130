"""`exact`: the bytes of a text do not depend on the texts that it is read with."""

import random
import subprocess
import sys

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.config.store import parse
from bert_jax.files.errors import UserError
from bert_jax.text.word_tokenizer import make_word_vocabulary
from tests.inference.conftest import VOCABULARY, make_texts
from tests.inference.test_minimal_pairs import ELMO

_ALONE = """
import sys, bert_jax
model = bert_jax.load(sys.argv[1], dtype='float32')
sys.stdout.write("".join(model.encode([t], exact=True).tobytes().hex() for t in sys.argv[2:]))
"""


@pytest.fixture(scope="module", params=["base", "left_to_right"])
def model(request, make_run) -> bert_jax.Model:
    values = {"phases": ((40, 1.0),), "model__vocab_size": len(VOCABULARY)}
    return bert_jax.load(make_run(request.param, **values)[1])


def batchings(texts: list[str], seed: int):
    """Yields the texts in random order, in batches of random sizes."""
    rng, texts = random.Random(seed), list(texts)
    rng.shuffle(texts)
    while texts:
        size = rng.randint(1, 40)
        yield texts[:size]
        texts = texts[size:]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_vectors_have_the_bytes_of_a_text_alone(model, pooling):
    texts = make_texts(60)
    alone = {text: model.encode([text], pooling, exact=True).tobytes() for text in texts}
    for seed in range(3):
        for batch in batchings(texts, seed):
            found = model.encode(batch, pooling, exact=True)
            assert [vector.tobytes() for vector in found] == [alone[text] for text in batch]
    packed = model.encode(texts, pooling)
    np.testing.assert_allclose(packed, model.encode(texts, pooling, exact=True), atol=1e-5)


def test_so_have_scores_and_predictions(model, make_run):
    texts = make_texts(12)
    scores = {text: model.score([text], exact=True) for text in texts}
    for batch in batchings(texts, 0):
        assert model.score(batch, exact=True) == [scores[text][0] for text in batch]
    classifier = bert_jax.load(make_run("classification")[1], exact=True)
    (alone,) = classifier.predict(texts[:1])
    *_, last = classifier.predict([*texts[1:], texts[0]])
    assert last["probabilities"] == alone["probabilities"]


def test_rows_of_words_and_of_choices_have_shapes_of_their_own(make_run, monkeypatch):
    """Beside a long sentence or more choices, batches have the same shapes, and the same bytes."""
    tagger = bert_jax.load(make_run("tagging")[1], exact=True)
    sentences = [["the", "list"] * n for n in (1, 2, 15)]
    choices = bert_jax.load(make_run("multiple_choice")[1], exact=True)
    questions = [("the list", ["is", "naive", "returned", "list"][:n]) for n in (2, 4)]
    for model, examples in ((tagger, sentences), (choices, questions)):
        shapes = _record_shapes(model, monkeypatch)
        together, with_others = model.predict(examples), set(shapes)
        shapes.clear()
        alone = [model.predict([example])[0] for example in examples]
        assert set(shapes) == with_others
        for one, other in zip(together, alone, strict=True):
            assert {**one, "id": "0"} == other
        monkeypatch.undo()


def test_the_predictions_of_elmo_are_those_of_a_text_alone(make_run):
    """Whose rows are of a class of its own."""
    content = make_word_vocabulary(VOCABULARY)
    config = parse(bert_jax.get_config("elmo:small", **ELMO, model__vocab_size=len(VOCABULARY)))
    model = bert_jax.load(make_run(config, vocabulary=("vocab.txt", content))[1], exact=True)
    texts = make_texts(5)
    alone = [model.predict([text])[0] for text in texts]
    assert model.predict(texts) == alone


def test_predictions_that_depend_on_the_batch_by_design_are_refused(make_run):
    settings = {"task__layers": "scalar_mix", "task__mix_layer_norm": True}
    model = bert_jax.load(make_run("tagging", **settings)[1])
    with pytest.raises(UserError, match="mix_layer_norm=True, which normalizes over all texts of"):
        model.predict([["the"]], exact=True)


def test_generated_texts_are_computed_alone(model):
    if not model.task.READS_FORWARD:
        pytest.skip("predicts no next tokens")
    exact = bert_jax.load(model.folder, exact=True)
    prompts = ["the list", "naive list is the list", "is"]
    settings = {"max_new_tokens": 6, "greedy": True}
    alone = [exact.generate([prompt], **settings)[0] for prompt in prompts]
    assert exact.generate(prompts, **settings) == alone


def _record_shapes(model: bert_jax.Model, monkeypatch) -> list:
    """Returns a list to which the programs of a model add the shapes of their batches."""
    shapes: list = []
    compile_program = model.compile

    def compiled(_, *arguments):
        program = compile_program(*arguments)

        def run(batch):
            shapes.append(tuple((name, np.shape(batch[name])) for name in sorted(batch)))
            return program(batch)

        return run

    monkeypatch.setattr(type(model), "compile", compiled)
    return shapes


def test_another_process_with_one_device_has_the_same_bytes(model, monkeypatch):
    assert jax.device_count() > 1
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    texts = make_texts(3)
    model = bert_jax.load(model.folder, dtype="float32")
    command = [sys.executable, "-c", _ALONE, model.folder, *texts]
    ran = subprocess.run(command, capture_output=True, check=True)
    assert ran.stdout.decode() == model.encode(texts, exact=True).tobytes().hex()
