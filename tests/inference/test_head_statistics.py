"""Statistics of heads against loops over tokens, and their samples against single texts."""

import dataclasses
import json
import math
import os
import random

import jax
import numpy as np
import pytest

from bert_jax.config import store
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.labelled.texts import Text
from bert_jax.inference import head_statistics
from bert_jax.inference.attention import AttentionReader
from bert_jax.models import make_encoder
from bert_jax.scores.attention import STATISTICS
from bert_jax.tools.outputs.samples import sample_batches
from tests import tiny
from tests.data.corpus.corpora import make_config
from tests.inference.conftest import WORDS, open_model

TEXTS = ["the list is returned .", "naive", "unaffable list , the list is naive returned ."]


@dataclasses.dataclass(frozen=True)
class Specials:
    """The special ids of a tokenizer; GPT's ends rows with another one than it separates by."""

    cls_id: int = 2
    sep_id: int = 3
    end_id: int = 4


def slowly(config, attention, batch, specials=(2, 3)):
    """{statistic: float[layers, heads]}, each mean over the tokens of all rows that attend."""
    values = {name: [] for name in STATISTICS}
    ids, places, examples = (batch[n] for n in ("input_ids", "position_ids", "example_ids"))
    for layer, probs in enumerate(attention):
        for head in range(config.num_heads):
            of_tokens = {name: [] for name in STATISTICS}
            for row, i in np.ndindex(ids.shape):
                if examples[row, i] == 0 or ids[row, i] in specials:
                    continue
                p = probs[row, head, i].astype(np.float64)
                own = [j for j in range(len(p)) if examples[row, j] == examples[row, i]]
                away = {j: int(places[row, j]) - int(places[row, i]) for j in own}
                seen = own
                if config.attention_pattern == "causal":
                    seen = [j for j in own if away[j] <= 0]
                elif config.attention_pattern == "window" and not config.is_global(layer):
                    seen = [j for j in own if abs(away[j]) <= config.attention_window]
                assert sum(p[j] for j in seen) == pytest.approx(1, abs=1e-5)
                entropy = -sum(p[j] * math.log(p[j]) for j in seen if p[j])
                of_tokens["entropy"].append(entropy)
                of_tokens["evenness"].append(entropy / math.log(max(len(seen), 2)))
                of_tokens["distance"].append(sum(p[j] * abs(away[j]) for j in own))
                of_tokens["separator"].append(sum(p[j] for j in own if ids[row, j] in specials[1:]))
                of_tokens["first"].append(sum(p[j] for j in own if places[row, j] == 0))
                for name, offset in (("previous", -1), ("self", 0), ("next", 1)):
                    of_tokens[name].append(sum(p[j] for j in own if away[j] == offset))
            for name, found in of_tokens.items():
                values[name].append(np.mean(found))
    return {name: np.reshape(v, (-1, config.num_heads)) for name, v in values.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_pattern": "causal"},
        {"attention_pattern": "window", "attention_window": 2, "global_every": 2, "num_layers": 3},
    ],
    ids=["bidirectional", "causal", "window"],
)
def test_statistics_are_those_of_a_loop(changes):
    """Rows of several examples, with padding; weights that make attention uneven."""
    config = tiny.make_model(initializer_range=0.5, **changes)
    batch = tiny.make_batch(3)
    # The second row has two examples.
    cut = 6
    batch["example_ids"][1, cut:] *= 2
    batch["position_ids"][1, cut:] = np.maximum(batch["position_ids"][1, cut:] - cut, 0)
    encoder = make_encoder(config)
    params = encoder.init(jax.random.key(0), batch, deterministic=True)["params"]

    @jax.jit
    def forward(params):
        encoded = encoder.apply({"params": params}, batch, deterministic=True, keep_attention=True)
        sums = head_statistics.sum_heads(config, Specials(), encoded.attention, batch)
        return encoded.attention, sums

    attention, found = jax.tree.map(np.asarray, forward(params))
    means = head_statistics.mean_statistics(found["sums"].sum(0), found["attending"].sum(), "It")
    assert means.shape == (len(STATISTICS), config.num_layers, config.num_heads)
    for (name, want), values in zip(
        slowly(config, attention, batch, (2, 3, 4)).items(), means, strict=True
    ):
        np.testing.assert_allclose(values, want, atol=2e-5, rtol=0, err_msg=name)
        assert want.std() > 1e-4 or (name == "next" and config.is_causal), name


