"""Pre-trains an encoder that looks up each token around a masked one, from spectral embeddings.

    python -m race.prepare                              writes race/data/, once
    python -m race.records.spectral.train --seed=0      trains for 290 seconds, and evaluates

race/train.py explains the method, race/records/copies vectors of contexts, copies and the loss, and
race/records/recall the memory. New are the section "first embeddings" and contexts of one token.

Shapes: B rows of a batch, S tokens of a row, P masked tokens of a row, D features of a hidden
state, H heads, K = D / H features of a head, F inner features of a feed-forward network, V words
of the vocabulary, T tokens of the text, N kinds of contexts, of which M have vectors, R recalled
tokens for each kind. All arrays are float32 unless a comment says otherwise.
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
# A run has three parts of equal time. Attention to short rows is cheap; long rows have more to copy
# from. P is 28, 23 and 18 % of S; evaluations mask 15 %.

PAD, CLS, SEP, MASK = 0, 2, 3, 4
STAGES = ((64, 32, 18), (256, 8, 58), (512, 4, 90))  # (S, B, P)


def read_text() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads race/data/train.npz, and puts a [SEP] between documents.

    Returns:
      int32[T] tokens; int64[T], the number of the document of each; int64[sentences, 2], where each
      sentence begins and ends.
    """
    with np.load(evaluate.DATA / "train.npz") as file:
        tokens, sentences, documents = (file[name] for name in ("tokens", "sentences", "documents"))
    begins = sentences[documents[1:]]  # of documents but the first, in `tokens`
    stream = np.insert(tokens.astype(np.int32), begins, SEP)
    places = sentences + np.searchsorted(begins, sentences, "right")
    ends = places[1:] - np.isin(sentences[1:], begins)  # a [SEP] follows the last of a document
    return stream, np.cumsum(stream == SEP), np.stack([places[:-1], ends], axis=1)


def cut_rows(sentences: np.ndarray, length: int) -> np.ndarray:
    """Returns int32[rows, 2], where each row begins and ends: RoBERTa's FULL-SENTENCES."""
    room, rows, begin, last = length - 2, [], 0, 0
    for start, end in sentences.tolist():
        if begin == last or end - begin > room:
            if last > begin:
                rows.append((begin, last))
            begin = start
        while end - begin > room:
            rows.append((begin, begin + room))
            begin += room
        last = end
    return np.array([*rows, (begin, last)], np.int32)


def make_batch(rows: np.ndarray, batch_size: int, number: int, seed: int) -> np.ndarray:
    """Returns int32[B, 2], batch `number`: each epoch has all rows once, in a new order."""
    places = [divmod(number * batch_size + row, len(rows)) for row in range(batch_size)]
    return rows[[epoch_order(seed, epoch, len(rows))[place] for epoch, place in places]]


