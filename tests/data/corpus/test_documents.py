"""The token store: documents are read as written, for any chunks; the choice of held-out ones."""

import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.data.corpus import documents as documents_lib
from bert_jax.data.corpus.documents import (
    Documents,
    count_distinct,
    id_dtype,
    join_chunks,
    split_documents,
    tokenize_chunk,
)


class NumberTokenizer:
    """Sentences are numbers with spaces; 1 is unknown."""

    def __init__(self, vocab_size: int):
        self.pieces = tuple(map(str, range(vocab_size)))
        self.unk_id = 1

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]


class Chunks:
    def __init__(self, chunks: list[list[list[str]]]):
        self._chunks = chunks

    def read(self, chunk: int, counts: Counter):
        counts["read"] += 1
        counts["never"] += 0
        yield from self._chunks[chunk]


def make_documents(count: int, vocab_size: int = 1000) -> list[list[str]]:
    rng = random.Random(count)
    return [
        [
            " ".join(str(rng.randrange(2, vocab_size)) for _ in range(rng.randint(1, 9)))
            for _ in range(rng.randint(1, 20))
        ]
        for _ in range(count)
    ]


def store(folder, chunks: list[list[list[str]]], vocab_size: int = 1000) -> str:
    source, tokenizer = Chunks(chunks), NumberTokenizer(vocab_size)
    folders = [str(folder / f"chunk-{i}") for i in range(len(chunks))]
    for number, chunk_folder in enumerate(folders):
        tokenize_chunk(source, number, tokenizer, b"key", chunk_folder)  # pyright: ignore
    join_chunks(folders, str(folder / "corpus"))
    return str(folder / "corpus")


def contents(folder: str, split: str, dtype: np.dtype) -> list[list[list[int]]]:
    """All ids of all sentences of all documents of a split."""
    documents, result = Documents(folder, split, dtype), []
    for number in range(len(documents)):
        starts = documents.starts(number)
        assert len(starts) == documents.num_sentences(number) + 1
        lengths = np.diff(np.array(starts, np.int64)).tolist()
        spans = zip(starts, lengths, strict=False)
        result.append([np.frombuffer(documents.tokens(*s), dtype).tolist() for s in spans])
    documents.close()
    return result


def contents_of(documents: list[list[str]]) -> list[list[list[int]]]:
    return [[list(map(int, sentence.split())) for sentence in d] for d in documents]


@pytest.mark.parametrize("vocab_size, num_chunks", [(1000, 1), (1000, 10), (100_000, 3)])
def test_every_sentence_comes_back(vocab_size, num_chunks, tmp_path):
    documents = make_documents(50, vocab_size)
    chunks = [
        documents[i * 50 // num_chunks : (i + 1) * 50 // num_chunks] for i in range(num_chunks)
    ]
    folder = store(tmp_path, chunks, vocab_size)
    split_documents(folder, 0.0)
    assert contents(folder, "train", id_dtype(vocab_size)) == contents_of(documents)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_what_has_no_token_is_left_out_and_counted(tmp_path):
    source = Chunks([[["2 1 3", " ", "4"], ["", " "], ["1"]]])
    tokenizer = NumberTokenizer(10)
    counts = tokenize_chunk(source, 0, tokenizer, b"key", str(tmp_path / "c"))  # pyright: ignore
    assert counts == {
        "bytes": 15,
        "documents": 2,
        "sentences": 3,
        "tokens": 5,
        "unknown_tokens": 2,
        "empty_documents": 1,
        "empty_sentences": 3,
        "text": {"read": 1, "never": 0},
    }


def test_repeated_sentences_and_documents_are_counted(tmp_path):
    folder = store(tmp_path, [[["2", "3"], ["2", "4"]], [["2", "3"], ["2 3"]]])
    counts = documents_lib.read_json(folder + "/counts.json")
    assert counts["duplicate_sentences"] == 7 - 4
    assert counts["text"] == {"read": 2}
    assert split_documents(folder, 0.0)[1] == 1


def test_count_distinct_in_parts(tmp_path):
    values = np.random.default_rng(0).integers(0, 700, 5000).astype("<u8")
    for number, part in enumerate(np.split(values, 5)):
        part.tofile(tmp_path / str(number))
    paths = [str(tmp_path / str(number)) for number in range(5)]
    assert count_distinct(paths, in_memory=300) == np.unique(values).size == count_distinct(paths)


@pytest.mark.parametrize("share", [0.001, 0.1])
def test_the_share_of_documents_is_held_out_whatever_the_chunks(share, tmp_path):
    documents = make_documents(300)
    expected = None
    for num_chunks in (1, 7):
        chunks = [documents[i::num_chunks] for i in range(num_chunks)]
        folder = store(tmp_path / str(num_chunks), chunks)
        splits, _ = split_documents(folder, share)
        assert splits["validation"].num_documents == max(2, round(300 * share))
        assert splits["train"].num_documents == 300 - splits["validation"].num_documents
        held_out = sorted(contents(folder, "validation", id_dtype(1000)))
        assert held_out == (expected or held_out)
        expected = held_out
        train = contents(folder, "train", id_dtype(1000))
        assert sorted(train + held_out) == sorted(contents_of(documents))


def test_documents_of_equal_text_are_on_the_same_side(tmp_path):
    documents = make_documents(40)
    folder = store(tmp_path, [documents * 3])
    split_documents(folder, 0.25)
    held_out = contents(folder, "validation", id_dtype(1000))
    train = contents(folder, "train", id_dtype(1000))
    assert len(held_out) == 30 and len(train) == 90
    assert not [document for document in held_out if document in train]


@pytest.mark.parametrize(
    ("documents", "share", "message"),
    [
        (1, 0.0, "needs at least two documents of different text and has 1: documents are held"),
        (1, 0.1, "needs at least four documents .two to train on, two held out. .* and has 1"),
        (3, 0.1, "and has 3: .* or set data.validation_share=0"),
        (0, 0.0, "and has 0: "),
    ],
)
def test_too_few_documents_are_refused(documents, share, message, tmp_path):
    folder = store(tmp_path, [make_documents(documents) * 2])
    with pytest.raises(ValueError, match=message):
        split_documents(folder, share)
