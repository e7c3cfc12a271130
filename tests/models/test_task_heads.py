"""The heads against transformers' classes on torch, and against their definitions in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.devices import sharding
from bert_jax.devices.trees import flatten
from bert_jax.formats import bert_names
from bert_jax.formats.weight_table import export_params
from bert_jax.models import Bert, crf
from bert_jax.models.task_heads import (
    IMPOSSIBLE,
    LAYERS,
    BertForClassification,
    BertForMultipleChoice,
    BertForSpan,
    BertForTagging,
)
from bert_jax.tasks import objectives
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.multiple_choice import MultipleChoice
from bert_jax.tasks.span import SpanTask
from bert_jax.tasks.tagging import Tagging
from bert_jax.training.state import init_params

NUM_CLASSES, SEQ = 3, 24


@pytest.fixture
def random_like():
    """Returns the function from a task to random parameters, far from their start."""

    def make(task, seed=0):
        shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
        rng = np.random.default_rng(seed)

        def draw(path, leaf):
            centre = 1.0 if path[-1].key == "scale" else 0.0
            return (centre + 0.2 * rng.standard_normal(leaf.shape)).astype(np.float32)

        return jax.tree_util.tree_map_with_path(draw, shapes)

    return make


def apply(model, params, batch, **options):
    return model.apply({"params": params}, batch, deterministic=True, **options)


def mean_loss(sums):
    return sums["task_loss"].numerator / sums["task_loss"].denominator


# ------------------------------------------------------------------ transformers


@pytest.fixture
def theirs():
    """Returns a function (class, our config, our params, **settings) -> their model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(name, config, params, **settings):
        their_config = transformers.BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_position_embeddings,
            layer_norm_eps=config.layer_norm_epsilon,
            hidden_act="gelu",
            attn_implementation="eager",
            **settings,
        )
        model = getattr(transformers, name)(their_config).eval()
        arrays = export_params(flatten(params), bert_names.HUGGINGFACE, "huggingface")
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        model.load_state_dict(tensors)  # strict: every weight of theirs is one of ours
        return model

    return make


def ask(model, batch, **labels):
    """(their outputs, the loss) for a batch of ours, padding masked."""
    torch = pytest.importorskip("torch")
    names = {"input_ids": "input_ids", "token_type_ids": "token_type_ids"}
    names["example_ids"] = "attention_mask"
    asked = {new: torch.tensor(batch[old]).long() for old, new in names.items()}
    asked |= {name: torch.tensor(array) for name, array in labels.items()}
    with torch.no_grad():
        outputs = model(**asked)
    return outputs, float(outputs.loss)


def assert_close(mine, other):
    np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "kind, theirs_calls_it",
    [
        ("single", "single_label_classification"),
        ("multi", "multi_label_classification"),
        ("regression", "regression"),
    ],
)
def test_classification_is_that_of_transformers(
    make_config, make_batch, random_like, theirs, kind, theirs_calls_it
):
    config, classes = make_config(), 1 if kind == "regression" else NUM_CLASSES
    task, batch = Classification(config, kind, classes), make_batch(config)
    rng = np.random.default_rng(1)
    labels = {
        "single": rng.integers(0, classes, 3),
        "multi": rng.integers(0, 2, (3, classes)).astype(np.float32),
        "regression": rng.normal(size=3).astype(np.float32),
    }[kind]
    params = random_like(task)
    model = theirs(
        "BertForSequenceClassification",
        config,
        params,
        num_labels=classes,
        problem_type=theirs_calls_it,
    )
    outputs, loss = ask(model, batch, labels=labels)
    logits = apply(task.make_model(), params, batch)
    assert_close(logits, outputs.logits)
    batch |= {"labels": labels, "weights": np.ones(3, np.float32)}
    assert_close(mean_loss(task.objective(logits, batch)), loss)


