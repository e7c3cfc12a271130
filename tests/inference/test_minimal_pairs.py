"""Preferences of models in minimal pairs, compared with one sentence and one mask at a time."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest

import bert_jax
from bert_jax.config.store import parse
from bert_jax.data.labelled.texts import Text
from bert_jax.exchange import huggingface
from bert_jax.files.errors import UserError
from bert_jax.text.word_tokenizer import make_word_vocabulary
from bert_jax.tools.cli import command_line, evaluate
from tests.inference.conftest import VOCABULARY, make_texts
from tests.inference.test_scoring import slow_scores

ELMO = {
    "model__hidden_size": 8,
    "model__cell_size": 6,
    "model__num_layers": 2,
    "model__filters": ((1, 4), (2, 4)),
    "model__max_position_embeddings": 40,
    "task__softmax": "full",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> str:
    """40 pairs of two paradigms, in one of which half are equal."""
    path = tmp_path_factory.mktemp("suite") / "pairs.jsonl"
    good, bad = make_texts(40, 1), make_texts(40, 2)
    rows = [
        {"good": g, "bad": g if n % 4 == 0 else b, "paradigm": "ab"[n % 2]}
        for n, (g, b) in enumerate(zip(good, bad, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_choices_are_those_of_another_implementation(suite, workdir, torch_twin):
    model = bert_jax.load(workdir)
    found = bert_jax.evaluate_suite(model, suite)
    assert found.scores.ties == 10 and 0 < found.unknown < 1
    for pair, good, bad in zip(found.pairs, found.good, found.bad, strict=True):
        theirs = [
            sum(slow_scores(torch_twin, model.tokenizer, Text(text)))
            for text in (pair.good, pair.bad)
        ]
        np.testing.assert_allclose([good, bad], theirs, atol=1e-3)
        assert np.sign(good - bad) == np.sign(theirs[0] - theirs[1])
    part = bert_jax.evaluate_suite(model, suite, per_paradigm=5)
    numbers = [found.pairs.index(pair) for pair in part.pairs]
    np.testing.assert_array_equal(part.good, found.good[numbers])  # bits
    np.testing.assert_array_equal(part.bad, found.bad[numbers])


def test_within_words_later_pieces_are_masked_too(workdir, torch_twin, tmp_path):
    torch = pytest.importorskip("torch")
    model = bert_jax.load(workdir)
    (tmp_path / "a.jsonl").write_text('{"good": "unaffable", "bad": "the unaffable list"}\n')
    found = bert_jax.evaluate_suite(model, tmp_path / "a.jsonl", "within_words")
    tokenizer = model.tokenizer
    total, pieces = 0.0, tokenizer.encode("unaffable")
    assert len(pieces) == 3
    for place, token in enumerate(pieces):
        seen = [tokenizer.cls_id, *pieces[:place], *[tokenizer.mask_id] * (3 - place)]
        ids = torch.tensor([[*seen, tokenizer.sep_id]])
        with torch.no_grad():
            logits = torch_twin(input_ids=ids).prediction_logits[0, place + 1, : len(VOCABULARY)]
        total += float(logits.double().log_softmax(0)[token])
    assert found.good[0] == pytest.approx(total, abs=1e-3)
    assert found.good[0] < bert_jax.evaluate_suite(model, tmp_path / "a.jsonl").good[0] + 20


def test_a_left_to_right_model_has_log_likelihoods(suite, make_run):
    model = bert_jax.load(make_run("left_to_right", model__vocab_size=len(VOCABULARY))[1])
    found = bert_jax.evaluate_suite(model, suite, per_paradigm=4)
    scores = model.score([pair.bad for pair in found.pairs])
    np.testing.assert_allclose(found.bad, [score["log_likelihood"] for score in scores], rtol=1e-5)
    with pytest.raises(UserError, match="predicts next tokens: there is nothing to mask"):
        bert_jax.evaluate_suite(model, suite, "within_words")
    with pytest.raises(UserError, match="method='words' must be one of '', 'within_words', 'n"):
        bert_jax.evaluate_suite(model, suite, "words")


def test_of_elmo_the_directions_count_alike(suite, make_run):
    """The words of texts as streams, whose ends are taken away, against the suite's padded rows."""
    content = make_word_vocabulary(word for word in VOCABULARY if word != "naive")
    size = content.count(b"\n")
    config = bert_jax.get_config("elmo:small", **ELMO, model__vocab_size=size)
    model = bert_jax.load(make_run(parse(config), vocabulary=("vocab.txt", content))[1])
    found = bert_jax.evaluate_suite(model, suite, per_paradigm=4)
    words = " ".join({text for pair in found.pairs for text in (pair.good, pair.bad)}).split()
    # Its characters are read, but the softmax has no probability of its own for it.
    assert (unknown := words.count("naive")) > 0
    assert found.unknown == unknown / len(words)
    task = model.task.bind(model.encoder, model.tokenizer)
    for pair, total in zip(found.pairs, found.good, strict=True):
        rows = task.encode([Text(pair.good)], model.tokenizer, Counter())
        batch = model.add_fields(rows.take(np.array([0]), int(rows.lengths[0])))
        assert "reverse_character_ids" in batch
        outputs = task.make_model().apply({"params": model.params}, batch)
        both = 0.0
        for scores, labels in (outputs.forward, "next_ids"), (outputs.backward, "previous_ids"):
            logits = np.float64(scores.logits()[0, :-1, :size])
            values = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            both += values[range(len(values)), batch[labels][0, :-1]].sum()
        assert total == pytest.approx(both / 2, abs=1e-3)


