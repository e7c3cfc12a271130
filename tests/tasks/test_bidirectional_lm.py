"""ELMo's task: losses against numpy, the factor of the gradient, metrics, words, error messages."""

import functools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from bert_jax.config.phases import Phase
from bert_jax.config.task import default_config
from bert_jax.data.labelled.texts import Text
from bert_jax.devices import sharding
from bert_jax.devices.trees import flatten
from bert_jax.models.elmo import ElmoConfig
from bert_jax.models.heads import WordScores
from bert_jax.tasks.bidirectional_lm import METRICS, BidirectionalLM
from bert_jax.tasks.bidirectional_lm.model import BidirectionalOutputs
from bert_jax.tasks.bidirectional_lm.sampled_softmax import Sample, sampled_cross_entropy
from bert_jax.tasks.task import add_answers, in_order
from bert_jax.text.word_tokenizer import WordTokenizer, make_word_vocabulary
from bert_jax.training.state import abstract_state
from tests.tiny import PRNG_IMPL, make_model

WORDS = "the cat sat on a mat".split()
TOKENIZER = WordTokenizer(make_word_vocabulary(WORDS), lowercase=False)
UNKNOWN = TOKENIZER.unk_id
ROWS, LENGTH, WIDTH, SIZE = 2, 4, 3, 9  # 9: the words and three markers
PHASE = Phase(LENGTH, ROWS, 0, 1.0, 0, 1)
MODEL = ElmoConfig(
    vocab_size=SIZE,
    pad_vocab_to_multiple_of=4,
    hidden_size=8,
    num_layers=2,
    max_position_embeddings=32,
    dropout_rate=0.1,
    initializer_range=0.02,
    tokens="embeddings",
    cell_size=6,
    prng_impl=PRNG_IMPL,
)


def make_task(**changes) -> BidirectionalLM:
    return BidirectionalLM(model=MODEL, **{"num_words": SIZE, "unk_id": UNKNOWN} | changes)


def make_outputs(samples: tuple[Sample, ...] = ()) -> BidirectionalOutputs:
    rng = np.random.default_rng(0)
    table, bias = rng.normal(size=(SIZE, WIDTH)), rng.normal(size=SIZE)
    features = rng.normal(size=(2, ROWS, LENGTH, WIDTH))
    as_float = functools.partial(jnp.asarray, dtype=jnp.float32)
    forward, backward = (
        WordScores(as_float(of_direction), as_float(table), as_float(bias))
        for of_direction in features
    )
    return BidirectionalOutputs(forward, backward, samples, carry=())


