"""Attention and the predictions of layers, compared with transformers and with other commands."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.data.labelled.texts import Text
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.predictor import TaskPredictor
from bert_jax.inference.scoring import Scorer
from bert_jax.models.heads import PreTrainingModel
from bert_jax.scores.attention import STATISTICS, attention_of_words
from tests.inference.conftest import open_model

PAIR = Text("Unaffable [MASK] is returned.", "the [MASK] , naive")


@pytest.fixture(scope="module")
def reader(workdir) -> AttentionReader:
    return AttentionReader(open_model(workdir), top_k=3)


@pytest.fixture(scope="module")
def arrays(reader):
    return reader.read(reader.encode(PAIR))


@pytest.fixture(scope="module")
def theirs(torch_twin, arrays):
    """transformers' model with the workdir's weights, and its outputs for the pair."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        outputs = torch_twin(
            input_ids=torch.tensor(arrays["input_ids"][None]).long(),
            token_type_ids=torch.tensor(arrays["segments"][None]).long(),
            output_attentions=True,
            output_hidden_states=True,
        )
    return torch_twin, outputs


def test_the_tokens_and_words_of_a_pair(arrays):
    text = "[CLS] una ##ffa ##ble [MASK] is re ##turn ##ed . [SEP] the [MASK] , naive [SEP]"
    words = "[CLS] unaffable [MASK] is returned . [SEP] the [MASK] , naive [SEP]"
    assert arrays["tokens"].tolist() == text.split()
    assert arrays["words"].tolist() == words.split()
    assert arrays["segments"].tolist() == [0] * 11 + [1] * 5
    assert arrays["tokens"][arrays["is_special"]].tolist() == ["[CLS]", "[SEP]", "[SEP]"]
    spans = arrays["word_spans"]
    assert spans[0, 0] == 0 and spans[-1, 1] == 16
    np.testing.assert_array_equal(spans[1:, 0], spans[:-1, 1])
    assert spans[[1, 4]].tolist() == [[1, 4], [6, 9]]
    np.testing.assert_array_equal(
        arrays["word_attention"], attention_of_words(arrays["attention"], spans)
    )
    assert arrays["statistics"].tolist() == list(STATISTICS)


def test_attention_is_that_of_transformers(arrays, theirs):
    attention = arrays["attention"]
    assert attention.shape == (4, 2, 16, 16) and attention.dtype == np.float32
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    for ours, other in zip(attention, theirs[1].attentions, strict=True):
        np.testing.assert_allclose(ours, other[0], rtol=0, atol=1e-5)


def test_each_layer_predicts_what_the_head_of_transformers_makes_of_its_states(
    reader, arrays, theirs
):
    model, outputs = theirs
    pieces = reader.model.tokenizer.pieces
    masks = arrays["lens_positions"]
    assert masks.tolist() == [4, 12] and arrays["lens_offset"] == 0
    states = outputs.hidden_states
    assert arrays["lens_tokens"].shape == (len(states), 2, 3)
    final = None
    for layer, hidden in reversed([*enumerate(states)]):
        logits = model.cls.predictions(hidden[:, masks])[0, :, : len(pieces)]
        probs = logits.softmax(-1).detach().numpy()
        final = probs.argmax(-1) if final is None else final
        best = np.argsort(-probs)[:, :3]
        assert arrays["lens_tokens"][layer].tolist() == [[pieces[i] for i in row] for row in best]
        want = np.take_along_axis(probs, best, axis=1)
        np.testing.assert_allclose(arrays["lens_probabilities"][layer], want, rtol=0, atol=1e-5)
        answers = arrays["lens_answer_probabilities"][layer]
        np.testing.assert_allclose(answers, probs[[0, 1], final], rtol=0, atol=1e-5)
    assert arrays["lens_answers"].tolist() == [pieces[i] for i in final]


