"""Which features: the settings, and what they may be.

The layers are counted as in the paper's table 7; the embeddings' output is none of them, but comes
first in `all`:

    last, second_to_last   one layer
    concat_last_4          four times as many numbers, the last layer's last
    sum_last_4             their sum
    weighted_sum           of the last n layers, with n weights, the last layer's last; one weight
                           more than there are layers takes in the embeddings' output
    all                    the embeddings' output, then each layer
"""

import dataclasses
import math

# Layers that the model must have at least.
LAYERS = {
    "last": 1,
    "second_to_last": 2,
    "concat_last_4": 4,
    "sum_last_4": 4,
    "weighted_sum": 1,
    "all": 1,
}
LEVELS = ("subword", "word", "sentence")
WORDS = ("first", "mean")
POOLING = ("cls", "mean", "max")


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which features.

    Attributes:
      layers: a name of LAYERS.
      weights: of `weighted_sum`.
      level: what a vector stands for, of LEVELS.
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
            ("layers", LAYERS),
            ("level", LEVELS),
            ("word", WORDS),
            ("pooling", POOLING),
        ):
            if (got := getattr(self, name)) not in allowed:
                raise ValueError(f"--{name}={got} is none of {', '.join(allowed)}.")
        if (self.layers == "weighted_sum") != bool(self.weights):
            raise ValueError(
                "--layers=weighted_sum and --weights go together, for example"
                " --layers=weighted_sum --weights=0.1,0.2,0.3,0.4."
            )
        if not all(map(math.isfinite, self.weights)):
            raise ValueError(f"--weights={self.weights} are not all finite.")
        if self.layers == "all" and self.level == "sentence":
            raise ValueError(
                "--layers=all gives no single vector for a sentence: choose other --layers, or"
                " --level=subword."
            )

    def check_layers(self, num_layers: int) -> None:
        """Raises ValueError if a model of so many layers has too few."""
        if num_layers < (needed := LAYERS[self.layers]):
            raise ValueError(
                f"--layers={self.layers} needs {needed} layers, and the model has {num_layers}."
            )
        if len(self.weights) > num_layers + 1:
            raise ValueError(
                f"--weights has {len(self.weights)} numbers, and the model only {num_layers}"
                " layers and the embeddings' output."
            )
