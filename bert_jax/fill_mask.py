"""Asks a trained run to fill in words, on the command line.

    python -m bert_jax.fill_mask --workdir=DIR "The [MASK] of the list is returned."
    python -m bert_jax.fill_mask --workdir=DIR --held_out=5

The second form leaves words out of held-out text and shows what stood there.
"""

from collections.abc import Sequence

import numpy as np
from absl import flags

from bert_jax import command_line
from bert_jax.config import data_dir
from bert_jax.data.manifest import Manifest

FLAGS = flags.FLAGS


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

    from bert_jax.predict import Predictor

    predictor = Predictor(config, FLAGS.workdir, FLAGS.top_k)
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
    """Texts of the held-out split with one word replaced by [MASK], and that word.

    A word is left out that the vocabulary has as one piece of letters, four or more, so that there
    is something to know; which one follows from the text alone.
    """
    tokenizer = manifest.tokenizer()
    rows = manifest.rows("validation", manifest.sequence_lengths[0])
    pieces = np.array(tokenizer.pieces, object)
    chosen = []
    for number in np.random.default_rng(0).permutation(len(rows)):
        batch = rows.read(np.array([number]))
        size = int((batch["token_type_ids"] == 0)[0, : (batch["example_ids"] > 0).sum()].sum()) - 1
        ids = batch["input_ids"][0, 1 : min(size, 40)]
        is_start = ~tokenizer.is_continuation[ids]
        is_whole = is_start & np.append(is_start[1:], False)
        words = [piece.lstrip("▁") for piece in pieces[ids]]
        spots = [i for i, w in enumerate(words) if is_whole[i] and len(w) > 3 and w.isalpha()]
        if len(ids) < 8 or not spots:
            continue
        spot = spots[int(np.random.default_rng(int(number)).integers(len(spots)))]
        before, after = tokenizer.decode(ids[:spot]), tokenizer.decode(ids[spot + 1 :])
        chosen.append((f"{before} [MASK] {after}", words[spot]))
        if len(chosen) == count:
            break
    return chosen


if __name__ == "__main__":
    command_line.run(main)
