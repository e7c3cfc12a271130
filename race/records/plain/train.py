"""Pre-trains an encoder on masked tokens: the whole method in one file, and the race's entry.

    python -m race.prepare                          writes race/data/, once
    python -m race.train --seed=0 --seconds=290     trains and evaluates

BERT (Devlin et al. 2019) learns language from plain text: some tokens of a text are hidden, and a
Transformer that reads the rest in both directions predicts them. What it learns on the way can be
fine-tuned for other tasks. This file does that with the parts of a modern encoder, from top to
bottom: data, masking, model, loss, optimizer, training, evaluation. BERT also learned whether one
sentence follows another; encoders without that are as good or better (Liu et al. 2019, section
4.2), so that it is left out. The score is the number of bits per character that the model needs for
hidden tokens of held-out text; fewer are better. program.md has the rules of the race.

Shapes: B rows of a batch, S tokens of a row, P masked tokens of a row, D features of a hidden
state, H heads, K = D / H features of a head, F inner features of a feed-forward network, V words
of the vocabulary. All arrays are float32 unless a comment says otherwise.
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
# other; `sentences`, where each begins in `tokens`; `documents`, which sentence each document
# begins with. A token is a word or, for rare words, a piece of one (WordPiece): the vocabulary,
# race/data/vocab.txt, has 8,192 of them, and these:

PAD, CLS, SEP, MASK = 0, 2, 3, 4

# A run has three parts of equal time, each with rows of S tokens, B rows in a batch and P masked
# tokens in a row. Short rows come first: for the same number of tokens, attention takes time
# proportional to S, and a model first learns what is near. 18 of 64, 29 and 22 of 128 are 27.5 %,
# 22.5 % and 17.5 %: a rate that falls from 30 % to 15 %. BERT masks 15 %; more masked tokens teach
# more in a step but leave less to read (Wettig et al. 2023), and the score is measured at 15 %.

STAGES = ((64, 32, 18), (128, 16, 29), (128, 16, 22))  # (S, B, P)


def read_text() -> dict[str, np.ndarray]:
    """Returns `tokens`, `sentences` and `documents` of the training text."""
    with np.load(evaluate.DATA / "train.npz") as file:
        return dict(file)


def cut_rows(text: dict[str, np.ndarray], length: int) -> np.ndarray:
    """Returns int32[rows, length]: [CLS] sentences [SEP] and padding.

    A row has as many whole sentences as fit, also of the next document, after a [SEP] (RoBERTa's
    FULL-SENTENCES, Liu et al. 2019, section 4.2). Only a sentence that is longer than a row is cut.
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
# The true tokens at P random positions of each row are what the model learns to predict. 80 % of
# these become [MASK], 10 % a random token, and 10 % stay (Devlin et al. 2019, section 3.1): so the
# model cannot trust any token that it reads. New positions are drawn in each step, on the device.


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
# A Transformer encoder (Vaswani et al. 2017) of BERT-Tiny's size: each position has a vector of D
# features, to which each block adds what attention finds at other positions, and then what a
# feed-forward network makes of the vector itself. Parameters are a nested dict of arrays.

LAYERS, HIDDEN, HEADS, INNER = 2, 128, 2, 512  # D = 128, H = 2, F = 512

# Matrix products round their operands to this type and add in float32. CPUs and GPUs with
# instructions for bfloat16 then take about half the time; the rest of the model stays float32,
# since it is small and needs the precision.
PRODUCTS = jnp.bfloat16


def init_params(
    key: jax.Array, words: int, hidden: int = HIDDEN, inner: int = INNER, layers: int = LAYERS
) -> dict:
    """Returns the initial parameters: random matrices, scales of one, convolutions that copy.

    Matrices are normal with the standard deviation 0.7 / sqrt(D), cut at two of them. BERT has 0.02
    for D = 768, which is that of 0.55 / sqrt(D); a narrow model with 0.02 learns nothing but the
    frequencies of words for hundreds of steps.
    """
    keys = iter(jax.random.split(key, 1 + 6 * layers))

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
    }