def sample(workdir, path="", most=200):
    config = store.load(workdir)
    reader = AttentionReader(open_model(workdir, config=config))
    return reader.statistics(sample_batches(reader.model, path, most))


def mean_of_texts(workdir, texts):
    """The statistics of each text for itself, averaged by hand."""
    reader = AttentionReader(open_model(workdir))
    rows = [reader.encode(text) for text in texts]
    sizes = [len(row.word_positions) for row in rows]
    values = [reader.read(row)["text_statistics"] for row in rows]
    return np.average(values, axis=0, weights=sizes), sum(sizes)


@pytest.fixture(scope="module")
def classification(make_run):
    changes = {"data__text_b": "text_b", "max_length": 40}
    return make_run("classification", **changes)[1]


def test_a_sample_of_a_file_is_the_mean_of_its_texts(workdir, tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    found, rows, tokens = sample(workdir, str(path))
    want, attending = mean_of_texts(workdir, [Text(text) for text in TEXTS])
    np.testing.assert_allclose(found, want, atol=1e-5, rtol=0)
    assert (rows, tokens) == (3, attending)


def test_a_sample_of_labelled_pairs(classification, tmp_path):
    """Read and encoded as the task does; only some examples, at even distances."""
    pairs = [(text, other) for text in TEXTS for other in TEXTS]
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"text_a": a, "text_b": b}) for a, b in pairs]
    path.write_text("\n".join(lines) + "\n")
    found, rows, tokens = sample(classification, str(path), most=3)
    want, attending = mean_of_texts(classification, [Text(*pairs[i]) for i in (0, 4, 8)])
    np.testing.assert_allclose(found, want, atol=1e-5, rtol=0)
    assert (rows, tokens) == (3, attending)


def test_a_sample_of_the_held_out_split(make_workdir, tmp_path):
    """All rows of the longest length, as the corpus has them, or some."""
    workdir = make_workdir(model__num_layers=1)
    rng = random.Random(0)
    documents = ["\n".join(" ".join(rng.choices(WORDS, k=9)) for _ in range(6)) for _ in range(40)]
    (tmp_path / "0.txt").write_text("\n\n".join(documents))
    vocab = os.path.join(workdir, "vocab.txt")
    sizes = {"sequence_lengths": (32, 40), "num_predictions": (6, 8)}
    data = make_config(tmp_path, vocab=vocab, validation_share=0.3, short_seq_prob=0.8, **sizes)
    manifest = prepare(data, os.path.join(workdir, "data"), 1, log=lambda line: None)

    rows = manifest.rows("validation", 40)
    batch = rows.read(np.arange(len(rows)))
    reader = AttentionReader(open_model(workdir))
    params = jax.device_get(reader.model.params["bert"])
    encoded = make_encoder(reader.config).apply(
        {"params": params}, batch, deterministic=True, keep_attention=True
    )
    want = slowly(reader.config, jax.device_get(encoded.attention), batch)
    found, count, tokens = sample(workdir)
    assert count == len(rows)
    assert tokens == ((batch["example_ids"] > 0) & ~np.isin(batch["input_ids"], (2, 3))).sum()
    for name, values in zip(STATISTICS, found, strict=True):
        np.testing.assert_allclose(values, want[name], atol=2e-5, rtol=0, err_msg=name)
    assert sample(workdir, most=2)[1] == 2


def test_what_cannot_be_sampled(workdir, classification, tmp_path):
    with pytest.raises(ValueError, match="has no prepared data"):
        sample(workdir)
    with pytest.raises(ValueError, match="has no config.data.eval: give a file, --input=FILE"):
        sample(classification)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match="empty.txt holds no text: there is nothing to do"):
        sample(workdir, str(tmp_path / "empty.txt"))
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(ValueError, match="The sample has no token but special ones"):
        sample(workdir, str(tmp_path / "blank.txt"))