def word_arrays(batch, rng):
    """A word at every other token: their places, tags and labels at all tokens (-100: none)."""
    lengths = batch["example_ids"].sum(1)
    place = 1 + 2 * np.arange(10)
    is_word = place < lengths[:, None] - 1
    tags = np.where(is_word, rng.integers(0, NUM_CLASSES, is_word.shape), 0)
    at_tokens = np.full(batch["input_ids"].shape, -100)
    for row in range(len(lengths)):
        at_tokens[row, place[is_word[row]]] = tags[row, is_word[row]]
    return {
        "word_positions": np.where(is_word, place, 0).astype(np.int32),
        "is_word": is_word,
        "labels": tags.astype(np.int32),
        "weights": is_word.astype(np.float32),
    }, at_tokens


def make_tagging(config, head="linear", layers="last", frozen=False):
    return Tagging(config, NUM_CLASSES, head, layers, frozen, lstm_size=8, lstm_layers=2)


@pytest.fixture
def tagged_batch(make_config, make_batch):
    config = make_config()
    batch = make_batch(config, seq=SEQ)
    words, _ = word_arrays(batch, np.random.default_rng(1))
    return batch | words


def test_tagging_is_that_of_transformers_at_the_first_pieces(
    make_config, make_batch, random_like, theirs
):
    config = make_config()
    task, batch = make_tagging(config), make_batch(config)
    words, labels = word_arrays(batch, np.random.default_rng(1))
    params = random_like(task)
    model = theirs("BertForTokenClassification", config, params, num_labels=NUM_CLASSES)
    outputs, loss = ask(model, batch, labels=labels)
    batch |= words
    found = apply(task.make_model(), params, batch)
    at = batch["word_positions"][:, :, None]
    at_words = np.take_along_axis(outputs.logits.numpy(), at, 1)
    assert_close(found.logits[words["is_word"]], at_words[words["is_word"]])
    assert_close(mean_loss(task.objective(found, batch)), loss)


def test_spans_are_those_of_transformers(make_config, make_batch, random_like, theirs):
    config = make_config()
    task, batch = SpanTask(config), make_batch(config, seq=SEQ)
    starts, ends = np.array([3, 0, 5]), np.array([7, 0, 5])
    params = random_like(task)
    model = theirs("BertForQuestionAnswering", config, params)
    # They let padding be the answer: rows of full length are equal, and of padding ours is not.
    full = {name: array[:1] for name, array in batch.items()}
    outputs, loss = ask(model, full, start_positions=starts[:1], end_positions=ends[:1])
    found = apply(task.make_model(), params, full)
    assert_close(found.start_logits, outputs.start_logits)
    assert_close(found.end_logits, outputs.end_logits)
    gold = {"start_positions": starts[:1], "end_positions": ends[:1], "weights": np.ones(1)}
    assert_close(mean_loss(task.objective(found, gold)), loss)
    outputs, _ = ask(model, batch, start_positions=starts, end_positions=ends)
    found, is_text = apply(task.make_model(), params, batch), batch["example_ids"] > 0
    assert_close(found.start_logits[is_text], outputs.start_logits.numpy()[is_text])
    assert (found.start_logits[~is_text] == IMPOSSIBLE).all()
    assert (found.end_logits[~is_text] == IMPOSSIBLE).all()


def test_multiple_choice_is_that_of_transformers(make_config, make_batch, random_like, theirs):
    config = make_config()
    task, flat = MultipleChoice(config), make_batch(config, batch=6)
    batch = {name: array.reshape(2, 3, -1) for name, array in flat.items()}
    labels, params = np.array([2, 0]), random_like(task)
    model = theirs("BertForMultipleChoice", config, params)
    outputs, loss = ask(model, batch, labels=labels)
    logits = apply(task.make_model(), params, batch)
    assert_close(logits, outputs.logits)
    gold = {"labels": labels, "weights": np.ones(2, np.float32)}
    assert_close(mean_loss(task.objective(logits, gold)), loss)


# ------------------------------------------------------------------ what is not there


