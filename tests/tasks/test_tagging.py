"""Predictions and scores of tagging from tags, by hand."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import default_config
from bert_jax.data.labelled.examples import TaggedExample
from bert_jax.inference.examples import make_examples
from bert_jax.text.tokenizers import load_tokenizer
from tests.tiny import make_model

GOLD = [
    TaggedExample("x", "0", ("ann", "bob", "saw", "rome"), ("B-PER", "I-PER", "O", "B-LOC")),
    TaggedExample("x", "1", tuple("abcdefghij"), ("B-LOC", *"OOOOOOOOO")),
]


def make(metrics=("f1", "precision"), frozen=False, published="", **head):
    values = {"max_length": 9, "metrics": metrics, "checkpoint.best_metric": "loss"}
    values |= {"optimizer.frozen_layers": -int(frozen), "task.published": published}
    values |= {f"task.{name}": value for name, value in head.items()}
    return default_config("tagging").replace(values).task


def with_labels(data):
    return dataclasses.replace(data, labels=data.find_labels(GOLD))


@pytest.fixture
def tokenizer(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "bob", "saw", "rome"]
    (tmp_path / "vocab.txt").write_text("\n".join([*words, *"abcdefghij"]) + "\n")
    return load_tokenizer(str(tmp_path / "vocab.txt"), True)


HALF = np.full(14, 0.5, np.float32)


def predict(data, rows, tags_of_words, probabilities=HALF):
    """Gives every place of every row the tag of its word; places that predict nothing another."""
    values, answers = {"tags": tags_of_words, "probabilities": probabilities}, []
    for row in range(rows.num_rows):
        places, words = rows.predicted_words(row)
        answers.append({name: np.full(9, 4, of_words.dtype) for name, of_words in values.items()})
        for name, of_words in values.items():
            answers[-1][name][places] = of_words[words]
    return data.collect(GOLD, rows, answers)


def test_tags_of_words_are_merged_from_all_windows(tokenizer):
    data = with_labels(make())
    assert data.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    rows = data.encode(GOLD, tokenizer, Counter())
    assert rows.num_rows == 3  # the second sentence takes two
    tags = np.array([3, 4, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3])
    shares = np.linspace(0.5, 1, 14).astype(np.float32)
    found = predict(data, rows, tags, shares)
    assert found[0]["tags"] == ["B-PER", "I-PER", "O", "O"]
    assert found[0]["words"] == ["ann", "bob", "saw", "rome"]
    (entity,) = found[0]["entities"]
    assert entity.pop("probability") == pytest.approx(shares[:2].mean())
    place = {"start": 0, "end": 7, "first_word": 0, "last_word": 1}
    assert entity == {"type": "PER", "text": "ann bob"} | place
    assert [entity["text"] for entity in found[1]["entities"]] == ["a b", "j"]
    np.testing.assert_allclose(found[0]["probabilities"] + found[1]["probabilities"], shares)
    # One of the three entities that are, and one of the three found, is right.
    scores = data.score(GOLD, found)
    assert scores["f1"] == scores["precision"] == scores["recall"] == pytest.approx(1 / 3)
    assert scores["PER_f1"] == pytest.approx(2 / 3) and scores["LOC_f1"] == 0
    assert scores["accuracy"] == pytest.approx(11 / 14)
    assert list(scores)[:2] == ["f1", "precision"]
    assert data.baseline(GOLD) == 0
    data = with_labels(make(("accuracy",), entities=False))
    found = predict(data, rows, np.full(14, data.labels.index("O")))
    assert data.score(GOLD, found) == {"accuracy": pytest.approx(data.baseline(GOLD))}
    assert data.baseline(GOLD) == pytest.approx(10 / 14)


def test_windows_vote_with_their_probabilities(tokenizer):
    """The mean over all rows that show a word, each of which may prefer another tag."""
    data = with_labels(make(overlap="vote"))
    rows = data.encode(GOLD, tokenizer, Counter())
    rng = np.random.default_rng(0)
    answers = [{"probabilities": rng.dirichlet(np.ones(5), 9)} for _ in range(rows.num_rows)]
    shown = {}
    batch = rows.take(np.arange(rows.num_rows), 9)
    for row, answer in enumerate(answers):
        for place in range(int(batch["is_word"][row].sum())):
            number = int(rows.first_words[row]) + place
            shown.setdefault(number, []).append(answer["probabilities"][place])
    assert sum(len(votes) > 1 for votes in shown.values()) > 2
    found = data.collect(GOLD, rows, answers)
    tags = [tag for one in found for tag in one["tags"]]
    sure = [p for one in found for p in one["probabilities"]]
    means = [np.mean(shown[number], axis=0) for number in range(14)]
    assert tags == [data.labels[int(mean.argmax())] for mean in means]
    np.testing.assert_allclose(sure, [mean.max() for mean in means], rtol=1e-6)


def test_batches_have_the_sizes_of_words_where_all_pieces_are_read(tokenizer):
    data = with_labels(make(subwords="mean"))
    batch = data.encode(GOLD, tokenizer, Counter()).take(np.array([0, -1]), 9)
    assert batch["word_sizes"].tolist() == [[1, 1, 1, 1, *[0] * 5], [0] * 9]


# "e" and an accent; a family of four emojis and joiners; a Chinese name; a flag of two characters.
UNICODE = [
    ("Ren\u0065\u0301 saw Zoe\u0308", ["O", "O", "B-PER"], "Zoe\u0308"),
    ("\U0001f468\u200d\U0001f469\u200d\U0001f467 met Bob", ["O", "O", "B-PER"], "Bob"),
    ("\u738b\u5c0f\u660e \u5728 \u5317\u4eac", ["O", "O", "B-LOC"], "\u5317\u4eac"),
    ("\U0001f1eb\U0001f1f7\u2003Rome \ufb01n", ["O", "B-LOC", "O"], "Rome"),
    ("\u0130stanbul\u3000saw \u0130zmir", ["O", "O", "B-LOC"], "\u0130zmir"),
]


@pytest.mark.parametrize("text, tags, entity", UNICODE)
def test_offsets_count_characters_of_the_text_as_it_was_given(text, tags, entity, tokenizer):
    """Whatever lower-casing and the tokenizer's normalization make of it."""
    data = with_labels(make())
    examples = list(make_examples(TaggedExample, [text]))
    rows = data.encode(examples, tokenizer, Counter())
    numbers = np.array([data.labels.index(tag) for tag in tags])
    ((found,),) = (
        one["entities"]
        for one in data.collect(examples, rows, [{"tags": numbers, "probabilities": np.ones(3)}])
    )
    assert (found["text"], text[found["start"] : found["end"]]) == (entity, entity)
    assert found["start"] == text.index(entity)


