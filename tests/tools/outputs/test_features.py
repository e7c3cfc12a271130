"""Files of features: their arrays in three forms, and errors that leave none behind."""

import functools
import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax.data.labelled.texts import read_texts
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.predictor import Predictor
from bert_jax.tools.outputs import files
from bert_jax.tools.outputs.features import extract
from bert_jax.tools.outputs.inputs import find_inputs
from tests.inference.conftest import Lines, open_model

LINES = [
    "The list is returned.",
    "",
    "Unaffable, naïve   the",
    json.dumps({"text_a": "the list", "text_b": "unaffable returned list, the"}),
    "the " * 30,
    "is",
]


@pytest.fixture(scope="module")
def make_extractor(workdir):
    """Returns a function of a choice -> its extractor; one compilation for each choice."""
    model = open_model(workdir, batch_tokens=128)
    return functools.cache(lambda **choice: FeatureExtractor(model, Choice(**choice)))


@pytest.fixture
def write(make_extractor, tmp_path):
    """Returns a function that writes the features of LINES and returns the path of the file."""

    def run(ending: str, lines=LINES, **choice) -> pathlib.Path:
        (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
        path = tmp_path / f"out{ending}"
        texts = find_inputs([f"{tmp_path}/in.txt"])
        assert extract(make_extractor(**choice), texts, str(path)) == len(lines)
        return path

    return run


@pytest.mark.parametrize(
    ("choice", "shape"),
    [
        ({"layers": "all"}, (5, 6, 32, 16)),
        ({"level": "word"}, (1, 6, 30, 16)),
        ({"level": "sentence"}, (6, 16)),
    ],
    ids=str,
)
def test_every_form_holds_the_features_of_each_text(choice, shape, write, make_extractor, tmp_path):
    numpy_file = np.load(write(".npz", **choice))
    arrays = {name: numpy_file[name] for name in numpy_file}
    of_rows = "embeddings" if "sentence" in choice.values() else "hidden_states"
    assert arrays[of_rows].shape == shape and arrays["pooled"].shape == (6, 16)
    extractor = make_extractor(**choice)
    texts = map(extractor.row, read_texts(str(tmp_path / "in.txt")))
    lines = [json.loads(line) for line in write(".jsonl", **choice).read_text().splitlines()]
    for i, (line, (row, features)) in enumerate(zip(lines, extractor.run(texts), strict=True)):
        assert features.keys() == arrays.keys()
        for name, part in features.items():
            array = (
                np.moveaxis(arrays[name], 1, 0)[i] if name == "hidden_states" else arrays[name][i]
            )
            here = tuple(map(slice, part.shape))
            np.testing.assert_array_equal(array[here], part)
            assert array.dtype == part.dtype and np.count_nonzero(array) == np.count_nonzero(part)
            np.testing.assert_array_equal(np.reshape(line[name], part.shape), part)
        assert {name: line[name] for name in line.keys() - features.keys()} == extractor.names(
            row, features
        )
    same = load_file(write(".safetensors", **choice))
    assert same.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(same[name], array)
        assert same[name].dtype == array.dtype


def test_many_texts_in_order_and_the_reported_speed(make_extractor, tmp_path):
    extractor, reported = make_extractor(level="sentence"), Lines()
    lines = ["the " * (1 + n % 38) for n in range(300)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    extract(extractor, find_inputs([f"{tmp_path}/in.txt"]), str(tmp_path / "out.npz"), reported)
    assert reported.last == (300, 300)
    assert "300 texts of" in reported.lines[-1] and "texts/s" in reported.lines[-1]
    before = (tmp_path / "out.npz").read_bytes()
    extract(extractor, find_inputs([f"{tmp_path}/in.txt"]), str(tmp_path / "out.npz"))
    assert (tmp_path / "out.npz").read_bytes() == before  # equal features are equal bytes
    embeddings = np.load(tmp_path / "out.npz")["embeddings"]
    expected = embeddings[np.arange(300) % 38]
    np.testing.assert_allclose(embeddings, expected, atol=2e-5, rtol=0)
    assert not np.allclose(embeddings[0], embeddings[1], atol=1e-3)


@pytest.mark.parametrize("ending", [".npz", ".jsonl"])
def test_no_file_is_left_after_an_error(ending, write, tmp_path, monkeypatch):
    stream = Predictor.stream

    def fail_after_one(*args):
        yield next(stream(*args))
        raise ZeroDivisionError

    monkeypatch.setattr(Predictor, "stream", fail_after_one)
    with pytest.raises(ZeroDivisionError):
        write(ending)
    with pytest.raises(ValueError, match="in.txt, line 2 has 52 tokens, .* at most 40: shorten"):
        write(ending, lines=["the", "the " * 50])
    with pytest.raises(ValueError, match="in.txt holds no text"):
        write(ending, lines=[])
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_full_disk_is_reported_before_the_work(write, monkeypatch):
    usage = files.shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ValueError, match="needs 0.0 GB on its disk .* choose fewer --layers"):
        write(".npz")