def garbage(batch, rng):
    """The batch with other ids at padding and other words where there is none."""
    is_text = batch["example_ids"] > 0
    changed = dict(batch)
    for name, most in ("input_ids", 97), ("token_type_ids", 2), ("position_ids", 40):
        changed[name] = np.where(is_text, batch[name], rng.integers(0, most, is_text.shape))
    if "is_word" in batch:
        is_word = batch["is_word"]
        for name, most in ("word_positions", SEQ), ("labels", NUM_CLASSES):
            changed[name] = np.where(is_word, batch[name], rng.integers(0, most, is_word.shape))
    return {name: np.asarray(array, batch[name].dtype) for name, array in changed.items()}


def pad(batch, by):
    """The batch with longer rows; the shapes of what is of rows stay."""
    return {
        name: np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, by)])
        if array.shape[-1] == SEQ or name in ("word_positions", "is_word", "labels", "weights")
        else array
        for name, array in batch.items()
    }


@pytest.mark.parametrize("head", ["linear", "bilstm_crf"])
def test_padding_does_not_leak_into_tags(make_config, tagged_batch, random_like, head):
    """In the BiLSTM neither from the front nor from behind, and into no loss and no gradient."""
    task, batch = make_tagging(make_config(num_layers=1), head), tagged_batch
    params, is_word = random_like(task), batch["is_word"]

    def loss_of(params, batch):
        outputs = apply(task.make_model(), params, batch)
        return mean_loss(task.objective(outputs, batch)), task.answers(outputs, batch)

    run = jax.jit(jax.value_and_grad(loss_of, has_aux=True))
    (loss, answers), grads = run(params, batch)
    (other_loss, other), other_grads = run(params, garbage(batch, np.random.default_rng(2)))
    np.testing.assert_array_equal(other_loss, loss)
    for name, values in answers.items():
        np.testing.assert_array_equal(other[name][is_word], values[is_word])
    # Gradients of embeddings: zeros are added elsewhere, and sums come in another order.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), other_grads, grads)

    (longer_loss, longer), _ = run(params, pad(batch, 8))
    np.testing.assert_allclose(longer_loss, loss, rtol=1e-6)
    tags = longer["tags"][:, : is_word.shape[1]]
    np.testing.assert_array_equal(tags[is_word], answers["tags"][is_word])


@pytest.mark.parametrize("task", [Classification, SpanTask, MultipleChoice])
def test_padding_does_not_leak_into_answers(make_config, make_batch, random_like, task):
    config = make_config(num_layers=1)
    batch = make_batch(config, seq=SEQ, batch=4)
    labels = {"weights": np.array([1, 1, 1, 0], np.float32), "labels": np.array([0, 2, 1, 0])}
    labels |= {"start_positions": np.array([3, 0, 5, 0]), "end_positions": np.array([7, 0, 5, 0])}
    task = task(config, "single", NUM_CLASSES) if task is Classification else task(config)
    longer, other = pad(batch, 8), garbage(batch, np.random.default_rng(2))
    if isinstance(task, MultipleChoice):
        labels = {"weights": np.array([1, 0], np.float32), "labels": np.array([1, 0])}
        batch, longer, other = (
            {name: array.reshape(2, 2, -1) for name, array in b.items()}
            for b in (batch, longer, other)
        )
    params = random_like(task)
    loss, same, padded = (
        mean_loss(task.objective(apply(task.make_model(), params, b), labels))
        for b in (batch, other, longer)
    )
    assert loss > 0.1 and same == loss
    np.testing.assert_allclose(padded, loss, rtol=1e-6)


def test_a_choice_that_is_all_padding_is_none(make_config, make_batch, random_like):
    config = make_config()
    task, flat = MultipleChoice(config), make_batch(config, batch=6)
    for name in "input_ids", "token_type_ids", "position_ids", "example_ids":
        flat[name][4:] = 0
    batch = {name: array.reshape(2, 3, -1) for name, array in flat.items()}
    answers = task.answers(apply(task.make_model(), random_like(task), batch), batch)
    shares = answers["probabilities"]
    np.testing.assert_array_equal(shares[1], [1, 0, 0])
    assert (shares[0] > 0).all()


