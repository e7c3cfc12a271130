"""Features, compared with the model applied to one text at a time and with their definitions."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.data.labelled.texts import Text
from bert_jax.devices import processor
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor, check_layers
from bert_jax.models.pooling import EncoderWithPooler
from tests import tiny
from tests.inference.conftest import open_model

TEXTS = [
    Text("The list is returned."),
    Text(""),
    Text("Unaffable, naïve   the"),
    Text("the list", "unaffable returned list, the"),
    Text("the " * 30),
    Text("is"),
]


@pytest.fixture(scope="module")
def extract(workdir):
    """Returns a function of a choice -> the features of TEXTS; one compilation for each choice."""
    model = open_model(workdir, batch_tokens=128)

    @functools.cache
    def run(**choice):
        extractor = FeatureExtractor(model, Choice(**choice))
        rows = [extractor.row(text) for text in TEXTS]
        found = list(extractor.run(rows))
        assert [row for row, _ in found] == rows
        return [features for _, features in found]

    return run


@pytest.fixture(scope="module")
def one_by_one(workdir):
    """Ids, [layers + 1, tokens, hidden] and pooled output of each text in a row of its own."""
    model = open_model(workdir).model
    network, params = EncoderWithPooler(model.encoder), jax.device_get(model.params["bert"])
    forward = jax.jit(lambda batch: network.apply({"params": params}, batch, keep_all=True))
    tokenizer, outputs, place = model.tokenizer, [], np.arange(40, dtype=np.int32)[None]
    for text in TEXTS:
        ids = [tokenizer.cls_id, *tokenizer.encode(text.text_a), tokenizer.sep_id]
        first = len(ids)
        ids += [*tokenizer.encode(text.text_b), tokenizer.sep_id] if text.text_b else []
        batch = {
            "input_ids": np.pad(np.int32([ids]), ((0, 0), (0, 40 - len(ids)))),
            "token_type_ids": (place >= first).astype(np.int32),
            "attention_mask": (place < len(ids)).astype(np.int32),
        }
        out, pooled = jax.device_get(forward(batch))
        hidden = np.concatenate(out.all_hidden)[:, : len(ids)]
        outputs.append((ids, hidden, pooled[0, 0]))
    return outputs


def close(got, want):
    np.testing.assert_allclose(got, want, atol=2e-5, rtol=0)


def test_hidden_states_are_those_of_each_text_alone_in_the_order_of_the_input(extract, one_by_one):
    for found, (ids, hidden, pooled) in zip(extract(layers="all"), one_by_one, strict=True):
        assert set(found) == {"input_ids", "attention_mask", "hidden_states", "pooled"}
        assert found["input_ids"].tolist() == ids and found["attention_mask"].all()
        assert {found[name].dtype for name in ("hidden_states", "pooled")} == {np.dtype("float32")}
        close(found["hidden_states"], hidden)
        close(found["pooled"], pooled)


def test_layers_are_combined_as_named(extract, one_by_one):
    """The other combinations are tested with `choose` and in test_elmo_features.py."""
    weights = (0.5, -1.0, 2.0, 0.25, 1.5)
    found = extract(layers="weighted_sum", weights=weights)
    for features, (_, hidden, _) in zip(found, one_by_one, strict=True):
        close(features["hidden_states"], np.einsum("l,lsf->sf", weights, hidden)[None])


@pytest.mark.parametrize("pooling, normalize", [("cls", False), ("mean", True), ("max", False)])
def test_sentences_are_pooled_over_all_their_tokens(pooling, normalize, extract, one_by_one):
    found = extract(level="sentence", pooling=pooling, normalize=normalize)
    for features, (_, hidden, _) in zip(found, one_by_one, strict=True):
        assert set(features) == {"input_ids", "attention_mask", "embeddings", "pooled"}
        assert features["embeddings"].dtype == np.float32
        last = hidden[-1]
        want = {"cls": last[0], "mean": last.mean(axis=0), "max": last.max(axis=0)}[pooling]
        close(features["embeddings"], want / np.linalg.norm(want) if normalize else want)


def test_first_dimensions_are_kept_and_then_scaled(extract, one_by_one):
    found = extract(level="sentence", pooling="mean", dimensions=5, normalize=True)
    for features, (_, hidden, _) in zip(found, one_by_one, strict=True):
        part = hidden[-1].mean(axis=0)[:5]
        close(features["embeddings"], part / np.linalg.norm(part))


def test_sentence_vectors_are_rounded_where_that_is_faster_and_unless_kept(extract, monkeypatch):
    """`layers=-1` is "last"; `extract` compiles it anew."""
    exact = extract(level="sentence")
    monkeypatch.setattr(processor, "gains_from_bfloat16", lambda: True)
    for kept, other in zip(exact, extract(layers=-1, level="sentence"), strict=True):
        a, b = kept["embeddings"], other["embeddings"]
        assert 0.9999 < a @ b / np.linalg.norm(a) / np.linalg.norm(b) and (a != b).any()
    for kept, again in zip(
        exact, extract(layers=-1, level="sentence", keeps_dtype=True), strict=True
    ):
        np.testing.assert_array_equal(kept["embeddings"], again["embeddings"])


# Of TEXTS, in their order: the words, and the positions of their pieces.
WORDS = [
    (["The", "list", "is", "returned", "."], [[1], [2], [3], [4, 5, 6], [7]]),
    ([], []),
    (["Unaffable", ",", "naïve", "the"], [[1, 2, 3], [4], [5], [6]]),
    (
        ["the", "list", "unaffable", "returned", "list", ",", "the"],
        [[1], [2], [4, 5, 6], [7, 8, 9], [10], [11], [12]],
    ),
    (["the"] * 30, [[i] for i in range(1, 31)]),
    (["is"], [[1]]),
]


@pytest.mark.parametrize("word", ["first", "mean"])
def test_a_word_is_its_first_piece_or_the_mean_of_all(word, extract, one_by_one):
    found = extract(level="word", word=word, layers="all")
    for features, text, (words, places), (_, hidden, _) in zip(
        found, TEXTS, WORDS, one_by_one, strict=True
    ):
        want = [hidden[:, p].mean(axis=1) if word == "mean" else hidden[:, p[0]] for p in places]
        assert features["hidden_states"].shape[1] == len(words)
        for j, vector in enumerate(want):
            close(features["hidden_states"][:, j], vector)
        assert features["word_spans"].tolist() == [[p[0], p[-1] + 1] for p in places]
        both = text.text_a, text.text_b or ""
        characters = features["word_characters"].tolist()
        assert [both[which][start:stop] for which, start, stop in characters] == words


def test_a_model_without_a_pooler_has_no_pooled_output(make_workdir):
    extractor = FeatureExtractor(open_model(make_workdir(model__next_sentence=False)), Choice())
    ((_, features),) = extractor.run([extractor.row(Text("the list"))])
    assert set(features) == {"input_ids", "attention_mask", "hidden_states"}


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "choice, message",
    [
        ({"layers": "lost"}, "layers=lost must be one of last, second_to_last, concat_last_4"),
        ({"layers": "weighted_sum"}, "weights go together"),
        ({"layers": "weighted_sum", "weights": (float("nan"),)}, "not all finite"),
        ({"layers": "all", "level": "sentence"}, "no single vector for a sentence"),
        ({"dimensions": 8}, "dimensions=8 is for level=sentence, not subword"),
        ({"dimensions": -1, "level": "sentence"}, "dimensions=-1 must be at least 1, or 0"),
        ({"stride": 3}, "stride=3 is for long=windows"),
        ({"layers": "concat_last_4"}, "concat_last_4 needs 4 layers, and the model has 2"),
        ({"layers": "weighted_sum", "weights": (1.0,) * 4}, "4 numbers, and the model only 2 lay"),
        ({"layers": "directions"}, "is for models that read in two directions, such as elmo"),
    ],
)
def test_what_cannot_be_chosen_is_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        check_layers(Choice(**choice), tiny.make_model(num_layers=2))