@functools.cache
def epoch_order(seed: int, epoch: int, num_rows: int) -> np.ndarray:
    """Returns the numbers 0 to num_rows - 1 in the order of an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


def read_rows(stream: jax.Array, rows: jax.Array, length: int) -> tuple[jax.Array, jax.Array]:
    """Returns int32[B, S] rows, [CLS] tokens [SEP] and padding, and the places of their tokens."""
    places = rows[:, :1] + jnp.arange(length) - 1
    ids = jnp.where(places < rows[:, 1:], stream[jnp.minimum(places, len(stream) - 1)], PAD)
    ids = jnp.where(places == rows[:, 1:], SEP, ids).at[:, 0].set(CLS)
    return ids, places


# --------------------------------------------------------------------------------------- masking
#
# Of P random positions of each row, 80 % are [MASK], 10 % a random token, and 10 % as they were.


def mask_batch(key: jax.Array, ids: jax.Array, num_masked: int, num_words: int):
    """Hides tokens of int32[B, S] rows.

    Returns:
      int32[B, S] inputs of the model; int32[B, P] positions where tokens are predicted; int32[B, P]
      answers, the true tokens there; [B, P] weights, 0 beyond half of the tokens of a short row.
    """
    order_key, fate_key, word_key = jax.random.split(key, 3)
    is_word = (ids != PAD) & (ids != CLS) & (ids != SEP)  # bool[B, S]
    # The smallest random numbers; positions that may not be masked come last.
    order = jnp.where(is_word, jax.random.uniform(order_key, ids.shape), 2.0)
    positions = jnp.argsort(order, axis=1)[:, :num_masked]
    limit = (is_word.sum(axis=1, keepdims=True) + 1) // 2  # int32[B, 1]
    is_used = jnp.arange(num_masked) < limit  # bool[B, P]
    answers = jnp.take_along_axis(ids, positions, axis=1)
    fate = jax.random.uniform(fate_key, positions.shape)
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
    """Returns the initial parameters: random matrices, scales of one, convolutions that copy."""
    keys = iter(jax.random.split(key, 5 + 6 * layers))

    def matrix(rows: int, columns: int) -> jax.Array:
        normal = jax.random.truncated_normal(next(keys), -2, 2, (rows, columns))
        return 0.7 / math.sqrt(hidden) * normal

    def square(*names: str) -> dict:
        return {name: matrix(hidden, hidden) for name in names}

    taps = jnp.zeros((3, hidden)).at[1].set(1.0)  # weights of the left, own, right vector

    def block() -> dict:
        norms = {name: jnp.ones(hidden // HEADS) for name in ("query_norm", "key_norm")}
        norms |= {name: jnp.ones(hidden) for name in ("attention_norm", "inner_norm")}
        networks = {"inner": matrix(hidden, inner), "outer": matrix(inner, hidden)}
        return square("query", "key", "value", "output") | networks | norms | {"taps": taps}

    gate = {"gate": jnp.zeros(hidden), "gate_bias": jnp.full(1, -2.0)}  # 12 % copies, to begin with
    by_kind = {"bias": jnp.zeros(len(CONTEXTS))}
    return {
        "embedding": matrix(words, hidden),  # [V, D]
        "taps": taps,
        "norm": jnp.ones(hidden),
        "blocks": [block() for _ in range(layers)],
        "last_norm": jnp.ones(hidden),
        "copies": square("query", "key") | {"norm": jnp.ones(hidden)} | gate | by_kind,
        "memory": square("query", "bring") | {"kinds": jnp.ones((len(CONTEXTS), hidden))} | by_kind,
    }


def predict(params: dict, memory: dict, ids: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns [B, P, V] log-probabilities of the tokens at int32[B, P] positions of [B, S] rows."""
    vectors = params["contexts"][rows_of(take(hash_contexts(ids), positions))]
    own = jnp.full(positions.shape, -1)  # no document is left out
    x, copied, tokens, gate = encode(params, memory, ids, positions, own, vectors, RECALLED_LATER)
    words = jax.nn.log_softmax(x @ params["embedding"].T) + jax.nn.log_sigmoid(-gate)[..., None]
    rows, slots = jnp.ogrid[: positions.shape[0], : positions.shape[1]]
    copies = jnp.zeros(words.shape).at[rows[..., None], slots[..., None], tokens].add(copied)
    copies *= jax.nn.sigmoid(gate)[..., None]
    return jnp.log(jnp.exp(words) + copies + 1e-30)  # 1e-30 against log(0)


def encode(params: dict, memory: dict, ids, positions, own, vectors, recalled):
    """Reads int32[B, S] rows, to predict the tokens at int32[B, P] positions.

    `own` is the document of each token, int32[B, P], which is not looked up; `vectors`,
    [B, P, M, D], are those of the contexts; `recalled` is R.

    Returns:
      [B, P, D] hidden states, whose products with the embeddings are logits; [B, P, S + N * R],
      the probabilities of copies, and int32, their tokens; [B, P], the logits of a copy.
    """
    is_token = ids != PAD  # bool[B, S]
    x = params["embedding"][ids]  # [B, S, D]
    x = normalize(mix_neighbours(x, params["taps"], is_token), params["norm"])
    *blocks, last = params["blocks"]
    for block in blocks:
        x = feed_forward(block, read_row(block, x, is_token))
    x = read_row(last, x, is_token)
    keys = hash_contexts(ids)
    tokens, is_found = recall(memory, take(keys, positions), own, recalled)  # [B, P, N, R]
    read = params["embedding"][tokens] * is_found[..., None]  # [B, P, N, R, D]
    # Of other positions, no more is needed.
    y = take(x, positions) + vectors.sum(axis=2) + bring(params["memory"], read, is_found)
    y = normalize(feed_forward(last, y), params["last_norm"])  # [B, P, D]
    of_row = score_row(params["copies"], y, x, ids, positions, keys)
    of_recalled = score_recalled(params["memory"], y, read, is_found)
    copied = jax.nn.softmax(jnp.concatenate([of_row, of_recalled], axis=-1))
    in_row = jnp.broadcast_to(ids[:, None], of_row.shape)
    tokens = jnp.concatenate([in_row, tokens.reshape(of_recalled.shape)], axis=-1)
    return y, copied, tokens, y @ params["copies"]["gate"] + params["copies"]["gate_bias"]


