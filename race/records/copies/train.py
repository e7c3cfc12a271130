"""Pre-trains an encoder on masked tokens: with vectors of contexts, and copies from the row.

    python -m race.prepare                            writes race/data/, once
    python -m race.records.copies.train --seed=0      trains for 290 seconds, and evaluates

race/train.py explains the method, whose parts return here. New are vectors of contexts (section
"contexts"), a head that copies tokens of the row ("copies") with long rows, a loss that does not
compute the logits' maximum ("loss"), float32 products and a higher rate.

Shapes: B rows of a batch, S tokens of a row, P masked tokens of a row, D features of a hidden
state, H heads, K = D / H features of a head, F inner features of a feed-forward network, V words
of the vocabulary, N kinds of contexts. All arrays are float32 unless a comment says otherwise.
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
# race/data/train.npz: uint16 `tokens`, all sentences one after the other; `sentences` and
# `documents`, where each begins in `tokens` and in `sentences`.

PAD, CLS, SEP, MASK = 0, 2, 3, 4

# A run has three parts of equal time, each with rows of S tokens, B rows in a batch and P masked
# tokens in a row. Short rows come first: attention to them is cheap, and a model first learns what
# is near. Long rows have more to copy from. 27.5 %, 22.5 % and 17.5 % of the tokens are masked: a
# rate that falls from 30 % to the 15 % of the score.

STAGES = ((64, 32, 18), (256, 8, 58), (512, 4, 90))  # (S, B, P)


def read_text() -> dict[str, np.ndarray]:
    """Returns `tokens`, `sentences` and `documents` of the training text."""
    with np.load(evaluate.DATA / "train.npz") as file:
        return dict(file)


def cut_rows(text: dict[str, np.ndarray], length: int) -> np.ndarray:
    """Returns int32[rows, length]: [CLS] sentences [SEP] and padding.

    A row has as many whole sentences as fit, also of the next document, after a [SEP] (RoBERTa's
    FULL-SENTENCES). Only a sentence that is longer than a row is cut.
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
    """Returns int32[B, S], batch `number` of a run: each epoch has all rows once, in a new order.

    A pure function of the seed and the number, so that a run can be repeated.
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
# The model predicts the tokens at P random positions of each row: 80 % are [MASK], 10 % a random
# token, and 10 % as they were. New positions are drawn in each step.


def mask_batch(key: jax.Array, ids: jax.Array, num_masked: int, num_words: int):
    """Hides tokens of int32[B, S] rows.

    Returns:
      inputs: int32[B, S], what the model reads.
      positions: int32[B, P], where tokens are predicted.
      answers: int32[B, P], the true tokens there.
      weights: [B, P], 1; 0 in short rows, of which at most half of the tokens are predicted.
    """
    order_key, fate_key, word_key = jax.random.split(key, 3)
    is_word = (ids != PAD) & (ids != CLS) & (ids != SEP)  # bool[B, S]
    # The positions with the smallest random numbers; those that may not be masked come last.
    order = jnp.where(is_word, jax.random.uniform(order_key, ids.shape), 2.0)
    positions = jnp.argsort(order, axis=1)[:, :num_masked]
    limit = (is_word.sum(axis=1, keepdims=True) + 1) // 2  # int32[B, 1]
    is_used = jnp.arange(num_masked) < limit  # bool[B, P]
    answers = jnp.take_along_axis(ids, positions, axis=1)
    fate = jax.random.uniform(fate_key, positions.shape)
    # Any but the special tokens, which have the first ids.
    random_words = jax.random.randint(word_key, positions.shape, MASK + 1, num_words)
    hidden = jnp.where(fate < 0.8, MASK, jnp.where(fate < 0.9, answers, random_words))
    hidden = jnp.where(is_used, hidden, answers)
    inputs = jax.vmap(lambda row, where, new: row.at[where].set(new))(ids, positions, hidden)
    return inputs, positions, answers, is_used.astype(jnp.float32)


# ----------------------------------------------------------------------------------------- model
#
# A pre-norm Transformer encoder of BERT-Tiny's size; parameters are a nested dict of arrays.

LAYERS, HIDDEN, HEADS, INNER = 2, 128, 2, 512  # D = 128, H = 2, F = 512


def init_params(
    key: jax.Array, words: int, hidden: int = HIDDEN, inner: int = INNER, layers: int = LAYERS
) -> dict:
    """Returns the initial parameters: random matrices, scales of one, convolutions that copy.

    Matrices are normal with the standard deviation 0.7 / sqrt(D), cut at two of them.
    """
    keys = iter(jax.random.split(key, 3 + 6 * layers))

    def matrix(rows: int, columns: int) -> jax.Array:
        normal = jax.random.truncated_normal(next(keys), -2, 2, (rows, columns))
        return 0.7 / math.sqrt(hidden) * normal

    def copying() -> jax.Array:  # [3, D]: the weights of the left, the own, the right vector
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
        "copies": {
            "norm": jnp.ones(hidden),
            "query": matrix(hidden, hidden),
            "key": matrix(hidden, hidden),
            "gate": jnp.zeros(hidden),
            "gate_bias": jnp.full(1, -2.0),  # 12 % are copies, to begin with
        },
    }


def predict(params: dict, ids: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns [B, P, V] log-probabilities of the tokens at int32[B, P] positions of [B, S] rows."""
    found = params["contexts"][hash_contexts(ids, positions)]
    x, copied, gate = encode(params, ids, positions, found)
    words = jax.nn.log_softmax(x @ params["embedding"].T) + jax.nn.log_sigmoid(-gate)[..., None]
    rows, slots = jnp.ogrid[: positions.shape[0], : positions.shape[1]]
    where = rows[..., None], slots[..., None], ids[:, None]
    copies = jnp.zeros(words.shape).at[where].add(jax.nn.sigmoid(gate)[..., None] * copied)
    return jnp.log(jnp.exp(words) + copies + 1e-30)  # 1e-30 against log(0)


