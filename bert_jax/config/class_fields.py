"""The fields of `config.head` about classes: their loss, and how their logits become labels."""

import ast
import dataclasses
import math
from typing import Any

from bert_jax.config.group import Group, setting
from bert_jax.files.errors import UserError

# Of the loss, and of decisions on probabilities.
LOSS_FIELDS = ("class_weights", "label_smoothing", "focal_gamma")
DECISION_FIELDS = ("thresholds", "calibration")


def parse_class_weights(name: str, text: str) -> dict[str, Any]:
    """Returns the weights that `head.class_weights` gives to labels; {} for none and auto.

    Args:
      name: the field's name, for the message.
      text: its value, such as `{"bad": 10, "good": 1}`.

    Raises:
      UserError: the value is malformed, or a weight is not above 0.
    """
    if text in ("none", "auto"):
        return {}
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = None
    if isinstance(found, dict) and found and {*map(type, found)} <= {str, int}:
        weights = {str(label): weight for label, weight in found.items()}
        if all(map(_is_weight, weights.values())):
            return weights
    raise UserError(
        f"{name}={text!r} is neither none nor auto, nor has weights above 0 of labels, such as"
        ' {"bad": 10, "good": 1}.'
    )


def _is_weight(weight: Any) -> bool:
    if isinstance(weight, list | tuple):
        return (
            len(weight) == 2
            and not any(isinstance(x, list | tuple) for x in weight)
            and all(map(_is_weight, weight))
        )
    return type(weight) in (int, float) and 0 < weight < math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassFields(Group):
    """The loss of classes, and the decision for labels."""

    # Classes and tags: weights of the labels in the loss: none; auto, by inverse frequency in
    # `data.train`: examples / (labels * examples of the label) (King and Zeng 2001), whose mean
    # over the examples is 1; or weights of some labels, {"bad": 10}, the others' being 1. With
    # several labels per text a weight is that of the texts with the label, or a pair is those of
    # the texts without and with it.
    class_weights: str = setting("none", check=parse_class_weights)
    # Classes and tags: label smoothing, the share of the target that is spread evenly over all
    # labels (Szegedy et al. 2016, arXiv 1512.00567, section 7).
    label_smoothing: float = setting(0.0, minimum=0, below=1)
    # Classes and tags: focal loss, cross-entropy times (1 - p)^gamma, where p is the probability of
    # the gold label (Lin et al. 2017, arXiv 1708.02002); 0: cross-entropy.
    focal_gamma: float = setting(0.0, minimum=0)
    # Classification: `tuned` chooses a threshold for each label on `data.eval`, which evaluation
    # and prediction use: with one label per text the thresholds with the best first metric, with
    # several those with the best F1 of each label. `default`: the most probable label, or all above
    # one half.
    thresholds: str = setting("default", choices=("default", "tuned"))
    # Classification: `temperature` divides the logits by the number with the lowest negative
    # log-likelihood of `data.eval`, for evaluation and prediction (Guo et al. 2017, arXiv
    # 1706.04599).
    calibration: str = setting("none", choices=("none", "temperature"))

    def check(self) -> None:
        if self.focal_gamma and self.label_smoothing:
            raise UserError(
                f"focal_gamma={self.focal_gamma} and label_smoothing={self.label_smoothing} are two"
                " losses: set one of the two to 0."
            )