def test_a_model_of_masked_and_next_tokens_has_both_scores(suite, make_run, workdir, tmp_path):
    """The log-likelihood is that of the same weights with a causal mask."""
    sizes = {"model__vocab_size": len(VOCABULARY), "model__next_sentence": False}
    both = {
        "causal_share": 0.5,
        "model__predicts_next": True,
        "data__segments": "full_sentences",
    }
    model = bert_jax.load(make_run("bert", **sizes, **both)[1])
    causal = bert_jax.load(make_run("left_to_right", **sizes)[1])
    causal = dataclasses.replace(causal, params=model.params)
    found = [
        bert_jax.evaluate_suite(model, suite, "next_tokens"),
        bert_jax.evaluate_suite(causal, suite),
    ]
    np.testing.assert_allclose(found[0].bad, found[1].bad, rtol=1e-5)
    assert not np.allclose(bert_jax.evaluate_suite(model, suite).bad, found[0].bad, rtol=0.01)
    huggingface.write(model.stored(), tmp_path)
    exported = bert_jax.evaluate_suite(bert_jax.load(tmp_path), suite, "next_tokens")
    np.testing.assert_array_equal(exported.bad, found[0].bad)
    with pytest.raises(UserError, match=r"masked tokens only, or .*\(config.causal_share=0\)"):
        bert_jax.evaluate_suite(bert_jax.load(workdir), suite, "next_tokens")
    classifier = bert_jax.load(make_run("classification", model__vocab_size=len(VOCABULARY))[1])
    with pytest.raises(UserError, match="'classification': it has no masked-LM head"):
        bert_jax.evaluate_suite(classifier, suite, "next_tokens")


def test_a_sentence_without_tokens_is_refused(workdir, tmp_path):
    (tmp_path / "a.csv").write_text("good,bad\nthe list,\u200b\n")
    with pytest.raises(UserError, match=r"a.csv, '\\u200b', has no token to which the model"):
        bert_jax.evaluate_suite(bert_jax.load(workdir), tmp_path / "a.csv")
    with pytest.raises(UserError, match="per_paradigm=-1 must be at least 0"):
        bert_jax.evaluate_suite(bert_jax.load(workdir), tmp_path / "a.csv", per_paradigm=-1)


def test_the_command_prints_the_mean_and_writes_the_scores(suite, workdir, tmp_path, capsys):
    def run(*words):
        evaluate.run(command_line.parse("evaluate", "", evaluate.FLAGS, words))

    output = tmp_path / "scores.jsonl"
    run(f"--suite={suite}", f"--model={workdir}", f"--output={output}")
    found = bert_jax.evaluate_suite(bert_jax.load(workdir), suite)
    assert "of 2 paradigms, 40 pairs".ljust(60) + f" {found.scores.mean}" in capsys.readouterr().out
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["good_score"] for row in rows] == found.good.tolist()
    for words, message in (
        (["--suite=blimp"], "--model is missing"),
        (["--suite=blimp", "--model=a", "--workdir=b"], "--workdir evaluates a run, and --suite a"),
        ([f"--model={workdir}"], "--workdir is missing: a run to evaluate; or --suite"),
        ([f"--workdir={workdir}", "--per_paradigm=3"], "--per_paradigm is for --suite"),
        ([f"--suite={suite}", f"--model={workdir}", f"--output={suite}"], "is the input: name"),
        ([f"--suite={suite}", f"--model={workdir}", "--output=-"], "is the standard output, which"),
    ):
        with pytest.raises(UserError, match=message):
            run(*words)
