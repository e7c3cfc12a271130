"""Held-out sentences with a masked token, to try a model on."""

import re

import numpy as np

from bert_jax.data.corpus.manifest import Manifest
from bert_jax.text.tokenization import Tokenizer

# Number of words of four letters or more, at the beginning of a vocabulary, that are frequent.
_FREQUENT = 150


def held_out_sentences(manifest: Manifest, count: int) -> list[tuple[str, str]]:
    """Returns sentences of the held-out split with one word replaced by [MASK], and that word.

    A sentence has 6 to 30 tokens, most of them words. The masked token is a single piece of four
    letters or more, not the first of its sentence, and frequent, so that a small model can have
    learned it: frequent words come first in a trained vocabulary. The choice depends on the data
    only.
    """
    tokenizer, lowercase = manifest.tokenizer(), manifest.content["tokenizer"]["lowercase"]
    rows = manifest.rows("validation", manifest.sequence_lengths[0])
    is_word = np.array([piece.lstrip("▁").isalpha() for piece in tokenizer.pieces])
    is_long = np.array([len(piece.lstrip("▁")) > 3 for piece in tokenizer.pieces])
    is_whole = is_word & is_long & ~tokenizer.is_continuation
    is_frequent = np.cumsum(is_whole) <= _FREQUENT
    rng, chosen, seen = np.random.default_rng(0), [], set()
    for number in rng.permutation(len(rows)).tolist():
        ids = _first_sentence(rows.read(np.array([number])), tokenizer)
        if not len(ids) or not is_word[ids[0]] or is_word[ids].mean() < 0.8:
            continue
        goes_on = np.append(tokenizer.is_continuation[ids[1:]], False)
        spots = np.flatnonzero((is_whole & is_frequent)[ids] & ~goes_on)
        spots = spots[spots > 0]
        if not len(spots) or (whole := tokenizer.decode(ids)) in seen:
            continue
        seen.add(whole)
        spot = int(rng.choice(spots))
        word = tokenizer.pieces[ids[spot]].lstrip("▁")
        before, after = tokenizer.decode(ids[:spot]), tokenizer.decode(ids[spot + 1 :])
        text = _join_punctuation(f"{before} [MASK] {after}")
        chosen.append((text[0].upper() + text[1:] if lowercase else text, word))
        if len(chosen) == count:
            break
    return chosen


def _first_sentence(row: dict[str, np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    """Returns int32[tokens], the first sentence of A with 6 to 30 tokens; empty if none has."""
    is_first = (row["token_type_ids"] == 0) & (row["example_ids"] > 0)
    ids = row["input_ids"][is_first][1:-1]  # without [CLS] and [SEP]
    ends = [i + 1 for i, piece in enumerate(ids) if tokenizer.pieces[piece] in (*".!?。！？",)]
    for start, stop in zip([0, *ends], ends, strict=False):
        if 6 <= stop - start <= 30:
            return ids[start:stop]
    return ids[:0]


def _join_punctuation(text: str) -> str:
    """Removes the space between [MASK] and the punctuation after it."""
    return re.sub(r" (?=[,.;:!?)])", "", text.strip())