def encode(params: dict, ids: jax.Array, positions: jax.Array, found: jax.Array):
    """Returns [B, P, D] hidden states, whose products with the embeddings are logits, and copies.

    `found` are the [B, P, N, D] vectors of the contexts; copies are those of `find_copies`.
    """
    is_token = ids != PAD  # bool[B, S]
    x = params["embedding"][ids]  # [B, S, D]
    x = normalize(mix_neighbours(x, params["taps"], is_token), params["norm"])
    *blocks, last = params["blocks"]
    for block in blocks:
        x = feed_forward(block, read_row(block, x, is_token))
    x = read_row(last, x, is_token)
    # Of other positions, no more is needed.
    y = feed_forward(last, take(x, positions) + found.sum(axis=2))  # [B, P, D]
    y = normalize(y, params["last_norm"])
    return y, *find_copies(params["copies"], y, x, ids, positions)


def read_row(block: dict, x: jax.Array, is_token: jax.Array) -> jax.Array:
    """[B, S, D] -> [B, S, D]: what a block's attention adds to x, which it reads normalized."""
    h = mix_neighbours(normalize(x, block["attention_norm"]), block["taps"], is_token)
    return x + attend(block, h, is_token) @ block["output"]


def feed_forward(block: dict, x: jax.Array) -> jax.Array:
    """[..., D] -> [..., D]: what a block's feed-forward network adds to x.

    max(h, 0)^2 learns faster than max(h, 0) and is cheaper than BERT's GELU (So et al. 2021,
    "Primer").
    """
    h = normalize(x, block["inner_norm"]) @ block["inner"]  # [..., F]
    return x + jnp.square(jax.nn.relu(h)) @ block["outer"]