def read_row(block: dict, x: jax.Array, is_token: jax.Array) -> jax.Array:
    """[B, S, D] -> [B, S, D]: x, and what a block's attention adds to it."""
    h = mix_neighbours(normalize(x, block["attention_norm"]), block["taps"], is_token)
    return x + attend(block, h, is_token) @ block["output"]


def feed_forward(block: dict, x: jax.Array) -> jax.Array:
    """[..., D] -> [..., D]: x, and what a block's feed-forward network adds to it."""
    h = normalize(x, block["inner_norm"]) @ block["inner"]  # [..., F]
    return x + jnp.square(jax.nn.relu(h)) @ block["outer"]


def attend(block: dict, h: jax.Array, is_token: jax.Array) -> jax.Array:
    """[B, S, D] -> [B, S, D]: for each head and query, a weighted mean of the row's values."""
    heads = (*h.shape[:2], HEADS, -1)
    query, key, value = (
        (h @ block[name]).reshape(heads).swapaxes(1, 2) for name in ("query", "key", "value")
    )  # [B, H, S, K]
    query = rotate(normalize(query, block["query_norm"]))
    key = rotate(normalize(key, block["key_norm"]))
    scores = query @ key.mT / math.sqrt(query.shape[-1])  # [B, H, S, S]
    scores += jnp.where(is_token, 0.0, -1e4)[:, None, None, :]  # exp(-1e4) is 0
    mean = jax.nn.softmax(scores) @ value  # [B, H, S, K]
    return mean.swapaxes(1, 2).reshape(h.shape)  # the heads side by side


def rotate(x: jax.Array) -> jax.Array:
    """Tells attention the positions in [B, H, S, K]: rotary embeddings (Su et al. 2021)."""
    length, size = x.shape[-2:]
    angles = jnp.outer(jnp.arange(length), 10_000.0 ** (-jnp.arange(0, size, 2) / size))
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def mix_neighbours(x: jax.Array, taps: jax.Array, is_token: jax.Array) -> jax.Array:
    """[B, S, D] -> [B, S, D]: a depthwise convolution with [3, D] taps."""
    x = jnp.where(is_token[..., None], x, 0.0)
    padded = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
    return padded[:, :-2] * taps[0] + x * taps[1] + padded[:, 2:] * taps[2]


def normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    """[..., D]: divides vectors by their root mean square (RMSNorm, Zhang & Sennrich 2019)."""
    mean_square = jnp.square(x).mean(axis=-1, keepdims=True)  # [..., 1]
    return x * jax.lax.rsqrt(mean_square + 1e-12) * scale  # 1e-12 against 0 / 0, as in BERT


