"""Continued pre-training: new tokens, general text, and a phase of next tokens, in whole runs."""

import random

import numpy as np
import pytest

import bert_jax
from bert_jax.__main__ import main as run_command
from bert_jax.config import store
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.devices.trees import flatten
from bert_jax.exchange.loaded import vocabulary_params
from bert_jax.files.errors import UserError
from bert_jax.plans.adaptation import plan_adaptation
from bert_jax.training.listener import Listener
from bert_jax.training.open import open_run
from bert_jax.training.train import train
from bert_jax.training.workdir import open_model
from tests import tiny
from tests.resuming import assert_same_run, metrics_of, train_in_parts
from tests.tools.convert.conftest import VOCABULARY, make_workdir, random_params  # noqa: F401

WORDS = "moon river stone tree cloud leaf sand hill".split()
FIELDS = {
    "prng_impl": tiny.PRNG_IMPL,
    "phases": ((32, 1.0),),
    "global_batch_size": 8,
    "steps": 4,
    "data.num_processes": 1,
    "log.every": "1",
    "eval.every": "2",
    "checkpoint.every": "2",
}


def write_text(path, words, seed=0, documents=30) -> str:
    rng = random.Random(seed)
    lines = (f"{' '.join(rng.choices(words, k=3))}." for _ in range(documents * 2))
    path.write_text("\n\n".join("\n".join(pair) for pair in zip(lines, lines, strict=True)))
    return str(path)


@pytest.fixture
def source(make_workdir):  # noqa: F811
    """A model whose vocabulary has letters only, without a next-sentence head."""
    sizes = {"model__vocab_size": 57, "model__num_layers": 1, "model__next_sentence": False}
    return str(make_workdir(VOCABULARY, **sizes, data__segments="full_sentences"))


def test_new_tokens_are_trained_and_exported(source, tmp_path):
    transformers = pytest.importorskip("transformers")
    text, lines = write_text(tmp_path / "text.txt", WORDS), []
    given = FIELDS | {"data.extra_tokens": "frequent:3"}
    plan = plan_adaptation(source, text, "", str(tmp_path / "whole"), given)
    assert plan.config.model.vocab_size == 60
    listener = Listener()
    listener.line = lines.append
    train(plan.config, str(tmp_path / "whole"), listener=listener)
    (found,) = (line for line in lines if line.startswith("new tokens: 3 of 8 words"))
    new = found.split(": ")[-1].split(", ")
    assert "with 3 new tokens, each the mean of its old pieces" in " ".join(lines)
    ours = bert_jax.load(str(tmp_path / "whole"))
    ours.export("huggingface", tmp_path / "exported")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    texts = [f"The {new[0].upper()} {word}s, {word}" for word in (*WORDS, *new)]
    ids = open_model(str(tmp_path / "whole")).tokenizer
    for each in texts:
        assert tokenizer(each, add_special_tokens=False)["input_ids"] == ids.encode(each)
    assert ids.encode(new[2]) == [59]
    config = transformers.AutoConfig.from_pretrained(tmp_path / "exported")
    assert config.vocab_size == 60
    theirs = bert_jax.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(theirs.encode(texts), ours.encode(texts), atol=1e-6)


def test_a_new_token_begins_as_the_mean_of_its_old_pieces(source, tmp_path):
    text = write_text(tmp_path / "text.txt", WORDS)
    (tmp_path / "terms.txt").write_text("moon\nriver\n")
    given = FIELDS | {
        "data.extra_tokens": str(tmp_path / "terms.txt"),
        "optimizer.learning_rate": 0.0,
        "steps": 1,
    }
    plan = plan_adaptation(source, text, "", str(tmp_path / "new"), given)
    params = flatten(train(plan.config, str(tmp_path / "new")).state.params)
    pieces = VOCABULARY.split("\n")
    old = [
        [pieces.index(p) for p in split.split()] for split in ("m ##o ##o ##n", "r ##i ##v ##e ##r")
    ]
    for path in vocabulary_params("bert"):
        before = open_model(source).params[path]
        means = np.stack([before[ids].mean(0) for ids in old])
        np.testing.assert_array_equal(params[path][:57], before)
        np.testing.assert_allclose(params[path][57:], means, atol=1e-7)


