"""Rows of running text against slices of the whole stream, and its words and characters."""

import numpy as np
import pytest

from bert_jax.data.corpus import documents as documents_lib
from bert_jax.data.corpus import dump
from bert_jax.data.corpus.pairs import running_text
from bert_jax.data.corpus.prepare import prepare
from tests.data.corpus.corpora import make_config, quiet

ONE_LENGTH = {"sequence_lengths": (32,), "num_predictions": (6,)}


class Lengths:
    """Documents of given lengths, of one sentence each, one after the other in the store."""

    def __init__(self, lengths):
        self.bounds = np.cumsum([0, *lengths]).tolist()

    def __len__(self):
        return len(self.bounds) - 1

    def num_sentences(self, document):
        return 1

    def starts(self, document, first=0, count=None):
        return self.bounds[document + first : document + 2]


def stream_of(lengths, unit):
    """The stream by its definition: tokens by their place in the store, -1 for a separator."""
    bounds = np.cumsum([0, *lengths]).tolist()
    stream = [-1]
    for number in range(*unit):
        stream += [*range(bounds[number], bounds[number + 1]), -1]
    return stream


def tokens_of(row, lengths):
    """The tokens of a row, as `Documents.run` reads them."""
    bounds = np.cumsum([0, *lengths]).tolist()
    tokens, document, place = ([-1] if row.after_separator else []), row.document, row.start
    while len(tokens) < row.length:
        if place == bounds[document + 1]:
            tokens.append(-1)
            document += 1
        else:
            tokens.append(place)
            place += 1
    return tokens


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_slices_of_the_stream_that_share_one_token(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rng.choice([3, 10, 60]), rng.integers(1, 12)).tolist()
    first = int(rng.integers(0, len(lengths)))
    unit, size = (first, len(lengths)), int(rng.choice([8, 9, 13]))
    stream = stream_of(lengths, unit)
    expected = [stream[at : at + size] for at in range(0, len(stream) - 1, size - 1)]
    rows = list(running_text(Lengths(lengths), unit, size))  # pyright: ignore[reportArgumentType]
    assert [tokens_of(row, lengths) for row in rows] == expected
    # Each token of the unit, and a separator after each document, is predicted once.
    assert [t for row in expected for t in row[1:]] == stream[1:]


@pytest.fixture
def config(text, monkeypatch):
    monkeypatch.setattr(documents_lib, "UNIT_TOKENS", 2000)
    return make_config(text, segments="running_text", **ONE_LENGTH)


def test_prepared_rows_predict_every_token_of_the_text_once(config, text, tmp_path):
    manifest = prepare(config, str(tmp_path), 1, log=quiet)
    tokenizer = manifest.tokenizer()
    raw = "\n".join(path.read_text() for path in sorted(text.glob("[0-9].txt")))
    documents = [part.strip() for part in raw.split("\n\n") if part.strip()]
    ids = {tuple(tokenizer.encode(document)): document for document in documents}
    found = []
    for split in manifest.splits:
        stream, predicted = [], 0
        for example in dump.examples(manifest, split, 32):
            row = example["input_ids"][: sum(example["input_mask"])]
            assert tokenizer.cls_id not in row and not any(example["segment_ids"])
            assert example["next_sentence_labels"] == []
            # The last token of a row is the first of the next; a unit begins with a separator.
            assert row[0] == (stream[-1] if stream else tokenizer.sep_id)
            stream += row[1:] if stream else row
            predicted += len(row) - 1
        here = "".join(map(chr, stream)).strip(chr(tokenizer.sep_id)).split(chr(tokenizer.sep_id))
        texts = [ids[tuple(map(ord, part))] for part in here]
        assert predicted == len(stream) - 1 == sum(map(len, here)) + len(here)
        assert manifest.content["splits"][split]["text"] == {
            "predicted_tokens": predicted,
            "words": sum(len(document.split()) for document in texts),
            "characters": sum(len(line) for t in texts for line in t.split("\n")),
        }
        found += texts
    assert sorted(found) == sorted(documents)
    lines = dump.describe(next(dump.examples(manifest, "train", 32)), tokenizer)
    assert lines.startswith("A: [SEP] ") and "\n" not in lines


def test_other_forms_of_rows_have_no_counts_of_the_text(text, tmp_path):
    for segments in ("pairs", "full_sentences"):
        settings = make_config(text, segments=segments, **ONE_LENGTH)
        manifest = prepare(settings, str(tmp_path / segments), 1, log=quiet)
        parts = manifest.content["splits"].values()
        assert all(part.keys() == {"documents", "tokens", "sequence_lengths"} for part in parts)


def test_statistics_count_all_tokens_of_the_rows(config, tmp_path):
    manifest = prepare(config, str(tmp_path), 1, log=quiet)
    statistics = manifest.statistics("train", 32)
    batch = manifest.rows("train", 32).read(np.arange(statistics["rows"]))
    assert statistics["tokens"] == (batch["example_ids"] > 0).sum()
    predicted = manifest.content["splits"]["train"]["text"]["predicted_tokens"]
    assert statistics["tokens"] - statistics["rows"] == predicted
    assert not batch["next_sentence_weights"].any()