def attend(block: dict, h: jax.Array, is_token: jax.Array) -> jax.Array:
    """Returns [B, S, D]: for each head and query, a weighted mean of all values of the row.

    The weights are softmax(query key^T / sqrt(K)), and 0 for padding.
    """
    rows, length, features = h.shape
    size = features // HEADS  # K
    angles = make_angles(length, size)
    query, key, value = (split_heads(h @ block[name]) for name in ("query", "key", "value"))
    # Normalized queries and keys keep the scores small at high learning rates (Dehghani et al.
    # 2023, section 2).
    query = rotate(normalize(query, block["query_norm"]), angles)
    key = rotate(normalize(key, block["key_norm"]), angles)
    scores = query @ key.mT / math.sqrt(size)  # [B, H, S, S]
    scores += jnp.where(is_token, 0.0, -1e4)[:, None, None, :]  # exp(-1e4) is 0
    mean = jax.nn.softmax(scores) @ value  # [B, H, S, K]
    return mean.swapaxes(1, 2).reshape(rows, -1, features)  # the heads side by side


def split_heads(x: jax.Array) -> jax.Array:
    """[B, S, D] -> [B, H, S, K]."""
    return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def make_angles(length: int, size: int) -> jax.Array:
    """Returns [S, K / 2]: position * 10000^(-2i / K), as in Vaswani et al. 2017, section 3.5."""
    frequencies = 10_000.0 ** (-np.arange(0, size, 2) / size)
    return jnp.asarray(np.arange(length)[:, None] * frequencies, jnp.float32)


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Tells attention the positions: rotary embeddings (Su et al. 2021).

    Args:
      x: [B, H, S, K].
      angles: [S, K / 2].
    """
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def mix_neighbours(x: jax.Array, taps: jax.Array, is_token: jax.Array) -> jax.Array:
    """Returns [B, S, D]: each feature is a weighted sum of its own, left and right value.

    A depthwise convolution with [3, D] taps; padding and the outside of the row count as zeros.
    """
    x = jnp.where(is_token[..., None], x, 0.0)
    padded = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
    left, right = padded[:, :-2], padded[:, 2:]
    return left * taps[0] + x * taps[1] + right * taps[2]


def normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    """[..., D]: divides vectors by their root mean square (RMSNorm, Zhang & Sennrich 2019)."""
    mean_square = jnp.square(x).mean(axis=-1, keepdims=True)  # [..., 1]
    return x * jax.lax.rsqrt(mean_square + 1e-12) * scale  # 1e-12 against 0 / 0, as in BERT


def take(x: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at int32[B, P] positions -> [B, P, D]."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


# -------------------------------------------------------------------------------------- contexts
#
# Which word is missing depends most on the tokens beside it, and the model of above has only its
# few matrices to remember what fits between which. So each pair of tokens that can stand at two
# places beside a masked one gets a vector, which is added to the hidden state in the last block.
# Pairs share a table by their hash, as there are more of them than rows (N-gram embeddings of this
# kind are in "fastText", Bojanowski et al. 2017, and for Transformers in Huang et al. 2025).

CONTEXTS = ((-1, 1), (-2, -1), (1, 2))  # places relative to the masked token: N = 3
TABLE = 32_768  # rows for each kind
CONTEXT_RATE = 0.15  # after 800 steps, 0.05 and 0.3 are worse


def hash_contexts(ids: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns int32[B, P, N], the rows of the table for int32[B, P] positions of int32[B, S]."""
    found = []
    for number, offsets in enumerate(CONTEXTS):
        value = jnp.full(positions.shape, number + 1, jnp.uint32)
        for offset in offsets:
            at = positions + offset
            token = jnp.take_along_axis(ids, jnp.clip(at, 0, ids.shape[1] - 1), axis=1)
            token = jnp.where((at >= 0) & (at < ids.shape[1]), token, PAD)
            # 2^32 divided by the golden ratio spreads neighbouring numbers (Knuth 1973, 6.4).
            value = (value ^ token.astype(jnp.uint32)) * jnp.uint32(0x9E3779B1)
            value = value ^ (value >> 15)
        found.append((value % TABLE).astype(jnp.int32) + number * TABLE)
    return jnp.stack(found, axis=-1)


def learn_contexts(table, squares, where, gradients, rate):
    """Changes the rows of a batch, and no others: Adagrad (Duchi et al. 2011) by row.

    [N * TABLE, D] `table` and [N * TABLE] `squares`, the sums of the mean squares of each row's
    gradients, are returned anew; [B, P, N, D] gradients of the loss of a token belong to rows
    `where`; `rate` is relative to its peak.
    """
    squares = squares.at[where].add(jnp.square(gradients).mean(axis=-1))
    sizes = jnp.sqrt(squares[where] + 1e-8)[..., None]
    return table.at[where].add(-CONTEXT_RATE * rate * gradients / sizes), squares


