"""Settings for continuing pre-training on a text: they follow from the model and the text.

`bert_jax.adapt` and the command `adapt` apply them. Fields that the user sets keep their values.

The rows have the form of those that the model was trained on. The learning rate rises again to the
peak of its pre-training, which learns most from a new text (Gupta et al. 2023, arXiv 2308.04014),
scaled by the square root of the batch size (Malladi et al. 2022, arXiv 2205.10287). Where that peak
is unknown, the rate is that of Sun et al. 2019 for BERT-Base and falls with the square of the
hidden size, as in `recipe`. The other values are those of Sun et al. 2019 (arXiv 1905.05583:
sequences of 128 tokens, batches of 32) and of Gururangan et al. 2020 (arXiv 2004.10964,
task-adaptive pre-training: up to 100 passes over a small text, Adam with bias correction, a warm-up
of 6 %, linear decay).
"""

import dataclasses
import math

from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.plans.recipe import Recipe, scaled_rate

# Learning rates of BERT-Base (Sun et al. 2019), and of BERT-Tiny (`configs/tiny.py`).
_RATE, _MAX_RATE = 5e-5, 1e-3
_LENGTH = 128
_BATCH, _MIN_BATCH = 32, 8
# A pass over the text has at least this many steps, if the batch can be smaller.
_STEPS_OF_PASS = 10
# Minimum number of steps, if passes permit; more where a new head has to be learned.
_MIN_STEPS, _MIN_STEPS_OF_HEAD = 1000, 2000
_MAX_PASSES = 100
# Held-out text: its share, and the number of tokens that is enough.
_HELD_OUT, _HELD_OUT_TOKENS = 0.1, 50_000
# Mean number of sentences per document from which pairs of segments can be made.
_SENTENCES_OF_PAIRS = 4
_MAX_REPEATS = 10


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a model was trained on.

    Attributes:
      model: its encoder.
      predicts_tokens: whether it has a trained head for masked or next tokens.
      judges_pairs: whether it has a trained head for next sentences.
      length: sequence length of most of its pre-training; 0: unknown.
      new_positions: positions that the model is extended to; 0: it keeps its own.
      segments: `data.segments` of its pre-training; "": unknown.
      learning_rate: peak rate of its pre-training with Adam; 0: unknown.
      batch_size: sequences per step of its pre-training, at `length`.
    """

    model: EncoderConfig
    predicts_tokens: bool
    judges_pairs: bool
    length: int = 0
    new_positions: int = 0
    segments: str = ""
    learning_rate: float = 0.0
    batch_size: int = _BATCH


def continuing_recipe(
    trained: Trained, tokens: int, sentences_per_document: float, has_held_out: bool
) -> Recipe:
    """Returns the settings for continuing the pre-training of a model.

    Args:
      trained: the model.
      tokens: estimated tokens of the text.
      sentences_per_document: mean over its documents.
      has_held_out: whether there is a file to evaluate on.
    """
    recipe = rows_recipe(trained, sentences_per_document)
    length, why_length = _length(trained)
    rows = max(1, tokens // length)
    batch = _BATCH
    while batch > _MIN_BATCH and rows < batch * _STEPS_OF_PASS:
        batch //= 2
    min_steps = _MIN_STEPS if trained.predicts_tokens else _MIN_STEPS_OF_HEAD
    passes = min(_MAX_PASSES, max(1, math.ceil(min_steps * batch / rows)))
    times = "one pass" if passes == 1 else f"{passes} passes"
    why_passes = f"{times} over about {tokens:,} tokens"
    if passes == _MAX_PASSES:
        why_passes += ", the maximum (Gururangan et al. 2020)"
    elif passes > 1:
        why_passes += f", for at least {min_steps:,} steps"
    if not trained.predicts_tokens:
        why_passes += " since the head is new"
    repeats = 1
    if recipe["data.segments"][0] == "pairs":
        repeats = min(_MAX_REPEATS, passes)
        recipe["data.dupe_factor"] = (repeats, "other pairs in each pass over the text")
    if not has_held_out:
        recipe["data.validation_share"] = held_out_share(tokens)
    return recipe | {
        "phases": (((length, 1.0),), why_length),
        "global_batch_size": (
            batch,
            "Sun et al. 2019" if batch == _BATCH else f"a small text: about {rows:,} sequences",
        ),
        "epochs": (passes / repeats, why_passes),
        "optimizer.name": ("adamw", "corrects the bias of Adam's moments, for a short warm-up"),
        "optimizer.learning_rate": _rate(trained, batch),
        "optimizer.schedule": ("linear", "to 0 (Gururangan et al. 2020)"),
        "optimizer.warmup": ("6%", "Gururangan et al. 2020"),
        "checkpoint.use": ("best", "the checkpoint with the lowest held-out loss"),
    }


def held_out_share(tokens: int) -> tuple[float, str]:
    """Returns the share of a text of about `tokens` tokens that is held out, and why."""
    share = float(f"{min(_HELD_OUT, _HELD_OUT_TOKENS / tokens):.2g}")
    return share, f"about {share * tokens:,.0f} tokens held out"


def rows_recipe(trained: Trained, sentences_per_document: float) -> Recipe:
    """Returns the row settings, which follow from what a model was trained on."""
    if trained.model.is_causal:
        segments = trained.segments or "running_text"
        return {"data.segments": (segments, "the model predicts next tokens")}
    if not trained.judges_pairs:
        why = "the model predicts no next sentences: rows are filled with sentences"
        return {
            "data.segments": ("full_sentences", why),
            "model.next_sentence": (False, "there is no head for next sentences"),
        }
    if sentences_per_document < _SENTENCES_OF_PAIRS:
        why = f"documents of {sentences_per_document:.1f} sentences are too short for pairs"
        return {
            "data.segments": ("full_sentences", why),
            "model.next_sentence": (False, "its head and the pooler are left out"),
        }
    return {
        "data.segments": ("pairs", "the model predicts next sentences"),
        "model.next_sentence": (True, "its head is trained further"),
    }


def _length(trained: Trained) -> tuple[int, str]:
    if trained.new_positions:
        return trained.new_positions, "the new positions of the model"
    if trained.length:
        return trained.length, "the length of most of its pre-training"
    limit = trained.model.max_position_embeddings
    if trained.model.is_causal:
        return limit, "the positions of the model"
    length = min(_LENGTH, limit)
    return length, "Sun et al. 2019" if length == _LENGTH else f"the model has {limit} positions"


def _rate(trained: Trained, batch: int) -> tuple[float, str]:
    if not (peak := trained.learning_rate):
        size = trained.model.hidden_size
        why = f"hidden size {size:,} (Sun et al. 2019: {_RATE:g} for 768)"
        return min(_MAX_RATE, scaled_rate(_RATE, size)), why
    rate = peak * min(1.0, (batch / trained.batch_size) ** 0.5)
    why = f"up to the peak of its pre-training again, {peak:g} (Gupta et al. 2023)"
    if batch < trained.batch_size:
        why += f", times the root of {batch}/{trained.batch_size} (Malladi et al. 2022)"
    return float(f"{rate:.1e}"), why
