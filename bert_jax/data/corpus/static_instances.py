"""Static data: instances with masks, exactly as the released program writes them.

google-research/bert's `create_pretraining_data.py` (commit eedf571) draws all its random numbers
from one `random.Random(seed)`: the order of the documents, then for each pair its segments and its
masks, and last the order of the instances. The same text, vocabulary and seed give the same
instances in the same order here. That program holds all of them in memory; here they are records of
fixed size on disk, and only the two orders are in memory, 8 bytes per document and per instance.

Other shares of [MASK], and phrases as units, generalize the procedure (`draw_masks`).
"""

import dataclasses
import math
import os
import random
import tempfile
from array import array
from collections.abc import Sequence

import numpy as np

from bert_jax.data.corpus.documents import Documents, write_in_order
from bert_jax.data.corpus.pairs import PAIR, RELEASED_TRIES, Pair, sample_pairs
from bert_jax.text.lexicon import CONTINUES, PhraseMatcher

# A replacement of this value keeps the token.
KEEP = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True)
class StaticMasking:
    """The rule by which tokens are chosen and corrupted."""

    masked_lm_prob: float
    max_predictions: int
    mask_id: int
    # Ids that a random word is drawn from, in the order of the vocabulary.
    random_words: Sequence[int]
    # bool[vocab]: pieces that are masked together with the piece before; None: each separately.
    is_continuation: np.ndarray | None
    # Finds phrases, which are masked as units, and their weights; `is_continuation` is None then.
    matcher: PhraseMatcher | None = None
    # Shares of the chosen tokens that become [MASK], stay, and become a random word.
    mask_share: float = 0.8
    keep_share: float = 0.1
    random_share: float = 0.1


def instance_dtype(max_predictions: int) -> np.dtype:
    """Returns the dtype of a pair and its masks; places after the first `num_masked` are 0."""
    positions = ("masked_positions", "<u2", (max_predictions,))
    replacements = ("replacements", "<u4", (max_predictions,))
    return np.dtype([*PAIR.descr, ("num_masked", "<u2"), positions, replacements])


def write_instances(
    documents: Documents,
    path: str,
    seed: int,
    dupe_factor: int,
    max_num_tokens: int,
    short_seq_prob: float,
    masking: StaticMasking,
) -> int:
    """Writes all instances of a corpus, in their final order, to a file of `instance_dtype`s.

    Returns:
      The number of instances.
    """
    rng = random.Random(seed)
    documents.order = array("Q", range(len(documents)))
    rng.shuffle(documents.order)
    dtype = instance_dtype(masking.max_predictions)
    with tempfile.TemporaryFile(dir=os.path.dirname(path)) as unshuffled:
        for _ in range(dupe_factor):
            for document in range(len(documents)):
                for pair in sample_pairs(
                    documents, document, rng, max_num_tokens, short_seq_prob, RELEASED_TRIES
                ):
                    continues, weights = _units(documents, pair, masking)
                    masks = draw_masks(
                        pair.a_length, pair.b_length, continues, rng, masking, weights
                    )
                    padding = [(0, 0)] * (masking.max_predictions - len(masks))
                    instance = (*pair, len(masks), *zip(*masks, *padding, strict=True))
                    unshuffled.write(np.array(instance, dtype).tobytes())
        instances = np.memmap(unshuffled, dtype, "r")
        order = array("Q", range(len(instances)))
        rng.shuffle(order)
        write_in_order(path, instances, order)
        return len(instances)


def draw_masks(
    a_length: int,
    b_length: int,
    continues: Sequence[bool] | None,
    rng: random.Random,
    masking: StaticMasking,
    weights: Sequence[float] | None = None,
) -> list[tuple[int, int]]:
    """Chooses the tokens of `[CLS] A [SEP] B [SEP]` to predict, and their replacements.

    The released program puts the words in random order and masks those that still fit. With
    weights, they are ordered by -log(1 - u) / weight, where u is drawn for each word from left to
    right. Each next word is thus drawn with probability proportional to its weight among those
    that are left (exponential race). A word of weight 0 is never masked.

    Args:
      a_length: tokens of A.
      b_length: tokens of B.
      continues: bool[a_length + b_length + 3], whether a piece continues the word before it;
        None: every piece is chosen separately.
      rng: the stream of random numbers.
      masking: the rule.
      weights: float[a_length + b_length + 3], at the first token of each word or phrase; None: all
        have the same weight.

    Returns:
      (position, replacement id or KEEP), by position.
    """
    num_tokens = a_length + b_length + 3
    positions = [*range(1, a_length + 1), *range(a_length + 2, num_tokens - 1)]
    words = [[position] for position in positions]
    if continues is not None:
        words = words[:1]
        for position in positions[1:]:
            if continues[position]:
                # At the start of B, this is the last word of A, as in the released program.
                words[-1].append(position)
            else:
                words.append([position])
    if weights is None:
        rng.shuffle(words)
    else:
        keys = [-math.log(1 - rng.random()) for _ in words]
        race = [
            (key / weights[word[0]], word)
            for key, word in zip(keys, words, strict=True)
            if weights[word[0]] > 0
        ]
        words = [word for _, word in sorted(race)]
    num_to_predict = min(
        masking.max_predictions, max(1, int(round(num_tokens * masking.masked_lm_prob)))
    )
    masks: list[tuple[int, int]] = []
    for word in words:
        if len(masks) >= num_to_predict:
            break
        if len(masks) + len(word) > num_to_predict:
            continue
        masks += [(position, _replacement(rng, masking)) for position in word]
    return sorted(masks)


def _replacement(rng: random.Random, masking: StaticMasking) -> int:
    """Returns [MASK], the token itself, or any entry of the vocabulary, by their shares.

    The second draw of the released program decides between the last two (0.5 for 80/10/10).
    """
    others = masking.keep_share + masking.random_share
    if rng.random() < masking.mask_share or not others:
        return masking.mask_id
    if rng.random() < masking.keep_share / others:
        return KEEP
    return masking.random_words[rng.randint(0, len(masking.random_words) - 1)]


def _units(
    documents: Documents, pair: Pair, masking: StaticMasking
) -> tuple[Sequence[bool] | None, Sequence[float] | None]:
    """Returns `continues` and `weights` of `draw_masks`."""
    if masking.is_continuation is None and masking.matcher is None:
        return None, None
    a = np.frombuffer(documents.tokens(pair.a_start, pair.a_length), documents.dtype)
    b = np.frombuffer(documents.tokens(pair.b_start, pair.b_length), documents.dtype)
    if (matcher := masking.matcher) is not None:
        cls, sep = [matcher.cls_id], [matcher.sep_id]
        codes = matcher.match(np.concatenate([cls, a, sep, b, sep]))
        weights = matcher.weights[codes].tolist() if matcher.is_weighted else None
        return (codes == CONTINUES).tolist(), weights
    table = masking.is_continuation
    assert table is not None
    return [False, *table[a].tolist(), False, *table[b].tolist(), False], None
