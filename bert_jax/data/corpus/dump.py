"""Prepared rows as text and as JSON lines, for reading and for other programs."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.files.atomic import whole_file
from bert_jax.text.tokenization import Tokenizer

_BATCH_SIZE = 256


def examples(manifest: Manifest, split: str, sequence_length: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of a split in order, with the fields of google-research/bert's records.

    A row of several examples also has `example_ids`, the number of each token's example.

    `input_ids input_mask segment_ids` have as many numbers as the sequence length,
    `masked_lm_positions masked_lm_ids masked_lm_weights` as many as a row may have predictions;
    unused places are 0. Dynamic data have no masks, so those three are empty lists. The other
    fields are `next_sentence_labels` (one number, 1 for a random next sentence; none for a row
    without B) and `tokens`. With phrases that are masked as units at each step, `mask_units` has a
    number for each token: 0 continues a unit, 1 begins a word, 2 or more a phrase
    (`lexicon.PhraseMatcher.stored`).

    A row of a stream has `tokens input_ids next_ids reverse_ids previous_ids` (corpus/streams.py),
    without its padding.
    """
    tokenizer = manifest.tokenizer()
    rows = CorpusRows(manifest, split, sequence_length)
    for part in rows.evaluation_batches(_BATCH_SIZE):
        batch = part.read(0, _BATCH_SIZE)
        for row in np.flatnonzero(batch["example_ids"].any(axis=1)):
            yield _example({name: array[row] for name, array in batch.items()}, tokenizer)


def _example(row: dict[str, np.ndarray], tokenizer: Tokenizer) -> dict[str, Any]:
    is_token = row["example_ids"] > 0
    if "reverse_ids" in row:
        names = ("input_ids", "next_ids", "reverse_ids", "previous_ids")
        ids = {name: row[name][is_token].tolist() for name in names}
        return {"tokens": [tokenizer.pieces[i] for i in ids["input_ids"]], **ids}
    nothing = np.empty(0, np.int32)
    return {
        "tokens": [tokenizer.pieces[i] for i in row["input_ids"][is_token]],
        "input_ids": (row["input_ids"] * is_token).tolist(),
        "input_mask": is_token.astype(int).tolist(),
        "segment_ids": row["token_type_ids"].tolist(),
        "masked_lm_positions": row.get("masked_lm_positions", nothing).tolist(),
        "masked_lm_ids": row.get("masked_lm_ids", nothing).tolist(),
        "masked_lm_weights": row.get("masked_lm_weights", nothing).tolist(),
        "next_sentence_labels": row["next_sentence_labels"][
            row["next_sentence_weights"] > 0
        ].tolist(),
        **({"mask_units": row["mask_units"].tolist()} if "mask_units" in row else {}),
        **({"example_ids": row["example_ids"].tolist()} if row["example_ids"].max() > 1 else {}),
    }


def write_jsonl(manifest: Manifest, path: str) -> int:
    """Writes all rows to a file, one JSON object per line: by split, then by sequence length.

    Returns:
      The number of lines.
    """
    count = 0
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for split in manifest.splits:
            for length in manifest.sequence_lengths:
                for example in examples(manifest, split, length):
                    json.dump({"split": split, **example}, file, ensure_ascii=False)
                    file.write("\n")
                    count += 1
    return count


