"""Masks that are filled in over rounds, compared with the algorithm on another implementation."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from bert_jax.__main__ import main as run_command
from bert_jax.data.labelled.texts import Text, spell_masks
from bert_jax.inference import infilling
from bert_jax.inference.infilling import Infiller, Rounds
from bert_jax.inference.predictor import TaskPredictor
from bert_jax.inference.scoring import Scorer
from tests.inference.conftest import WORDS, open_model

TEXTS = [
    Text("The [MASK:5] is [MASK]."),
    Text("[MASK]"),
    Text("the [MASK] list", "is [MASK] [MASK] , [MASK:4]"),
    Text("naive [MASK:2] the"),
]


@pytest.fixture(scope="module")
def predictor(workdir):
    return open_model(workdir, batch_tokens=128)


@pytest.fixture(scope="module")
def infiller(predictor) -> Infiller:
    return Infiller(predictor, top_k=3)


def slow_fill(model, tokenizer, row, rounds: int) -> tuple[list[int], list[float]]:
    """Mask-predict of one text, by the paper's algorithm: (ids of the masks, probabilities)."""
    torch = pytest.importorskip("torch")
    ids, masked = row.input_ids.tolist(), list(row.masked)
    types = [int(i >= row.first_length) for i in range(len(ids))]
    special = [tokenizer.pieces.index(f"[{name}]") for name in "PAD UNK CLS SEP MASK".split()]
    chance = dict.fromkeys(masked, 0.0)
    for t in range(rounds):
        again = sorted(masked, key=lambda place: chance[place])[
            : len(masked) * (rounds - t) // rounds
        ]
        for place in again:
            ids[place] = tokenizer.mask_id
        if not again:
            continue
        with torch.no_grad():
            out = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
        logits = out.prediction_logits[0, :, : len(tokenizer.pieces)].double()
        probabilities = logits.softmax(-1)
        for place in again:
            allowed = probabilities[place].clone()
            allowed[special] = -1
            ids[place] = int(allowed.argmax())
            chance[place] = float(allowed.max())
    return [ids[place] for place in masked], [chance[place] for place in masked]


@pytest.mark.parametrize("rounds", [1, 5, 8])
def test_rounds_are_those_of_a_slow_loop_over_another_implementation(
    infiller, predictor, torch_twin, rounds
):
    tokenizer, rows = predictor.model.tokenizer, list(map(infiller.row, TEXTS))
    for row, found in zip(rows, infiller.fill(rows, Rounds(rounds)), strict=True):
        ids, chances = slow_fill(torch_twin, tokenizer, row, rounds)
        assert [token["token"] for token in found["filled"]] == [tokenizer.pieces[i] for i in ids]
        assert [token["position"] for token in found["filled"]] == list(row.masked)
        found_chances = [token["probability"] for token in found["filled"]]
        np.testing.assert_allclose(found_chances, chances, atol=1e-5, rtol=1e-4)


def test_the_result_is_scored_as_the_text_that_it_is(infiller, predictor):
    scorer = Scorer(predictor)
    (found,) = infiller.fill([infiller.row(TEXTS[1])], Rounds(2))
    assert found["text_a"] in WORDS and "text_b" not in found
    (score,) = scorer.score([scorer.row(Text(found["text_a"]))])
    for name in ("pseudo_log_likelihood", "tokens", "perplexity"):
        assert found[name] == pytest.approx(score[name], rel=1e-5)
    (pair,) = infiller.fill([infiller.row(TEXTS[2])], Rounds(1))
    assert pair["text_a"].startswith("the") and pair["text_b"].startswith("is")
    assert pair["tokens"] == 11


def test_draws_follow_the_tempered_probabilities_of_the_candidates(infiller, predictor):
    text, temperature, draws = Text("the [MASK] ."), 0.5, 900
    (best,) = next(TaskPredictor(predictor, top_k=len(WORDS) + 5).predict([text]))[0]["masks"]
    named = [c for c in best["candidates"] if not c["token"].startswith("[")][:3]
    wanted = np.array([c["probability"] for c in named]) ** (1 / temperature)
    row = infiller.row(text)
    results = infiller.fill([row] * draws, Rounds(1, temperature, seed=4))
    counts = Counter(found["filled"][0]["token"] for found in results)
    assert set(counts) <= {c["token"] for c in named}
    for candidate, share in zip(named, wanted / wanted.sum(), strict=True):
        spread = math.sqrt(share * (1 - share) / draws)
        assert abs(counts[candidate["token"]] / draws - share) < 4 * spread


def test_draws_depend_on_seed_and_number_of_a_text_only(infiller, monkeypatch):
    rows = list(map(infiller.row, TEXTS))

    def texts(rows, seed=1):
        return [found["text_a"] for found in infiller.fill(rows, Rounds(3, 1.5, seed))]

    whole = texts(rows)
    assert texts([*rows[:2], rows[1], rows[3]])[3] == whole[3]
    monkeypatch.setattr(infilling, "_WINDOW", 1)
    assert texts(rows) == whole
    assert texts(rows, seed=2) != whole


def test_spans_are_written_out():
    assert spell_masks("a [MASK:3].") == "a [MASK] [MASK] [MASK]."
    assert spell_masks("[MASK:0] [MASK:x] [MASK]") == "[MASK:0] [MASK:x] [MASK]"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda infiller: Rounds(0), "rounds=0 must be at least 1"),
        (lambda infiller: Rounds(1, seed=-1), "seed=-1 must be at least 0"),
        (lambda infiller: Rounds(1, -0.5), "temperature=-0.5 must be above 0, or 0 for the most"),
        (lambda infiller: Infiller(infiller._predictor, 0), "top_k=0 must be at least 1"),
        (lambda infiller: infiller.row(Text("the list")), r"A text has no \[MASK\]: 'the list'"),
        (lambda infiller: infiller.row(Text("[MASK:99]")), "A text has 101 tokens"),
    ],
)
def test_errors(infiller, make, message):
    with pytest.raises(ValueError, match=message):
        make(infiller)


def test_the_command_prints_and_writes_filled_texts(workdir, tmp_path, capsys):
    words = ["fill_mask", f"--model={workdir}", "--rounds=2", "the [MASK:2] ."]
    run_command(words)
    text, first, second, perplexity = capsys.readouterr().out.strip().splitlines()
    assert text.startswith("the") and "%" in first and "%" in second
    run_command([*words, f"--output={tmp_path / 'out.jsonl'}"])
    found = json.loads((tmp_path / "out.jsonl").read_text())
    assert found["text_a"] == text and len(found["filled"]) == 2
    assert perplexity.split() == [f"{found['perplexity']:,.1f}", "perplexity"]
