"""Models with GPT's byte pairs and ELMo's words: all that they can do, and what they cannot."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from bert_jax.config import defaults
from bert_jax.config.run import RunConfig, parse
from bert_jax.inference.generation import Generator
from bert_jax.inference.loading import load_workdir
from bert_jax.inference.sampling import Sampling
from bert_jax.text.gpt_vocabulary import pack
from bert_jax.tools.outputs.predictions import predict
from bert_jax.tools.serve.abilities import NEW_TOKENS
from configs import elmo, gpt
from tests import tiny
from tests.tools.serve.conftest import load, opened
from tests.tools.serve.test_answers import CHOICE, QUESTION, close, write

LETTERS = "abcdefghijklmnopqrstuvwxyz,."
PIECES = ["<unk>", *LETTERS, *(f"{c}</w>" for c in LETTERS), "th", "the</w>", "is</w>"]
MERGES = "#version: 0.2\nt h\nth e</w>\ni s</w>\n"
WORDS = ("<S>", "</S>", "<UNK>", "the", "list", "is", "naive", ".")
TEXTS = [{"text_a": "The list is naive."}, {"text_a": "An unseen one"}, {"text_a": "the list"}]
TAGGED = [{"text": "The list is naive ."}, {"text": "Zurich"}]
PAIRS = [{**text, "text_b": "naive."} for text in TEXTS]
# Configuration, file of the same inputs for `predict`, inputs.
TASKS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "text": ("jsonl", TEXTS),
    "classification": ("jsonl", PAIRS),
    "tagging": ("txt", TAGGED),
    "span": ("json", [QUESTION, {**QUESTION, "question": "naive"}]),
    "multiple_choice": ("jsonl", [CHOICE]),
}


def gpt_vocabulary() -> tuple[str, bytes]:
    for package in ("ftfy", "spacy"):
        pytest.importorskip(package, reason="needs the extra gpt")
    pieces = json.dumps({piece: i for i, piece in enumerate(PIECES)}).encode()
    return "vocab.gpt", pack(pieces, MERGES.encode(), "vocab.gpt")


def elmo_vocabulary() -> tuple[str, bytes]:
    return "vocab.txt", "".join(f"{word}\n" for word in WORDS).encode()


def _make(task: str, pretraining: RunConfig, sizes: Mapping[str, Any]) -> RunConfig:
    """Returns the configuration of a task with the encoder of a pre-training, made small."""
    config = pretraining if task == "text" else getattr(defaults, task)()
    length = sizes["max_position_embeddings"]
    values = {"prng_impl": tiny.PRNG_IMPL} | tiny.rows_of(config, length)
    if task != "text":
        values |= {"data.bucket_lengths": (24,), "data.lowercase": pretraining.data.lowercase}
        values |= {"head.pool": "last", "head.pooler": False}
    if task == "span":
        values |= {"head.max_query_length": 16, "head.doc_stride": 8}
    if task == "classification":
        values["data.text_b"] = "text_b"
    return config.replace(values, model=dataclasses.replace(pretraining.model, **sizes))


def make_gpt(make_run, task: str, positions: int = 48) -> tuple[RunConfig, str]:
    sizes = tiny.SIZES | {"vocab_size": len(PIECES) + 3, "max_position_embeddings": positions}
    config = _make(task, parse(gpt.get_config("tiny")), sizes)
    return make_run(config, ("bad", "good") if task != "tagging" else (), gpt_vocabulary())


def make_elmo(make_run, task: str) -> tuple[RunConfig, str]:
    sizes = {"vocab_size": len(WORDS), "hidden_size": 8, "cell_size": 6, "num_layers": 2}
    sizes |= {"filters": ((1, 3), (2, 4)), "max_position_embeddings": 48}
    config = _make(task, parse(elmo.get_config("small")), sizes)
    if task == "text":
        # There are fewer words than `sampled` would draw.
        config = config.replace({"head.softmax": "full"})
    return make_run(config, ("bad", "good") if task != "tagging" else (), elmo_vocabulary())


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("make", [make_gpt, make_elmo])
def test_predictions_are_those_of_predict(make, task, make_run, tmp_path):
    config, workdir = make(make_run, task)
    ending, inputs = TASKS[task]
    write(tmp_path / f"in.{ending}", inputs)
    predict(config, workdir, str(tmp_path / f"in.{ending}"), str(tmp_path / "out.jsonl"))
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    expected = [{k: v for k, v in json.loads(line).items() if k != "id"} for line in lines]
    with opened(load(workdir)) as client:
        found = client.post("/api/predict", json={"inputs": inputs}).json()["predictions"]
        close([{k: v for k, v in one.items() if k != "counts"} for one in found], expected)
        abilities = client.get("/api").json()["abilities"]
        for address, ability in abilities.items():  # what the description proposes is answered
            answer = client.post(address, json=ability["example"])
            assert answer.status_code == 200, (address, answer.text)


@pytest.mark.parametrize("make, missing", [(make_gpt, []), (make_elmo, ["generate", "attention"])])
def test_what_a_language_model_can_do(make, missing, make_run):
    service = load(make(make_run, "text")[1])
    said: list[str] = []
    service.warm_up(said.append)
    every = ["predict", "generate", "similarity", "features", "attention"]
    names = [name for name in every if name not in missing]
    assert [ability.name for ability in service.abilities] == names
    assert len(said) == len(names) - 1  # features and similarities are one computation
    assert all(re.fullmatch(r"compiled   \w+: \d+ shapes, [\d.]+ s", line) for line in said)
    assert list(service.missing) == [name for name in missing if name == "attention"]
    with opened(service) as client:
        long = client.post("/api/predict", json={"inputs": ["the " * 60]})
        assert long.status_code == 400 and "tokens" in long.json()["error"]


def test_texts_are_continued_in_pieces_of_gpt(make_run):
    """Pieces that end words, contractions and unknown characters."""
    config, workdir = make_gpt(make_run, "text")
    generator, greedy = Generator(load_workdir(config, workdir)), Sampling(greedy=True)
    texts = ["The list", "it isn't", "\u00e9\u4e2d"]
    expected = [
        generator.text(prompt, new)
        for text in texts
        for prompt, new in generator.generate(
            [generator.prompt(text, NEW_TOKENS)], greedy, max_new_tokens=NEW_TOKENS
        )
    ]
    with opened(load(workdir)) as client:
        assert client.post("/api/generate", json={"inputs": texts}).json() == {"texts": expected}


def test_too_few_positions_to_continue_texts_are_said(make_run):
    service = load(make_gpt(make_run, "text", positions=24)[1])
    assert "generate" not in [ability.name for ability in service.abilities]
    assert service.missing["generate"] == (
        "Texts are not continued: 24 positions have no room for 30 more tokens."
    )
