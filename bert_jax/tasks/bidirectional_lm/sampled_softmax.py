"""The sampled softmax of a language model (Jean et al. 2015), as TensorFlow computes it.

While training with a large vocabulary, the softmax is over the label and some random words, not
over all words. With the words sorted by frequency, word k of V, from 0, is drawn with the
log-uniform probability log((k + 2) / (k + 1)) / log(V + 1), which is close to Zipf's law. Words are
drawn until a number of different words is reached; one sample serves all positions of a batch. The
logarithm of the number of times that a word is expected to be drawn is subtracted from its logit,
so that the loss approximates that of the full softmax. `tf.nn.sampled_softmax_loss` does this with
its default sampler, `tf.random.log_uniform_candidate_sampler(unique=True)`.
"""

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Sample:
    """Different random words.

    Attributes:
      ids: int32[samples].
      num_tries: int32[], number of draws until enough different words were found.
    """

    ids: jax.Array
    num_tries: jax.Array


def log_uniform_probabilities(ids: jax.Array, vocab_size: int) -> jax.Array:
    """int32[...] -> float32[...], the probabilities with which these words are drawn."""
    return jnp.log1p(1 / (ids + 1.0)) / jnp.log(vocab_size + 1.0)


def draw_log_uniform(key: jax.Array, count: int, vocab_size: int) -> jax.Array:
    """Returns int32[count] independent log-uniform words.

    The inverse of the distribution function is exp(u * log(V + 1)) - 1, rounded down. A float32 u
    has 2**23 values, too few to reach each word of a vocabulary of a million: a second number
    refines the first.
    """
    coarse, fine = jax.random.uniform(key, (2, count))
    scale = jnp.log(vocab_size + 1.0)
    values = jnp.exp(coarse * scale) * jnp.exp(fine * (scale * 2.0**-23))
    return jnp.minimum(values.astype(jnp.int32) - 1, vocab_size - 1)


def sample_words(key: jax.Array, num_samples: int, vocab_size: int) -> Sample:
    """Draws log-uniform words until `num_samples` different ones are found, and returns these.

    Args:
      key: random key.
      num_samples: below `vocab_size`.
      vocab_size: number of words.
    """
    chunk = 2 * num_samples  # draws at a time; usually enough

    def draw_more(state):
        number, num_found, num_tries, found, is_found = state
        ids = draw_log_uniform(jax.random.fold_in(key, number), chunk, vocab_size)
        # A draw counts if neither an earlier one in the chunk nor an earlier chunk has the word.
        order = jnp.argsort(ids, stable=True)
        is_first = jnp.append(True, jnp.diff(ids[order]) != 0)
        is_new = jnp.zeros(chunk, bool).at[order].set(is_first) & ~is_found[ids]
        places = num_found + jnp.cumsum(is_new) - 1
        found = found.at[jnp.where(is_new, places, num_samples)].set(ids, mode="drop")
        is_last = places >= num_samples - 1
        num_tries += jnp.where(is_last[-1], jnp.argmax(is_last) + 1, chunk)
        return number + 1, places[-1] + 1, num_tries, found, is_found.at[ids].set(True)

    zero = jnp.zeros((), jnp.int32)
    start = (zero, zero, zero, jnp.zeros(num_samples, jnp.int32), jnp.zeros(vocab_size, bool))
    _, _, num_tries, ids, _ = jax.lax.while_loop(lambda s: s[1] < num_samples, draw_more, start)
    return Sample(ids, num_tries)


def log_expected_counts(ids: jax.Array, sample: Sample, vocab_size: int) -> jax.Array:
    """float32[...], log(1 - (1 - p)**tries), log of the expected count of a word in a sample."""
    log_missed = jnp.log1p(-log_uniform_probabilities(ids, vocab_size))
    return jnp.log(-jnp.expm1(sample.num_tries * log_missed))


def sampled_cross_entropy(
    features: jax.Array,
    labels: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    sample: Sample,
    vocab_size: int,
) -> jax.Array:
    """-log of the probability of each label among itself and the sampled words.

    A sampled word that is the label of a position is left out there.

    Args:
      features: float[batch, positions, features].
      labels: int32[batch, positions].
      table: float32[words, features]; may have more rows than `vocab_size`.
      bias: float32[words].
      sample: the random words.
      vocab_size: number of words that the sample was drawn from.

    Returns:
      float32[batch, positions], in nats.
    """

    def corrected_bias(ids: jax.Array) -> jax.Array:
        return bias[ids] - log_expected_counts(ids, sample, vocab_size)

    of_labels = table[labels].astype(features.dtype)
    of_samples = table[sample.ids].astype(features.dtype)
    product = {"preferred_element_type": jnp.float32}
    label_logits = jnp.einsum("bpd,bpd->bp", features, of_labels, **product)
    label_logits += corrected_bias(labels)
    logits = jnp.einsum("bpd,sd->bps", features, of_samples, **product)
    logits += corrected_bias(sample.ids)[None, None]
    is_label = labels[:, :, None] == sample.ids[None, None]
    logits = jnp.where(is_label, jnp.finfo(jnp.float32).min, logits)
    everything = jnp.concatenate([label_logits[:, :, None], logits], axis=-1)
    return jax.nn.logsumexp(everything, axis=-1) - label_logits