def test_a_model_that_predicts_next_tokens(make_run):
    """No token attends to a later one; the last layer's probabilities are those of `score`."""
    workdir = make_run("gpt:tiny", model__vocab_size=20, model__num_layers=2)[1]
    text = Text("the list is unaffable")
    reader = AttentionReader(open_model(workdir), top_k=2)
    arrays = reader.read(reader.encode(text))
    np.testing.assert_allclose(arrays["attention"].sum(-1), 1, atol=1e-5)
    assert not np.triu(arrays["attention"], 1).any()
    scorer = Scorer(open_model(workdir))
    (score,) = scorer.score([scorer.row(text)])
    tokens = [entry["token"] for entry in score["log_probabilities"]]
    assert arrays["lens_answers"].tolist() == tokens
    assert arrays["lens_positions"].tolist() == list(range(len(tokens)))
    assert arrays["lens_offset"] == 1
    values = np.exp([entry["log_probability"] for entry in score["log_probabilities"]])
    np.testing.assert_allclose(arrays["lens_answer_probabilities"][-1], values, atol=1e-5)


def test_a_modern_encoder(make_run):
    """With norms before the sub-layers, too, the last layer is the model's own prediction."""
    changes = {
        "model__vocab_size": 20,
        "model__num_layers": 3,
        "phases": ((40, 1.0),),
        # The parts of ModernBERT that configs/fast.py leaves out.
        "model__attention_pattern": "window",
        "model__attention_window": 3,
        "model__global_every": 2,
        "model__first_layer_norm": False,
    }
    workdir = make_run("fast:tiny", **changes)[1]
    reader = AttentionReader(open_model(workdir), top_k=3)
    arrays = reader.read(reader.encode(PAIR))
    np.testing.assert_allclose(arrays["attention"].sum(-1), 1, atol=1e-5)
    distance = np.abs(np.subtract.outer(np.arange(16), np.arange(16)))
    assert not arrays["attention"][1, :, distance > 3].any()
    assert arrays["attention"][[0, 2]].all()
    predictor = TaskPredictor(open_model(workdir), top_k=3)
    ((prediction,),) = predictor.predict([PAIR])
    for number, mask in enumerate(prediction["masks"]):
        assert mask["position"] == arrays["lens_positions"][number]
        values = [candidate["probability"] for candidate in mask["candidates"]]
        np.testing.assert_allclose(arrays["lens_probabilities"][-1, number], values, atol=1e-6)
    # A layer predicts what the model would without the layers after it.
    places = np.arange(16, dtype=np.int32)[None]
    batch = {
        "input_ids": arrays["input_ids"][None],
        "position_ids": places,
        "example_ids": np.ones_like(places),
        "masked_lm_positions": arrays["lens_positions"][None],
    }
    model = PreTrainingModel(dataclasses.replace(reader.config, num_layers=1), False)
    outputs: Any = jax.jit(lambda params: model.apply(params, batch, deterministic=True))(
        {"params": reader.model.params}
    )
    logits = outputs.masked_lm_logits[0, :, : len(reader.model.tokenizer.pieces)]
    best = np.sort(jax.nn.softmax(logits), axis=-1)[:, :-4:-1]
    np.testing.assert_allclose(arrays["lens_probabilities"][1], best, rtol=0, atol=1e-5)


def test_models_without_a_lens_say_why(classifier, make_workdir):
    for workdir, reason in (
        (classifier[1], "for the task 'classification': it has no head that predicts words."),
        (make_workdir(model__copy_head=True), "copies tokens (config.model.copy_head=True), whi"),
    ):
        reader = AttentionReader(open_model(workdir))
        arrays = reader.read(reader.encode(PAIR))
        assert "lens_tokens" not in arrays and reason in reader.no_lens
        np.testing.assert_allclose(arrays["attention"].sum(-1), 1, atol=1e-5)


def test_other_implementations_of_attention_are_replaced(make_workdir):
    changes = {"model__attention": "dot_product", "model__attention_dropout_rate": 0.0}
    other = AttentionReader(open_model(make_workdir(**changes)))
    attention = other.read(other.encode(PAIR))["attention"]
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)


def test_texts_without_masks_or_words_or_with_too_many(reader):
    arrays = reader.read(reader.encode(Text("the list")))
    assert not reader.no_lens and "lens_tokens" not in arrays
    with pytest.raises(ValueError, match="The text has no token but special ones: give a text"):
        reader.read(reader.encode(Text("")))
    with pytest.raises(ValueError, match="A text has 41 tokens, .* at most 40"):
        reader.encode(Text("is " * 39))