def take(x: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at int32[B, P] positions -> [B, P, D]."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


# -------------------------------------------------------------------------------------- contexts
#
# A context is one to four tokens around the missing one, its key a hash of them. The first kinds
# have vectors, shared by keys equal modulo TABLE, which the last block adds to hidden states.

REACH = 5  # the largest distance
CONTEXTS = ((-1, 1), (-2, -1), (1, 2))  # places relative to the masked token
WITH_VECTORS = len(CONTEXTS)  # M = 3
CONTEXTS += ((-2, -1, 1), (-1, 1, 2), (-3, -2, -1), (1, 2, 3), (-2, -1, 1, 2), (-3, -2, -1, 1))
CONTEXTS += ((-1, 1, 2, 3), (-2, 1), (-1, 2), (-2, 2))  # neighbours may be masked, too
CONTEXTS += tuple((offset,) for offset in range(-REACH, REACH + 1) if offset)  # N = 23
TABLE = 32_768  # rows for each kind
CONTEXT_RATE = 0.15  # after 800 steps, 0.05 and 0.3 are worse


def hash_contexts(ids: jax.Array) -> jax.Array:
    """Returns uint32[B, S, N], the keys of the contexts of all tokens of int32[B, S] rows."""
    length, found = ids.shape[1], []
    padded = jnp.pad(ids.astype(jnp.uint32), ((0, 0), (REACH, REACH)))  # PAD outside of the row
    for number, offsets in enumerate(CONTEXTS):
        key = jnp.full(ids.shape, number + 1, jnp.uint32)
        for offset in offsets:
            # 2^32 divided by the golden ratio spreads neighbouring numbers (Knuth 1973, 6.4).
            key = (key ^ padded[:, REACH + offset :][:, :length]) * jnp.uint32(0x9E3779B1)
            key = key ^ (key >> 15)
        found.append(key)
    return jnp.stack(found, axis=-1)


def rows_of(keys: jax.Array) -> jax.Array:
    """uint32[B, P, N] keys -> int32[B, P, M], the rows of the table."""
    rows = (keys[..., :WITH_VECTORS] % TABLE).astype(jnp.int32)
    return rows + TABLE * jnp.arange(WITH_VECTORS)


def learn_contexts(table, squares, where, gradients, rate):
    """Changes the rows `where`, int32[B, P, M], by Adagrad (Duchi et al. 2011); returns the arrays.

    Those are [M * TABLE, D] and [M * TABLE]; `gradients` are [B, P, M, D], of the loss of a token.
    """
    squares = squares.at[where].add(jnp.square(gradients).mean(axis=-1))
    sizes = jnp.sqrt(squares[where] + 1e-8)[..., None]
    return table.at[where].add(-CONTEXT_RATE * rate * gradients / sizes), squares


# ---------------------------------------------------------------------------------------- memory
#
# For each masked token, others with the same contexts in the training text are looked up. The means
# of their embeddings are added to the hidden state, and they can be copied (as by similar states,
# Khandelwal et al. 2020). In training, the own document is left out: it gives the answer away.

RECALLED = 4  # R; 8 takes 13 % longer, and gains 0.002 bits per character after 400 steps
RECALLED_LATER = 16  # in evaluations, whose time does not count


def make_memory(stream: np.ndarray, documents: np.ndarray, seed: int) -> dict:
    """Returns [N, T] keys, tokens and documents: places by key, in random order where equal."""
    mixed = np.random.default_rng(seed).permutation(len(stream))
    keys = np.asarray(jax.jit(hash_contexts)(stream[None]))[0, mixed].T.astype(np.uint64)
    keys = np.sort(keys << 32 | np.arange(len(stream), dtype=np.uint64))
    places = mixed[keys & 0xFFFFFFFF]
    tokens, documents = (jnp.asarray(x[places], jnp.int32) for x in (stream, documents))
    return {"keys": jnp.asarray(keys >> 32, jnp.uint32), "tokens": tokens, "documents": documents}


def recall(memory: dict, keys: jax.Array, documents: jax.Array, recalled: int):
    """Finds tokens with the contexts of uint32[B, P, N] keys outside of int32[B, P] documents.

    Returns int32[B, P, N, R] tokens, and bool[B, P, N, R]: whether each slot holds a match.
    """

    def of_kind(text: dict, key: jax.Array) -> tuple[jax.Array, jax.Array]:  # [T], [B, P]
        places = jnp.searchsorted(text["keys"], key)[..., None] + jnp.arange(recalled)
        is_same = text["keys"].at[places].get(mode="fill", fill_value=0) == key[..., None]
        return text["tokens"][places], is_same & (text["documents"][places] != documents[..., None])

    return jax.vmap(of_kind, in_axes=(0, 2), out_axes=2)(memory, keys)


def bring(head: dict, read: jax.Array, is_found: jax.Array) -> jax.Array:
    """[B, P, N, R, D] embeddings of recalled tokens -> [B, P, D], for the hidden state."""
    means = read.sum(axis=3) / jnp.maximum(is_found.sum(axis=3), 1)[..., None]  # [B, P, N, D]
    return (means * head["kinds"]).sum(axis=2) @ head["bring"]


def score_recalled(head: dict, y: jax.Array, read: jax.Array, is_found: jax.Array) -> jax.Array:
    """Returns [B, P, N * R], the logits of recalled tokens as copies."""
    scores = jnp.einsum("bpd,bpnrd->bpnr", y @ head["query"], read) / math.sqrt(y.shape[-1])
    scores = jnp.where(is_found, scores + head["bias"][:, None], -1e4)
    return scores.reshape(*y.shape[:2], -1)


# ------------------------------------------------------------------------------- first embeddings
#
# Words that stand between the same neighbours are alike, and have similar rows in the table of the
# words after and before each, whose entries are positive pointwise mutual information,
# max(0, ln p(i, j) / (p(i) p(j))). Its largest singular vectors are embeddings (Levy & Goldberg
# 2014), known in seconds, which training would need minutes to find. Words outside of the text keep
# their random ones.

POWER = 0.5  # of the singular values (Levy et al. 2015); after 400 steps, 0 and 1 are worse
ROUNDS = 6  # of subspace iteration


def first_embeddings(stream: np.ndarray, initial: jax.Array) -> jax.Array:
    """Returns [V, D] embeddings with the root mean square of the random ones, `initial`."""
    words = len(initial)
    pairs = np.bincount(stream[:-1] * words + stream[1:], minlength=words**2)

    @jax.jit
    def decompose(pairs, x):  # [V, V], how often j follows i
        before, after = pairs.sum(axis=1, keepdims=True), pairs.sum(axis=0, keepdims=True)
        table = jnp.log(jnp.maximum(pairs * len(stream) / jnp.maximum(before * after, 1), 1))
        for _ in range(ROUNDS):
            x, scale = jnp.linalg.qr(table @ (table.T @ x) + table.T @ (table @ x))
        x *= jnp.abs(jnp.diag(scale)) ** (POWER / 2)  # `scale` has their squares
        x *= jnp.sqrt(jnp.square(initial).mean() / jnp.square(x).mean())
        return jnp.where(before + after.T > 0, x, initial)

    return decompose(pairs.reshape(words, words).astype(np.float32), initial)


# ---------------------------------------------------------------------------------------- copies
#
# With the probability of a gate, the missing token is one that is read elsewhere in the row, or one
# that is recalled (pointer networks, Merity et al. 2016, See et al. 2017).


def score_row(head: dict, y: jax.Array, x: jax.Array, ids, positions, keys) -> jax.Array:
    """Returns [B, P, S], the logits of the row's tokens as copies.

    From states y at the positions and x of all; tokens with the same context (`keys`) are likely.
    """
    key = normalize(x, head["norm"]) @ head["key"]  # [B, S, D]
    scores = (y @ head["query"]) @ key.mT / math.sqrt(x.shape[-1])  # [B, P, S]
    for here, there, bias in zip(take(keys, positions).T, keys.T, head["bias"], strict=True):
        scores += bias * (here.T[..., None] == there.T[:, None])
    has_word = (ids != PAD) & (ids != MASK)  # bool[B, S]
    is_own = positions[..., None] == jnp.arange(ids.shape[1])
    return jnp.where(has_word[:, None] & ~is_own, scores, -1e4)


# ------------------------------------------------------------------------------------------ loss


def loss_of(params: dict, memory: dict, batch, own, vectors) -> jax.Array:
    """Returns [], the mean of -ln p(true token) over masked tokens: see `mask_batch`, `encode`."""
    inputs, positions, answers, weights = batch
    x, copied, tokens, gate = encode(params, memory, inputs, positions, own, vectors, RECALLED)
    of_answers = (x * params["embedding"][answers]).sum(axis=-1)  # [B, P], logits
    log_sums = log_sum_exp(x.reshape(-1, x.shape[-1]), params["embedding"])
    of_words = of_answers - log_sums.reshape(answers.shape)
    copied = (copied * (tokens == answers[..., None])).sum(axis=-1)
    of_copies = jnp.log(copied + 1e-20)  # 1e-20 where there is nothing to copy
    log_gate, log_other = jax.nn.log_sigmoid(gate), jax.nn.log_sigmoid(-gate)
    log_p = jnp.logaddexp(of_words + log_other, of_copies + log_gate)
    return -(log_p * weights).sum() / weights.sum()


@jax.custom_vjp
def log_sum_exp(x: jax.Array, table: jax.Array) -> jax.Array:
    """[B * P, D], [V, D] -> [B * P]: ln of the sum of exp(logit), which norms keep far from 88."""
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
# AdamW for embeddings, scales and biases, Muon (Jordan et al. 2024) for the matrices.

PEAK_RATE = 6e-3
WARMUP, COOLDOWN = 0.05, 0.5  # parts of the run in which the rate rises, and falls to 0
# Factors of the rate; those of matrices give twice Muon's own rates, and once for `output`.
RATES = dict.fromkeys(("query", "key", "value", "bring", "inner"), 2.9)
RATES |= {"output": 1.5, "outer": 1.5, "embedding": 1.5}
MUON = ("query", "key", "value", "bring", "output", "inner", "outer")
DECAY = 0.01  # times the rate: weights shrink by it in each step, except for those in NO_DECAY
NO_DECAY = ("taps", "norm", "attention_norm", "inner_norm", "last_norm")
NO_DECAY += ("gate", "gate_bias", "kinds", "bias")
# Coefficients (a, b, c) of a x + b x^3 + c x^5, which bring singular values from 0.003 on to 1: the
# construction of Polar Express (Amsel et al. 2025).
POLYNOMIALS = (
    (8.383674, -24.765906, 18.357082),
    (4.043420, -3.011405, 0.569512),
    (3.505571, -2.626654, 0.525719),
    (2.490116, -1.834275, 0.436835),
)


def by_name(rule, params: dict) -> dict:
    """Returns the tree with `rule` of each parameter's name, without those above it."""
    return jax.tree_util.tree_map_with_path(lambda path, _: rule(path[-1].key), params)


def make_optimizer(params: dict) -> optax.GradientTransformation:
    """Returns the optimizer without the rate schedule: from gradients to updates at the peak."""
    kinds = by_name(lambda name: "muon" if name in MUON else "adam", params)
    decays = by_name(lambda name: name not in NO_DECAY, params)
    rates = by_name(lambda name: -PEAK_RATE * RATES.get(name, 1.0), params)
    # Nesterov's momentum, orthogonalized, with the size of Adam's steps (Liu et al. 2025, 2.2).
    muon = optax.chain(
        optax.trace(0.95, nesterov=True),
        map_each(lambda x: 0.2 * math.sqrt(max(x.shape)) * orthogonalize(x)),
    )
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.partition({"muon": muon, "adam": optax.scale_by_adam(0.9, 0.98, 1e-6)}, kinds),
        optax.add_decayed_weights(DECAY, decays),
        map_each(lambda x, rate: rate * x, rates),
    )


