"""Sentences as rows: every word is predicted exactly once, where it has most context."""

import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.labelled import encode_words as encode_words_module
from bert_jax.data.labelled.encode_words import encode_words
from bert_jax.data.labelled.examples import Labels, TaggedExample
from bert_jax.data.packing import pack_rows
from tests.data.labelled.letters import TOKENIZER

TAGS = Labels.find_tags(["B-PER"])


def encode(examples, length=16, document_context=False, **more):
    counts = Counter()
    rows = encode_words(iter(examples), TOKENIZER, length, TAGS, counts, document_context, **more)
    return rows, +counts


def sentence(words, tags=None, document=0) -> TaggedExample:
    tags = None if tags is None else tuple(tags.split())
    return TaggedExample("train.txt, line 5", "0", tuple(words.split()), tags, document)


def random_sentences(seed, num_sentences, max_words):
    """Five sentences a document; words of 1 to 7 pieces."""
    rng = random.Random(seed)
    for number in range(num_sentences):
        words = [
            rng.choice("abcdefgh") + "x" * rng.choice([0, 0, 0, 1, 2, 6])
            for _ in range(rng.randint(1, max_words))
        ]
        tags = [rng.choice(TAGS.names) for _ in words]
        yield TaggedExample(f"line {number}", "0", tuple(words), tuple(tags), number // 5)


def everything(rows, length):
    """All rows in one batch, with the number of the word that each place predicts."""
    predicted = np.full((rows.num_rows, length), -1)
    for row in range(rows.num_rows):
        places, words = rows.predicted_words(row)
        predicted[row, places] = words
    return rows.take(np.arange(rows.num_rows), length), predicted


def test_a_batch():
    rows, counts = encode([sentence("a bxx c", "O B-PER I-PER"), sentence("d"), sentence("e", "O")])
    batch = rows.take(np.array([0, 1, -1, 2]), 10)
    assert batch["input_ids"].tolist() == [
        [2, 5, 6, 13, 13, 7, 3, 0, 0, 0],
        [2, 8, 3, *[0] * 7],
        [0] * 10,
        [2, 9, 3, *[0] * 7],
    ]
    assert batch["word_positions"].tolist()[0] == [1, 2, 5, *[0] * 7]
    assert batch["is_word"].sum(1).tolist() == [3, 1, 0, 1] and batch["is_word"][:, 0].sum() == 3
    assert batch["labels"].tolist()[0] == [0, 1, 2, *[0] * 7]
    assert batch["weights"].sum(1).tolist() == [3, 0, 0, 1]
    assert [words.tolist() for _, words in map(rows.predicted_words, range(3))] == (
        [[0, 1, 2], [3], [4]]
    )
    dtypes = {name: batch[name].dtype.name for name in list(batch)[5:]}
    assert dtypes == (
        {"word_positions": "int32", "is_word": "bool", "labels": "int32", "weights": "float32"}
    )
    assert rows.lengths.tolist() == [7, 3, 3] and rows.example_starts.tolist() == [0, 3, 4, 5]
    assert not counts


def test_the_word_dimension_is_one_for_a_data_set():
    rows, _ = encode([sentence("a " * 20), sentence("b")], length=64)
    widths = [rows.take(np.array([1]), length)["labels"].shape[1] for length in (8, 32, 64)]
    assert widths == [8, 32, 32]


def check_windows(examples, rows, length):
    """Against a plain statement of the rules, word by word."""
    batch, predicted = everything(rows, length)
    room = length - 2
    spans = {}  # word -> [(score, row)]
    for row in range(rows.num_rows):
        example = examples[rows.example[row]]
        offset = int(rows.example_starts[rows.example[row]])
        num_pieces = int(rows.lengths[row]) - 2
        assert num_pieces <= room
        num_words = int(batch["is_word"][row].sum())
        assert batch["is_word"][row, :num_words].all()
        for place in range(num_words):
            number = int(rows.first_words[row]) + place
            at = int(batch["word_positions"][row, place])
            word = example.words[number - offset]
            ids = batch["input_ids"][row, at : at + len(word)].tolist()
            assert ids == TOKENIZER.encode(word)  # complete, and in its place
            assert batch["labels"][row, place] == TAGS.number(example.tags[number - offset], "")
            score = min(at - 1, num_pieces - at) + 0.01 * num_pieces
            spans.setdefault(number, []).append((score, -row))
            assert batch["weights"][row, place] == (predicted[row, place] == number)
            assert predicted[row, place] in (number, -1)
    chosen = {int(w): r for r, words in enumerate(predicted) for w in words if w >= 0}
    assert sorted(predicted[predicted >= 0]) == list(range(sum(len(e.words) for e in examples)))
    assert chosen == {number: -max(where)[1] for number, where in spans.items()}


@pytest.mark.parametrize("document_context", [False, True])
@pytest.mark.parametrize("length", [10, 40])
def test_every_word_is_predicted_once_where_it_has_most_context(length, document_context):
    examples = list(random_sentences(length, 60, max_words=40))
    rows, counts = encode(examples, length, document_context=document_context)
    check_windows(examples, rows, length)
    assert counts["sentences_of_several_rows"] == (np.bincount(rows.example) > 1).sum() > 5


@pytest.mark.parametrize("stride", [1, 14])
def test_windows_begin_a_stride_apart(stride):
    examples = list(random_sentences(stride, 40, max_words=40))
    rows, _ = encode(examples, 16, stride=stride)
    check_windows(examples, rows, 16)
    for example in range(len(examples)):
        here = np.flatnonzero(rows.example == example)
        words = examples[example].words
        before = np.cumsum([0, *map(len, words)])
        firsts = before[rows.first_words[here] - rows.example_starts[example]]
        # A stride, up to the next word, without leaving out words.
        longest = max(map(len, words))
        assert (np.diff(firsts)[:-1] > min(stride, 14 - longest) - 1).all()
        assert (np.diff(firsts) < stride + longest).all()


@pytest.mark.parametrize("packs", [False, True])
def test_all_pieces_of_a_word_are_where_its_size_says(packs):
    examples = list(random_sentences(1, 40, max_words=9))
    rows, _ = encode(examples, 32, all_pieces=True)
    numbers = np.arange(rows.num_rows)
    if packs:
        numbers = pack_rows(rows.lengths, 64, 3)
    batch, seen = rows.take(numbers, 64), 0
    words = [word for example in examples for word in example.words]
    for row, group in enumerate(numbers.reshape(len(numbers), -1)):
        shown = [int(n) for one in group if one >= 0 for n in rows.words_of(one)]
        sizes = batch["word_sizes"][row]
        assert (sizes > 0).sum() == len(shown) and sizes.dtype == np.int32
        for place, number in enumerate(shown):
            at = int(batch["word_positions"][row, place])
            ids = batch["input_ids"][row, at : at + int(sizes[place])].tolist()
            assert ids == TOKENIZER.encode(words[number])
            seen += len(ids) > 1
    assert seen > 20


def test_document_context_fills_rows_from_both_sides_with_the_words_of_the_document():
    examples = [sentence("a a a"), sentence("b b"), sentence("c cx c"), sentence("d", document=1)]
    rows, _ = encode(examples, 10, document_context=True)
    batch, predicted = everything(rows, 10)
    a, b, c, x = 5, 6, 7, 13
    assert batch["input_ids"].tolist() == [
        [2, a, a, a, b, b, c, c, x, 3],
        [2, a, a, a, b, b, c, c, x, 3],
        [2, a, a, b, b, c, c, x, c, 3],
        [2, 8, 3, *[0] * 7],
    ]
    assert batch["word_positions"][1, :3].tolist() == [4, 5, 0]
    assert batch["word_positions"][2, :4].tolist() == [5, 6, 8, 0]
    assert batch["is_word"].sum(1).tolist() == [3, 2, 3, 1]
    assert sorted(predicted[predicted >= 0]) == list(range(9))


def test_document_context_is_as_long_as_it_can_be():
    examples = list(random_sentences(0, 40, max_words=12))
    rows, _ = encode(examples, 30, document_context=True)
    pieces = Counter()
    for example in examples:
        pieces[example.document] += sum(map(len, example.words))
    for number, length in zip(rows.example, rows.lengths, strict=True):
        # Full, up to the six pieces of a word that does not fit on one side, or all there is.
        assert length >= min(pieces[examples[number].document] + 2, 30 - 2 * 6)


def test_words_without_pieces_and_words_that_are_too_long_are_counted():
    rows, counts = encode([sentence("a \u200b\u200d bxxxxxxxxxxx c")], length=8)
    batch, predicted = everything(rows, 8)
    assert counts == {
        "words_without_pieces": 1,
        "words_truncated": 1,
        "tokens_cut_off": 6,
        "sentences_of_several_rows": 1,
    }
    assert batch["input_ids"].tolist() == [
        [2, 5, 1, 3, 0, 0, 0, 0],
        [2, 6, 13, 13, 13, 13, 13, 3],
        [2, 7, 3, 0, 0, 0, 0, 0],
    ]
    assert predicted[predicted >= 0].tolist() == [0, 1, 2, 3]


def test_sentences_without_words_are_rows_without_words():
    batch, predicted = everything(encode([sentence(""), sentence("")])[0], 8)
    assert batch["input_ids"].tolist() == [[2, 3, *[0] * 6]] * 2
    assert not batch["is_word"].any() and not batch["weights"].any() and (predicted == -1).all()


def test_a_long_document_is_read_in_pieces(monkeypatch):
    monkeypatch.setattr(encode_words_module, "_LONGEST_DOCUMENT", 3)
    one = [sentence(word, "O") for word in "abcde"]
    two = [sentence(word, "O", number // 3) for number, word in enumerate("abcde")]
    found, _ = everything(encode(one, document_context=True)[0], 16)
    expected, _ = everything(encode(two, document_context=True)[0], 16)
    assert found["input_ids"].tolist() == expected["input_ids"].tolist()
    assert [list(map(len, map(np.flatnonzero, found["input_ids"])))] == [[5, 5, 5, 4, 4]]


@pytest.mark.parametrize(
    "examples, message",
    [
        ([sentence("a", "B-LOC")], "line 5: unknown label 'B-LOC'; the labels .* are O"),
        ([sentence("a b", "O")], "line 5: 1 tags for 2 words"),
        ([sentence("", "")], "There are no words to tag"),
        ([], "There are no examples"),
    ],
)
def test_errors(examples, message):
    with pytest.raises(ValueError, match=message):
        encode(examples)
    with pytest.raises(ValueError, match="config.task.stride=15 is above 14, the tokens of a win"):
        encode(examples, 16, stride=15)