# ---------------------------------------------------------------------------------------- copies
#
# Names and rare words return in a text. With the probability of a gate, the missing token is one
# that is read elsewhere in the row (pointer networks, Merity et al. 2016, See et al. 2017).


def find_copies(head: dict, y: jax.Array, x: jax.Array, ids: jax.Array, positions: jax.Array):
    """Returns [B, P, S], with which weights each token is copied, and [B, P] logits of the gate.

    Reads [B, P, D] hidden states y at the positions, and x of all, after the last attention.
    """
    key = normalize(x, head["norm"]) @ head["key"]  # [B, S, D]
    scores = (y @ head["query"]) @ key.mT / math.sqrt(x.shape[-1])  # [B, P, S]
    has_word = (ids != PAD) & (ids != MASK)  # bool[B, S]
    is_own = positions[..., None] == jnp.arange(ids.shape[1])
    scores = jnp.where(has_word[:, None] & ~is_own, scores, -1e4)
    return jax.nn.softmax(scores), y @ head["gate"] + head["gate_bias"]


# ------------------------------------------------------------------------------------------ loss


def loss_of(params: dict, inputs, positions, answers, weights, found) -> jax.Array:
    """Returns [], the mean of -ln p(true token) over masked tokens.

    Arguments: `mask_batch`, and [B, P, N, D] vectors of contexts.
    """
    x, copied, gate = encode(params, inputs, positions, found)
    of_answers = (x * params["embedding"][answers]).sum(axis=-1)  # [B, P], logits
    log_sums = log_sum_exp(x.reshape(-1, x.shape[-1]), params["embedding"])
    of_words = of_answers - log_sums.reshape(answers.shape)
    copied = jnp.where(inputs[:, None] == answers[..., None], copied, 0.0).sum(axis=-1)
    of_copies = jnp.log(copied + 1e-20)  # 1e-20 where there is nothing to copy
    log_gate, log_other = jax.nn.log_sigmoid(gate), jax.nn.log_sigmoid(-gate)
    log_p = jnp.logaddexp(of_words + log_other, of_copies + log_gate)
    return -(log_p * weights).sum() / weights.sum()


@jax.custom_vjp
def log_sum_exp(x: jax.Array, table: jax.Array) -> jax.Array:
    """[N, D], [V, D] -> [N]: ln of the sum of exp(logit) over the words.

    N x V numbers are many, and each pass over them takes time. So the maximum of the logits, which
    is usually subtracted first, is left out: norms keep x small, and logits far from 88, where exp
    overflows. The derivative multiplies small arrays by the factors of rows, and not probabilities.
    """
    return _log_sum_exp(x, table)[0]


def _log_sum_exp(x, table):
    powers = jnp.exp(x @ table.T)
    total = powers.sum(axis=-1)
    return jnp.log(total), (x, table, powers, total)


def _log_sum_exp_backward(saved, gradient):
    x, table, powers, total = saved
    scale = (gradient / total)[:, None]
    return scale * (powers @ table), powers.T @ (scale * x)


log_sum_exp.defvjp(_log_sum_exp, _log_sum_exp_backward)


# ------------------------------------------------------------------------------------- optimizer
#
# AdamW for the embeddings and the vectors, Muon (Jordan et al. 2024) for the matrices.