# ------------------------------------------------------------------ what taggers read


def features_of(layers, states, params):
    """The definitions, from the output of the embeddings and of each layer."""
    if layers == "scalar_mix":
        mix = params["scalar_mix"]
        shares = np.exp(mix["weights"]) / np.exp(mix["weights"]).sum()
        return mix["gamma"] * sum(share * x for share, x in zip(shares, states[1:], strict=True))
    return {
        "last": lambda: states[5],
        "embeddings": lambda: states[0],
        "second_to_last": lambda: states[4],
        "sum_last_4": lambda: states[2] + states[3] + states[4] + states[5],
        "concat_last_4": lambda: np.concatenate(states[2:6], -1),
        "sum_all": lambda: states[1] + states[2] + states[3] + states[4] + states[5],
    }[layers]()


@pytest.mark.parametrize("layers", LAYERS)
def test_what_a_tagger_reads_of_five_layers(make_config, tagged_batch, random_like, layers):
    config = make_config(num_layers=5, next_sentence=False)
    task = make_tagging(config, layers=layers)
    params, batch = random_like(task), tagged_batch
    encoded = apply(Bert(config), params["bert"], batch, keep_all=True)
    at = batch["word_positions"][:, :, None]
    states = [np.take_along_axis(np.asarray(x), at, 1) for x in encoded.all_hidden]
    assert len(states) == 6
    head = params["classifier"]
    expected = features_of(layers, states, params) @ head["kernel"] + head["bias"]
    found = apply(task.make_model(), params, batch).logits
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_scalar_mix_starts_as_the_mean(make_config):
    task = make_tagging(make_config(num_layers=2), layers="scalar_mix")
    mix = jax.jit(lambda key: init_params(task, key))(jax.random.key(0))
    np.testing.assert_array_equal(mix["scalar_mix"]["weights"], np.zeros(2))
    np.testing.assert_array_equal(mix["scalar_mix"]["gamma"], 1)


def test_a_frozen_encoder_has_no_dropout_and_no_gradient(make_config, tagged_batch, random_like):
    config = make_config(dropout_rate=0.5, attention_dropout_rate=0.5)

    def run(task, params):
        @jax.jit
        def loss_of(params, key):
            outputs, states = task.make_model().apply(
                {"params": params},
                tagged_batch,
                deterministic=False,
                rngs={"dropout": key},
                capture_intermediates=lambda module, _: isinstance(module, Bert),
                mutable="intermediates",
            )
            return mean_loss(task.objective(outputs, tagged_batch)), states

        gradient = jax.jit(jax.grad(loss_of, has_aux=True))
        return [gradient(params, jax.random.key(number)) for number in (0, 1)]

    frozen = make_tagging(config, layers="scalar_mix", frozen=True)
    params = random_like(frozen)
    (grads, states), (other_grads, other_states) = run(frozen, params)
    assert not any(leaf.any() for leaf in jax.tree.leaves(grads["bert"]))
    assert all(leaf.any() for leaf in jax.tree.leaves((grads["classifier"], grads["scalar_mix"])))
    assert jax.tree.leaves(states)
    jax.tree.map(np.testing.assert_array_equal, states, other_states)
    # The head keeps its dropout.
    assert (grads["classifier"]["kernel"] != other_grads["classifier"]["kernel"]).any()

    (grads, states), (_, other_states) = run(make_tagging(config, layers="scalar_mix"), params)
    assert grads["bert"]["embeddings"]["word_embeddings"]["embedding"].any()
    assert any(map(lambda a, b: (a != b).any(), *map(jax.tree.leaves, (states, other_states))))


# ------------------------------------------------------------------ BiLSTM


