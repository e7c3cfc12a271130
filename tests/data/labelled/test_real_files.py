"""Published files from the file to the answers: nothing is lost on the way."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled.batching import BucketedLoader
from bert_jax.data.labelled.choices import read_choices
from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.encode_questions import encode_questions
from bert_jax.data.labelled.encode_texts import encode_choices
from bert_jax.data.labelled.encode_words import encode_words
from bert_jax.data.labelled.examples import Labels
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.spans import choose_spans
from bert_jax.text.tokenizers import load_tokenizer


@pytest.fixture
def load(shared_data):
    """Returns the tokenizer of BERT-Base, uncased or cased."""

    def load(case):
        path = shared_data / "vocab" / f"bert-base-{case}" / "vocab.txt"
        return load_tokenizer(path, lowercase=case == "uncased")

    return load


def test_a_model_that_is_right_gets_the_answers_of_squad(shared_data, load):
    length, stride, tokenizer = 128, 32, load("cased")
    path = shared_data / "squad" / "dev-v2.0.3articles.json"
    questions = list(read_questions(str(path), Counter()))
    assert (len(questions), sum(q.is_impossible for q in questions)) == (1124, 541)
    rows = encode_questions(questions, tokenizer, length, stride, 64, Counter())
    for number, question in enumerate(questions):
        assert all(question.context[at:].startswith(text) for text, at in question.answers)
        gold = question.answers[0][0] if question.answers else ""
        if len(tokenizer.encode(gold)) > 30:
            continue  # longer than answers may be, or than a part that windows share
        windows = rows.windows(number)
        # In each window the tokens of the answer, or [CLS].
        logits = np.zeros((len(windows), 2, length))
        for window in windows:
            logits[window.row - windows[0].row, 0, rows.start_positions[window.row]] = 5
            logits[window.row - windows[0].row, 1, rows.end_positions[window.row]] = 5
        answers = choose_spans(question.context, windows, logits[:, 0], logits[:, 1], 30, 20)
        assert answers.text(null_threshold=0.0) == gold


def test_questions_of_squad_1_have_answers_at_their_offsets(shared_data):
    path = shared_data / "squad" / "train-v1.1style.3articles.noxquad.json"
    questions = list(read_questions(str(path), counts := Counter()))
    assert len(questions) == 533 and not any(q.is_impossible for q in questions) and not +counts
    for question in questions:
        assert all(question.context[at:].startswith(text) for text, at in question.answers)


@pytest.mark.parametrize(
    "name, scheme, sentences, types, document_context",
    [
        # 1841 is the published number of sentences, the marks of documents among them.
        ("wikigold/wikigold.conll.txt", "iob1_files", 1841, 4, False),
        ("wikigold/wikigold.conll.txt", "iob1_files", 1841, 4, True),
        ("wnut17/train.conll", "iob2_files", 3394, 6, False),
    ],
)
def test_every_tag_comes_back(name, scheme, sentences, types, document_context, shared_data, load):
    examples = list(read_tagged(str(shared_data / "ner" / name), counts := Counter()))
    assert len(examples) + counts["docstart_lines"] == sentences and counts[scheme] == 1
    tags = [tag for example in examples for tag in example.tags]
    labels = Labels.find_tags(tags)
    assert len(labels) == 2 * types + 1
    rows = encode_words(examples, load("cased"), 128, labels, Counter(), document_context)
    batch, found = rows.take(np.arange(rows.num_rows), 128), np.full(len(tags), -1)
    assert batch["weights"].sum() == len(tags)
    for row in range(rows.num_rows):
        places, words = rows.predicted_words(row)
        found[words] = batch["labels"][row, places]
    assert [labels.names[tag] for tag in found] == tags
    if not document_context and scheme == "iob1_files":
        # 128 for every row is four fifths padding; here it is less than a quarter.
        loader = BucketedLoader(rows.lengths, 16, 0, (16, 24, 32, 48, 64, 96, 128))
        slots = sum(16 * loader.batch(number)[1] for number in range(loader.batches_per_epoch))
        assert rows.lengths.sum() < 0.3 * 128 * rows.num_rows
        assert rows.lengths.sum() > 0.75 * slots


def test_swag(shared_data, load):
    path, tokenizer = shared_data / "multiple_choice" / "swag_sample.json", load("uncased")
    examples = list(read_choices(str(path), counts := Counter()))
    assert len(examples) == 10 and not +counts
    assert {len(e.endings) for e in examples} == {4} and examples[0].start == "A drum line"
    batch = encode_choices(examples, tokenizer, 128, Counter()).take(np.arange(10), 128)
    assert batch["labels"].tolist() == [e.label for e in examples]
    assert batch["labels"][:3].tolist() == [0, 3, 1]
    for number, example in enumerate(examples):
        for choice, ending in enumerate(example.endings):
            first = [tokenizer.cls_id, *tokenizer.encode(example.context), tokenizer.sep_id]
            second = [*tokenizer.encode(f"{example.start} {ending}"), tokenizer.sep_id]
            ids = batch["input_ids"][number, choice].tolist()
            assert ids == first + second + [0] * (128 - len(first) - len(second))