def words_of(data, path, content):
    path.write_text(content)
    return [example.words for example in data.read(str(path), Counter(), labelled=False)]


@pytest.mark.parametrize(
    "content, words",
    [
        ("ann B-PER\n", [("ann",)]),
        ("-DOCSTART- -X- O O\n\nann NNP B-NP B-PER\n", [("ann",)]),
        ("ann saw B-PER rome\nbob\n", [("ann", "saw", "B-PER", "rome"), ("bob",)]),  # no columns
    ],
)
def test_a_text_file_has_columns_or_a_sentence_a_line(tmp_path, content, words):
    assert words_of(make(), tmp_path / "test.txt", content) == words


@pytest.mark.parametrize(
    "head, num_layers, message",
    [
        (
            {"overlap": "vote", "head": "crf"},
            4,
            "overlap='vote' cannot be combined with config.task.head",
        ),
        (
            {"subwords": "mean", "head": "bilstm_crf"},
            4,
            "subwords='mean' cannot be combined with config.task",
        ),
        ({"layers": "sum_last_4"}, 3, "'sum_last_4' takes 4 layers, and the model has"),
    ],
)
def test_choices_that_do_not_fit_the_head_or_the_model_are_refused(
    head, num_layers, message, tokenizer
):
    with pytest.raises(ValueError, match=message):
        make(**head).bind(make_model(num_layers=num_layers), tokenizer)


def test_chinese_characters_are_words_and_entities_have_no_spaces(tmp_path):
    data = with_labels(make(published="msra_ner"))
    assert words_of(data, tmp_path / "test.txt", "\u5317\u4eac x\n") == [("\u5317", "\u4eac", "x")]
    examples = list(data.read(str(tmp_path / "test.txt"), Counter(), labelled=False))
    words = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), "\u5317", "\u4eac", "x"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = load_tokenizer(str(tmp_path / "vocab.txt"), True)
    rows = data.encode(examples, tokenizer, Counter())
    (found,) = data.collect(
        examples, rows, [{"tags": np.array([3, 4, 0]), "probabilities": np.ones(3)}]
    )
    assert [entity["text"] for entity in found["entities"]] == ["\u5317\u4eac"]


def test_texts_without_tags_may_have_the_form_of_the_training_file(tmp_path):
    """Its columns are known by the labels; another file of two words per line is text."""
    (columns := tmp_path / "a.txt").write_text("the DET\ncat NOUN\n\na DET\ndog NOUN\n")
    (texts := tmp_path / "b.txt").write_text("the cat\na dog\n\na cat\n")
    task = make(("accuracy",), entities=False)
    examples = list(task.read(str(columns), Counter(), labelled=True))
    task = dataclasses.replace(task, labels=task.find_labels(examples))
    read = lambda path: [e.words for e in task.read(str(path), Counter(), labelled=False)]  # noqa: E731
    assert read(columns) == [("the", "cat"), ("a", "dog")]
    assert read(texts)[:2] == [("the", "cat"), ("a", "dog")]
