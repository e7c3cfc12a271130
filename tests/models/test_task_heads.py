"""The heads against transformers' classes on torch, and against their definitions in numpy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import crf
from bert_jax.models.bert import Bert
from bert_jax.models.model import parameter_shapes
from bert_jax.models.reading import HEAD_LAYERS, HeadConfig
from bert_jax.models.task_heads import (
    IMPOSSIBLE,
    ClassificationModel,
    MultipleChoiceModel,
    SpanModel,
    TaggingModel,
)

NUM_CLASSES, SEQ = 3, 24


def apply(model, params, batch, **options):
    outputs = model.apply({"params": params}, batch, deterministic=True, **options)
    return outputs.replace(reading=None) if hasattr(outputs, "reading") else outputs


def make_tagging(config, head="linear", layers="last", frozen=False):
    head = HeadConfig(head=head, layers=layers, frozen=frozen, lstm_size=8, lstm_layers=2)
    return TaggingModel(config, NUM_CLASSES, head)


# ------------------------------------------------------------------ transformers

THEIR_NAMES = (
    (r"^bert/pooler/", "bert/pooler/dense/"),
    (r"attention/(query|key|value)/", r"attention/self/\1/"),
    (r"attention/layer_norm/", "attention/output/LayerNorm/"),
    (r"attention/output/(?=kernel|bias)", "attention/output/dense/"),
    (r"(layer_\d+)/layer_norm/", r"\1/output/LayerNorm/"),
    (r"(layer_\d+)/(intermediate|output)/(?=kernel|bias)", r"\1/\2/dense/"),
    (r"layer_(\d+)", r"layer/\1"),
    (r"layer_norm", "LayerNorm"),
    (r"^span/", "qa_outputs/"),
    (r"/(kernel|scale|embedding)$", "/weight"),
)


def their_weights(params):
    """{"bert.encoder.layer.0.output.dense.weight": array [out, in] ...}."""
    weights = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = "/".join(key.key for key in path)
        array = leaf.T if name.endswith("kernel") else leaf
        for ours, theirs in THEIR_NAMES:
            name = re.sub(ours, theirs, name)
        weights[name.replace("/", ".")] = array
    return weights


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
        tensors = {name: torch.tensor(array) for name, array in their_weights(params).items()}
        model.load_state_dict(tensors)  # strict: every weight of theirs is one of ours
        return model

    return make


def their_outputs(model, batch, **labels):
    """(their outputs, the loss) for a batch of ours, padding masked."""
    torch = pytest.importorskip("torch")
    names = {"input_ids": "input_ids", "token_type_ids": "token_type_ids"}
    names["example_ids"] = "attention_mask"
    inputs = {new: torch.tensor(batch[old]).long() for old, new in names.items()}
    inputs |= {name: torch.tensor(array) for name, array in labels.items()}
    with torch.no_grad():
        outputs = model(**inputs)
    return outputs, float(outputs.loss)


def assert_close(mine, other):
    np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "kind, their_kind",
    [
        ("single", "single_label_classification"),
        ("multi", "multi_label_classification"),
        ("regression", "regression"),
    ],
)
def test_classification_is_that_of_transformers(
    make_config, make_batch, random_params, theirs, cross_entropy, kind, their_kind
):
    config, classes = make_config(), 1 if kind == "regression" else NUM_CLASSES
    model, batch = ClassificationModel(config, classes), make_batch(config)
    rng = np.random.default_rng(1)
    labels = {
        "single": rng.integers(0, classes, 3),
        "multi": rng.integers(0, 2, (3, classes)).astype(np.float32),
        "regression": rng.normal(size=3).astype(np.float32),
    }[kind]
    params = random_params(model, batch, spread=0.2)
    settings = {"num_labels": classes, "problem_type": their_kind}
    other = theirs("BertForSequenceClassification", config, params, **settings)
    outputs, loss = their_outputs(other, batch, labels=labels)
    logits = apply(model, params, batch).logits
    assert_close(logits, outputs.logits)
    ours = {
        "single": lambda: cross_entropy(logits, labels, np.ones(3)),
        "multi": lambda: (jax.nn.softplus(logits) - labels * logits).mean(),
        "regression": lambda: ((logits[:, 0] - labels) ** 2).mean(),
    }[kind]()
    assert_close(ours, loss)


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


@pytest.fixture
def tagged_batch(make_config, make_batch):
    config = make_config()
    batch = make_batch(config, seq=SEQ)
    words, _ = word_arrays(batch, np.random.default_rng(1))
    return batch | words


def test_tagging_is_that_of_transformers_at_the_first_pieces(
    make_config, make_batch, random_params, theirs, cross_entropy
):
    config = make_config()
    batch = make_batch(config)
    words, labels = word_arrays(batch, np.random.default_rng(1))
    model = make_tagging(config)
    params = random_params(model, batch | words, spread=0.2)
    other = theirs("BertForTokenClassification", config, params, num_labels=NUM_CLASSES)
    outputs, loss = their_outputs(other, batch, labels=labels)
    batch |= words
    found = apply(model, params, batch)
    assert found.crf is None
    at = batch["word_positions"][:, :, None]
    at_words = np.take_along_axis(outputs.logits.numpy(), at, 1)
    assert_close(found.logits[words["is_word"]], at_words[words["is_word"]])
    assert_close(cross_entropy(found.logits, batch["labels"], batch["weights"]), loss)


def test_spans_are_those_of_transformers(
    make_config, make_batch, random_params, theirs, cross_entropy
):
    config = make_config()
    model, batch = SpanModel(config), make_batch(config, seq=SEQ)
    starts, ends = np.array([3, 0, 5]), np.array([7, 0, 5])
    params = random_params(model, batch, spread=0.2)
    other = theirs("BertForQuestionAnswering", config, params)
    # They let padding be the answer: rows of full length are equal, and of padding ours is not.
    full = {name: array[:1] for name, array in batch.items()}
    gold = {"start_positions": starts[:1], "end_positions": ends[:1]}
    outputs, loss = their_outputs(other, full, **gold)
    found = apply(model, params, full)
    assert_close(found.start_logits, outputs.start_logits)
    assert_close(found.end_logits, outputs.end_logits)
    both = [(found.start_logits, starts[:1]), (found.end_logits, ends[:1])]
    assert_close(sum(cross_entropy(*one, np.ones(1)) for one in both) / 2, loss)
    outputs, _ = their_outputs(other, batch, start_positions=starts, end_positions=ends)
    found, is_text = apply(model, params, batch), batch["example_ids"] > 0
    assert_close(found.start_logits[is_text], outputs.start_logits.numpy()[is_text])
    assert (found.start_logits[~is_text] == IMPOSSIBLE).all()
    assert (found.end_logits[~is_text] == IMPOSSIBLE).all()


def test_multiple_choice_is_that_of_transformers(
    make_config, make_batch, random_params, theirs, cross_entropy
):
    config = make_config()
    model, flat = MultipleChoiceModel(config), make_batch(config, batch=6)
    batch = {name: array.reshape(2, 3, -1) for name, array in flat.items()}
    labels, params = np.array([2, 0]), random_params(model, batch, spread=0.2)
    other = theirs("BertForMultipleChoice", config, params)
    outputs, loss = their_outputs(other, batch, labels=labels)
    logits = apply(model, params, batch).logits
    assert_close(logits, outputs.logits)
    assert_close(cross_entropy(logits, labels, np.ones(2)), loss)


# ------------------------------------------------------------------ padding


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
def test_padding_does_not_leak_into_tags(
    make_config, tagged_batch, random_params, cross_entropy, head
):
    """In the BiLSTM neither from the front nor from behind, and into no loss and no gradient."""
    model, batch = make_tagging(make_config(num_layers=1), head), tagged_batch
    params, is_word = random_params(model, batch, spread=0.2), batch["is_word"]

    def loss_of(params, batch):
        found, is_word = apply(model, params, batch), jnp.asarray(batch["is_word"])
        if found.crf is None:
            loss = cross_entropy(found.logits, batch["labels"], batch["weights"])
            return loss, (found.logits.argmax(-1), found.logits)
        labels = jnp.asarray(batch["labels"])
        likelihood = crf.log_likelihood(found.crf, found.logits, labels, is_word)
        tags = crf.decode(found.crf, found.logits, is_word)
        return -likelihood.sum() / is_word.sum(), (tags, found.logits)

    run = jax.jit(jax.value_and_grad(loss_of, has_aux=True))
    (loss, answers), grads = run(params, batch)
    (other_loss, others), other_grads = run(params, garbage(batch, np.random.default_rng(2)))
    np.testing.assert_array_equal(other_loss, loss)
    for values, other in zip(answers, others, strict=True):
        np.testing.assert_array_equal(other[is_word], values[is_word])
    # Gradients of embeddings: zeros are added elsewhere, and sums come in another order.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), other_grads, grads)

    (longer_loss, (longer, _)), _ = run(params, pad(batch, 8))
    np.testing.assert_allclose(longer_loss, loss, rtol=1e-6)
    np.testing.assert_array_equal(longer[:, : is_word.shape[1]][is_word], answers[0][is_word])


@pytest.mark.parametrize("kind", [ClassificationModel, SpanModel, MultipleChoiceModel])
def test_padding_does_not_leak_into_answers(
    make_config, make_batch, random_params, cross_entropy, kind
):
    config = make_config(num_layers=1)
    batch = make_batch(config, seq=SEQ, batch=4)
    model = kind(config, NUM_CLASSES) if kind is ClassificationModel else kind(config)
    longer, other = pad(batch, 8), garbage(batch, np.random.default_rng(2))
    labels, weights = np.array([1, 2, 0, 1]), np.array([1, 1, 1, 0], np.float32)
    if kind is MultipleChoiceModel:
        labels, weights = np.array([1, 0]), weights[2:]
        batch, longer, other = (
            {name: array.reshape(2, 2, -1) for name, array in b.items()}
            for b in (batch, longer, other)
        )
    params = random_params(model, batch, spread=0.2)

    def loss_of(batch):
        found = apply(model, params, batch)
        return sum(cross_entropy(logits, labels, weights) for logits in jax.tree.leaves(found))

    loss, same, padded = map(loss_of, (batch, other, longer))
    assert loss > 0.1 and same == loss
    np.testing.assert_allclose(padded, loss, rtol=1e-6)


def test_a_choice_that_is_all_padding_is_none(make_config, make_batch, random_params):
    config = make_config()
    model, flat = MultipleChoiceModel(config), make_batch(config, batch=6)
    for name in "input_ids", "token_type_ids", "position_ids", "example_ids":
        flat[name][4:] = 0
    batch = {name: array.reshape(2, 3, -1) for name, array in flat.items()}
    params = random_params(model, batch, spread=0.2)
    probabilities = jax.nn.softmax(apply(model, params, batch).logits)
    np.testing.assert_array_equal(probabilities[1], [1, 0, 0])
    assert (probabilities[0] > 0).all()


# ------------------------------------------------------------------ layers that taggers read


def features_of(layers, states, params):
    """The definitions, from the output of the embeddings and of each layer."""
    mixed = {"scalar_mix": 1, "mix_last_4": 2, "mix_with_embeddings": 0}
    if layers in mixed:
        mix = params["scalar_mix"]
        parts = np.exp(mix["weights"]) / np.exp(mix["weights"]).sum()
        states = states[mixed[layers] :]
        return mix["gamma"] * sum(part * x for part, x in zip(parts, states, strict=True))
    return {
        "last": lambda: states[5],
        "embeddings": lambda: states[0],
        "second_to_last": lambda: states[4],
        "sum_last_4": lambda: states[2] + states[3] + states[4] + states[5],
        "concat_last_4": lambda: np.concatenate(states[2:6], -1),
        "sum_all": lambda: states[1] + states[2] + states[3] + states[4] + states[5],
    }[layers]()


@pytest.mark.parametrize("layers", HEAD_LAYERS)
def test_what_a_tagger_reads_of_five_layers(make_config, tagged_batch, random_params, layers):
    config, batch = make_config(num_layers=5), tagged_batch
    model = make_tagging(config, layers=layers)
    params = random_params(model, batch, spread=0.2)
    encoded = apply(Bert(config), params["bert"], batch, keep_all=True)
    at = batch["word_positions"][:, :, None]
    states = [np.take_along_axis(np.asarray(x), at, 1) for x in encoded.all_hidden]
    assert len(states) == 6
    head = params["classifier"]
    expected = features_of(layers, states, params) @ head["kernel"] + head["bias"]
    found = apply(model, params, batch).logits
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_scalar_mix_starts_as_the_mean(make_config, tagged_batch):
    model = make_tagging(make_config(num_layers=2), layers="scalar_mix")
    init = jax.jit(lambda key: model.init(key, tagged_batch, deterministic=True)["params"])
    mix = init(jax.random.key(0))["scalar_mix"]
    np.testing.assert_array_equal(mix["weights"], np.zeros(2))
    np.testing.assert_array_equal(mix["gamma"], 1)


def test_a_frozen_encoder_has_no_dropout_and_no_gradient(
    make_config, tagged_batch, random_params, cross_entropy
):
    config, batch = make_config(dropout_rate=0.5, attention_dropout_rate=0.5), tagged_batch

    def run(model, params):
        @jax.jit
        def loss_of(params, key):
            outputs, states = model.apply(
                {"params": params},
                batch,
                deterministic=False,
                rngs={"dropout": key},
                capture_intermediates=lambda module, _: isinstance(module, Bert),
                mutable="intermediates",
            )
            return cross_entropy(outputs.logits, batch["labels"], batch["weights"]), states

        gradient = jax.jit(jax.grad(loss_of, has_aux=True))
        return [gradient(params, jax.random.key(number)) for number in (0, 1)]

    frozen = make_tagging(config, layers="scalar_mix", frozen=True)
    params = random_params(frozen, batch, spread=0.2)
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


def test_the_bilstm_is_two_layers_of_both_directions(make_config, tagged_batch, random_params):
    config, batch = make_config(num_layers=1), tagged_batch
    model = make_tagging(config, "bilstm", "embeddings")
    params = random_params(model, batch, spread=0.2)
    encoded = apply(Bert(config), params["bert"], batch, keep_all=True)
    found = apply(model, params, batch).logits
    for row, is_word in enumerate(batch["is_word"]):
        x = np.asarray(encoded.all_hidden[0])[row, batch["word_positions"][row, is_word]]
        for layer in range(2):
            forward, backward = (params[f"lstm_{layer}_{way}"] for way in ("forward", "backward"))
            x = np.concatenate([lstm(x, forward), lstm(x[::-1], backward)[::-1]], -1)
        expected = x @ params["classifier"]["kernel"] + params["classifier"]["bias"]
        np.testing.assert_allclose(found[row, is_word], expected, atol=1e-5)


@pytest.mark.parametrize(
    "make_model",
    [
        lambda config: ClassificationModel(config, 2),
        SpanModel,
        MultipleChoiceModel,
        lambda config: TaggingModel(config, 2),
    ],
    ids=["classification", "span", "multiple choice", "tagging"],
)
def test_half_precision_is_the_encoders_alone(make_config, tagged_batch, make_model):
    config, batch = make_config(dtype="bfloat16"), dict(tagged_batch)
    model = make_model(config)
    if isinstance(model, MultipleChoiceModel):
        batch = {name: array[:, None] for name, array in batch.items()}
    shapes = parameter_shapes(model, batch)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}
    outputs = jax.eval_shape(lambda p: apply(model, p, batch), shapes)
    assert {leaf.dtype for leaf in jax.tree.leaves(outputs)} == {jnp.dtype(jnp.float32)}
