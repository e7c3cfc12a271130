"""Pre-trains an encoder on masked tokens: the whole method in one file, and the race's entry.

    python -m race.prepare                          writes race/data/, once
    python -m race.train --seed=0 --seconds=290     trains and evaluates

BERT (Devlin et al. 2019) learns language from plain text: some tokens of a text are masked, and a
Transformer, a network in which every token can look at every other one, predicts them from the
rest. What it learns on the way can be fine-tuned for other tasks. This file does that with the
parts of a modern encoder, from top to bottom: data, masking, model, loss, optimizer, training,
evaluation. BERT also learned whether one sentence follows another; encoders trained without that
are as good or better (Liu et al. 2019, section 4.2), so it is left out. The score is the bits per
character that the model needs for masked tokens of held-out text: the sum of -log2 p(true token),
divided by the number of characters of these tokens; lower is better. program.md has the rules of
the race: to learn most within a time budget.

Shapes: B rows of a batch, S tokens of a row, P masked tokens of a row, D features of a position's
vector, H heads, K = D / H features of a head, F inner features of a feed-forward network, V tokens
of the vocabulary ("words" in names). "[B, S]" is the shape of an array, "[]" a single number. All
arrays are float32 unless a comment says otherwise.
"""

import argparse
import functools
import json
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from race import evaluate

# ------------------------------------------------------------------------------------------ data
#
# race/data/train.npz is the training text as numbers: uint16 `tokens`, all sentences one after the
# other; `sentences`, where each begins in `tokens`, and where the last one ends; `documents`, the
# number of the first sentence of each document. A token is a word or, for rare words, a piece of
# one, such as "play" and "##ing" (WordPiece, Wu et al. 2016). The vocabulary, race/data/vocab.txt,
# has 8,192 tokens. The first ones are special: 0 [PAD] fills up rows, 1 [UNK] is a word that pieces
# cannot spell, 2 [CLS] starts a row, 3 [SEP] separates documents and ends a row, 4 [MASK] is shown
# in place of a masked token.

PAD, CLS, SEP, MASK = 0, 2, 3, 4

# A run has three parts of equal time, each with rows of S tokens, B rows in a batch and P masked
# tokens in a row. All batches have B * S = 2,048 tokens. Short rows come first, as in BERT:
# attention compares each token with all S of its row, so that a batch of short rows takes less
# time, and a model first learns from near tokens anyway. P / S falls from 30 % to 15 % in three
# steps, about 27.5 %, 22.5 % and 17.5 %. BERT masks 15 %; more masked tokens teach more in a step
# but leave less to read (Wettig et al. 2023), and the score is measured at 15 %.

STAGES = ((64, 32, 18), (128, 16, 29), (128, 16, 22))  # (S, B, P)


def read_text() -> dict[str, np.ndarray]:
    """Returns `tokens`, `sentences` and `documents` of the training text."""
    with np.load(evaluate.DATA / "train.npz") as file:
        return dict(file)


def cut_rows(text: dict[str, np.ndarray], length: int) -> np.ndarray:
    """Returns int32[rows, length]: [CLS] sentences [SEP] and padding.

    A row has as many whole sentences as fit, across documents, with a [SEP] between two documents
    (RoBERTa's FULL-SENTENCES, Liu et al. 2019, section 4.2). Only a sentence that is longer than a
    row is cut.
    """
    tokens, ends = text["tokens"].tolist(), text["sentences"][1:].tolist()
    opens_document = {*text["documents"].tolist()}
    room = length - 2  # for [CLS] and the last [SEP]
    rows, row, start = [], [], 0
    for number, end in enumerate(ends):
        separator = [SEP] if row and number in opens_document else []
        sentence, start = tokens[start:end], end
        if row and len(row) + len(separator) + len(sentence) > room:
            rows.append(row)
            row, separator = [], []
        row = row + separator + sentence
        while len(row) > room:
            rows.append(row[:room])
            row = row[room:]
    rows.append(row)
    table = np.full((len(rows), length), PAD, np.int32)
    for place, row in zip(table, rows, strict=True):
        place[: len(row) + 2] = [CLS, *row, SEP]
    return table