def describe(example: dict[str, Any], tokenizer: Tokenizer, classes: Sequence[str] = ()) -> str:
    """Returns an example as text: A and B with their special tokens, the label, the masks.

    A: [CLS] the cat [MASK] [SEP]
    B: it purred . [SEP]
    is_next
    masked: 3 sat

    With `mask_units`, the masking units follow; `classes` are the phrase classes with a weight:

    units: the | black cat (phrase) | sat | in | New York (place)

    A row of a stream is its inputs and targets in both directions:

    forward: <S> the cat sat
    next: the cat sat </S>
    backward: </S> sat cat the
    previous: sat cat the <S>
    """
    if "reverse_ids" in example:
        names = {"forward": "input_ids", "next": "next_ids"}
        names |= {"backward": "reverse_ids", "previous": "previous_ids"}
        pieces = {n: " ".join(tokenizer.pieces[i] for i in example[f]) for n, f in names.items()}
        return "\n".join(f"{name}: {text}" for name, text in pieces.items())
    labels = iter(example["next_sentence_labels"])
    numbers = example.get("example_ids", example["input_mask"])
    lines = []
    for number in range(1, max(numbers) + 1):
        places = [place for place, of in enumerate(numbers) if of == number]
        for name, kind in (("A", 0), ("B", 1)):
            ids = [example["input_ids"][i] for i in places if example["segment_ids"][i] == kind]
            if ids:
                lines.append(f"{name}: {tokenizer.decode(ids)}")
        if ids:  # of B
            lines.append("random_next" if next(labels) else "is_next")
    masks = zip(
        example["masked_lm_positions"],
        example["masked_lm_ids"],
        example["masked_lm_weights"],
        strict=True,
    )
    masked = [f"{position} {tokenizer.pieces[id]}" for position, id, weight in masks if weight]
    if masked:
        lines.append(f"masked: {', '.join(masked)}")
    if "mask_units" in example:
        units = _units(example, tokenizer, ("", "", "phrase", *classes))
        lines.append(f"units: {' | '.join(units)}")
    return "\n".join(lines)


def _units(example: dict[str, Any], tokenizer: Tokenizer, kinds: Sequence[str]) -> Iterator[str]:
    """Yields the text of each unit, with the name of its kind; `kinds` lists them by number."""
    ids, numbers = [], []
    for id, number in zip(example["input_ids"], example["mask_units"], strict=True):
        if id in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id):
            continue
        if number or not ids:
            ids.append([])
            numbers.append(number)
        ids[-1].append(id)
    for unit, number in zip(ids, numbers, strict=True):
        yield tokenizer.decode(unit) + (f" ({kind})" if (kind := kinds[number]) else "")


def summarize(manifest: Manifest) -> str:
    """Returns the statistics of the manifest as text, to be checked before training."""
    corpus = manifest.content["corpus"]
    words = f" {sum(manifest.words.values()):,} words," if manifest.words else ""
    lines = [
        f"text: {corpus['documents']:,} documents, {corpus['sentences']:,} sentences,"
        f"{words} {corpus['tokens']:,} tokens, {corpus['unknown_token_share']:.3%} of them unknown;"
        f" repeated: {corpus['duplicate_documents']:,} documents,"
        f" {corpus['duplicate_sentences']:,} sentences"
    ]
    faults = {name: corpus[name] for name in ("empty_documents", "empty_sentences")}
    faults |= corpus["text"]
    counts = [f"{name} {count:,}" for name, count in sorted(faults.items()) if count]
    if counts:
        lines.append(f"repaired or left out: {', '.join(counts)}")
    for split in manifest.splits:
        for length in manifest.sequence_lengths:
            s = manifest.statistics(split, length)
            line = (
                f"{split} at {length}: {s['rows']:,} rows of {s['mean_length']:.1f} tokens"
                f" ({s['padding_share']:.1%} padding)"
            )
            if "examples" in s:
                line += f", {s['examples']:,} examples"
            if s["mean_b_length"]:
                line += (
                    f", {s['random_next_share']:.1%} random next,"
                    f" {s['truncated_rows_share']:.1%} truncated"
                )
            if units := s.get("mask_units"):
                line += f", {_describe_units(units)}"
            lines.append(line)
    return "\n".join(lines)


def _describe_units(units: dict[str, Any]) -> str:
    """Returns the statistics of the masking units: "9 units, 2 phrases (person 2) ..."."""
    classes = [f"{name or 'no class'} {n:,}" for name, n in units["phrases_by_class"].items() if n]
    text = f"{units['units']:,} units, {units['phrases']:,} phrases"
    text += f" ({', '.join(classes)})" if classes else ""
    text += f" with {units['phrase_token_share']:.1%} of the tokens"
    if "masked_phrase_share" in units:
        text += (
            f", masked {units['masked_phrase_share']:.1%} of the phrases and"
            f" {units['masked_token_share']:.1%} of the tokens"
        )
    return text
