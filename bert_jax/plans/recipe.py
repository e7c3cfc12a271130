"""Hyperparameters for fine-tuning, which follow from the encoder and the number of examples.

`bert_jax.finetune` and the command `finetune` apply them; the configurations in configs/ keep the
values of their papers. Fields that the user sets keep their values.

The learning rate falls with the square of the hidden size. Devlin et al. 2019 (appendix A.3) choose
from 2e-5 to 5e-5 for 768 and 1,024, Turc et al. 2019 (section 4), for 128 to 768, from 3e-5 to
3e-4, on tens of thousands of examples. On hundreds and thousands, the best rate for 128 is about
1/45 of the root mean square (RMS) of the encoder's kernels: from 7e-4 for BERT's pre-training
recipe to 6e-3 for Muon's (docs/log/finetuning.md). An Adam step is as large as the rate, whatever
the gradient; what counts is its size relative to the weights.
Adam corrects its bias, and small files are read more often: Mosbach et al. 2021 (20 epochs) and
Zhang et al. 2021 (more steps, bias correction) show that short runs without correction fail on
small sets.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.config.encoders import finetuning_values
from bert_jax.data.labelled.forms.label_kinds import SKEWED

# Value of a field, and the reason for it.
Recipe = dict[str, tuple[Any, str]]

# For a hidden size of 768.
_RATE, _SIZE = 4e-5, 768
# Small encoders, whose rate is proportional to the RMS of their kernels; with this RMS it is the
# rate of their size: 1/45 of the RMS for a hidden size of 128, the smallest that was measured.
SMALL, _SMALLEST, _RMS = 256, 128, 0.064
# Factors of the rate for small encoders: where texts are compared, by attention or by vectors; and
# for spans, whatever the RMS (docs/log/finetuning.md).
_PAIRS, _SPANS = 0.25, 0.7
_BATCH, _SMALL_BATCH = 32, 16
# Factor of the batch size where the other examples of a batch are negatives.
_NEGATIVES = 2
# Files with fewer examples have small batches, so that an epoch has some steps.
_SMALL_FILE = 2000
# Minimum number of steps, if epochs permit.
_MIN_STEPS = 1000
_MIN_EPOCHS, _MAX_EPOCHS = 3, 20
# With skewed classes: their weight is this power of the ratio of their counts (at 1, a rare class
# would be predicted too often); and the steps and the minimum number of epochs.
_TEMPER, _SKEWED_STEPS, _SKEWED_EPOCHS = 0.75, 200, 2
# Tokens of a row; more are cut off. Longer rows cost time only where texts are longer.
_MAX_LENGTH, _LENGTH_STEP = 512, 64
# Share of the texts that should not be cut off.
_WHOLE = 0.99


def finetuning_recipe(
    model: Mapping[str, Any],
    examples: int,
    pools: bool,
    embeds: bool = False,
    rms: float = 0.0,
    row: str = "text",
) -> Recipe:
    """Returns the settings for fine-tuning an encoder.

    Args:
      model: the fields of `config.model`.
      examples: number of training examples; for texts in windows, of windows.
      pools: whether the head reads one vector of each text.
      embeds: whether the vectors themselves are trained, with the examples of a batch as negatives.
      rms: `kernel_rms` of the encoder; 0: unknown.
      row: what it holds: a `text`, a `pair` of texts, or a `question` and a text with its answer.
    """
    batch = _batch_size(examples) * (_NEGATIVES if embeds else 1)
    epochs = min(_MAX_EPOCHS, max(_MIN_EPOCHS, -(-_MIN_STEPS * batch // examples)))
    recipe: Recipe = {
        "global_batch_size": (batch, f"{examples:,} examples"),
        "epochs": (
            float(epochs),
            f"{_MIN_EPOCHS} to {_MAX_EPOCHS}, for at least {_MIN_STEPS:,} steps (Mosbach et al."
            " 2021)",
        ),
        "checkpoint.use": (
            "newest",
            "the rate ends at 0; choosing the best would flatter its score",
        ),
        "checkpoint.every": ("25%", "to continue after an interruption"),
    }
    if finetuning_values(model, {"optimizer.learning_rate"}):  # the recipe of its paper
        return recipe
    size = model["hidden_size"]
    rate, why = scaled_rate(_RATE, size), f"hidden size {size:,} (Devlin et al. 2019, for 768)"
    if rms and size <= SMALL and row == "question":
        rate, why = scaled_rate(_RATE * _SPANS, size), f"hidden size {size:,}, spans"
    elif rms and size <= SMALL:
        factor, of_pairs = (_PAIRS, ", pairs of texts") if embeds or row == "pair" else (1.0, "")
        rate = _rounded(rate * factor * rms / _RMS)
        why = f"hidden size {size:,}, weights of about {rms:.2g}{of_pairs}"
    recipe |= {
        "optimizer.learning_rate": (rate, why),
        "optimizer.name": ("adamw", "corrects the bias of Adam's moments (Zhang et al. 2021)"),
        "optimizer.schedule": ("linear", "to 0"),
        "optimizer.warmup": ("10%", "Devlin et al. 2019"),
    }
    if pools and not model.get("next_sentence") and model.get("attention_pattern") != "causal":
        recipe |= {
            "task.pool": ("mean", "the encoder's first token was not trained to sum up the text"),
            "task.pooler": (False, "there is no trained pooler"),
        }
    return recipe


def skewed_recipe(counts: Mapping[str, int]) -> Recipe:
    """Returns the settings for a file in which one class is much more frequent than the others.

    Trained as usual, a model follows the class shares of the training file, and even an encoder
    that recognizes a rare class hardly ever predicts it. {} if no class has more than `SKEWED` of
    the examples.

    Args:
      counts: number of training examples of each class.
    """
    total, (name, most) = sum(counts.values()), max(counts.items(), key=lambda item: item[1])
    if not most > SKEWED * total:
        return {}
    weights = {label: round((most / counts[label]) ** _TEMPER, 2) for label in sorted(counts)}
    needed = round(_SKEWED_STEPS * _batch_size(total) / total)
    epochs = min(_MAX_EPOCHS, max(_SKEWED_EPOCHS, needed))
    return {
        "task.class_weights": (
            str(weights),
            f"{most / total:.0%} of the examples have the label {name!r}",
        ),
        "task.weighting": (
            "logits",
            "decides as if the classes were nearly equally frequent (Menon et al. 2021)",
        ),
        "epochs": (
            float(epochs),
            f"about {_SKEWED_STEPS} steps, at least {_SKEWED_EPOCHS} epochs: more make the model"
            " too sure of the frequent class",
        ),
    }


def _batch_size(examples: int) -> int:
    return _SMALL_BATCH if examples < _SMALL_FILE else _BATCH


def length_recipe(model: Mapping[str, Any], usual: int, lengths: Sequence[int]) -> Recipe:
    """Returns the maximum length of a row.

    Args:
      model: the fields of `config.model`.
      usual: the task's usual maximum in tokens.
      lengths: lengths of examples that would be cut off, in tokens; (): longer ones are split, or
        read in windows.
    """
    length, reason = usual, "longer ones are split"
    if lengths:
        needed = sorted(lengths)[math.ceil(_WHOLE * len(lengths)) - 1]
        rounded = -(-needed // _LENGTH_STEP) * _LENGTH_STEP
        length = min(_MAX_LENGTH, max(usual, rounded))
        reason = f"{_WHOLE:.0%} of the texts have up to {needed:,} tokens"
    if length > (limit := model["max_position_embeddings"]):
        length, reason = limit, f"{reason}; the model has {limit:,} positions"
    return {"max_length": (length, reason)}


def scaled_rate(rate: float, hidden_size: int) -> float:
    """Returns the peak rate for a hidden size, with two significant digits.

    Args:
      rate: the peak rate for BERT-Base, whose hidden size is 768.
      hidden_size: hidden size of the encoder.
    """
    return _rounded(rate * (_SIZE / max(_SMALLEST, hidden_size)) ** 2)


def kernel_rms(params: Mapping[str, np.ndarray]) -> float:
    """Returns the mean RMS of an encoder's kernels; 0 if `params` has none."""
    kernels = [x for path, x in params.items() if "/encoder/" in path and path.endswith("/kernel")]
    return float(np.mean([np.sqrt(np.mean(np.square(x))) for x in kernels])) if kernels else 0.0


def _rounded(rate: float) -> float:
    return float(f"{rate:.1e}")


def describe(recipe: Recipe) -> Iterator[str]:
    """Yields a line for each setting: its field, value and reason."""
    for number, (name, (value, reason)) in enumerate(recipe.items()):
        title = "" if number else "recipe"
        yield f"{title:<10} {name}={value}: {reason}"
