"""Texts that are too long: cut off, or read in windows, each of whose tokens counts once."""

import json
import random

import numpy as np
import pytest

from bert_jax.data.labelled.texts import Text, encode_text
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.long_texts import truncate, windows
from bert_jax.inference.model import load
from tests.inference.conftest import open_model

POSITIONS = 40
ROOM = POSITIONS - 2
PIECES = ["the", "list", "is", "naive", ",", "."]


def words_of(count: int) -> list[str]:
    return random.Random(count).choices(PIECES, k=count)


@pytest.fixture(scope="module")
def model(workdir):
    return load(workdir)


def best_windows(count: int, stride: int) -> list[tuple[int, int]]:
    """For each of `count` words (window's first word, place): the one with most words around."""
    starts = [*range(0, count - ROOM, stride), count - ROOM]

    def around(start: int, word: int) -> float:
        # Nothing stands before the first word or after the last one of the text.
        left = np.inf if start == 0 else word - start
        right = np.inf if start == count - ROOM else start + ROOM - 1 - word
        return min(left, right)

    inside = [[s for s in starts if s <= word < s + ROOM] for word in range(count)]
    return [(max(found, key=lambda s: around(s, word)), word) for word, found in enumerate(inside)]


def test_each_token_is_taken_once_from_the_window_with_most_context(model):
    count, stride = 120, 9
    words = words_of(count)
    starts = {start for start, _ in best_windows(count, stride)}
    alone = {
        start: model.hidden_states([" ".join(words[start : start + ROOM])])[0]["hidden_states"][0]
        for start in starts
    }
    rows = [alone[start][1 + word - start] for start, word in best_windows(count, stride)]
    expected = np.stack([alone[0][0], *rows, alone[count - ROOM][-1]])
    options = {"long": "windows", "stride": stride}
    texts = ["naive", " ".join(words), "the list"]
    found = model.hidden_states(texts, **options)[1]
    assert found["input_ids"].shape == (count + 2,)
    np.testing.assert_allclose(found["hidden_states"][0], expected, atol=1e-5, rtol=0)
    vectors = model.encode(texts, **options)
    np.testing.assert_allclose(vectors[1], expected.mean(axis=0), atol=1e-5, rtol=0)
    np.testing.assert_allclose(vectors[::2], model.encode(texts[::2]), atol=1e-5, rtol=0)
    largest = model.encode(texts, pooling="max", normalize=True, **options)[1]
    want = expected.max(axis=0)
    np.testing.assert_allclose(largest, want / np.linalg.norm(want), atol=1e-5, rtol=0)


@pytest.mark.parametrize("first, second", [(100, None), (38, None), (30, 5), (5, 60), (30, 30)])
def test_the_end_is_cut_off_as_of_training_examples(first, second, model):
    """The rule of the original program: the longer of two loses its last token, B if equal."""
    a, b = words_of(first), None if second is None else words_of(second)
    row = encode_text(Text(" ".join(a), None if b is None else " ".join(b)), model.tokenizer, None)
    cut = 0
    while len(a) + len(b or ()) > POSITIONS - (2 if b is None else 3):
        cut += 1
        (a if b is None or len(a) > len(b) else b).pop()
    short = encode_text(
        Text(" ".join(a), None if b is None else " ".join(b)), model.tokenizer, POSITIONS
    )
    found = truncate(row, POSITIONS)
    assert found.cut == cut and found.first_length == short.first_length
    assert found.input_ids.tolist() == short.input_ids.tolist()
    assert found.word_positions.tolist() == short.word_positions.tolist()


def test_words_of_a_text_that_is_cut_off_keep_their_characters(model):
    text = "naive " * 60
    (found,) = model.hidden_states([text], level="word", long="truncate")
    assert found["words"] == ["naive"] * ROOM
    assert found["word_characters"][-1].tolist() == [0, 6 * (ROOM - 1), 6 * ROOM - 1]


def test_what_windows_do_not_read_is_refused(model):
    with pytest.raises(ValueError, match="inputs\\[0\\] is a pair of 83 tokens, and windows are f"):
        model.encode([("the " * 40, "is " * 40)], long="windows")
    with pytest.raises(ValueError, match="stride=39 must be from 1 to 38, the words of a window"):
        model.encode(["the " * 40], long="windows", stride=39)
    row = encode_text(Text("the " * ROOM), model.tokenizer, None)
    assert [part for _, part in windows(row, POSITIONS)] == [slice(0, POSITIONS)]
    row = encode_text(Text("the " * 100), model.tokenizer, None)
    parts = [[part for _, part in windows(row, POSITIONS, n)] for n in (0, ROOM // 2)]
    assert parts[0] == parts[1] and len(parts[0]) > 3


# ------------------------------------------------------------------ sentence-transformers


def write_modules(folder, *kinds, **pooling):
    modules = [
        {"type": f"st.{kind}", "path": "pool" if kind == "Pooling" else ""} for kind in kinds
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "pool").mkdir(exist_ok=True)
    (folder / "pool" / "config.json").write_text(json.dumps({"include_prompt": True, **pooling}))


def test_vectors_are_made_as_modules_json_says(make_workdir, tmp_path, monkeypatch):
    predictor = open_model(make_workdir(model__num_layers=1))
    object.__setattr__(predictor.model, "folder", str(tmp_path))
    write_modules(tmp_path, "Transformer", "Pooling", "Normalize", pooling_mode_max_tokens=True)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    extractor = FeatureExtractor(predictor, Choice(level="sentence"))
    assert (extractor.choice.pooling, extractor.choice.normalize) == ("max", True)
    with pytest.raises(ValueError, match="has 13 tokens, .* takes at most 12"):
        extractor.row(Text("the " * 11))
    given = Choice(level="sentence", pooling="cls", normalize=False)
    assert FeatureExtractor(predictor, given).choice == given
    assert FeatureExtractor(predictor, Choice()).max_length == POSITIONS
    write_modules(tmp_path, "Transformer", "Pooling", "Dense", pooling_mode_mean_tokens=True)
    with pytest.raises(ValueError, match="has a module Dense, which is not done here: pooling"):
        FeatureExtractor(predictor, Choice(level="sentence"))


def test_prompts_are_texts_or_the_names_of_the_models_own(make_workdir, tmp_path):
    predictor = open_model(make_workdir(model__num_layers=1))
    object.__setattr__(predictor.model, "folder", str(tmp_path))
    write_modules(tmp_path, "Transformer", "Pooling", pooling_mode="cls")  # of version 6

    def ids(prompt=""):
        extractor = FeatureExtractor(predictor, Choice(level="sentence", prompt=prompt))
        assert extractor.choice.pooling == "cls"
        return extractor.row(Text("list", "is")).input_ids.tolist()

    def ids_of(text):
        extractor = FeatureExtractor(predictor, Choice(level="sentence"))
        return extractor.row(Text(text, "is")).input_ids.tolist()

    assert ids("the ") == ids_of("the list") != ids()
    with pytest.raises(ValueError, match="prompt=query is none of the model's prompts .it has n"):
        ids("query")
    values = {"prompts": {"query": "is the ", "other": ""}, "default_prompt_name": None}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(values))
    assert ids("query") == ids_of("is the list") and ids("other") == ids()
    default = json.dumps(values | {"default_prompt_name": "query"})
    (tmp_path / "config_sentence_transformers.json").write_text(default)
    assert ids() == ids("query")
    with pytest.raises(ValueError, match="dimensions=17 is above the 16 dimensions of a vector"):
        FeatureExtractor(predictor, Choice(level="sentence", pooling="mean", dimensions=17))