def predict(params: dict, ids: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns [B, P, V] logits of the tokens at int32[B, P] positions of int32[B, S] rows."""
    is_token = ids != PAD  # bool[B, S]
    x = params["embedding"][ids]  # [B, S, D]
    x = normalize(mix_neighbours(x, params["taps"], is_token), params["norm"])
    *blocks, last = params["blocks"]
    for block in blocks:
        x = apply_block(block, x, is_token)
    # What the last block makes of other positions would be thrown away.
    x = apply_block(last, x, is_token, positions)  # [B, P, D]
    x = normalize(x, params["last_norm"])
    # The logit of a word is the product with its embedding: one table for input and output (Press
    # & Wolf 2017).
    return multiply(x, params["embedding"].T)


def apply_block(block: dict, x: jax.Array, is_token: jax.Array, positions=None) -> jax.Array:
    """[B, S, D] -> [B, S, D], or [B, P, D] at int32[B, P] positions.

    Sub-layers read a normalized x and add to x itself ("pre-norm", Xiong et al. 2020), which trains
    faster than BERT's norm after the sum.
    """
    at = (lambda y: y) if positions is None else (lambda y: take(y, positions))
    h = mix_neighbours(normalize(x, block["attention_norm"]), block["taps"], is_token)
    x = at(x) + multiply(attend(block, h, is_token, at), block["output"])
    h = multiply(normalize(x, block["inner_norm"]), block["inner"])  # [B, S, F]
    # max(h, 0)^2, which learns faster than max(h, 0) and is cheaper than BERT's GELU (So et al.
    # 2021, "Primer").
    return x + multiply(jnp.square(jax.nn.relu(h)), block["outer"])


def attend(block: dict, h: jax.Array, is_token: jax.Array, at) -> jax.Array:
    """Returns [B, S or P, D]: for each head and query, a weighted mean of all values of the row.

    The weights are softmax(query key^T / sqrt(K)).

    Args:
      block: the block's parameters.
      h: [B, S, D].
      is_token: bool[B, S]; padding gets no weight.
      at: function that keeps the positions of the queries.
    """
    rows, length, features = h.shape
    size = features // HEADS  # K
    angles = jnp.broadcast_to(make_angles(length, size), (rows, length, size // 2))
    query, key, value = (
        split_heads(multiply(y, block[name]))  # [B, H, S or P, K]
        for name, y in (("query", at(h)), ("key", h), ("value", h))
    )
    # Normalized queries and keys keep the scores small at high learning rates (Dehghani et al.
    # 2023, section 2).
    query = rotate(normalize(query, block["query_norm"]), at(angles))
    key = rotate(normalize(key, block["key_norm"]), angles)
    scores = query @ key.mT / math.sqrt(size)  # [B, H, S or P, S]
    scores += jnp.where(is_token, 0.0, -1e4)[:, None, None, :]  # exp(-1e4) is 0
    mean = jax.nn.softmax(scores) @ value  # [B, H, S or P, K]
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

    Features i and i + K / 2 are the two coordinates of a point, which is turned by an angle
    proportional to the position. Products of queries and keys then depend on the distance of their
    positions only. BERT adds a learned vector for each position instead, which learns more slowly.

    Args:
      x: [B, H, S, K].
      angles: [B, S, K / 2].
    """
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def mix_neighbours(x: jax.Array, taps: jax.Array, is_token: jax.Array) -> jax.Array:
    """Returns [B, S, D]: each feature is a weighted sum of its own, left and right value.

    A depthwise convolution, so that attention, which compares single positions, sees short phrases
    (So et al. 2021). Padding and the outside of the row count as zeros.

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
    """[..., D]: divides vectors by their root mean square (RMSNorm, Zhang & Sennrich 2019)."""
    mean_square = jnp.square(x).mean(axis=-1, keepdims=True)  # [..., 1]
    return x * jax.lax.rsqrt(mean_square + 1e-12) * scale  # 1e-12 against 0 / 0, as in BERT


def take(x: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at int32[B, P] positions -> [B, P, D]."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


@jax.custom_vjp
def multiply(x: jax.Array, matrix: jax.Array) -> jax.Array:
    """[B, S, in] @ [in, out] -> [B, S, out], with operands rounded to PRODUCTS.

    It has its own derivative, since jax would not round the operands of its products.
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


def loss_of(params: dict, inputs, positions, answers, weights) -> jax.Array:
    """Returns [], the mean of -ln p(true token) over masked tokens; arguments: `mask_batch`."""
    logits = predict(params, inputs, positions)  # [B, P, V]
    of_answers = jnp.take_along_axis(logits, answers[..., None], axis=-1)[..., 0]  # [B, P]
    losses = jax.nn.logsumexp(logits, axis=-1) - of_answers
    return (losses * weights).sum() / weights.sum()


# ------------------------------------------------------------------------------------- optimizer
#
# AdamW (Loshchilov & Hutter 2019) for the embeddings and the vectors; Muon (Jordan et al. 2024) for
# the matrices of the blocks, which learn more from a step with it. Muon's step has all singular
# values about equal: a gradient is mostly a few strong directions, and the weak ones count too.

PEAK_RATE = 3e-3
WARMUP, COOLDOWN = 0.05, 0.5  # parts of the run in which the rate rises, and falls to 0
# Factors of the rate. With the factor in `orthogonalize_all`, those of matrices give Muon's own
# rates (Jordan et al. 2024), 0.02 * sqrt(max(1, columns / rows)), and half of it for `output`. Each
# embedding is in few batches only, and may change more when it is.
RATES = {"query": 2.9, "key": 2.9, "value": 2.9, "inner": 2.9, "output": 1.5, "outer": 1.5}
RATES |= {"embedding": 2.5}
MUON = ("query", "key", "value", "output", "inner", "outer")
# Weights shrink by this part of the rate in each step, except for taps and scales of hidden
# states, whose natural value is one.
DECAY, NO_DECAY = 0.01, ("taps", "norm", "attention_norm", "inner_norm", "last_norm")
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

    The factor 0.2 * sqrt(larger dimension) makes the root mean square of its elements about 0.2,
    which is Adam's, so that both take one learning rate (Liu et al. 2025, section 2.2).
    """
    return jax.tree.map(lambda x: 0.2 * math.sqrt(max(x.shape)) * orthogonalize(x), tree)


def orthogonalize(x: jax.Array) -> jax.Array:
    """Returns about U V^T of the singular value decomposition x = U S V^T of a matrix.

    An odd polynomial of x, such as a x + b x x^T x, changes the singular values and nothing else.
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
        loss, gradients = jax.value_and_grad(loss_of)(params, *batch)
        directions, state = tx.update(gradients, state, params)
        return loss, take_step(params, directions, learning_rate(progress)), state

    return step


def train(seed: int, seconds: float, steps: int = 0) -> tuple[dict, dict]:
    """Trains, and prints a line of JSON 20 times.

    Args:
      seed: determines initial parameters, order of rows and masks.
      seconds: the budget, which includes the compilation of the programs, but not the data.
      steps: 0: the progress of the run is the part of the budget that is used, so that a run uses
        all of it on any machine, and a faster step gives more steps. Otherwise the number of steps,
        in place of the budget: each step is then a function of its number and the seed alone, and
        the run can be repeated exactly.

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
    state = tx.init(params)
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
# The evaluator (race/evaluate.py) reads rows of 128 tokens of held-out text with 15 % of the tokens
# masked, always the same, and asks for the logits of these. It takes the softmax itself, and keeps
# the true tokens. Its bits per character are the loss of above in bits instead of nats, for each
# character instead of each token: so that it does not depend on how long tokens are.


def main(words: list[str] | None = None) -> None:
    flags = parse(words)
    params, run = train(flags.seed, flags.seconds, flags.steps)
    compiled = jax.jit(predict)
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
