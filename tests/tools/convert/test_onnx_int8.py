"""Exports in int8: compared with float32 on a file, and refused if they lose too much."""

import json
import re
from collections import Counter

import numpy as np
import pytest

import bert_jax
from bert_jax.__main__ import main as run_command
from bert_jax.files.errors import UserError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

TEXTS = ["a b c", "d", "x y z a b c d e f", "g h i j k l m n o p q r s t u v w x y z", "z y x"]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.fixture
def model(make_workdir):
    return bert_jax.load(make_workdir(), dtype="float32")


def vectors_of(folder, text_ids):
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids = np.array([text_ids])
    inputs = dict(zip(names, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
    return session.run(["sentence_embedding"], inputs)[0][0]


def test_the_cosine_is_that_of_the_vectors(model, texts, tmp_path):
    model.export("onnx", tmp_path / "float32", output="vectors")
    choices = {"output": "vectors", "int8": True, "max_loss": 0.5}
    # A text alone has the scales of its own values: one text a file.
    for number, text in enumerate(TEXTS):
        texts.write_text(text)
        folder = tmp_path / str(number)
        found = model.export("onnx", folder, evaluate=texts, **choices)["int8"]
        ids = [2, *model.tokenizer.encode(text), 3]
        a, b = vectors_of(tmp_path / "float32", ids), vectors_of(folder, ids)
        np.testing.assert_allclose(a, model.encode([text])[0], atol=1e-5)
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert found["metric"] == "cosine" and found["float32"] == 1
        np.testing.assert_allclose([found["int8"], found["least"]], cosine, atol=1e-6)
        assert 0.98 < cosine < 1 - 1e-7
    graph = onnx.load(folder / "model.onnx").graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("MatMulInteger") == found["products"] == 2 * 6
    assert kinds.count("DynamicQuantizeLinear") == 2 * 4  # queries, keys and values share one
    assert json.loads((folder / "model.json").read_text())["int8"] == found


def test_products_that_suffer_are_left_out_and_the_rest_is_refused(model, texts, tmp_path):
    choices = {"output": "vectors", "int8": True, "evaluate": texts}
    plain = model.export("onnx", tmp_path / "all", max_loss=1.0, **choices)["int8"]
    assert plain["products_in_float32"] == []
    limit = 0.8 * (1 - plain["int8"])
    some = model.export("onnx", tmp_path / "some", max_loss=limit, **choices)["int8"]
    assert 1 - some["int8"] <= limit
    left_out = some["products_in_float32"]
    kernels = {x.name for x in onnx.load(tmp_path / "some" / "model.onnx").graph.initializer}
    assert 0 < len(left_out) <= 6 and {f"{name}/kernel" for name in left_out} <= kernels
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"int8 loses too much on .*with 6 of 12 products"):
        model.export("onnx", tmp_path / "none", max_loss=1e-9, **choices)
    assert sorted(tmp_path.iterdir()) == before


def test_a_head_is_scored_as_by_our_predictor(make_workdir, tmp_path):
    """With a CRF, whose tags are decoded from the logits."""
    shapes = {"transitions": (3, 3), "start_transitions": (3,), "end_transitions": (3,)}
    shapes |= {"classifier__kernel": (16, 3), "classifier__bias": (3,)}
    fields = {"model__num_layers": 1, "model__next_sentence": False, "task__head": "crf"}
    workdir = make_workdir(task="tagging", heads=shapes, **fields)
    (workdir / "labels.json").write_text(json.dumps(["O", "B-X", "I-X"]))
    rng, tags = np.random.default_rng(0), {"a": "B-X", "b": "I-X"}
    letters = [[*map(str, rng.choice([*"abcdefgh"], 6))] for _ in range(40)]
    rows = ["".join(f"{w} {tags.get(w, 'O')}\n" for w in words) for words in letters]
    (path := tmp_path / "dev.conll").write_text("\n".join(rows))
    model = bert_jax.load(workdir, dtype="float32")
    found = model.export("onnx", tmp_path / "out", int8=True, evaluate=path, max_loss=1.0)["int8"]
    of_model = model.task
    examples = list(of_model.read(str(path), Counter(), labelled=True))
    score = of_model.score(examples, model.predict(examples))
    assert found["metric"] == next(iter(score)) == of_model.metrics[0]
    assert found["float32"] == pytest.approx(score[found["metric"]])
    assert 0 <= found["int8"] <= 1 and "least" not in found


def test_the_command_prints_the_comparison(make_workdir, texts, tmp_path, capsys):
    arguments = ["convert", "to_onnx", str(make_workdir(model__num_layers=1))]
    with pytest.raises(UserError, match="int8 and evaluate=FILE go together"):
        run_command([*arguments, str(tmp_path / "out"), "--int8"])
    flags = ["--int8", f"--evaluate={texts}", "--max_loss=0.1", "--output=task"]
    run_command([*arguments, str(tmp_path / "out"), *flags])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "outputs     logits[batch, seq, 64], next_sentence_logits[batch, 2]"
    assert re.fullmatch(r"int8        cosine [01]\.\d{4}, the least [01]\.\d{4}", lines[2])
    assert lines[3] == f"float32     cosine 1.0000, on {texts}"
