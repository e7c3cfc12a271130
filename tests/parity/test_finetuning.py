"""Fifty updates of each task against transformers' models, their losses, and torch's AdamW.

Both start from the same encoder and the same head, and see the same batches in the same order.
"""

import importlib
import random

import jax
import numpy as np
import pytest

from bert_jax.config.store import parse
from bert_jax.training.open import open_run
from bert_jax.training.state import init_params
from tests import tiny
from tests.parity.pairs import their_inputs, train
from tests.training import labelled_files
from tests.training.labelled_files import VOCABULARY, with_words, write_rows
from tests.twins import make_twin, torch, transformers

NUM_STEPS, NUM_EXAMPLES, LENGTH = 50, 96, 24
VALUES = tiny.make_overrides(
    model__vocab_size=len(VOCABULARY),
    model__initializer_range=0.1,
    model__activation="gelu",
    model__dropout_rate=0.0,
    model__attention_dropout_rate=0.0,
    max_length=LENGTH,
    steps=NUM_STEPS,
    epochs=0.0,
    global_batch_size=8,
    data__bucket_lengths=(LENGTH,),
    optimizer__name="adamw",
    optimizer__schedule="linear",
    optimizer__learning_rate=2e-3,
    optimizer__warmup="10",
)


def write_pairs(path, rng, count):
    """Good or bad, as the second text says; the first one misleads half of the time."""
    rows = []
    for number in range(count):
        label = ("good", "bad")[number % 2]
        texts = (with_words(rng, s, least=1, most=5) for s in (rng.choice(("good", "bad")), label))
        rows.append((*map(" ".join, texts), label))
    write_rows(path, ("text_a", "text_b", "label"), rows)


def write_questions(path, rng, count):
    """As labelled_files, without padding: there transformers' softmax covers padding too."""
    labelled_files.write_questions(path, rng, count, least=16, most=16)


def labels_of_rows(batch):
    return {"labels": batch["labels"]}


def labels_of_words(batch):
    labels = np.full(batch["input_ids"].shape, -100)
    rows, words = np.nonzero(batch["weights"])
    labels[rows, batch["word_positions"][rows, words]] = batch["labels"][rows, words]
    return {"labels": labels}


def labels_of_spans(batch):
    return {name: batch[name] for name in ("start_positions", "end_positions")}


# task, writer, changes of the configuration, model of transformers, its labels.
CASES = {
    "pairs": (
        *("classification", write_pairs, {"task.text_b": "text_b"}),
        *("BertForSequenceClassification", labels_of_rows),
    ),
    "numbers": (
        "classification",
        labelled_files.write_texts,
        {
            "task.problem_type": "regression",
            "task.label": "number",
            "metrics": ("pearson",),
            "checkpoint.best_metric": "pearson",
        },
        "BertForSequenceClassification",
        labels_of_rows,
    ),
    "tags": (
        *("tagging", labelled_files.write_words, {}),
        *("BertForTokenClassification", labels_of_words),
    ),
    "answers": (
        "span",
        write_questions,
        {"task.null_answers": True, "task.doc_stride": 8},
        "BertForQuestionAnswering",
        labels_of_spans,
    ),
    "choices": (
        *("multiple_choice", labelled_files.write_choices, {}),
        *("BertForMultipleChoice", labels_of_rows),
    ),
}


def make_run(task, write, changes, folder):
    """Opens a run on one file, which it is also evaluated on."""
    suffix = {"tagging": ".conll", "span": ".json", "multiple_choice": ".csv"}.get(task, ".tsv")
    path = folder / f"examples{suffix}"
    write(path, random.Random(0), NUM_EXAMPLES)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    config = parse(importlib.import_module(f"configs.{task}").get_config())
    files = {"data.train": str(path), "data.eval": str(path), "data.vocab": f"{folder}/vocab.txt"}
    config = config.replace(VALUES | files | changes)
    return open_run(config, str(folder / "run"))


def train_theirs(model, batches, make_labels):
    is_plain = lambda name: "LayerNorm" in name or name.endswith("bias")  # noqa: E731
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if is_plain(n) == plain],
            "weight_decay": d,
        }
        for plain, d in ((False, 0.01), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.999), eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 10, NUM_STEPS)
    losses = []
    for batch in batches:
        labels = {name: torch.tensor(array) for name, array in make_labels(batch).items()}
        labels = {n: t if t.is_floating_point() else t.long() for n, t in labels.items()}
        loss = model(**their_inputs(model, batch), **labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", CASES)
def test_fifty_updates(name, tmp_path):
    task, write, changes, model_class, make_labels = CASES[name]
    run = make_run(task, write, changes, tmp_path)
    task = run.task_at(run.phases[0])
    params = init_params(task, jax.random.key(1))
    rows = run.training[0]
    batches = [rows.batch(n, 0, rows.batch_rows(n)) for n in range(NUM_STEPS)]
    labels = params["classifier"]["bias"].size if "classifier" in params else 2
    model = make_twin(model_class, run.config.model, params, num_labels=labels)
    losses, _ = train(task, params, batches, run.optimizer()[0])
    losses = [of_step["task_loss"] for of_step in losses]
    expected = train_theirs(model, batches, make_labels)
    assert np.mean(losses[-10:]) < 0.97 * np.mean(losses[:10])  # it begins to learn
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