PEAK_RATE = 6e-3  # 3e-3 in `plain`
WARMUP, COOLDOWN = 0.05, 0.5  # parts of the run in which the rate rises, and falls to 0
# Factors of the rate. With the factor in `orthogonalize_all`, those of matrices give Muon's own
# rates (Jordan et al. 2024), 0.02 * sqrt(max(1, columns / rows)), and half of it for `output`. Each
# embedding is in few batches only, and may change more when it is.
RATES = {"query": 2.9, "key": 2.9, "value": 2.9, "inner": 2.9, "output": 1.5, "outer": 1.5}
RATES |= {"embedding": 2.5}
MUON = ("query", "key", "value", "output", "inner", "outer")
# Weights shrink by this part of the rate in each step, except for taps and scales of hidden
# states, whose natural value is one, and for the gate.
DECAY = 0.01
NO_DECAY = ("taps", "norm", "attention_norm", "inner_norm", "last_norm", "gate", "gate_bias")
# Coefficients (a, b, c) of a x + b x^3 + c x^5, one triple for each of Muon's iterations. Each
# polynomial brings the singular values, of which the largest is 1, closer to 1, as close as
# possible: the construction of Polar Express (Amsel et al. 2025), from 0.003 on.
POLYNOMIALS = (
    (8.383674, -24.765906, 18.357082),
    (4.043420, -3.011405, 0.569512),
    (3.505571, -2.626654, 0.525719),
    (2.490116, -1.834275, 0.436835),
)