def lstm(x, params):
    """float[words, features] -> float[words, size], word by word (Hochreiter & Schmidhuber)."""
    size = params["hi"]["kernel"].shape[0]
    h, c, outputs = np.zeros(size), np.zeros(size), []
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    for word in x:
        gate = {
            name: word @ params["i" + name]["kernel"]
            + h @ params["h" + name]["kernel"]
            + params["h" + name]["bias"]
            for name in "ifgo"
        }
        c = sigmoid(gate["f"]) * c + sigmoid(gate["i"]) * np.tanh(gate["g"])
        h = sigmoid(gate["o"]) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def test_the_bilstm_is_two_layers_of_both_directions(make_config, tagged_batch, random_like):
    config = make_config(num_layers=1, next_sentence=False)
    task, batch = make_tagging(config, "bilstm", "embeddings"), tagged_batch
    params = random_like(task)
    encoded = apply(Bert(config), params["bert"], batch, keep_all=True)
    found = apply(task.make_model(), params, batch).logits
    for row, is_word in enumerate(batch["is_word"]):
        x = np.asarray(encoded.all_hidden[0])[row, batch["word_positions"][row, is_word]]
        for layer in range(2):
            forward, backward = (params[f"lstm_{layer}_{way}"] for way in ("forward", "backward"))
            x = np.concatenate([lstm(x, forward), lstm(x[::-1], backward)[::-1]], -1)
        expected = x @ params["classifier"]["kernel"] + params["classifier"]["bias"]
        np.testing.assert_allclose(found[row, is_word], expected, atol=1e-5)


def test_every_parameter_of_every_head_has_a_sharding(make_config):
    mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
    config = make_config(pad_vocab_to_multiple_of=2)
    tasks = [
        Classification(config, "single", 4),
        SpanTask(config),
        MultipleChoice(config),
        *(
            make_tagging(config, head, layers)
            for head in ("linear", "bilstm_crf")
            for layers in ("last", "concat_last_4", "scalar_mix")
        ),
    ]
    for task in tasks:
        shapes = jax.eval_shape(lambda key, t=task: init_params(t, key), jax.random.key(0))
        flat = flatten(sharding.parameter_shardings(mesh, shapes))
        for name, where in flat.items():
            is_head = not name.startswith("bert/")
            if is_head and name.endswith("kernel"):
                assert where.spec[0] == "fsdp", name
            elif is_head:
                assert where.is_fully_replicated, name


@pytest.mark.parametrize(
    "model",
    [
        lambda config: BertForClassification(config, 2),
        BertForSpan,
        BertForMultipleChoice,
        lambda config: BertForTagging(config, 2),
    ],
)
def test_half_precision_is_the_encoders_alone(make_config, tagged_batch, model):
    config, batch = make_config(dtype="bfloat16"), dict(tagged_batch)
    model = model(config)
    if isinstance(model, BertForMultipleChoice):
        batch = {name: array[:, None] for name, array in batch.items()}
    init = lambda key: model.init(key, batch, deterministic=True)  # noqa: E731
    shapes = jax.eval_shape(init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}
    outputs = jax.eval_shape(lambda v: model.apply(v, batch, deterministic=True), shapes)
    assert {leaf.dtype for leaf in jax.tree.leaves(outputs)} == {jnp.dtype(jnp.float32)}


def test_the_loss_of_a_crf_is_that_of_rows_by_word(make_config, tagged_batch, random_like):
    """A row of padding counts for nothing; what a row predicts in part counts as a whole."""
    task, batch = make_tagging(make_config(num_layers=1), "crf"), dict(tagged_batch)
    for name in "is_word", "weights", "labels":
        batch[name] = batch[name].copy()
        batch[name][1] = 0
    batch["weights"][2, 1:] = 0
    outputs = apply(task.make_model(), random_like(task), batch)
    likelihood = crf.log_likelihood(
        outputs.crf, outputs.logits, batch["labels"], jnp.asarray(batch["is_word"])
    )
    loss = task.objective(outputs, batch)["task_loss"]
    np.testing.assert_allclose(loss.numerator, -(likelihood[0] + likelihood[2]), rtol=1e-6)
    words = batch["is_word"][[0, 2]].sum()
    assert loss.denominator == task.denominators(batch)["task_loss"] == words
    assert objectives.classification(outputs.logits, batch)["task_loss"].denominator < words
