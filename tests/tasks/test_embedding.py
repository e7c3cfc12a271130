"""Embeddings: losses against plain loops, cached gradients, scores, and messages."""

import dataclasses
import functools
import math
from collections import Counter

import jax
import numpy as np
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.labelled.encode_texts import encode_separately
from bert_jax.data.labelled.examples import TextExample
from bert_jax.devices import sharding
from bert_jax.scores import retrieval
from bert_jax.tasks.auxiliary import add_losses
from bert_jax.tasks.embedding import Embedding
from bert_jax.tasks.embedding.losses import embedding_loss
from bert_jax.tasks.losses import Sum
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.training.gradient import compute_gradient
from bert_jax.training.state import TrainState, init_params
from tests.tiny import SPECIAL, make_batch, make_mesh, make_model

ROWS, TEXTS, FEATURES, TEMPERATURE = 8, 3, 6, 0.1
# Rows 0 and 1 have the same positive, 2 and 3 the same anchor; the anchor of 4 is the positive of
# 5, and the negative of 6 is its positive. Row 7 is padding.
TEXT_IDS = np.array(
    [
        *([1, 2, 3], [4, 2, 5], [6, 7, 8], [6, 9, 10]),
        *([11, 12, 13], [14, 9, 15], [16, 17, 17], [0, 0, 0]),
    ],
    np.int32,
)


@pytest.fixture
def vectors_and_batch():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((ROWS, TEXTS, FEATURES)).astype(np.float32)
    vectors[7] = 0
    scores = np.array([0.1, 0.9, 0.5, 0.5, -0.3, 1, 0, 0], np.float32)
    weights = np.array([1] * 7 + [0], np.float32)
    return vectors, {"text_ids": TEXT_IDS, "scores": scores, "weights": weights}


def cosine(a, b):
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def contrast(query, own, rivals):
    """-log of the softmax of one candidate."""
    values = [cosine(query, own), *(cosine(query, rival) for rival in rivals)]
    exp = [math.exp(value / TEMPERATURE) for value in values]
    return -math.log(exp[0] / sum(exp)), values[0] == max(values)


def by_loops(kind, vectors):
    losses, hits, rows = [], [], range(7)
    ids = TEXT_IDS.tolist()
    for i in rows:
        anchor, positive, _ = ids[i]
        good = {anchor, *(ids[j][1] for j in rows if ids[j][0] == anchor)}
        rivals = [vectors[j, place] for place in (1, 2) for j in rows if ids[j][place] not in good]
        loss, hit = contrast(vectors[i, 0], vectors[i, 1], rivals)
        if kind == "in_batch_symmetric":
            same = {positive, *(ids[j][0] for j in rows if ids[j][1] == positive)}
            others = [vectors[j, 0] for j in rows if ids[j][0] not in same]
            loss = (loss + contrast(vectors[i, 1], vectors[i, 0], others)[0]) / 2
        losses.append(loss)
        hits.append(hit)
    return losses, hits


@pytest.mark.parametrize("kind", ["in_batch", "in_batch_symmetric"])
def test_losses_of_pairs_are_those_of_plain_loops(vectors_and_batch, kind):
    """Of texts that occur twice, and padding; tests/parity has the losses of scored pairs."""
    vectors, batch = vectors_and_batch
    sums = embedding_loss("task", kind, vectors, batch, TEMPERATURE)
    losses, hits = by_loops(kind, vectors)
    np.testing.assert_allclose(sums["task_loss"].numerator, sum(losses), rtol=1e-5)
    assert sums["task_loss"].denominator == sums["task_accuracy"].denominator == 7
    assert sums["task_accuracy"].numerator == sum(hits)


def test_the_gradient_of_padding_is_zero(vectors_and_batch):
    vectors, batch = vectors_and_batch

    def loss(vectors):
        return embedding_loss("x", "cosent", vectors, batch, TEMPERATURE)["x_loss"].numerator

    gradient = np.asarray(jax.grad(loss)(vectors))
    assert np.isfinite(gradient).all() and not gradient[7].any() and gradient[:7, :2].all()


# ------------------------------------------------------------------ cached gradients