def test_general_text_is_evaluated_and_replayed(source, tmp_path, capsys):
    """Of each batch, 2 of 8 rows."""
    text = write_text(tmp_path / "text.txt", WORDS[:4])
    general = write_text(tmp_path / "general.txt", WORDS[4:], seed=1)
    given = FIELDS | {"data.replay": 0.25, "data.general_share": 0.5}
    workdir = str(tmp_path / "adapted")
    command = ["adapt", text, f"--model={source}", f"--general={general}", f"--workdir={workdir}"]
    flags = [f"--config.{name}={value}" for name, value in given.items()]
    run_command([*command, f"--export={tmp_path / 'exported'}", *flags])
    printed = capsys.readouterr().out
    for start in ("before     general  loss", "change     general  loss", "replay     2 of 8 rows"):
        assert f"\n{start}" in printed
    assert (tmp_path / "exported/model.safetensors").is_file()

    run = open_run(store.load(workdir), workdir)
    rows, (_, other) = run.training[0], run.evaluation[0]
    own = Manifest.load(f"{workdir}/data")
    assert rows.rows_per_epoch == -(-own.num_rows("train", 32) * 8 // 6)
    letters, decode = set("clouds leaf sand hill".replace(" ", "")), run.tokenizer.decode
    for number in range(5):
        batch = rows.batch(number, 0, 8)
        parts = [rows.batch(number, *some) for some in ((0, 3), (3, 7), (7, 8))]
        for name in batch:
            joined = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(joined, batch[name])
        general_rows = [
            set(decode(ids[ids > 4].tolist())) <= {*letters, " ", "."} for ids in batch["input_ids"]
        ]
        assert general_rows == [False] * 6 + [True] * 2
    evaluated = {
        ids.tobytes()
        for ids in next(other.evaluation_batches(64)).read(0, other.rows_per_epoch)["input_ids"]
    }
    replayed = {ids.tobytes() for n in range(5) for ids in rows.batch(n, 6, 8)["input_ids"]}
    assert not evaluated & replayed
    first = metrics_of(workdir)[0]
    assert (first["step"], first["split"]) == (0, "validation")
    assert first["general_loss"] == first["general_masked_lm_loss"] != first["loss"]


def test_a_phase_of_next_tokens_trains_the_same_parameters(source, tmp_path):
    text = write_text(tmp_path / "text.txt", WORDS)
    phases = ((32, 0.5, "causal_lm"), (32, 0.5))
    given = FIELDS | {"phases": phases, "data.dir": str(tmp_path / "data"), "log.every": "3"}
    plan = plan_adaptation(source, text, "", str(tmp_path / "whole"), given)
    result = train(plan.config, str(tmp_path / "whole"))
    rows = [row for row in metrics_of(tmp_path / "whole") if row["split"] == "train"]
    losses = [("causal_lm_loss" in row, "masked_lm_loss" in row) for row in rows]
    # The first line is of both phases, two steps of one and a step of the other.
    assert losses == [(True, True), (False, True)]
    assert all(row["loss"] == row["masked_lm_loss"] for row in rows)
    evaluations = [row for row in metrics_of(tmp_path / "whole") if row["split"] == "validation"]
    assert all("masked_lm_loss" in row for row in evaluations) and len(evaluations) == 3
    assert flatten(result.state.params).keys() == open_model(source).params.keys()


def test_steps_on_next_tokens_between_those_on_masked_ones(source, tmp_path):
    """The run resumes exactly, also where the first step afterwards is one of them and reported."""
    text = write_text(tmp_path / "text.txt", WORDS)
    given = FIELDS | {"phases": ((32, 1.0),), "data.dir": str(tmp_path / "data"), "steps": 8}
    given |= {"causal_share": 0.25, "log.every": "2", "model.predicts_next": True}
    plan = plan_adaptation(source, text, "", str(tmp_path / "whole"), given)
    train(plan.config, str(tmp_path / "whole"))
    rows = [row for row in metrics_of(tmp_path / "whole") if row["split"] == "train"]
    assert [row["step"] for row in rows if "causal_lm_loss" in row] == [4, 8]
    assert all(row["loss"] == row["masked_lm_loss"] for row in rows)
    train_in_parts(plan.config, tmp_path / "parts", 3)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


NEXT_TOKENS = {"phases": ((16, 1.0, "causal_lm"),)}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data.replay": 0.2}, "data.replay=0.2 needs config.data.general"),
        ({"data.replay": 0.05, "data.general": "text:{0}"}, "0.05 is 0 of the 8 rows"),
        ({"phases": ((16, 1.0, "tagging"),)}, "has the task 'tagging': available are causal_lm"),
        (NEXT_TOKENS | {"phases": ((16, 0.5, "causal_lm"), (16, 0.5)), "eval.patience": 2},
         "config.eval.patience=2 could end the run in its phase of 'causal_lm'"),
        (NEXT_TOKENS | {"model.attention_pattern": "causal"}, "needs an encoder with .*='bidirect"),
        (NEXT_TOKENS | {"data.mode": "static", "data.segments": "pairs"},
         "needs a run on masked tokens with config.data.mode='dynamic'"),
        (NEXT_TOKENS | {"model.copy_head": True}, "set config.model.copy_head=False"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(changes, message, source, tmp_path):
    text = write_text(tmp_path / "text.txt", WORDS)
    given = FIELDS | {
        name: value.format(text) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises(UserError, match=message):
        plan = plan_adaptation(source, text, "", str(tmp_path / "new"), given)
        train(plan.config.replace({"init_from": ""}), str(tmp_path / "new"))


def test_general_text_of_another_form_is_refused(source, tmp_path):
    text = write_text(tmp_path / "text.txt", WORDS)
    (tmp_path / "general.jsonl").write_text('{"text": "moon river"}\n' * 30)
    with pytest.raises(UserError, match="general.jsonl is general text of the form jsonl, "):
        plan_adaptation(source, text, "", str(tmp_path / "r"), {}, str(tmp_path / "general.jsonl"))