def names(params: dict) -> dict:
    """Returns the tree with the name of each parameter in its place, without those above it."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key, params)


def make_optimizer(params: dict) -> optax.GradientTransformation:
    """Returns the optimizer without the learning rate: from gradients to directions."""
    kinds = jax.tree.map(lambda name: "muon" if name in MUON else "adam", names(params))
    decays = jax.tree.map(lambda name: name not in NO_DECAY, names(params))
    # A sum of gradients that shrinks by 0.95 in each step (Nesterov's momentum), orthogonalized.
    muon = optax.chain(
        optax.trace(0.95, nesterov=True), optax.stateless(lambda tree, _: orthogonalize_all(tree))
    )
    # Adam forgets squared gradients 20 times as fast as by default, since runs are short.
    adam = optax.scale_by_adam(b1=0.9, b2=0.98, eps=1e-6)
    return optax.chain(
        optax.clip_by_global_norm(1.0),  # as in BERT: no batch makes a huge step
        optax.partition({"muon": muon, "adam": adam}, kinds),
        optax.add_decayed_weights(DECAY, decays),
    )


def orthogonalize_all(tree):
    """Orthogonalizes each matrix, and gives it the size of a step of Adam.

    The factor 0.2 * sqrt(larger dimension) is that of Liu et al. 2025, section 2.2.
    """
    return jax.tree.map(lambda x: 0.2 * math.sqrt(max(x.shape)) * orthogonalize(x), tree)


def orthogonalize(x: jax.Array) -> jax.Array:
    """Returns about U V^T of the singular value decomposition x = U S V^T of a matrix.

    An odd polynomial of x changes the singular values and nothing else.
    """
    if x.shape[0] > x.shape[1]:
        return orthogonalize(x.T).T  # x x^T is the smaller product then
    tiny = jnp.finfo(jnp.float32).tiny  # zeros stay zeros
    x = x / jnp.maximum(jnp.linalg.norm(x), tiny)
    # Not below the largest singular value, which it divides, and closer to it than the norm of x.
    x = x / jnp.sqrt(jnp.maximum(jnp.linalg.norm(x @ x.T), tiny))
    for a, b, c in POLYNOMIALS:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


def learning_rate(progress: jax.Array) -> jax.Array:
    """Rises from 0, stays at the peak, falls to 0 at the end of the run (Zhai et al. 2022).

    Args:
      progress: [], the part of the run that is done, 0 to 1.
    """
    return PEAK_RATE * jnp.minimum(1, jnp.minimum(progress / WARMUP, (1 - progress) / COOLDOWN))


def take_step(params: dict, directions, rate: jax.Array) -> dict:
    """Returns the parameters after a step against their directions."""
    return jax.tree.map(
        lambda x, direction, name: x - rate * RATES.get(name, 1.0) * direction,
        params,
        directions,
        names(params),
    )


# -------------------------------------------------------------------------------------- training


def make_step(tx: optax.GradientTransformation, seed: int, num_masked: int, num_words: int):
    """Returns the function of one training step, for rows with `num_masked` masked tokens.

    It takes the number of the step, the progress of the run, [B, S] rows, the parameters and the
    state of the optimizer, and returns the loss and the last two anew.
    """

    def step(number, progress, ids, params, state):
        key = jax.random.fold_in(jax.random.key(seed), 1 + number)
        batch = mask_batch(key, ids, num_masked, num_words)
        inputs, positions, _, weights = batch
        where = hash_contexts(inputs, positions)
        params, (state, squares) = dict(params), state
        table = params.pop("contexts")
        compute = jax.value_and_grad(loss_of, argnums=(0, 5))
        loss, (gradients, of_found) = compute(params, *batch, table[where])
        directions, state = tx.update(gradients, state, params)
        rate = learning_rate(progress)
        params = take_step(params, directions, rate)
        of_found *= weights.sum()  # of a token's loss, not of the mean
        table, squares = learn_contexts(table, squares, where, of_found, rate / PEAK_RATE)
        return loss, params | {"contexts": table}, (state, squares)

    return step


def train(seed: int, seconds: float, steps: int = 0) -> tuple[dict, dict]:
    """Trains, and prints a line of JSON 20 times.

    With `steps`, a run has so many, whatever `seconds`, and can be repeated exactly.

    Returns:
      The parameters; `steps`, `seconds` and `compiled`, the seconds before the first step.
    """
    num_words = len((evaluate.DATA / "vocab.txt").read_text().splitlines())
    text = read_text()
    rows = {length: cut_rows(text, length) for length, *_ in STAGES}

    clock = time.perf_counter
    start = clock()
    key = jax.random.fold_in(jax.random.key(seed), 0)
    params = jax.jit(init_params, static_argnums=1)(key, num_words)
    tx = make_optimizer(params)
    rows_of_table = len(CONTEXTS) * TABLE
    state = tx.init(params), jnp.zeros(rows_of_table)
    params["contexts"] = jnp.zeros((rows_of_table, HIDDEN))
    programs = []  # one for each stage, since shapes differ; they overwrite `params` and `state`
    for length, batch_size, num_masked in STAGES:
        step = jax.jit(make_step(tx, seed, num_masked, num_words), donate_argnums=(3, 4))
        ids = jax.ShapeDtypeStruct((batch_size, length), jnp.int32)
        programs.append(step.lower(0, 0.0, ids, params, state).compile())
    compiled = clock() - start
    available = 0.995 * seconds - compiled  # half a percent of reserve
    if available <= 0:
        raise SystemExit(f"Compiling took {compiled:.0f} s of --seconds={seconds:g}: give more.")

    done, progress, losses, reports = 0, 0.0, [], 0
    batches = dict.fromkeys(rows, 0)  # batches so far, of rows of each length
    while progress < 1:
        stage = int(progress * len(STAGES))
        length, batch_size, _ = STAGES[stage]
        ids = make_batch(rows[length], batch_size, batches[length], seed)
        loss, params, state = programs[stage](done, progress, ids, params, state)
        losses.append(loss)
        batches[length] += 1
        done += 1
        if len(losses) > 1:
            losses[-2].block_until_ready()  # the step before this one: the device always has work
        elapsed = clock() - start
        # Up to two steps begin after this moment or run on: they are counted in.
        progress = done / steps if steps else (elapsed - compiled) / available * (1 + 2 / done)
        if 20 * progress >= reports + 1:
            report(step=done, seconds=round(elapsed, 1), loss=round(float(np.mean(losses)), 4))
            losses, reports = [], int(20 * progress)
    jax.block_until_ready(params)
    elapsed = clock() - start
    return params, {"steps": done, "seconds": round(elapsed, 2), "compiled": round(compiled, 2)}


def report(**values) -> None:
    print(json.dumps(values), flush=True)


# ------------------------------------------------------------------------------------ evaluation
#
# Rows of 512 tokens, from which more can be copied. Log-probabilities are logits, too.


def main(words: list[str] | None = None) -> None:
    flags = parse(words)
    params, run = train(flags.seed, flags.seconds, flags.steps)
    compiled = jax.jit(predict)
    score = evaluate.score(lambda ids, positions: compiled(params, ids, positions), flags.part, 512)
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
