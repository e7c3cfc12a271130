"""Rows of one segment: full sentences and running text, from files of text to the rows."""

import numpy as np
import pytest

from bert_jax.data.corpus import dump
from bert_jax.data.corpus.prepare import prepare
from tests.data.corpus.corpora import make_config, make_small_units, quiet


@pytest.fixture(scope="module")
def manifests(text, tmp_path_factory):
    """Form of the rows -> prepared data, with rows of 32 tokens in many units."""
    with pytest.MonkeyPatch.context() as patch:
        make_small_units(patch)
        return {
            segments: prepare(
                make_config(text, segments=segments, sequence_lengths=(32,), num_predictions=(6,)),
                str(tmp_path_factory.mktemp(segments)),
                1,
                log=quiet,
            )
            for segments in ("full_sentences", "running_text")
        }


def rows_of(manifest, split):
    """The ids of each row, and what every row of one segment has in common."""
    rows = []
    for example in dump.examples(manifest, split, 32):
        assert not any(example["segment_ids"]) and example["next_sentence_labels"] == []
        size = sum(example["input_mask"])
        assert example["input_mask"] == [1] * size + [0] * (32 - size)
        rows.append(example["input_ids"][:size])
    return rows


def documents_of(text, tokenizer):
    """The ids of each document -> its text; every fifth document is there twice."""
    raw = "\n".join(path.read_text() for path in sorted(text.glob("[0-9].txt")))
    documents = [part.strip() for part in raw.split("\n\n") if part.strip()]
    return {tuple(tokenizer.encode(document)): document for document in documents}, documents


def split_at(ids, separator):
    parts = [[]]
    for id in ids:
        parts.append([]) if id == separator else parts[-1].append(id)
    return [tuple(part) for part in parts]


def test_full_sentences_hold_every_document_once_in_order(manifests, prepared, text):
    manifest = manifests["full_sentences"]
    tokenizer, found = manifest.tokenizer(), []
    by_ids, documents = documents_of(text, tokenizer)
    for split in manifest.splits:
        rows = rows_of(manifest, split)
        assert all(row[0] == tokenizer.cls_id and row[-1] == tokenizer.sep_id for row in rows)
        inner = [row[1:-1] for row in rows]
        assert not any(tokenizer.sep_id in (row[0], row[-1]) for row in inner)
        assert any(tokenizer.sep_id in row for row in inner)
        assert np.mean([len(row) for row in rows]) > 24
        # A document ends at a separator or at the end of a row.
        pieces = [piece for row in inner for piece in split_at(row, tokenizer.sep_id)]
        while pieces:
            size = next(n for n in range(1, 99) if sum(pieces[:n], ()) in by_ids)
            found.append(by_ids[sum(pieces[:size], ())])
            del pieces[:size]
    assert sorted(found) == sorted(documents)
    statistics = manifest.statistics("train", 32)
    assert (statistics["mean_b_length"], statistics["random_next_share"]) == (0, 0)
    shown = dump.describe(next(dump.examples(manifest, "train", 32)), tokenizer)
    assert shown.startswith("A: [CLS] ") and "\n" not in shown
    assert "random next" not in dump.summarize(manifest)
    assert "random next" in dump.summarize(prepared)


def test_running_text_predicts_every_token_of_the_text_once(manifests, text):
    manifest = manifests["running_text"]
    tokenizer, found = manifest.tokenizer(), []
    by_ids, documents = documents_of(text, tokenizer)
    for split in manifest.splits:
        stream, predicted = [], 0
        for row in rows_of(manifest, split):
            assert tokenizer.cls_id not in row
            # The last token of a row is the first of the next; a unit begins with a separator.
            assert row[0] == (stream[-1] if stream else tokenizer.sep_id)
            stream += row[1:] if stream else row
            predicted += len(row) - 1
        first, *parts, last = split_at(stream, tokenizer.sep_id)
        texts = [by_ids[part] for part in parts]
        assert first == last == ()
        assert predicted == len(stream) - 1 == sum(map(len, parts)) + len(parts)
        assert manifest.content["splits"][split]["text"] == {
            "predicted_tokens": predicted,
            "words": sum(len(document.split()) for document in texts),
            "characters": sum(len(line) for t in texts for line in t.split("\n")),
        }
        found += texts
        statistics = manifest.statistics(split, 32)
        batch = manifest.rows(split, 32).read(np.arange(statistics["rows"]))
        assert statistics["tokens"] == (batch["example_ids"] > 0).sum()
        assert statistics["tokens"] - statistics["rows"] == predicted
        assert not batch["next_sentence_weights"].any()
    assert sorted(found) == sorted(documents)
    lines = dump.describe(next(dump.examples(manifest, "train", 32)), tokenizer)
    assert lines.startswith("A: [SEP] ") and "\n" not in lines
