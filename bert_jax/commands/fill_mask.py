"""Asks a trained run to fill in words, on the command line.

    python -m bert_jax.fill_mask --workdir=DIR "The [MASK] of the list is returned."
    python -m bert_jax.fill_mask --workdir=DIR --held_out=5

The second form leaves frequent words out of held-out sentences and shows what stood there.
"""

import re
from collections.abc import Sequence

import numpy as np
from absl import flags

from bert_jax.commands import command_line
from bert_jax.config.settings import data_dir
from bert_jax.corpus.manifest import Manifest
from bert_jax.text.tokenization import Tokenizer

FLAGS = flags.FLAGS

# Words of four letters or more that count as frequent: so many, the first of the vocabulary.
_FREQUENT = 150
# Token slots of a batch: a single question is answered soon.
_BATCH_TOKENS = 256


def main(argv: Sequence[str]) -> None:
    flags.DEFINE_string("workdir", "", "Folder of a trained run.")
    flags.DEFINE_integer("top_k", 5, "Candidates for each [MASK].", lower_bound=1)
    flags.DEFINE_integer("held_out", 0, "Sentences of held-out text to try instead.", lower_bound=0)
    config, texts = command_line.parse_with_words(argv)
    if not FLAGS.workdir:
        raise ValueError("--workdir is missing: the folder of a trained run.")
    if not texts and not FLAGS.held_out:
        raise ValueError('Give a text with a mask, for example "The [MASK] of the list.".')
    for text in texts:
        if "[MASK]" not in text:
            raise ValueError(f"There is no [MASK] in {text!r}.")

    from bert_jax.inference.masked_words import Predictor

    predictor = Predictor(config, FLAGS.workdir, FLAGS.top_k, _BATCH_TOKENS)
    asked = [(text, "") for text in texts]
    if FLAGS.held_out:
        manifest = Manifest.load(data_dir(config, FLAGS.workdir))
        asked += held_out_sentences(manifest, FLAGS.held_out)
    answers = predictor.answer(predictor.question(text) for text, _ in asked)
    for (text, truth), answer in zip(asked, answers, strict=True):
        print(f"\n{text}" + (f"   ({truth})" if truth else ""))
        for mask in answer["masks"]:
            for candidate in mask["candidates"]:
                print(f"  {candidate['probability']:6.1%}  {candidate['token']}")


def held_out_sentences(manifest: Manifest, count: int) -> list[tuple[str, str]]:
    """Sentences of the held-out split with one word replaced by [MASK], and that word.

    The sentences are whole, of 6 to 30 tokens, most of them words. The word left out is one piece,
    of four letters or more, not the first, and one of the frequent ones, so that a small model can
    know it: a trained vocabulary has them first. Which one follows from the data alone.
    """
    tokenizer, lowercase = manifest.tokenizer(), manifest.content["tokenizer"]["lowercase"]
    rows = manifest.rows("validation", manifest.sequence_lengths[0])
    is_word = np.array([piece.lstrip("▁").isalpha() for piece in tokenizer.pieces])
    is_long = np.array([len(piece.lstrip("▁")) > 3 for piece in tokenizer.pieces])
    is_whole = is_word & is_long & ~tokenizer.is_continuation
    is_frequent = np.cumsum(is_whole) <= _FREQUENT
    rng, chosen, seen = np.random.default_rng(0), [], set()
    for number in rng.permutation(len(rows)).tolist():
        ids = _a_sentence(rows.read(np.array([number])), tokenizer)
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
        text = _tidied(f"{before} [MASK] {after}")
        chosen.append((text[0].upper() + text[1:] if lowercase else text, word))
        if len(chosen) == count:
            break
    return chosen


def _a_sentence(row: dict[str, np.ndarray], tokenizer: Tokenizer) -> np.ndarray:
    """int32[tokens]: the first sentence of A of 6 to 30 tokens; empty if there is none."""
    is_first = (row["token_type_ids"] == 0) & (row["example_ids"] > 0)
    ids = row["input_ids"][is_first][1:-1]  # without [CLS] and [SEP]
    ends = [i + 1 for i, piece in enumerate(ids) if tokenizer.pieces[piece] in (*".!?。！？",)]
    for start, stop in zip([0, *ends], ends, strict=False):
        if 6 <= stop - start <= 30:
            return ids[start:stop]
    return ids[:0]


def _tidied(text: str) -> str:
    """Without the space that stands between [MASK] and what follows closely."""
    return re.sub(r" (?=[,.;:!?)])", "", text.strip())


if __name__ == "__main__":
    command_line.run(main)
