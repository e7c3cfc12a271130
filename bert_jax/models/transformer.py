"""The hyper-parameters of a stack of Transformer blocks, and checks of their combinations."""

import dataclasses

from bert_jax.files.errors import UserError
from bert_jax.models.model import EncoderConfig

NORM_PLACES = ("post", "pre")
POSITIONS = ("learned", "sinusoidal", "rotary", "none")
MASKS = ("bidirectional", "causal", "window")
FEED_FORWARDS = ("plain", "gated")
ATTENTIONS = ("einsum", "dot_product", "cudnn", "splash")
REMAT_KEEPS = ("nothing", "products")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(EncoderConfig):
    """The fields of every encoder that is a stack of Transformer blocks; the defaults are BERT's.

    Attributes:
      num_heads: attention heads; they divide `hidden_size` evenly.
      intermediate_size: features of the inner layer of the feed-forward network.
      attention_dropout_rate: of attention probabilities.
      remat: recompute the activations of each block in the backward pass.
      remat_policy: what is not recomputed then: `nothing`, or `products`, those with kernels; then
        attention and all that is computed element by element is recomputed.
      scan_layers: compile one block and apply it in a loop over the parameters of all, which are
        stored as without it. Compilation takes less time, dropout draws other bits, and in bfloat16
        embeddings without a norm are rounded.
      mask_value: added to the attention scores of positions that are not visible.
      norm_place: `post`, layer normalisation after each sub-layer and its residual sum (Vaswani et
        al. 2017); `pre`, before each sub-layer and once after the last block (Xiong et al. 2020).
      positions: `learned`, a table (Devlin et al. 2019); `sinusoidal`, fixed sines and cosines
        (Vaswani et al. 2017); `rotary`, rotated queries and keys (Su et al. 2021); `none`.
      mask: what a position attends to within its example: `bidirectional`, all positions;
        `causal`, itself and those before; `window`, those at most `window` positions away.
      attention_window: with attention_pattern="window", at least 1; otherwise 0.
      global_every: with attention_pattern="window", every n-th block, the first included, attends
        to all positions of the example instead (Warner et al. 2024); 0: none does.
      first_layer_norm: with norm_place="pre", whether a norm precedes the first sub-layer too;
        False leaves it to the norm of the embeddings (Warner et al. 2024).
      query_key_norm: whether queries and keys are normalised over the features of a head, with a
        scale, before they are rotated (Dehghani et al. 2023).
      rotary_base: with positions="rotary", the longest wavelength is 2 pi times this.
      window_rotary_base: the same of blocks that attend to a window; 0: `rotary_base`.
      feed_forward: `plain`, or `gated` (Shazeer 2020).
      attention: `einsum`, our implementation; `dot_product`, `jax.nn.dot_product_attention` by XLA;
        `cudnn`, the same by cuDNN: GPUs and bfloat16 only; `splash`, a kernel for TPUs that stores
        no probabilities, on other devices `einsum`. The last three can neither apply dropout to
        probabilities nor return them.

    Raises:
      UserError: for a value that is not allowed, or values that do not fit together.
    """

    num_heads: int
    intermediate_size: int
    attention_dropout_rate: float
    remat: bool
    mask_value: float = -10_000.0
    norm_place: str = "post"
    positions: str = "learned"
    attention_pattern: str = "bidirectional"
    attention_window: int = 0
    global_every: int = 0
    first_layer_norm: bool = True
    query_key_norm: bool = False
    rotary_base: float = 10_000.0
    window_rotary_base: float = 0.0
    feed_forward: str = "plain"
    attention: str = "einsum"
    remat_policy: str = "nothing"
    scan_layers: bool = False

    def __post_init__(self):
        super().__post_init__()
        self._check_one_of(
            norm_place=NORM_PLACES,
            positions=POSITIONS,
            attention_pattern=MASKS,
            feed_forward=FEED_FORWARDS,
            attention=ATTENTIONS,
            remat_policy=REMAT_KEEPS,
        )
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"hidden_size={self.hidden_size} is not divisible by num_heads={self.num_heads}."
            )
        self._check_positions()
        self._check_window()
        self._check_attention()
        if self.scan_layers and (self.global_every or not self.first_layer_norm):
            raise UserError(
                f"scan_layers=True needs blocks that are all alike, not global_every="
                f"{self.global_every} and first_layer_norm={self.first_layer_norm}: set"
                " scan_layers=False."
            )

    @property
    def is_causal(self) -> bool:
        """Whether no position sees a later one."""
        return self.attention_pattern == "causal"

    @property
    def head_dim(self) -> int:
        """Features of an attention head."""
        return self.hidden_size // self.num_heads

    def is_global(self, layer: int) -> bool:
        """Whether a block, counted from 0, attends to all positions in spite of a window."""
        return self.global_every > 0 and layer % self.global_every == 0

    def _check_positions(self) -> None:
        if self.positions == "rotary" and self.head_dim % 2:
            raise UserError(
                f"positions='rotary' needs an even hidden_size / num_heads, not"
                f" {self.hidden_size} / {self.num_heads} = {self.head_dim}: change one of them."
            )
        if self.positions == "sinusoidal" and self.hidden_size % 2:
            raise UserError(
                f"positions='sinusoidal' needs an even hidden_size, not {self.hidden_size}."
            )

    def _check_window(self) -> None:
        if self.attention_pattern == "window" and self.attention_window < 1:
            raise UserError(
                f"attention_window={self.attention_window} with attention_pattern='window' must"
                " be at least 1: set attention_window to"
                " the number of visible positions on each side."
            )
        if self.attention_pattern != "window" and self.attention_window:
            raise UserError(
                f"attention_window={self.attention_window} has no effect with"
                f" attention_pattern={self.attention_pattern!r}: set"
                " attention_window=0, or attention_pattern='window'."
            )
        if self.attention_pattern != "window" and (self.global_every or self.window_rotary_base):
            raise UserError(
                f"global_every={self.global_every} and window_rotary_base="
                f"{self.window_rotary_base} have no effect with"
                f" attention_pattern={self.attention_pattern!r}: set both to 0,"
                " or attention_pattern='window'."
            )
        if not self.first_layer_norm and self.norm_place != "pre":
            raise UserError("first_layer_norm=False needs norm_place='pre'.")

    def _check_attention(self) -> None:
        if self.attention != "einsum" and self.attention_dropout_rate:
            raise UserError(
                f"attention={self.attention!r} has no dropout of probabilities, and"
                f" attention_dropout_rate={self.attention_dropout_rate}: set"
                " attention_dropout_rate=0, or attention='einsum'."
            )
        if self.attention == "cudnn" and self.dtype != "bfloat16":
            raise UserError(
                f"attention='cudnn' needs dtype='bfloat16', not {self.dtype!r}: change dtype, or"
                " set attention='dot_product'."
            )