def make_batch(rows: np.ndarray, batch_size: int, number: int, seed: int) -> np.ndarray:
    """Returns int32[B, S], batch `number` of rows of one length.

    Each epoch has all rows once, in an order of its own. A pure function of its arguments: the
    batches of a run do not depend on how fast it is.
    """
    first = number * batch_size
    places = [divmod(place, len(rows)) for place in range(first, first + batch_size)]
    return rows[[epoch_order(seed, epoch, len(rows))[place] for epoch, place in places]]


@functools.cache
def epoch_order(seed: int, epoch: int, num_rows: int) -> np.ndarray:
    """Returns the numbers 0 to num_rows - 1 in the order of an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


# --------------------------------------------------------------------------------------- masking
#
# The model learns to predict the true tokens at P random positions of each row, which we call
# masked whatever is shown there: [MASK] with a probability of 80 %, a random token with 10 %, the
# true one with 10 % (Devlin et al. 2019, section 3.1). So the model cannot trust any token that it
# reads, and computes a useful vector for each one, even in texts without a [MASK]. New positions
# are drawn in each step, by the compiled program.


def mask_batch(key: jax.Array, ids: jax.Array, num_masked: int, num_words: int):
    """Masks tokens of int32[B, S] rows.

    Args:
      key: where random numbers come from. In jax they are functions of a key, which is split for
        each use.
      ids: the rows.
      num_masked: P.
      num_words: V.

    Returns:
      inputs: int32[B, S], what the model reads.
      positions: int32[B, P], where tokens are predicted.
      answers: int32[B, P], the true tokens there.
      weights: [B, P], 1, or 0 for surplus positions. Shapes are fixed, so that each row has P; a
        short row uses as many as half of its tokens, rounded up: enough is left to read.
    """
    order_key, fate_key, word_key = jax.random.split(key, 3)
    is_word = (ids != PAD) & (ids != CLS) & (ids != SEP)  # bool[B, S]
    # The positions with the smallest random numbers in [0, 1); with 2.0, special tokens come last.
    order = jnp.where(is_word, jax.random.uniform(order_key, ids.shape), 2.0)
    positions = jnp.argsort(order, axis=1)[:, :num_masked]
    limit = (is_word.sum(axis=1, keepdims=True) + 1) // 2  # int32[B, 1]
    is_used = jnp.arange(num_masked) < limit  # bool[B, P]
    answers = jnp.take_along_axis(ids, positions, axis=1)  # int32[B, P]
    fate = jax.random.uniform(fate_key, positions.shape)
    # Any but the special tokens, which have the first ids.
    random_words = jax.random.randint(word_key, positions.shape, MASK + 1, num_words)
    hidden = jnp.where(fate < 0.8, MASK, jnp.where(fate < 0.9, answers, random_words))
    hidden = jnp.where(is_used, hidden, answers)
    # In each row: row[where] = new. `vmap` makes a function of a batch of a function of one row.
    inputs = jax.vmap(lambda row, where, new: row.at[where].set(new))(ids, positions, hidden)
    return inputs, positions, answers, is_used.astype(jnp.float32)


# ----------------------------------------------------------------------------------------- model
#
# A Transformer encoder (Vaswani et al. 2017) with blocks of BERT-Tiny's size (Turc et al. 2019), as
# a run has only minutes. Each position has a vector of D features, to which each block adds two
# things. First, what attention finds in the row: each position makes a query, a key and a value,
# and reads the mean of all values, weighted by how well their keys fit its query. Then, what a
# feed-forward network makes of the vector itself. Parameters are a nested dict of arrays. From the
# whole to its parts:

LAYERS, HIDDEN, HEADS, INNER = 2, 128, 2, 512  # D = 128, H = 2, F = 512

# `multiply` rounds both factors to this type (8 bits of precision) and adds in float32. Hardware
# with instructions for bfloat16 does that in about half the time of float32 products; where a CPU
# has no fast ones, float32 is faster. The two products of attention stay float32.
PRODUCTS = jnp.bfloat16


def init_params(
    key: jax.Array, words: int, hidden: int = HIDDEN, inner: int = INNER, layers: int = LAYERS
) -> dict:
    """Returns the initial parameters: random matrices, scales of one, convolutions that copy.

    Matrices are normal with a standard deviation of 0.7 / sqrt(D), cut at two standard deviations.
    BERT's 0.02 is 0.55 / sqrt(768), cut in the same way; a narrow model with 0.02 learns nothing
    but the frequencies of tokens for hundreds of steps.
    """
    # For the embedding, and for the six matrices of each block.
    keys = iter(jax.random.split(key, 1 + 6 * layers))

    def matrix(rows: int, columns: int) -> jax.Array:
        normal = jax.random.truncated_normal(next(keys), -2, 2, (rows, columns))
        return 0.7 / math.sqrt(hidden) * normal

    def copying() -> jax.Array:  # [3, D]: weights of the left neighbour, the vector, the right
        return jnp.zeros((3, hidden)).at[1].set(1.0)

    def block() -> dict:
        return {
            "attention_norm": jnp.ones(hidden),
            "taps": copying(),
            "query": matrix(hidden, hidden),
            "key": matrix(hidden, hidden),
            "value": matrix(hidden, hidden),
            "query_norm": jnp.ones(hidden // HEADS),
            "key_norm": jnp.ones(hidden // HEADS),
            "output": matrix(hidden, hidden),
            "inner_norm": jnp.ones(hidden),
            "inner": matrix(hidden, inner),
            "outer": matrix(inner, hidden),
        }

    return {
        "embedding": matrix(words, hidden),  # [V, D]
        "taps": copying(),
        "norm": jnp.ones(hidden),
        "blocks": [block() for _ in range(layers)],
        "last_norm": jnp.ones(hidden),
    }


def predict(params: dict, ids: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns [B, P, V] logits, whose softmax is the probability of each token of the vocabulary.

    Args:
      params: result of `init_params`.
      ids: int32[B, S], the rows with masked tokens.
      positions: int32[B, P], where tokens are predicted.
    """
    is_token = ids != PAD  # bool[B, S]
    x = params["embedding"][ids]  # [B, S, D]
    x = normalize(mix_neighbours(x, params["taps"], is_token), params["norm"])
    *blocks, last = params["blocks"]
    for block in blocks:
        x = apply_block(block, x, is_token)
    # The last block reads all positions, but only its results at these ones are needed.
    x = apply_block(last, x, is_token, positions)  # [B, P, D]
    x = normalize(x, params["last_norm"])
    # The logit of a token is the product with its embedding: one table for input and output
    # (Press & Wolf 2017). [B, P, D] @ [D, V]
    return multiply(x, params["embedding"].T)