def map_each(rule, *trees) -> optax.GradientTransformation:
    return optax.stateless(lambda tree, _: jax.tree.map(rule, tree, *trees))


def orthogonalize(x: jax.Array) -> jax.Array:
    """Returns about U V^T of the singular value decomposition x = U S V^T of a matrix."""
    if x.shape[0] > x.shape[1]:
        return orthogonalize(x.T).T  # x x^T is the smaller product then
    tiny = jnp.finfo(jnp.float32).tiny  # zeros stay zeros
    x = x / jnp.maximum(jnp.linalg.norm(x), tiny)
    # By an upper bound of the largest singular value, closer to it than the norm of x.
    x = x / jnp.sqrt(jnp.maximum(jnp.linalg.norm(x @ x.T), tiny))
    for a, b, c in POLYNOMIALS:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


def relative_rate(progress: jax.Array) -> jax.Array:
    """Rises from 0 to 1, stays, and falls to 0; `progress` is 0 to 1 (Zhai et al. 2022)."""
    return jnp.minimum(1, jnp.minimum(progress / WARMUP, (1 - progress) / COOLDOWN))


# -------------------------------------------------------------------------------------- training


def make_step(tx: optax.GradientTransformation, seed: int, length: int, num_masked: int):
    """Returns the function of one training step, for rows of a length with `num_masked` masks."""

    def step(number, progress, rows, text, params, state):
        stream, documents, memory = text
        key = jax.random.fold_in(jax.random.key(seed), 1 + number)
        ids, places = read_rows(stream, rows, length)
        batch = mask_batch(key, ids, num_masked, len(params["embedding"]))
        inputs, positions, _, weights = batch
        where = rows_of(take(hash_contexts(inputs), positions))
        own = documents[jnp.take_along_axis(places, positions, axis=1)]
        params, (state, squares) = dict(params), state
        table = params.pop("contexts")
        compute = jax.value_and_grad(loss_of, argnums=(0, 4))
        loss, (gradients, of_vectors) = compute(params, memory, batch, own, table[where])
        rate = relative_rate(progress)
        updates, state = tx.update(gradients, state, params)
        params = jax.tree.map(lambda x, update: x + rate * update, params, updates)
        of_vectors *= weights.sum()  # of a token's loss, not of the mean
        table, squares = learn_contexts(table, squares, where, of_vectors, rate)
        return loss, params | {"contexts": table}, (state, squares)

    return step


