"""BERT's encoder (Devlin et al. 2019; google-research/bert `modeling.py`) on one page.

Embeddings -> Stack of Blocks; a block is self-attention and a feed-forward network. GPT and
ModernBERT are the same modules with other values of the configuration. The details are in layers/:
attention.py, norm.py, dense.py, positions.py, masks.py.

    ids = jnp.array([[101, 7592, 102]])
    bert = Bert(BertConfig.tiny())
    params = bert.init(jax.random.key(0), {"input_ids": ids})["params"]
    hidden = bert.apply({"params": params}, {"input_ids": ids}).hidden  # float32[1, 3, 128]

Shapes: B batch, S seq, D hidden, H heads, F intermediate, V padded vocab.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.config.encoders import BertConfig
from bert_jax.devices.sharding import split_rows
from bert_jax.files.errors import UserError
from bert_jax.models.layers.attention import Extend, SelfAttention, take_positions
from bert_jax.models.layers.cache import Cache, Extender
from bert_jax.models.layers.convolution import Convolution
from bert_jax.models.layers.dense import dense, embedding, feed_forward
from bert_jax.models.layers.dropout import Dropout
from bert_jax.models.layers.masks import AttentionMask, cache_mask, make_mask
from bert_jax.models.layers.norm import layer_norm, residual
from bert_jax.models.layers.positions import Rotation, rotation, sinusoidal
from bert_jax.models.model import Batch, Encoded, Encoder, Model, Rules, complete_batch

# Kernels are [in, out]. Those that fan out are split over `tensor` by column, those that fan in by
# row, so that a sub-layer needs one sum over devices.
RULES: Rules = (
    (r"word_embeddings/embedding$", PartitionSpec("tensor", "fsdp")),
    (r"(position|token_type)_embeddings/embedding$", PartitionSpec(None, "fsdp")),
    (r"embeddings/projection/kernel$", PartitionSpec("fsdp")),
    (r"embeddings/projection/bias$", PartitionSpec()),
    (r"attention/(query|key|value)/kernel$", PartitionSpec("fsdp", "tensor")),
    (r"attention/(query|key|value)/bias$", PartitionSpec("tensor")),
    (r"(^|/)(intermediate|gate)/kernel$", PartitionSpec("fsdp", "tensor")),
    (r"(^|/)(intermediate|gate)/bias$", PartitionSpec("tensor")),
    (r"(^|/)output/kernel$", PartitionSpec("tensor", "fsdp")),
    (r"(^|/)output/bias$", PartitionSpec()),
    (r"(^|/)(layer|query|key)_norm/(bias|scale)$", PartitionSpec()),
    (r"(^|/)convolution/taps$", PartitionSpec(None, "fsdp")),
)

# What a rematerialized block stores. Products with kernels have no batch dimension, those of
# attention have one.
_REMAT_POLICIES = {
    "nothing": None,
    "products": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Embeddings(nn.Module):
    """Word + position + token type -> layer norm -> dropout -> projection, if sizes differ.

    Sinusoidal positions replace learned ones; rotary ones are applied to queries and keys.

    Attributes:
      config: the encoder's configuration.
      num_token_types: rows of the token type table; 0: there is none.
      has_norm: whether there is a layer norm.
    """

    config: TransformerConfig
    num_token_types: int = 0
    has_norm: bool = False

    def setup(self):
        config = self.config
        self.word_embeddings = embedding(config, config.padded_vocab_size)  # [V, D]
        if config.positions == "learned":
            rows = config.position_offset + config.max_position_embeddings
            self.position_embeddings = embedding(config, rows)
        if self.num_token_types:
            self.token_type_embeddings = embedding(config, self.num_token_types)
        if config.convolution:
            self.convolution = Convolution(config)
        if self.has_norm:
            self.layer_norm = layer_norm(config)
        self.dropout = Dropout(config.dropout_rate, config.prng_impl)
        if config.embedding_size != config.hidden_size:
            self.projection = dense(config, config.hidden_size)

    def __call__(self, batch: Batch, deterministic: bool) -> jax.Array:
        """int32[batch, seq] ids -> float[batch, seq, hidden]."""
        config = self.config
        x = self.word_embeddings(batch["input_ids"])  # [B, S] -> [B, S, D]
        places = batch["position_ids"]
        # Positions past the limit were not trained, and lookups past the end of a table are NaN.
        length, limit = places.shape[-1], config.max_position_embeddings
        if length > limit:
            raise UserError(
                f"Rows of {length} tokens are longer than the model's"
                f" max_position_embeddings={limit}: cut them off, or split them."
            )
        if config.positions == "learned":
            places = places + config.position_offset if config.position_offset else places
            x += self.position_embeddings(places)  # [B, S, D]
        elif config.positions == "sinusoidal":
            x += sinusoidal(places, config.embedding_size)  # [B, S, D]
        if self.num_token_types:
            types = batch["token_type_ids"]
            types = types if config.reads_token_types else jnp.zeros_like(types)
            x += self.token_type_embeddings(types)  # [B, S, D]
        if config.convolution:
            x = self.convolution(x, batch["example_ids"])  # [B, S, D]
        if self.has_norm:
            x = self.layer_norm(x)
        x = self.dropout(split_rows(x), deterministic)
        return x if config.embedding_size == config.hidden_size else split_rows(self.projection(x))


class Block(nn.Module):
    """A Transformer block: self-attention, then a feed-forward network.

    Each sub-layer is `norm(x + sub_layer(x))` with norm_place="post", as in BERT, and
    `x + sub_layer(norm(x))` with norm_place="pre".

    Attributes:
      config: the encoder's configuration.
      number: the block's number from 0. Without `config.first_layer_norm` the first block has no
        norm before its attention.
    """

    config: TransformerConfig
    number: int = 0

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        mask: AttentionMask,
        rotation: Rotation | None,
        deterministic: bool,
        keep_attention: bool,
        extend: Extend | None = None,
        read_positions: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array | None, jax.Array]:
        """Returns the hidden states, attention probabilities if requested, and `attended`.

        Args:
          x: float[batch, seq, hidden].
          mask: which positions attend to which.
          rotation: the rotation of queries and keys; None unless positions are rotary.
          deterministic: no dropout.
          keep_attention: return float32[batch, heads, seq, key seq] probabilities, otherwise None,
            since whatever a rematerialized block returns is stored.
          extend: prepends the keys and values of earlier positions; None: there are none.
          read_positions: int32[batch, positions], the positions of the result, which attend to
            all; None: all.

        Returns:
          float[batch, seq or positions, hidden]; see `keep_attention`; and the hidden states
          between attention and feed-forward network, with a copy head those of all positions.
        """
        config = self.config
        has_norm = config.first_layer_norm or self.number > 0
        # A copy head reads all positions after the last attention.
        queries = None if config.copy_head else read_positions
        # [B, S or P, D], [B, H, S or P, S]
        attended, probs = SelfAttention(config, has_norm, name="attention")(
            x, mask, rotation, deterministic, keep_attention, extend, queries
        )
        x = attended
        if read_positions is not None and config.copy_head:
            x = take_positions(x, read_positions)  # [B, P, D]
        dropout = Dropout(config.dropout_rate, config.prng_impl)
        x = residual(  # [B, S, D] -> [B, S, F] -> [B, S, D]
            config, x, lambda x: dropout(feed_forward(config, x), deterministic)
        )
        return x, probs, attended


class Stack(nn.Module):
    """`num_layers` blocks and, with norm_place="pre", a last layer norm."""

    config: TransformerConfig

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        batch: Batch,
        deterministic: bool,
        keep_all: bool,
        keep_attention: bool,
        cache: Cache | None = None,
    ) -> Encoded:
        """Encodes embeddings.

        Args:
          x: float[batch, seq, hidden], the embeddings.
          batch: int32[batch, seq] `example_ids` and `position_ids`, and `read_positions`, if any.
          deterministic: no dropout.
          keep_all, keep_attention: see `Encoder`.
          cache: the keys and values of earlier positions, with attention_pattern="causal" and one
            example per row; None: the batch has all positions.
        """
        config, extend, attended = self.config, None, None
        args = deterministic, keep_attention
        if cache is not None:
            is_token = batch["example_ids"] > 0  # [B, S]
            extend = Extender(cache, batch["position_ids"], is_token)
        # The views of local and of global blocks, or one view for all blocks.
        kinds = (False, True) if self.config.global_every else (False,)
        views = [self._view(batch, cache, is_global) for is_global in kinds]
        make_block: Any = Block
        if config.remat and cache is None:
            # Numbers count `self`; `deterministic` and `keep_attention` are Python bools.
            policy = _REMAT_POLICIES[config.remat_policy]
            make_block = nn.remat(Block, static_argnums=(4, 5), policy=policy)
        all_hidden, attention = [x], []
        for i in range(config.num_layers):
            mask, turn = views[config.is_global(i)]
            read = batch.get("read_positions") if i == config.num_layers - 1 else None
            block = make_block(config, i, name=f"layer_{i}")
            x, probs, attended = block(x, mask, turn, *args, extend, read)
            all_hidden.append(x)  # [B, S, D]
            attention.append(probs)  # [B, H, S, S] or None
        if config.norm_place == "pre":
            all_hidden[-1] = layer_norm(config, "layer_norm")(all_hidden[-1])  # [B, S, D]
        return Encoded(
            all_hidden[-1],
            tuple(all_hidden) if keep_all else (),
            tuple(attention) if keep_attention else (),
            extend.cache() if extend else None,
            attended if config.copy_head else None,
        )

    def _view(
        self, batch: Batch, cache: Cache | None, is_global: bool
    ) -> tuple[AttentionMask, Rotation | None]:
        """Returns the attention mask and the rotation of local or of global blocks."""
        config, positions = self.config, batch["position_ids"]
        pattern, window, base = "bidirectional", 0, config.rotary_base
        if not is_global:
            pattern, window = config.attention_pattern, config.attention_window
            base = config.window_rotary_base or base
        if config.reads_forward:
            pattern = "causal"
        if cache is None:
            ids, max_examples = batch["example_ids"], batch["cls_positions"].shape[1]
            mask = make_mask(ids, positions, pattern, window, config.mask_value, max_examples)
        else:
            mask = cache_mask(positions, cache.capacity, config.mask_value)
        rotates = config.positions == "rotary"
        return mask, rotation(positions, config.head_dim, base) if rotates else None


class Bert(Encoder):
    """Embeddings and a stack of Transformer blocks."""

    config: BertConfig

    def setup(self):
        self.embeddings = Embeddings(self.config, self.config.type_vocab_size, has_norm=True)
        self.encoder = Stack(self.config)

    def __call__(
        self,
        batch: Batch,
        *,
        deterministic: bool = True,
        keep_all: bool = False,
        keep_attention: bool = False,
    ) -> Encoded:
        """Encodes a batch; see `Encoder`."""
        batch = complete_batch(batch)
        x = self.embeddings(batch, deterministic)  # [B, S] -> [B, S, D]
        return self.encoder(x, batch, deterministic, keep_all, keep_attention)  # [B, S, D]

    def decode(self, batch: Batch, cache: Cache) -> tuple[jax.Array, Cache]:
        """Encodes the positions that follow those of a cache, without dropout.

        Args:
          batch: int32[batch, seq] `input_ids`, `example_ids` (1: token, 0: padding, which follows
            the tokens of its row; a row may be padding only) and, for BERT, `token_type_ids`. The
            stored and the new tokens of a row must fit into the cache.
          cache: the result of `layers.cache.make_cache`, or of the previous call.

        Returns:
          float[batch, seq, hidden], equal to that of `__call__` on the whole rows, and the cache
          with the new positions.
        """
        batch = complete_batch(batch)
        is_token = batch["example_ids"] > 0  # [B, S]
        after = cache.lengths[:, None] + jnp.arange(is_token.shape[1])[None]  # [B, S]
        batch = {**batch, "position_ids": jnp.where(is_token, after, 0)}
        x = self.embeddings(batch, True)  # [B, S, D]
        encoded = self.encoder(x, batch, True, False, False, cache)
        assert encoded.cache is not None  # there was one
        return encoded.hidden, encoded.cache

    def word_embedding(self) -> jax.Array:
        """float32[padded vocab, hidden]."""
        return self.embeddings.word_embeddings.whole()


def flops_per_token(config: TransformerConfig, sequence_length: int) -> float:
    """Returns the FLOPs per token of the encoder's matrix products in a forward pass.

    A product with a kernel [in, out] takes 2 * in * out FLOPs per token. Attention computes all
    pairs of positions, whatever the mask.
    """
    keys_and_values = 2.0 * 2 * config.hidden_size**2
    return config.num_layers * (keys_and_values + query_flops(config, sequence_length))


def query_flops(config: TransformerConfig, sequence_length: int) -> float:
    """Returns one block's share of `flops_per_token`, without its keys and values."""
    hidden = config.hidden_size
    attention = 2.0 * (2 * hidden**2 + 2 * hidden * sequence_length)
    return attention + feed_forward_flops(config)


def feed_forward_flops(config: TransformerConfig) -> float:
    """Returns the share of one block's feed-forward network in `flops_per_token`."""
    kernels = 3 if config.feed_forward == "gated" else 2
    return 2.0 * kernels * config.hidden_size * config.intermediate_size


BERT = Model(config=BertConfig, encoder=Bert, rules=RULES, flops_per_token=flops_per_token)
