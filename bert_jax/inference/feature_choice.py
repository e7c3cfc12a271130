"""Which features are extracted: settings and their validation.

`models.layer_choice` describes the choices of layers.
"""

import dataclasses
import math

from bert_jax.files.errors import UserError

# Of `models.layer_choice.LAYER_CHOICES`, which needs jax: names that features may have.
FEATURE_LAYERS = (
    "last",
    "second_to_last",
    "concat_last_4",
    "sum_last_4",
    "weighted_sum",
    "all",
    "directions",
)
# Of these, those with several vectors for each token.
SEVERAL = ("all", "directions")
LEVELS = ("subword", "word", "sentence")
WORDS = ("first", "mean")
POOLING = ("cls", "mean", "max")


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which features.

    Attributes:
      layers: of FEATURE_LAYERS.
      weights: of `weighted_sum`.
      level: what a vector represents, of LEVELS.
      word: a word is its first piece or the mean of its pieces.
      pooling: a sentence is its [CLS], or the mean or the maximum over all its tokens, [CLS] and
        [SEP] included.
      normalize: whether each vector is scaled to length 1.
    """

    layers: str = "last"
    weights: tuple[float, ...] = ()
    level: str = "subword"
    word: str = "mean"
    pooling: str = "mean"
    normalize: bool = False

    def __post_init__(self):
        for name, allowed in (
            ("layers", FEATURE_LAYERS),
            ("level", LEVELS),
            ("word", WORDS),
            ("pooling", POOLING),
        ):
            if (got := getattr(self, name)) not in allowed:
                raise UserError(f"--{name}={got} is none of {', '.join(allowed)}.")
        if (self.layers == "weighted_sum") != bool(self.weights):
            raise UserError(
                "--layers=weighted_sum and --weights go together, for example"
                " --layers=weighted_sum --weights=0.1,0.2,0.3,0.4."
            )
        if not all(map(math.isfinite, self.weights)):
            raise UserError(f"--weights={self.weights} are not all finite.")
        if self.layers in SEVERAL and self.level == "sentence":
            raise UserError(
                f"--layers={self.layers} gives no single vector for a sentence: choose other"
                " --layers, or --level=subword."
            )