def train(seed: int, seconds: float, steps: int = 0) -> tuple[dict, dict, dict]:
    """Trains for `seconds`, or for `steps` if that is not 0, and prints 20 lines of JSON.

    Returns:
      The parameters; the memory; `steps`, `seconds`, and `compiled`, those before the first step.
    """
    num_words = len((evaluate.DATA / "vocab.txt").read_text().splitlines())
    stream, documents, sentences = read_text()
    rows = {length: cut_rows(sentences, length) for length, *_ in STAGES}

    clock = time.perf_counter
    start = clock()
    memory = make_memory(stream, documents, seed)
    text = jnp.asarray(stream), jnp.asarray(documents, jnp.int32), memory
    key = jax.random.fold_in(jax.random.key(seed), 0)
    params = jax.jit(init_params, static_argnums=1)(key, num_words)
    params["embedding"] = first_embeddings(stream, params["embedding"])
    tx = make_optimizer(params)
    state = tx.init(params), jnp.zeros(WITH_VECTORS * TABLE)
    params["contexts"] = jnp.zeros((WITH_VECTORS * TABLE, HIDDEN))
    programs = []  # one for each stage, since shapes differ; they overwrite `params` and `state`
    for length, batch_size, num_masked in STAGES:
        step = jax.jit(make_step(tx, seed, length, num_masked), donate_argnums=(4, 5))
        shape = jax.ShapeDtypeStruct((batch_size, 2), jnp.int32)
        programs.append(step.lower(0, 0.0, shape, text, params, state).compile())
    compiled = clock() - start
    available = 0.995 * seconds - compiled  # half a percent of reserve
    if available <= 0:
        raise SystemExit(f"Compiling took {compiled:.0f} s of --seconds={seconds:g}: give more.")

    done, progress, losses, reports = 0, 0.0, [], 0
    batches = dict.fromkeys(rows, 0)  # batches so far, of rows of each length
    while progress < 1:
        stage = int(progress * len(STAGES))
        length, batch_size, _ = STAGES[stage]
        batch = make_batch(rows[length], batch_size, batches[length], seed)
        loss, params, state = programs[stage](done, progress, batch, text, params, state)
        losses.append(loss)
        batches[length] += 1
        done += 1
        if len(losses) > 1:
            losses[-2].block_until_ready()  # the step before this one: the device always has work
        elapsed = clock() - start
        # Up to two steps begin after this moment or run on: they are counted in.
        progress = done / steps if steps else (elapsed - compiled) / available * (1 + 2 / done)
        if 20 * progress >= reports + 1:
            report = {"step": done, "seconds": round(elapsed, 1), "loss": float(np.mean(losses))}
            print(json.dumps(report), flush=True)
            losses, reports = [], int(20 * progress)
    jax.block_until_ready(params)
    elapsed = clock() - start
    run = {"steps": done, "seconds": round(elapsed, 2), "compiled": round(compiled, 2)}
    return params, memory, run


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("race.train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=290.0, help="budget of the training")
    parser.add_argument("--steps", type=int, default=0, help="steps, in place of the budget")
    parser.add_argument("--part", default="tune", choices=evaluate.PARTS, help="held-out text")
    flags = parser.parse_args(words)
    params, memory, run = train(flags.seed, flags.seconds, flags.steps)
    # Rows of 512 tokens have more to copy. Log-probabilities are logits, too.
    score = evaluate.score(functools.partial(jax.jit(predict), params, memory), flags.part, 512)
    print(json.dumps({"seed": flags.seed, **run, **score}))


if __name__ == "__main__":
    main()
