"""Features, compared with the model applied to one text at a time and with their definitions."""

import json
import pathlib

import jax
import numpy as np
import pytest

from bert_jax.data.labelled.texts import Text, encode_text
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor, check_layers
from bert_jax.inference.predictor import Predictor
from bert_jax.models.pooling import EncoderWithPooler
from bert_jax.tools.outputs import files
from bert_jax.tools.outputs.features import extract
from tests import tiny
from tests.inference.conftest import Lines, open_model

HIDDEN = 16
LINES = [
    "The list is returned.",
    "",
    "Unaffable, naïve   the",
    json.dumps({"text_a": "the list", "text_b": "unaffable returned list, the"}),
    "the " * 30,
    "is",
]
TEXTS = [
    (line, None) if not line.startswith("{") else tuple(json.loads(line).values()) for line in LINES
]


@pytest.fixture(scope="module")
def model(workdir) -> Predictor:
    return open_model(workdir, batch_tokens=128)


@pytest.fixture
def write(model, tmp_path):
    """Returns a function that writes the features of LINES and returns the path of the file."""

    def run(ending: str, lines=LINES, **choice) -> pathlib.Path:
        (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
        path = tmp_path / f"out{ending}"
        extractor = FeatureExtractor(model, Choice(**choice))
        assert extract(extractor, str(tmp_path / "in.txt"), str(path)) == len(lines)
        return path

    return run


@pytest.fixture(scope="module")
def one_by_one(model):
    """Ids, [layers + 1, tokens, hidden] and pooled output of each text by itself, not padded."""
    params = jax.device_get(model.model.params)
    network = EncoderWithPooler(model.model.encoder)
    outputs = []
    for text_a, text_b in TEXTS:
        row = encode_text(Text(text_a, text_b), model.model.tokenizer, 40)
        ids = row.input_ids[None]
        batch = {
            "input_ids": ids,
            "token_type_ids": (np.arange(ids.size) >= row.first_length).astype(np.int32)[None],
            "position_ids": np.arange(ids.size, dtype=np.int32)[None],
            "example_ids": np.ones_like(ids),
            "cls_positions": np.zeros((1, 1), np.int32),
        }
        out, pooled = network.apply(
            {"params": params["bert"]}, batch, deterministic=True, keep_all=True
        )
        outputs.append((row.input_ids, np.concatenate(out.all_hidden), np.array(pooled[0, 0])))
    return outputs


def close(got, want):
    np.testing.assert_allclose(got, want, atol=2e-5, rtol=0)


def test_the_arrays_are_those_of_each_text_alone_in_the_order_of_the_input(write, one_by_one):
    arrays = np.load(write(".npz", layers="all"))
    longest = max(len(ids) for ids, _, _ in one_by_one)
    assert set(arrays) == {"input_ids", "attention_mask", "hidden_states", "pooled"}
    assert arrays["input_ids"].dtype == arrays["attention_mask"].dtype == np.int32
    assert arrays["hidden_states"].dtype == arrays["pooled"].dtype == np.float32
    assert arrays["input_ids"].shape == (len(LINES), longest)
    assert arrays["hidden_states"].shape == (5, len(LINES), longest, HIDDEN)
    for i, (ids, hidden, pooled) in enumerate(one_by_one):
        size = len(ids)
        np.testing.assert_array_equal(arrays["input_ids"][i, :size], ids)
        np.testing.assert_array_equal(arrays["attention_mask"][i], np.arange(longest) < size)
        close(arrays["hidden_states"][:, i, :size], hidden)
        assert not arrays["hidden_states"][:, i, size:].any()
        assert not arrays["input_ids"][i, size:].any()
        close(arrays["pooled"][i], pooled)


WEIGHTS = (0.5, -1.0, 2.0, 0.25, 1.5)
# The others are tested with `choose` and in test_elmo_features.py.
COMBINED = {
    "second_to_last": lambda all_hidden: all_hidden[3:4],
    "concat_last_4": lambda all_hidden: np.concatenate(all_hidden[1:], axis=-1)[None],
    "weighted_sum": lambda all_hidden: np.einsum("l,lsf->sf", WEIGHTS, all_hidden)[None],
}


@pytest.mark.parametrize("layers", COMBINED)
def test_layers_are_combined_as_named(layers, write, one_by_one):
    weights = WEIGHTS if layers == "weighted_sum" else ()
    arrays = np.load(write(".npz", layers=layers, weights=weights))
    for i, (ids, hidden, _) in enumerate(one_by_one):
        close(arrays["hidden_states"][:, i, : len(ids)], COMBINED[layers](hidden))


@pytest.mark.parametrize("pooling, normalize", [("cls", False), ("mean", True), ("max", False)])
def test_sentences_are_pooled_over_all_their_tokens(pooling, normalize, write, one_by_one):
    arrays = np.load(write(".npz", level="sentence", pooling=pooling, normalize=normalize))
    assert set(arrays) == {"input_ids", "attention_mask", "embeddings", "pooled"}
    assert arrays["embeddings"].dtype == np.float32
    for got, (_, hidden, _) in zip(arrays["embeddings"], one_by_one, strict=True):
        last = hidden[-1]
        want = {"cls": last[0], "mean": last.mean(axis=0), "max": last.max(axis=0)}[pooling]
        close(got, want / np.linalg.norm(want) if normalize else want)


# Of LINES, in their order: the words, and the positions of their pieces.
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
def test_a_word_is_its_first_piece_or_the_mean_of_all(word, write, one_by_one):
    arrays = np.load(write(".npz", level="word", word=word, layers="all"))
    assert arrays["hidden_states"].shape == (5, len(LINES), 30, HIDDEN)
    assert arrays["word_spans"].dtype == arrays["word_characters"].dtype == np.int32
    for i, ((words, places), (_, hidden, _)) in enumerate(zip(WORDS, one_by_one, strict=True)):
        want = [hidden[:, p].mean(axis=1) if word == "mean" else hidden[:, p[0]] for p in places]
        for j, vector in enumerate(want):
            close(arrays["hidden_states"][:, i, j], vector)
        assert not arrays["hidden_states"][:, i, len(places) :].any()
        spans = [[p[0], p[-1] + 1] for p in places]
        assert arrays["word_spans"][i, : len(places)].tolist() == spans
        assert not arrays["word_spans"][i, len(places) :].any()
        characters = arrays["word_characters"][i, : len(places)].tolist()
        assert [(TEXTS[i][which] or "")[start:stop] for which, start, stop in characters] == words


@pytest.mark.parametrize("choice", [{"layers": "all"}, {"level": "word"}, {"level": "sentence"}])
def test_json_lines_and_safetensors_hold_the_same_numbers(choice, write):
    numpy_file = np.load(write(".npz", **choice))
    arrays = {name: numpy_file[name] for name in numpy_file}
    rows = [json.loads(line) for line in write(".jsonl", **choice).read_text().splitlines()]
    for i, row in enumerate(rows):
        for name, array in arrays.items():
            array = np.moveaxis(array, 1, 0)[i] if name == "hidden_states" else array[i]
            value = np.array(row[name], array.dtype)
            if value.size:
                np.testing.assert_array_equal(array[tuple(map(slice, value.shape))], value)
    if choice.get("level") == "word":
        assert [row["words"] for row in rows] == [words for words, _ in WORDS]
    if choice.get("layers"):
        assert rows[0]["tokens"] == "[CLS] the list is re ##turn ##ed . [SEP]".split()

    safetensors = pytest.importorskip("safetensors.numpy")
    same = safetensors.load_file(write(".safetensors", **choice))
    assert same.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(same[name], array)
        assert same[name].dtype == array.dtype


def test_many_texts_in_order_and_the_reported_speed(model, tmp_path):
    extractor, reported = FeatureExtractor(model, Choice(level="sentence")), Lines()
    lines = ["the " * (1 + n % 38) for n in range(300)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    extract(extractor, str(tmp_path / "in.txt"), str(tmp_path / "out.npz"), reported)
    assert reported.last == (300, 300)
    assert "300 texts of" in reported.lines[-1] and "texts/s" in reported.lines[-1]
    before = (tmp_path / "out.npz").read_bytes()
    extract(extractor, str(tmp_path / "in.txt"), str(tmp_path / "out.npz"))
    assert (tmp_path / "out.npz").read_bytes() == before  # equal features are equal bytes
    embeddings = np.load(tmp_path / "out.npz")["embeddings"]
    for n in range(300):
        close(embeddings[n], embeddings[n % 38])
    assert not np.allclose(embeddings[0], embeddings[1], atol=1e-3)


def test_a_model_without_a_pooler_has_no_pooled_output(make_workdir, tmp_path):
    workdir = make_workdir(model__next_sentence=False)
    (tmp_path / "in.txt").write_text("the list\n")
    extractor = FeatureExtractor(open_model(workdir), Choice())
    extract(extractor, str(tmp_path / "in.txt"), str(tmp_path / "out.npz"))
    assert set(np.load(tmp_path / "out.npz")) == {"input_ids", "attention_mask", "hidden_states"}


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "choice, message",
    [
        ({"layers": "lost"}, "--layers=lost must be one of last, second_to_last, concat_last_4"),
        ({"level": "line"}, "--level=line must be one of subword, word, sentence"),
        ({"word": "last"}, "--word=last must be one of first, mean"),
        ({"pooling": "min"}, "--pooling=min must be one of cls, mean, max"),
        ({"layers": "weighted_sum"}, "--weights go together"),
        ({"weights": (1.0,)}, "--weights go together"),
        ({"layers": "weighted_sum", "weights": (float("nan"),)}, "not all finite"),
        ({"layers": "all", "level": "sentence"}, "no single vector for a sentence"),
    ],
)
def test_an_invalid_choice_is_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        Choice(**choice)


def test_layers_that_the_model_lacks_are_refused():
    with pytest.raises(ValueError, match="concat_last_4 needs 4 layers, and the model has 2"):
        check_layers(Choice(layers="concat_last_4"), tiny.make_model(num_layers=2))
    weights = Choice(layers="weighted_sum", weights=(1.0,) * 4)
    check_layers(weights, tiny.make_model(num_layers=3))
    with pytest.raises(ValueError, match="4 numbers, and the model only 2 layers and the emb"):
        check_layers(weights, tiny.make_model(num_layers=2))


@pytest.mark.parametrize("ending", [".npz", ".jsonl"])
def test_no_file_is_left_after_an_error(ending, write, tmp_path, monkeypatch):
    monkeypatch.setattr(FeatureExtractor, "_scaled", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(ending)
    with pytest.raises(ValueError, match="in.txt, line 2 has 52 tokens, .* at most 40: shorten"):
        write(ending, lines=["the", "the " * 50])
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_an_empty_file_is_refused(write):
    with pytest.raises(ValueError, match="in.txt holds no text"):
        write(".npz", lines=[])


def test_a_full_disk_is_reported_before_the_work(write, monkeypatch):
    usage = files.shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ValueError, match="needs 0.0 GB on its disk .* choose fewer --layers"):
        write(".npz")


def test_the_ending_determines_the_format(monkeypatch):
    with pytest.raises(ValueError, match="the ending says the form, .npz, .safetensors or .jsonl"):
        files.check_ending("out.h5")
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="needs the package safetensors: pip install"):
        files.check_ending("out.safetensors")
    assert files.check_ending("out.npz") == ".npz"