def make_task(kind, **head) -> Embedding:
    head |= {"loss": kind, "temperature": TEMPERATURE}
    return Embedding(model=make_model(num_layers=1), **head)


def make_texts():
    """A batch of rows of three texts each."""
    batch = make_batch(ROWS * TEXTS)
    names = ("input_ids", "token_type_ids", "position_ids", "example_ids", "cls_positions")
    batch = {name: batch[name].reshape(ROWS, TEXTS, -1) for name in names}
    return batch | {
        "text_ids": TEXT_IDS,
        "scores": np.linspace(-1, 1, ROWS, dtype=np.float32),
        "weights": np.array([1] * 7 + [0], np.float32),
    }


def lengths(outputs, batch):
    """A user's loss, a sum over rows."""
    squares = (outputs.vectors**2).sum((1, 2))
    return Sum((squares * batch["weights"]).sum(), batch["weights"].sum())


def test_cached_gradients_are_those_of_the_whole_batch():
    """On a mesh: every example sees those of all microbatches and devices."""
    task = make_task("in_batch_symmetric", matryoshka=(2, 5))
    task = add_losses(task, {"lengths": lengths})
    params, keys = init_params(task, jax.random.key(0)), dict.fromkeys(("dropout", "masking"))
    keys = {name: jax.random.key(number) for number, name in enumerate(keys)}
    zero, model = np.int32(0), task.make_model()
    batch = make_texts()
    dropout = jax.random.fold_in(keys["dropout"], 0)

    def loss(params):
        rngs = {"dropout": dropout}
        outputs = model.apply({"params": params}, batch, deterministic=False, rngs=rngs)
        sums = task.all_losses(outputs, batch)
        names = ("task_loss", "task_2_loss", "task_5_loss", "lengths")
        return sum(sums[name].numerator / sums[name].denominator for name in names), sums

    (_, sums), at_once = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    mesh = make_mesh(2, 2)
    on_devices = sharding.shard_batch(mesh, batch, ROWS, 0)
    state = TrainState(zero, params, (), zero, ())
    compute = functools.partial(compute_gradient, keys=keys, task=task, num_microbatches=2)
    grads, found, carry = jax.jit(sharding.on_mesh(mesh, compute))(state, on_devices)
    assert carry == () and found.keys() == sums.keys()
    for name, item in sums.items():
        np.testing.assert_allclose(found[name].numerator, item.numerator, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, at_once
    )


def test_a_prefix_is_a_vector_of_its_own(vectors_and_batch):
    vectors, batch = vectors_and_batch
    task = make_task("in_batch", matryoshka=(2, 4))
    sums = task.losses(dataclasses.make_dataclass("Outputs", ["vectors"])(vectors), batch)
    assert [name for name in sums if name.endswith("loss")] == [
        *("task_loss", "task_2_loss", "task_4_loss")
    ]
    alone = embedding_loss("x", "in_batch", vectors[..., :4].copy(), batch, TEMPERATURE)
    np.testing.assert_array_equal(sums["task_4_loss"].numerator, alone["x_loss"].numerator)


# ------------------------------------------------------------------ the task


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "the", "list", "is"]) + "\n")
    return load_tokenizer(str(tmp_path / "vocab.txt"), True)


def make_data(kind="pairs", **values) -> Embedding:
    values = {name.replace("__", "."): value for name, value in values.items()}
    return default_config("embedding", kind).replace(values).task


def pairs(*texts, scores=None):
    return [
        TextExample(f"f.tsv, line {i + 2}", str(i), *pair, (scores[i],) if scores else None)
        for i, pair in enumerate(texts)
    ]


@dataclasses.dataclass
class Rows:
    """What an evaluation reads of labelled rows."""

    examples: list
    name: str = "eval"
    rows: None = None


