"""Streams: the corpus without gaps, in both directions, in rows that continue each other."""

import math
import random

import numpy as np
import pytest

from bert_jax.data.corpus import dump, streams
from bert_jax.data.corpus import shards as shards_lib
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.corpus.row_counts import RowCounts
from bert_jax.data.corpus.streams import StreamBlock, StreamFormat
from tests.data.corpus.corpora import WORDS, make_config, quiet

LENGTHS = (8, 20)
FIELDS = ("input_ids", "next_ids", "reverse_ids", "previous_ids")


def write_text(folder) -> list[list[list[str]]]:
    """Writes documents, one sentence per line, all of different text; returns them."""
    rng = random.Random(0)
    texts: list[list[list[str]]] = [
        [rng.choices(WORDS, k=rng.randint(1, 12)) for _ in range(rng.randint(1, 15))]
        for _ in range(90)
    ]
    texts[30] = [rng.choices(WORDS, k=700)]  # a sentence of many rows
    texts[40] *= 60  # a document of many blocks
    lines = ("\n".join(" ".join(sentence) for sentence in text) for text in texts)
    (folder / "0.txt").write_text("\n\n".join(lines) + "\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return texts


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(documents of the text, manifest), with files of two blocks."""
    folder = tmp_path_factory.mktemp("text")
    texts = write_text(folder)
    config = make_config(folder, segments="stream", sequence_lengths=LENGTHS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards_lib, "TOKENS_PER_FILE", 2 * 256 * 8)
        patch.setattr(streams, "_DOCUMENTS_IN_MEMORY", 7)
        manifest = prepare(config, str(folder / "data"), 1, log=quiet)
    return texts, manifest


def slots_of(sentences: list[list[str]]) -> list[tuple[str, ...]]:
    """(input, next, reversed input, previous) of each slot, written out sentence by sentence."""
    slots = []
    for words in sentences:
        forward, backward = ["[CLS]", *words, "[SEP]"], ["[SEP]", *words[::-1], "[CLS]"]
        slots += zip(forward[:-1], forward[1:], backward[:-1], backward[1:], strict=True)
    return slots


def read_slots(manifest, split, length) -> list[tuple[str, ...]]:
    """The slots of all rows of a split, in order, without the padding of the last row."""
    pieces = manifest.tokenizer().pieces
    batch = manifest.rows(split, length).read(np.arange(manifest.num_rows(split, length)))
    assert {name: array.dtype for name, array in batch.items()} == {
        **dict.fromkeys([*FIELDS, "example_ids"], np.int32),
        "target_weights": np.float32,
    }
    is_slot = batch["example_ids"] > 0
    assert is_slot[:-1].all() and (np.diff(batch["example_ids"][-1]) <= 0).all()
    np.testing.assert_array_equal(batch["target_weights"], is_slot)
    for name in FIELDS:
        assert not batch[name][~is_slot].any()  # [PAD]
    columns = ([pieces[i] for i in batch[name][is_slot]] for name in FIELDS)
    return list(zip(*columns, strict=True))


def documents_in_order(manifest, texts):
    """The sentences of both splits in the order of the stream, found by their text."""
    by_text = {tuple(map(tuple, text)): text for text in texts}
    for split in manifest.splits:
        sentences, found = [], []
        for given, following, *_ in read_slots(manifest, split, 8):
            if given == "[CLS]":
                sentences.append([])
            if following != "[SEP]":
                sentences[-1].append(following)
        while sentences:
            size = next(n for n in range(1, 1000) if tuple(map(tuple, sentences[:n])) in by_text)
            found.append(by_text[tuple(map(tuple, sentences[:size]))])
            del sentences[:size]
        yield split, found


def test_the_rows_are_every_sentence_of_every_document_in_both_directions(prepared):
    texts, manifest = prepared
    seen = []
    for split, documents in documents_in_order(manifest, texts):
        expected = slots_of([sentence for document in documents for sentence in document])
        for length in LENGTHS:
            assert read_slots(manifest, split, length) == expected
            assert manifest.num_rows(split, length) == -(-len(expected) // length)
        seen += documents
    assert sorted(seen) == sorted(texts)
    files = manifest.content["splits"]["train"]["sequence_lengths"]["8"]["files"]
    assert len(files) > 2
    train = dict(documents_in_order(manifest, texts))["train"]
    places = [texts.index(document) for document in train]
    assert places != sorted(places)  # documents are shuffled


def test_a_seed_decides_the_order_of_the_documents(tmp_path):
    write_text(tmp_path)
    slots = []
    for seed in (1, 2):
        config = make_config(
            tmp_path, segments="stream", sequence_lengths=(8,), validation_share=0.0, seed=seed
        )
        manifest = prepare(config, str(tmp_path / str(seed)), 1, log=quiet)
        slots.append(read_slots(manifest, "train", 8))
    assert sorted(slots[0]) == sorted(slots[1]) and slots[0] != slots[1]


def test_statistics_count_the_targets_of_one_direction(prepared):
    texts, manifest = prepared
    targets = [slot[1] for slot in read_slots(manifest, "train", 20)]
    statistics = manifest.statistics("train", 20)
    shares = {word: targets.count(word) / len(targets) for word in set(targets)}
    assert "[SEP]" in shares and "[CLS]" not in shares
    entropy = -sum(p * math.log(p) for p in shares.values())
    assert statistics["unigram_entropy"] == pytest.approx(entropy)
    assert statistics["tokens"] == len(targets)
    pieces = manifest.tokenizer().pieces
    size = len(pieces)
    loss = -sum(
        share * math.log(math.log((k + 2) / (k + 1)) / math.log(size + 1))
        for k, share in ((pieces.index(word), share) for word, share in shares.items())
    )
    assert statistics["log_uniform_loss"] == pytest.approx(loss)


class OneDocument:
    """A token store of one document of two sentences: 5 6 12, and 11."""

    def __len__(self) -> int:
        return 1

    def starts(self, document: int) -> list[int]:
        return [0, 3, 4]

    def tokens(self, start: int, length: int) -> bytes:
        return np.array([5, 6, 12, 11], "<u2")[start : start + length].tobytes()


def test_words_that_are_not_predicted_count_as_unknown():
    form = StreamFormat(8, 13, pad_id=0, cls_id=2, sep_id=3, unk_id=1, num_words=10)
    items, counts = np.array([(0, 0, 6)], streams.STREAM_ROW), RowCounts(13)
    block = streams.make_block(OneDocument(), items, form, counts)  # pyright: ignore[reportArgumentType]
    assert block.input_ids.tolist() == [2, 5, 6, 12, 2, 11, 2]
    assert block.reverse_ids.tolist() == [3, 12, 6, 5, 3, 11, 3]
    assert {i: n for i, n in enumerate(counts.token_counts) if n} == {1: 2, 3: 2, 5: 1, 6: 1}


def test_rows_are_dumped_with_inputs_and_targets(prepared):
    _, manifest = prepared
    first = next(dump.examples(manifest, "train", 8))
    slots = read_slots(manifest, "train", 8)[:8]
    assert first["tokens"] == [slot[0] for slot in slots]
    shown = dump.describe(first, manifest.tokenizer()).splitlines()
    names = ("forward", "next", "backward", "previous")
    assert shown == [
        f"{name}: {' '.join(slot[i] for slot in slots)}" for i, name in enumerate(names)
    ]


# ------------------------------------------------------------------ order of rows


def test_training_batches_are_those_of_the_streams(prepared):
    _, manifest = prepared
    rows = CorpusRows(manifest, "train", 8, batch_size=6, seed=3)
    total = rows.rows_per_epoch
    stored = manifest.rows("train", 8)
    for number in (0, 5, total + 2):
        expected = stored.read(np.array([(b * total // 6 + number) % total for b in range(2, 5)]))
        batch = rows.batch(number, 2, 5)
        assert batch.keys() == expected.keys()
        for name, array in batch.items():
            np.testing.assert_array_equal(array, expected[name])


def test_more_streams_than_rows_are_refused(prepared):
    rows = CorpusRows(prepared[1], "validation", 8, batch_size=1000)
    with pytest.raises(ValueError, match="too few for 1,000 streams: lower config.global"):
        rows.batch(0, 0, 1)


def test_an_evaluation_has_every_row_once_in_streams(prepared):
    _, manifest = prepared
    rows = CorpusRows(manifest, "validation", 8)
    total = rows.rows_per_epoch
    batches = [batch.row_numbers for batch in rows.evaluation_batches(7)]
    numbers = np.array(batches)
    assert len(numbers) == -(-total // 7)
    assert sorted(numbers[numbers >= 0].tolist()) == list(range(total))
    before, after = numbers[:-1], numbers[1:]
    assert ((after == before + 1) | (after == -1)).all()


# ------------------------------------------------------------------ blocks


def test_a_corrupt_block_of_a_stream_is_refused():
    form = StreamFormat(4, 100, pad_id=0, cls_id=1, sep_id=2, unk_id=3, num_words=100)
    ids = np.arange(9, dtype=np.uint16)
    data = StreamBlock(ids, ids[::-1].copy(), 4).to_bytes()
    block = form.read_block(data)
    np.testing.assert_array_equal(block.row(1)[0], ids[4:])
    with pytest.raises(ValueError, match=f"a block of {len(data) + 1} bytes should have"):
        form.read_block(data + b"x")
    with pytest.raises(ValueError):
        form.read_block(data[:-1])