def apply_block(block: dict, x: jax.Array, is_token: jax.Array, positions=None) -> jax.Array:
    """Returns x after a block: [B, S, D], or [B, P, D] if int32[B, P] positions are given.

    Sub-layers read a normalized x and add to x itself ("pre-norm", Xiong et al. 2020), which trains
    faster than BERT's norm after the sum.
    """
    # [B, S, ...] -> the same, or [B, P, ...] at the positions.
    at = (lambda y: y) if positions is None else (lambda y: take(y, positions))
    h = mix_neighbours(normalize(x, block["attention_norm"]), block["taps"], is_token)
    x = at(x) + multiply(attend(block, h, is_token, at), block["output"])
    h = multiply(normalize(x, block["inner_norm"]), block["inner"])  # [B, S or P, F]
    # max(h, 0)^2, which learns faster than max(h, 0) (So et al. 2021, "Primer", for models that
    # read left to right) and is cheaper than BERT's GELU, a smooth max(h, 0).
    return x + multiply(jnp.square(jax.nn.relu(h)), block["outer"])


def attend(block: dict, h: jax.Array, is_token: jax.Array, at) -> jax.Array:
    """Returns [B, S or P, D]: for each head and query, a weighted mean of the values of the row.

    The weights are softmax(query key^T / sqrt(K)), of queries and keys that were normalized and
    rotated; softmax(s)_j = exp(s_j) / (sum of exp(s)).

    Args:
      block: the block's parameters.
      h: [B, S, D].
      is_token: bool[B, S]; padding gets no weight.
      at: [B, S, ...] -> [B, S or P, ...], picks the positions that make queries.
    """
    rows, length, features = h.shape
    size = features // HEADS  # K
    # [B, S, K / 2]: equal in all rows, of which `at` picks different positions.
    angles = jnp.broadcast_to(make_angles(length, size), (rows, length, size // 2))
    query, key, value = (
        split_heads(multiply(y, block[name]))  # query: [B, H, S or P, K]; others: [B, H, S, K]
        for name, y in (("query", at(h)), ("key", h), ("value", h))
    )
    # Scores stay small at high learning rates: a normalized vector has length sqrt(K), so that none
    # is above K / sqrt(K) while scales are one (Dehghani et al. 2023, section 2, with LayerNorm).
    query = rotate(normalize(query, block["query_norm"]), at(angles))
    key = rotate(normalize(key, block["key_norm"]), angles)
    scores = query @ key.mT / math.sqrt(size)  # [B, H, S or P, S]
    scores += jnp.where(is_token, 0.0, -1e4)[:, None, None, :]  # exp(-1e4) is 0 in float32
    mean = jax.nn.softmax(scores) @ value  # [B, H, S or P, K]
    return mean.swapaxes(1, 2).reshape(rows, -1, features)  # the heads side by side


def split_heads(x: jax.Array) -> jax.Array:
    """[B, S or P, D] -> [B, H, S or P, K]."""
    return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def make_angles(length: int, size: int) -> jax.Array:
    """Returns [S, K / 2]: position * 10000^(-2i / K), i from 0 on (Vaswani et al. 2017, 3.5)."""
    frequencies = 10_000.0 ** (-np.arange(0, size, 2) / size)
    return jnp.asarray(np.arange(length)[:, None] * frequencies, jnp.float32)


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Tells attention the positions: rotary embeddings (Su et al. 2021).

    Features i and i + K / 2 are the two coordinates of a point, which is turned by angle i of its
    position. The product of a query and a key then depends on their positions only through the
    offset between them. BERT adds a learned vector for each position instead, which learns slowly:
    14 % of masked tokens correct after 25 seconds, and not 25 % (docs/log/recipes.md).

    Args:
      x: [B, H, S or P, K].
      angles: [B, S or P, K / 2].
    """
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]  # [B, 1, S or P, K / 2]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def mix_neighbours(x: jax.Array, taps: jax.Array, is_token: jax.Array) -> jax.Array:
    """Returns [B, S, D]: each feature is a weighted sum of its own, left and right value.

    A convolution of width 3 for each feature by itself: attention then compares short phrases, and
    not single tokens (after So et al. 2021). Padding and positions outside the row count as zeros.

    Args:
      x: [B, S, D].
      taps: [3, D].
      is_token: bool[B, S].
    """
    x = jnp.where(is_token[..., None], x, 0.0)
    padded = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
    left, right = padded[:, :-2], padded[:, 2:]
    return left * taps[0] + x * taps[1] + right * taps[2]


def normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Returns x / its root mean square * scale: RMSNorm (Zhang & Sennrich 2019).

    Args:
      x: [..., D or K].
      scale: [D or K].
    """
    mean_square = jnp.square(x).mean(axis=-1, keepdims=True)  # [..., 1]
    return x * jax.lax.rsqrt(mean_square + 1e-12) * scale  # 1e-12 against 0 / 0, as in BERT


def take(x: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at int32[B, P] positions -> [B, P, D]."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


@jax.custom_vjp
def multiply(x: jax.Array, matrix: jax.Array) -> jax.Array:
    """[B, S or P, in] @ [in, out] -> [B, S or P, out], with both factors rounded to PRODUCTS.

    Its derivative is written out below, since jax's own would keep the incoming gradient float32,
    and make slow products of it.
    """
    return _multiply(x, matrix)[0]


def _multiply(x, matrix):
    rows, matrix = x.reshape(-1, x.shape[-1]).astype(PRODUCTS), matrix.astype(PRODUCTS)
    y = jnp.matmul(rows, matrix, preferred_element_type=jnp.float32)
    return y.reshape(*x.shape[:-1], -1), (rows, matrix)


def _multiply_backward(saved, gradient):
    rows, matrix = saved
    rows_of_gradient = gradient.reshape(-1, gradient.shape[-1]).astype(PRODUCTS)
    of_x = jnp.matmul(rows_of_gradient, matrix.T, preferred_element_type=jnp.float32)
    of_matrix = jnp.matmul(rows.T, rows_of_gradient, preferred_element_type=jnp.float32)
    return of_x.reshape(*gradient.shape[:-1], -1), of_matrix


multiply.defvjp(_multiply, _multiply_backward)


# ------------------------------------------------------------------------------------------ loss
#
# Cross-entropy. A model that knows nothing has ln 8192 = 9.0, one that knows all answers 0.


def loss_of(params: dict, inputs, positions, answers, weights) -> jax.Array:
    """Returns [], the mean of -ln p(true token) over masked tokens; for arrays see `mask_batch`."""
    logits = predict(params, inputs, positions)  # [B, P, V]
    of_answers = jnp.take_along_axis(logits, answers[..., None], axis=-1)[..., 0]  # [B, P]
    losses = jax.nn.logsumexp(logits, axis=-1) - of_answers  # [B, P], -ln softmax(logits)[answer]
    return (losses * weights).sum() / weights.sum()


# ------------------------------------------------------------------------------------- optimizer
#
# For the embeddings, scales and taps: Adam (Kingma & Ba 2015), which divides a running mean of the
# gradients by the square root of a running mean of their squares. For the matrices of the blocks:
# Muon (Jordan et al. 2024), which replaces a gradient U S V^T by about U V^T: most gradients are a
# few strong directions, and the weak ones then count as much. Most weights also shrink a little in
# each step (AdamW, Loshchilov & Hutter 2019).

PEAK_RATE = 3e-3
WARMUP, COOLDOWN = 0.05, 0.5  # the rate rises in the first 5 % of the run, falls in the last 50 %
# Factors of the rate. For [in, out] matrices, PEAK_RATE * factor * that in `orthogonalize_all` is
# Muon's own rate (Jordan et al. 2024), 0.02 * sqrt(max(1, out / in)): for `query`, 3e-3 * 2.9 *
# 0.2 * sqrt(128). Half of it for `output`, and that of `embedding`, were the best of a few tried.
RATES = {"query": 2.9, "key": 2.9, "value": 2.9, "inner": 2.9, "output": 1.5, "outer": 1.5}
RATES |= {"embedding": 2.5}
MUON = ("query", "key", "value", "output", "inner", "outer")
# In each step a weight loses the fraction rate * factor * DECAY of itself, except for taps and
# scales of D features, which should not tend to zero. (Scales of queries and keys lose 6 % in all.)
DECAY, NO_DECAY = 0.01, ("taps", "norm", "attention_norm", "inner_norm", "last_norm")
# Coefficients (a, b, c) of a x + b x^3 + c x^5, one triple for each of Muon's iterations. Together
# they map singular values in [0.003, 1] into [0.80, 1.20]: each is the polynomial of this form with
# the smallest maximum distance from 1, on the interval that the one before leaves (the construction
# of Polar Express, Amsel et al. 2025). Smaller values grow about 300-fold.
POLYNOMIALS = (
    (8.383674, -24.765906, 18.357082),
    (4.043420, -3.011405, 0.569512),
    (3.505571, -2.626654, 0.525719),
    (2.490116, -1.834275, 0.436835),
)


def names(params: dict) -> dict:
    """Returns the tree with each array replaced by its own name, such as "query"."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key, params)


def make_optimizer(params: dict) -> optax.GradientTransformation:
    """Returns what turns gradients into directions; `take_step` has the learning rate."""
    kinds = jax.tree.map(lambda name: "muon" if name in MUON else "adam", names(params))
    decays = jax.tree.map(lambda name: name not in NO_DECAY, names(params))
    # A sum of gradients that shrinks by 0.95 in each step, one step ahead (Nesterov's momentum).
    muon = optax.chain(
        optax.trace(0.95, nesterov=True), optax.stateless(lambda tree, _: orthogonalize_all(tree))
    )
    # Adam remembers about 50 steps of squared gradients, and not 1,000, since runs are short; eps
    # is BERT's.
    adam = optax.scale_by_adam(b1=0.9, b2=0.98, eps=1e-6)
    return optax.chain(
        optax.clip_by_global_norm(1.0),  # as in BERT: no batch dominates the running means
        optax.partition({"muon": muon, "adam": adam}, kinds),
        optax.add_decayed_weights(DECAY, decays),
    )


def orthogonalize_all(tree):
    """Orthogonalizes each matrix, with a root mean square of its elements of about 0.2.

    That is about the size of Adam's directions, so that learning rates of one can be carried over
    to the other (Liu et al. 2025, section 2.2). An m x n matrix whose singular values are all 1 has
    the root mean square 1 / sqrt(max(m, n)).
    """
    return jax.tree.map(lambda x: 0.2 * math.sqrt(max(x.shape)) * orthogonalize(x), tree)


def orthogonalize(x: jax.Array) -> jax.Array:
    """Returns about U V^T of the singular value decomposition x = U S V^T of a matrix.

    x x^T x is U S^3 V^T, so that an odd polynomial of x changes the singular values only.
    """
    if x.shape[0] > x.shape[1]:
        return orthogonalize(x.T).T  # x x^T is the smaller product then
    tiny = jnp.finfo(jnp.float32).tiny  # zeros stay zeros
    x = x / jnp.maximum(jnp.linalg.norm(x), tiny)
    # First by the norm, (sum of s^2)^(1/2), against overflow. Then by (sum of s^4)^(1/4), which is
    # closer to the largest s and never below it.
    x = x / jnp.sqrt(jnp.maximum(jnp.linalg.norm(x @ x.T), tiny))
    for a, b, c in POLYNOMIALS:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


def learning_rate(progress: jax.Array) -> jax.Array:
    """Rises linearly from 0, stays at the peak, and falls linearly to 0 (Hägele et al. 2024).

    Args:
      progress: [], the fraction of the run that is done, 0 to 1.
    """
    return PEAK_RATE * jnp.minimum(1, jnp.minimum(progress / WARMUP, (1 - progress) / COOLDOWN))


def take_step(params: dict, directions, rate: jax.Array) -> dict:
    """Returns params - rate * factor * directions, with the factors in RATES."""
    return jax.tree.map(
        lambda x, direction, name: x - rate * RATES.get(name, 1.0) * direction,
        params,
        directions,
        names(params),
    )


# -------------------------------------------------------------------------------------- training
#
# Each stage has a program of its own, compiled before the first step. Steps follow until the budget
# is used up.


def make_step(tx: optax.GradientTransformation, seed: int, num_masked: int, num_words: int):
    """Returns the function of one training step, for rows with `num_masked` masked tokens.

    It takes the number of the step, the progress of the run, int32[B, S] rows, the parameters and
    the state of the optimizer, and returns the loss, the new parameters and the new state.
    """

    def step(number, progress, ids, params, state):
        # + 1, since 0 made the initial parameters.
        key = jax.random.fold_in(jax.random.key(seed), 1 + number)
        batch = mask_batch(key, ids, num_masked, num_words)
        loss, gradients = jax.value_and_grad(loss_of)(params, *batch)
        directions, state = tx.update(gradients, state, params)
        return loss, take_step(params, directions, learning_rate(progress)), state

    return step


def train(seed: int, seconds: float, steps: int = 0) -> tuple[dict, dict]:
    """Trains, and prints 20 lines of JSON, each with the mean loss since the one before.

    Args:
      seed: determines initial parameters, order of rows and masks.
      seconds: the budget; compilation counts, reading the data and the evaluation do not.
      steps: if 0, progress is the used fraction of the budget, so that a run uses all of it on any
        machine, and a faster step gives more steps. Otherwise the number of steps, however long
        they take: each step is then a function of its number and the seed alone, and the run can be
        repeated exactly on the same machine.

    Returns:
      The parameters; a dict of `steps`, `seconds` of training, and `compiled`, those of them before
      the first step.
    """
    num_words = len((evaluate.DATA / "vocab.txt").read_text().splitlines())
    text = read_text()
    rows = {length: cut_rows(text, length) for length, *_ in STAGES}

    clock = time.perf_counter
    start = clock()
    key = jax.random.fold_in(jax.random.key(seed), 0)
    params = jax.jit(init_params, static_argnums=1)(key, num_words)
    tx = make_optimizer(params)
    state = tx.init(params)
    # One for each stage, since shapes differ. The results take the memory of donated arguments.
    programs = []
    for length, batch_size, num_masked in STAGES:
        step = jax.jit(make_step(tx, seed, num_masked, num_words), donate_argnums=(3, 4))
        ids = jax.ShapeDtypeStruct((batch_size, length), jnp.int32)
        programs.append(step.lower(0, 0.0, ids, params, state).compile())  # without running it
    compiled = clock() - start
    available = 0.995 * seconds - compiled  # half a percent to spare, for slower steps at the end
    if available <= 0:
        raise SystemExit(f"Compiling took {compiled:.0f} s of --seconds={seconds:g}: give more.")

    done, progress, losses, reports = 0, 0.0, [], 0
    batches = dict.fromkeys(rows, 0)  # so far, by S: stages with the same S must have the same B
    while progress < 1:
        stage = int(progress * len(STAGES))
        length, batch_size, _ = STAGES[stage]
        ids = make_batch(rows[length], batch_size, batches[length], seed)
        loss, params, state = programs[stage](done, progress, ids, params, state)
        losses.append(loss)
        batches[length] += 1
        done += 1
        if len(losses) > 1:
            # jax does not wait for results. Wait for the step before this one, so that the device
            # always has work.
            losses[-2].block_until_ready()
        elapsed = clock() - start
        # Two average steps are added to the used time: this one still runs, and one may follow.
        progress = done / steps if steps else (elapsed - compiled) / available * (1 + 2 / done)
        if 20 * progress >= reports + 1:  # another 5 % of the run
            report(step=done, seconds=round(elapsed, 1), loss=round(float(np.mean(losses)), 4))
            losses, reports = [], int(20 * progress)
    jax.block_until_ready(params)
    elapsed = clock() - start
    return params, {"steps": done, "seconds": round(elapsed, 2), "compiled": round(compiled, 2)}


def report(**values) -> None:
    print(json.dumps(values), flush=True)


# ------------------------------------------------------------------------------------ evaluation
#
# The evaluator (race/evaluate.py) cuts held-out text into rows of 128 tokens, of which 15 %
# are masked, always the same, and shown as in training. It asks for their logits, and takes the
# softmax itself. Its bits per character are the loss / ln 2 * masked tokens / their characters,
# which, unlike the loss, does not depend on how long tokens are.


def main(words: list[str] | None = None) -> None:
    flags = parse(words)
    params, run = train(flags.seed, flags.seconds, flags.steps)
    compiled = jax.jit(predict)
    # 128: the length of the rows.
    score = evaluate.score(lambda ids, positions: compiled(params, ids, positions), flags.part, 128)
    report(seed=flags.seed, **run, **score)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("race.train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=290.0, help="budget of the training")
    parser.add_argument("--steps", type=int, default=0, help="steps, in place of the budget")
    parser.add_argument("--part", default="tune", choices=evaluate.PARTS, help="held-out text")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
