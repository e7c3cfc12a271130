"""Which features are extracted: settings and their validation. Does not import jax."""

import dataclasses
import math

from bert_jax.files.errors import UserError

# Names of layers, as in `models.layer_choice.LAYER_CHOICES` (which needs jax).
FEATURE_LAYERS = (
    "last",
    "second_to_last",
    "concat_last_4",
    "sum_last_4",
    "weighted_sum",
    "all",
    "directions",
)
# The ones that give several vectors for each token.
SEVERAL = ("all", "directions")
LEVELS = ("subword", "word", "sentence")
WORDS = ("first", "mean")
POOLING = ("cls", "mean", "max")
LONG = ("error", "truncate", "windows")


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which features are extracted.

    Attributes:
      layers: one of FEATURE_LAYERS; or the number of a layer, 0 the embeddings' output, -1 the last
        layer.
      weights: weights of the last layers for `weighted_sum`, the last layer's last.
      level: unit that a vector represents, one of LEVELS.
      word: whether a word is its first piece or the mean of its pieces.
      pooling: whether a sentence is its [CLS], or the mean or maximum over all its tokens, [CLS]
        and [SEP] included; "": as modules.json of sentence-transformers says, else the mean.
      normalize: whether each vector is scaled to length 1; None: as modules.json says for
        sentences, else not.
      long: how a text that is too long is handled: "error"; "truncate" cuts off its last tokens;
        "windows" takes the hidden state of each token from one of several windows.
      stride: tokens from the start of a window to that of the next one; 0: half of a window.
      prompt: a text before each text, or the name of one of the model's prompts; "": the model's
        default prompt, if it has one. For sentences.
      dimensions: number of leading dimensions to keep, before a vector is scaled; 0: all. For
        sentences of a model that was trained for it (`config.task.matryoshka`).
      sparse: whether the vector of a sentence has a weight for each word of the vocabulary, from a
        masked-LM head (SPLADE), float32[vocab_size]; can be combined only with `long` and `prompt`.
      multi: whether the vectors of tokens are those that MaxSim compares (ColBERT), float32[tokens,
        features]; needs level="subword", and can be combined only with `long` and `prompt`.
      keeps_dtype: whether sentence vectors are computed in the model's dtype. Otherwise products of
        a float32 model are rounded (dtype=bfloat16_products) on processors where that is faster: in
        the models measured, the cosine of a vector and the float32 one is at least 0.9999.
    """

    layers: str | int = "last"
    weights: tuple[float, ...] = ()
    level: str = "subword"
    word: str = "mean"
    pooling: str = ""
    normalize: bool | None = None
    long: str = "error"
    stride: int = 0
    prompt: str = ""
    dimensions: int = 0
    sparse: bool = False
    multi: bool = False
    keeps_dtype: bool = False

    def __post_init__(self):
        allowed = {"level": LEVELS, "word": WORDS, "pooling": ("", *POOLING), "long": LONG}
        if isinstance(self.layers, str):
            allowed["layers"] = FEATURE_LAYERS
        for name, values in allowed.items():
            if (got := getattr(self, name)) not in values:
                raise UserError(f"{name}={got} must be one of {', '.join(filter(None, values))}.")
        if (self.layers == "weighted_sum") != bool(self.weights):
            raise UserError(
                "layers=weighted_sum and weights go together, for example"
                " layers=weighted_sum weights=0.1,0.2,0.3,0.4."
            )
        if self.stride < 0 or (self.stride and self.long != "windows"):
            raise UserError(f"stride={self.stride} is for long=windows, and at least 1.")
        if self.dimensions < 0:
            raise UserError(f"dimensions={self.dimensions} must be at least 1, or 0 for all.")
        for name in ("prompt", "dimensions"):
            if (got := getattr(self, name)) and self.level != "sentence" and not self.multi:
                raise UserError(f"{name}={got} is for level=sentence, not {self.level}.")
        if self.sparse or self.multi:
            self._check_other()
        if not all(map(math.isfinite, self.weights)):
            raise UserError(f"weights={self.weights} are not all finite.")
        if self.layers in SEVERAL and self.level == "sentence":
            raise UserError(
                f"layers={self.layers} gives no single vector for a sentence: choose others,"
                " or level=subword."
            )

    def _check_other(self) -> None:
        """Raises UserError for settings that sparse or token vectors do not support."""
        kind = "sparse ones" if self.sparse else "those of ColBERT"
        level = "sentence" if self.sparse else "subword"
        only = {"level": level, "layers": "last", "pooling": "", "dimensions": 0}
        only |= {"multi": False} if self.sparse else {}
        for name, value in {**only, "normalize": None}.items():
            if (got := getattr(self, name)) != value:
                raise UserError(f"{name}={got} is for dense vectors, not {kind}: leave it out.")
        if self.long == "windows":
            raise UserError(f"long=windows is for dense vectors, not {kind}: take truncate.")
