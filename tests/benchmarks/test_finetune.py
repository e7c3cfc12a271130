"""The fine-tuning benchmark: its table, refused settings, and that both programs learn the same."""

import json

import numpy as np
import pytest

from benchmarks import finetune
from bert_jax.config.store import parse
from configs import classification, ner, squad

WORDS = "ada bob lives works in at paris rome acme the a today".split()
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}


def test_what_cannot_be_compared_is_refused():
    config = parse(ner.get_config("wikigold")).replace({"init_from": "minilm"})
    finetune.check(config)
    for name, value, message in (
        ("task.head", "crf", "config.task.head='crf': the other program has only 'linear'"),
        ("optimizer.warmup", "10", "config.optimizer.warmup='10' is not a percentage"),
    ):
        with pytest.raises(ValueError, match=message):
            finetune.check(config.replace({name: value}))


@pytest.fixture
def small_task(tmp_path):
    """A folder of Hugging Face with a random model, and a file with names to recognize."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    folder = tmp_path / "model"
    folder.mkdir()
    pieces = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *WORDS, "##s"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    config = transformers.BertConfig(vocab_size=len(pieces), **SIZES)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    file = tmp_path / "names.conll"
    sentence = "Ada B-PER\nlives O\nin O\nParis B-LOC\n\nAcmes B-ORG\nworks O\ntoday O\n\n"
    file.write_text(sentence * 16)
    return folder, file


def write_examples(folder):
    """Files of the other tasks; returns {task: (configuration, its argument, file)}."""
    texts = folder / "texts.tsv"
    lines = [
        f"{who} lives in {place}\t{place}" for who in ("ada", "bob") for place in ("paris", "rome")
    ]
    texts.write_text("text_a\tlabel\n" + "\n".join(lines * 8) + "\n")
    questions = []
    for number in range(32):
        place = "paris" if number % 4 < 2 else "rome"
        context = f"{'ada' if number % 2 else 'bob'} works at acme in {place}"
        answers = [{"text": place, "answer_start": context.index(place)}]
        qas = [{"id": f"q{number}", "question": "in a", "answers": answers}]
        questions.append({"context": context, "qas": qas})
    data = {"version": "1.1", "data": [{"title": "x", "paragraphs": questions}]}
    (folder / "questions.json").write_text(json.dumps(data))
    return {
        "tagging": (ner, ("wikigold",), folder / "names.conll"),
        "classification": (classification, (), texts),
        "span": (squad, ("v1",), folder / "questions.json"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, dtype",
    [
        ("tagging", "float32"),
        ("classification", "float32"),
        ("span", "float32"),
        ("classification", "bfloat16_products"),
    ],
)
def test_both_sides_learn_a_file_by_heart(small_task, task, dtype, tmp_path):
    from benchmarks.rivals import finetune_torch

    folder, _ = small_task
    module, argument, file = write_examples(tmp_path)[task]
    changes = finetune.SETTINGS | {
        "init_from": str(folder),
        "dtype": dtype,
        "data.train": str(file),
        "data.eval": str(file),
        "max_length": 32,
        "global_batch_size": 16,
        "optimizer.learning_rate": 1e-2,
        "epochs": 15.0,
    }
    if task == "span":
        changes["task.doc_stride"] = 16
    config = parse(module.get_config(*argument))
    config = config.replace(changes)
    finetune.check(config)
    path = ":".join((module.__file__, *argument))
    arguments = [f"--config={path}", *(f"--config.{n}={v}" for n, v in changes.items())]
    ours = finetune.build(arguments, metric=config.metrics[0], seed=0)
    theirs = finetune_torch.build(config.to_dict())
    for measure in (ours, theirs):
        found = measure()
        assert found["score"] == (100.0 if task == "span" else 1.0)
        assert found["examples_per_second"] > 0


def test_labels_stand_at_first_pieces_and_words_without_one_are_o(small_task):
    transformers = pytest.importorskip("transformers")
    from benchmarks.rivals.finetune_torch_tasks import Tagging
    from bert_jax.data.labelled.examples import TaggedExample

    labels = ["B-LOC", "B-ORG", "O"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(small_task[0])
    words = ("Acmes", "\u200b", "works", "in", "Rome")
    example = TaggedExample("x, line 1", "0", words, ("B-ORG", "O", "O", "O", "B-LOC"))
    task = Tagging({"max_length": 6}, tokenizer)
    task.labels = labels
    (row,), (firsts,) = task.encode([example])
    assert tokenizer.convert_ids_to_tokens(row["input_ids"]) == (
        "[CLS] acme ##s works in [SEP]".split()
    )
    assert row["labels"] == [-100, 1, -100, 2, 2, -100]
    assert firsts == [1, None, 3, 4, None]
    best = np.array([0, 1, 0, 0, 1, 0])
    assert task.tags(best, firsts) == ["B-ORG", "O", "B-LOC", "B-ORG", "O"]
