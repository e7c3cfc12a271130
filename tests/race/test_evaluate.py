"""race/evaluate.py and race/prepare.py: what is scored, and how."""

import json

import numpy as np
import pytest

from race import evaluate, prepare, train
from tests.race.small import Tokenizer, make_text

WORDS, LENGTH = 12, 64
# Of rows of three and five tokens: the first has one masked token, the second two.
ROWS = [[2, 4, 3], [2, 7, 4, 9, 3]] + [[2, 6, 3]] * 20
ANSWERS = [{1: 5}, {2: 8, 3: 9}] + [{}] * 20


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two rows with masks and 20 without, as both parts; the characters of a token are its id."""
    inputs = np.zeros((len(ROWS), LENGTH), np.uint16)
    answers = np.full((len(ROWS), LENGTH), -1, np.int16)
    for row, (ids, true) in enumerate(zip(ROWS, ANSWERS, strict=True)):
        inputs[row, : len(ids)] = ids
        answers[row, list(true)] = list(true.values())
    arrays = {f"{part}_{LENGTH}_inputs": inputs for part in evaluate.PARTS}
    arrays |= {f"{part}_{LENGTH}_answers": answers for part in evaluate.PARTS}
    characters = np.arange(WORDS, dtype=np.uint8)
    np.savez(tmp_path / "held_out.npz", characters=characters, **arrays)
    monkeypatch.setattr(evaluate, "DATA", tmp_path)


def random_logits(ids, positions):
    """Logits that depend on the token that is read and on its position."""
    read = np.take_along_axis(ids, positions, axis=1)[..., None]
    return np.sin(read + 3.0 * positions[..., None] + np.arange(WORDS)) + 100


def test_bits_are_those_of_the_formula(data):
    bits, hits = 0.0, 0
    for ids, true in zip(ROWS, ANSWERS, strict=True):
        for position, answer in true.items():
            logits = np.sin(ids[position] + 3.0 * position + np.arange(WORDS))
            bits -= np.log2(np.exp(logits[answer]) / np.exp(logits).sum())
            hits += np.argmax(logits) == answer
    score = evaluate.score(random_logits, "report", LENGTH)
    assert score["bits_per_character"] == pytest.approx(bits / (5 + 8 + 9), rel=1e-5)
    assert score["accuracy"] == pytest.approx(hits / 3) and score["masked_tokens"] == 3


def test_the_score_of_a_run_is_written_once(data, tmp_path, monkeypatch):
    monkeypatch.setenv(evaluate.RESULT, str(tmp_path / "score.json"))
    score = evaluate.score(random_logits, "report", LENGTH)
    assert json.loads((tmp_path / "score.json").read_text()) == score
    with pytest.raises(FileExistsError):
        evaluate.score(random_logits, "report", LENGTH)


def test_logits_that_would_lower_the_score_by_their_form_are_refused(data):
    shift = lambda ids, positions: random_logits(ids, positions) + 50  # noqa: E731
    same, other = (evaluate.score(f, "tune", LENGTH) for f in (random_logits, shift))
    assert other["bits_per_character"] == pytest.approx(same["bits_per_character"], rel=1e-4)
    narrow = lambda ids, positions: random_logits(ids, positions)[..., :-1]  # noqa: E731
    with pytest.raises(ValueError, match=r"logits\[16, 2, 11\], not \[16, 2, 12\]"):
        evaluate.score(narrow, "tune", LENGTH)
    with pytest.raises(ValueError, match="not finite"):
        evaluate.score(lambda *x: random_logits(*x) * np.nan, "tune", LENGTH)
    with pytest.raises(ValueError, match="part='all' must be one of tune, report"):
        evaluate.score(random_logits, "all", LENGTH)


@pytest.fixture(scope="module")
def text():
    return make_text()


def test_masked_tokens_are_the_same_ones_in_rows_of_any_length(text):
    arrays = prepare.held_out_arrays(text, Tokenizer())
    tokens = sum(len(sentence) for document in text for sentence in document)
    for part in evaluate.PARTS:
        found = {}
        for length in evaluate.LENGTHS:
            inputs = arrays[f"{part}_{length}_inputs"]
            answers = arrays[f"{part}_{length}_answers"]
            is_masked = answers >= 0
            found[length] = answers[is_masked].tolist(), inputs[is_masked].tolist()
            for ids in (inputs, answers):
                assert not np.isin(ids[is_masked], (train.PAD, train.CLS, train.SEP)).any()
        assert all(value == found[64] for value in found.values())
        share = len(found[64][0]) / (prepare.MASKINGS * tokens / 2)
        assert 0.13 < share < 0.18
        assert 0.7 < np.mean(np.array(found[64][1]) == train.MASK) < 0.9


@pytest.mark.parametrize("length", evaluate.LENGTHS)
def test_rows_of_the_training_file_are_cut_as_held_out_ones(text, length):
    rows = train.cut_rows(prepare.training_arrays(text), length)
    stream, sentences = prepare.make_stream(text, train.SEP)
    spans = list(prepare.cut(sentences, length - 2))
    expected, _ = prepare.lay_out(stream, stream, spans, length, Tokenizer())
    np.testing.assert_array_equal(rows, expected)