def test_pairs_are_scored_by_ranks_also_those_of_prefixes_and_scores_by_correlation():
    examples = pairs(("a", "b"), ("c", "d"), ("e", "f"))
    vectors = np.random.default_rng(0).standard_normal((3, 2, 8)).astype(np.float32)
    data = make_data(task__matryoshka=(2,))
    answers = [{"vectors": row} for row in vectors]
    values, predictions = data.evaluate(Rows(examples), answers, {"loss": 1.5})
    for size, suffix in ((8, ""), (2, "_dim_2")):
        part = vectors[..., :size]
        ranks = retrieval.rank_pairs(list("ace"), list("bdf"), part[:, 0], part[:, 1])
        for name in data.metrics:
            assert values[name + suffix] == retrieval.METRICS[name](ranks)
    assert values["loss"] == 1.5 and len(values) == 9
    assert predictions[1]["similarity"] == pytest.approx(cosine(*vectors[1]), rel=1e-5)
    ranks = retrieval.rank_pairs(list("ace"), list("bdf"), vectors[:, 0], vectors[:, 1])
    assert [found["rank"] for found in predictions] == ranks.tolist()
    assert data.evaluate(Rows(examples, "more"), answers, {"loss": 2.0})[0]["more_loss"] == 2.0
    assert data.baseline(examples) is None

    examples = pairs(("a", "b"), ("c", "d"), ("e", "f"), scores=["1", "5", "2.5"])
    vectors = np.array([[[1, 0], [0, 1]], [[1, 0], [2, 0]], [[1, 0], [1, 1]]], np.float32)
    answers = [{"vectors": row} for row in vectors]
    values, _ = make_data("scored").evaluate(Rows(examples), answers, {"loss": 0.0})
    assert values["spearman"] == pytest.approx(1) and 0.9 < values["pearson"] < 1


def test_texts_are_encoded_one_by_one(tokenizer):
    examples = [
        TextExample("x", "0", "the list", "is", ("3",), "the " * 40),
        TextExample("x", "1", "is", "the list", ("0.5",), "list"),
    ]
    counts = Counter()
    rows = encode_separately(examples, tokenizer, 10, counts)
    assert counts == {"texts_truncated": 1, "tokens_cut_off": 32}
    assert rows.num_rows == 2 and rows.max_sequences == 3 and rows.lengths.tolist() == [10, 4]
    batch = rows.take(np.array([1, 0, -1]), 10)
    assert batch["text_ids"].tolist() == [[1, 0, 3], [0, 1, 2], [0, 0, 0]]
    assert batch["scores"].tolist() == [0.5, 3, 0] and batch["weights"].tolist() == [1, 1, 0]
    ids = [tokenizer.cls_id, *tokenizer.encode("the list"), tokenizer.sep_id]
    assert batch["input_ids"][0, 1, :4].tolist() == batch["input_ids"][1, 0, :4].tolist() == ids
    assert not batch["token_type_ids"].any()


@pytest.mark.parametrize(
    "kind, values, message",
    [
        ("pairs", {"task.text_b": ""}, "task.text_b is missing: the column of a text of each pair"),
        ("pairs", {"task.text_b": "1"}, "Name all columns by the header .* or all by numbers"),
        ("pairs", {"task.loss": "cosent"}, "'cosent' reads scores of pairs, and"),
        ("scored", {"task.loss": "in_batch"}, "'in_batch' reads no scores of pairs, and"),
        ("scored", {"task.negative": "x"}, "'cosent' reads no negatives: set config.task.negative"),
        ("scored", {"metrics": ("accuracy",)}, "'accuracy' is none of spearman, pearson"),
        ("pairs", {"task.layers": "sum_all"}, "config.task.layers does not exist"),
        ("pairs", {"optimizer.frozen_layers": -1}, "frozen_layers=-1 freezes the encoder"),
        ("pairs", {"task.matryoshka": (8, 4)}, "are not ascending, positive numbers of dim"),
        ("pairs", {"task.matryoshka": (8, 16)}, "must be below the 16 dimensions"),
        ("scored", {"task.loss": "cosine_mse"}, r"f\.tsv, line 2: the score 4 is not a cosine"),
        ("x", {}, "Unknown pairs 'x'. Available: pairs, scored"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, values, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        task = default_config("embedding", kind).replace(values).task
        task.bind(make_model(), tokenizer)
        task.encode(pairs(("a", "b"), scores=["4"]), tokenizer, Counter())