def make_batch(seed: int = 0, padded: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    names = ("input_ids", "next_ids", "reverse_ids", "previous_ids")
    batch = {name: rng.integers(0, SIZE, (ROWS, LENGTH)).astype(np.int32) for name in names}
    weights = np.ones((ROWS, LENGTH), np.float32)
    if padded:
        weights[1, 2:] = 0
    return batch | {"target_weights": weights, "example_ids": weights.astype(np.int32)}


def losses_by_hand(scores: WordScores, labels: np.ndarray) -> np.ndarray:
    """float64[batch, seq], position by position."""
    losses = np.empty(labels.shape)
    for place in np.ndindex(*labels.shape):
        logits = np.float64(scores.table) @ np.float64(scores.features[place]) + scores.bias
        losses[place] = np.log(np.exp(logits).sum()) - logits[labels[place]]
    return losses


def test_the_loss_is_the_mean_of_both_directions():
    outputs, batch = make_outputs(), make_batch()
    sums = make_task().losses(outputs, batch)
    weights = batch["target_weights"]
    forward = (losses_by_hand(outputs.forward, batch["next_ids"]) * weights).sum() / 6
    backward = (losses_by_hand(outputs.backward, batch["previous_ids"]) * weights).sum() / 6
    means = {name: float(x.numerator / x.denominator) for name, x in sums.items()}
    accuracy = means.pop("bidirectional_lm_accuracy")
    assert means == {
        "bidirectional_lm_loss": pytest.approx((forward + backward) / 2, rel=1e-5),
        "forward_loss": pytest.approx(forward, rel=1e-5),
        "backward_loss": pytest.approx(backward, rel=1e-5),
    }
    hits = 0
    for scores, name in (outputs.forward, "next_ids"), (outputs.backward, "previous_ids"):
        best = np.argmax(scores.logits(), axis=-1)
        hits += ((best == batch[name]) * weights).sum()
    assert accuracy == pytest.approx(hits / 12)


def test_words_that_are_not_predicted_are_the_unknown_word():
    outputs, batch = make_outputs(), make_batch()
    task = make_task(num_words=5)
    for name in ("next_ids", "previous_ids"):
        assert (batch[name] >= 5).any()
    known = batch | {
        name: np.where(batch[name] < 5, batch[name], UNKNOWN)
        for name in ("next_ids", "previous_ids")
    }
    found, expected = (task.losses(outputs, x)["bidirectional_lm_loss"] for x in (batch, known))
    assert float(found.numerator) == float(expected.numerator)
    other = make_task(sum_over_time=False).losses(outputs, batch)["bidirectional_lm_loss"]
    assert float(found.numerator) != pytest.approx(float(other.numerator))
    # The gradient is that of the loss times the length of a row.
    assert (found.gradient_scale, other.gradient_scale) == (LENGTH, 1.0)
    assert float(found.denominator) == float(other.denominator) == 2 * 6


def test_each_direction_has_its_own_sample():
    samples = tuple(Sample(jnp.array(ids), jnp.array(7)) for ids in ([1, 4, 8], [0, 2, 5]))
    outputs, batch = make_outputs(samples), make_batch()
    sums = make_task().losses(outputs, batch)
    assert "bidirectional_lm_accuracy" not in sums
    for number, (name, labels) in enumerate(
        {"forward": "next_ids", "backward": "previous_ids"}.items()
    ):
        scores = getattr(outputs, name)
        losses = sampled_cross_entropy(
            scores.features, batch[labels], scores.table, scores.bias, samples[number], SIZE
        )
        expected = float((losses * batch["target_weights"]).sum())
        assert float(sums[f"{name}_loss"].numerator) == pytest.approx(expected, rel=1e-5)


# ------------------------------------------------------------------ the model


@functools.cache
def make_params():
    model = make_task().make_model()
    init = jax.jit(functools.partial(model.init, deterministic=True))
    return init(jax.random.key(0), make_task().example_batch())["params"]


def test_words_are_sampled_while_training_only_and_by_the_key():
    task = make_task(num_samples=4)
    model, batch = task.make_model(), make_batch()

    def samples(key, deterministic=False):
        apply = functools.partial(model.apply, deterministic=deterministic)
        return jax.jit(apply)({"params": make_params()}, batch, rngs={"dropout": key}).samples

    first, again, other = (samples(jax.random.key(seed)) for seed in (0, 0, 1))
    assert samples(jax.random.key(0), deterministic=True) == ()
    assert len(first) == 2
    ids = [x.ids.tolist() for x in first]
    assert ids == [x.ids.tolist() for x in again] != [x.ids.tolist() for x in other]
    assert ids[0] != ids[1]
    assert all(len(set(x)) == 4 and max(x) < SIZE for x in ids)


# ------------------------------------------------------------------ the task


def make_data(**changes) -> BidirectionalLM:
    changes = {"task.softmax": "full"} | changes
    config = default_config("bidirectional_lm").replace({"model.vocab_size": SIZE, **changes})
    return config.task


def test_metrics_follow_from_the_losses():
    means = {"bidirectional_lm_loss": 3.0, "forward_loss": 2.5, "backward_loss": 3.5}
    means |= {"loss": 3.0, "bidirectional_lm_accuracy": 0.25}
    text = {"words": 80, "characters": 400, "predicted_tokens": 100}
    values, _ = make_data().evaluate(cast(Any, SimpleNamespace(text_counts=text)), [], means)
    assert list(values) == ["loss", *METRICS]
    assert values["forward_perplexity"] == pytest.approx(math.exp(2.5))
    assert values["backward_perplexity"] == pytest.approx(math.exp(3.5))
    assert values["perplexity"] == pytest.approx(math.exp(3.0))
    assert values["word_perplexity"] == pytest.approx(math.exp(3.0 * 100 / 80))
    assert values["bits_per_character"] == pytest.approx(3.0 * 100 / 400 / math.log(2))
    diverged = means | {"forward_loss": 1e9}
    values, _ = make_data().evaluate(cast(Any, SimpleNamespace(text_counts=text)), [], diverged)
    assert math.isfinite(values["forward_perplexity"])


def test_probabilities_of_texts_are_those_of_each_text_alone():
    """Texts of different lengths are padded and batched; each is computed here without padding."""
    texts = ["the cat sat", "", "a dog mat"]
    data, tokenizer = make_data(), TOKENIZER
    task = data.bind(MODEL, tokenizer)
    params = {"params": make_params()}
    apply = jax.jit(functools.partial(task.make_model().apply, deterministic=True))
    examples = [Text(text) for text in texts]
    rows = data.encode(examples, tokenizer, Counter())
    answers = {}
    numbers = np.array([0, 1, 2, -1])
    fields = rows.take(numbers, 8)
    add_answers(answers, numbers, task.answers(apply(params, fields), fields))
    predictions = data.collect(examples, rows, in_order(answers))
    table, bias = (np.float64(make_params()["softmax"][name]) for name in ("kernel", "bias"))
    for text, found in zip(texts, predictions, strict=True):
        ids = tokenizer.encode(text)
        forward, backward = [0, *ids, 1], [1, *ids[::-1], 0]
        batch = {
            "input_ids": np.array([forward[:-1]], np.int32),
            "reverse_ids": np.array([backward[:-1]], np.int32),
            "example_ids": np.ones((1, len(ids) + 1), np.int32),
        }
        outputs = apply(params, batch)
        expected, of_words = [], []
        for scores, sequence in (outputs.forward, forward), (outputs.backward, backward):
            logits = (np.float64(scores.features[0]) @ table.T + bias)[:, :SIZE]
            log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            values = [x[i] for x, i in zip(log_probabilities, sequence[1:], strict=True)]
            expected.append(sum(values))
            of_words.append(np.array(values[:-1]))
        padded = np.zeros((2, 1, len(ids) + 5), np.int32)
        padded[:, 0, : len(ids) + 2] = [0, *ids, 1], [1] * (len(ids) + 2)
        batch = dict(zip(("input_ids", "example_ids"), padded, strict=True))
        both = task.log_probabilities(params["params"], batch)[0, : len(ids)]
        np.testing.assert_allclose(both, (of_words[0] + of_words[1][::-1]) / 2, atol=1e-4)
        assert found["tokens"] == len(ids)
        assert found["forward_log_probability"] == pytest.approx(expected[0], abs=1e-4)
        assert found["backward_log_probability"] == pytest.approx(expected[1], abs=1e-4)
        mean = -sum(expected) / (2 * len(ids) + 2)
        assert found["perplexity"] == pytest.approx(math.exp(mean), rel=1e-4)


def make_rows(num_words: int, loss: float) -> SimpleNamespace:
    form = {"vocab_size": 50, "num_words": num_words}
    manifest = SimpleNamespace(
        content={"formats": {"20": form}}, folder="DATA", vocabulary_path="DATA/vocab.txt"
    )
    return SimpleNamespace(
        manifest=manifest, sequence_length=20, statistics={"log_uniform_loss": loss}
    )


def test_the_softmax_and_the_states_are_split_over_the_mesh():
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
    task, tx = make_task(), optax.sgd(0.1)
    state = abstract_state(task, tx, mesh, batch_size=8)
    specs = {name: leaf.sharding.spec for name, leaf in flatten(state.params["softmax"]).items()}
    assert specs == {"kernel": PartitionSpec("tensor", "fsdp"), "bias": PartitionSpec("tensor")}
    for leaf in jax.tree.leaves(state.carry):
        assert leaf.shape[0] == 8 and leaf.sharding.spec == PartitionSpec(("data", "fsdp"))
    assert len(jax.tree.leaves(state.carry)) == 8  # cell and output, 2 layers, 2 directions


PAIRLESS = make_model(next_sentence=False)


def sampled(num_samples):
    return make_data(**{"task.softmax": "sampled", "task.num_samples": num_samples})


def refused(**changes):
    return lambda: make_data(**{name.replace("__", "."): x for name, x in changes.items()})


@pytest.mark.parametrize(
    "call, message",
    [
        (refused(metrics=("f1",)), "'f1' is none of "),
        (refused(data__segments="pairs"), "'bidirectional_lm' needs config.data.segments='stream'"),
        (
            lambda: default_config("pretraining").replace(
                {"data.segments": "stream", "model.next_sentence": False}
            ),
            "'pretraining' cannot read config.data.segments='stream'",
        ),
        (
            lambda: default_config("bidirectional_lm").replace({}, model=PAIRLESS),
            "a state in both directions, such as .*, not 'bert'",
        ),
        (lambda: make_data().check_rows(make_rows(8, 1.0)), "prepared to predict 8 words, not 9"),
        (lambda: sampled(3).check_rows(make_rows(SIZE, 2.3)), "are not sorted by frequency"),
        (
            lambda: sampled(SIZE).bind(MODEL, TOKENIZER, PHASE),
            f"num_samples={SIZE} must be below the number of words, {SIZE}: lower it, or set",
        ),
        (
            lambda: make_data().check_example(Text("a", "b", "x, line 3"), TOKENIZER, MODEL),
            "line 3 is a pair, and",
        ),
        (lambda: make_data().check_trained(["softmax/kernel"], "DIR"), "DIR were imported without"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    sampled(3).check_rows(make_rows(SIZE, 2.1))  # log(9) is above
    assert sampled(SIZE - 1).bind(MODEL, TOKENIZER, PHASE).num_sampled == SIZE - 1
    assert make_data().bind(MODEL, TOKENIZER, PHASE).num_sampled == 0
