"""A modern encoder: masked tokens of full sentences, with a recipe that learns fast.

    python -m bert_jax.main --config=configs/fast.py --workdir=DIR --config.data.source=text:PATH
    python -m bert_jax.main --config=configs/fast.py:tiny --workdir=DIR

The argument is a size of BERT: base (the default), large, medium, small, mini, tiny. Text and steps
are those of its configuration; tiny has fewer steps. docs/pretraining.md has the source of
each part, docs/measurements.md what they do.
"""

from ml_collections import ConfigDict

from configs import base, large, medium, mini, small, tiny

SIZES = {
    "base": base,
    "large": large,
    "medium": medium,
    "small": small,
    "mini": mini,
    "tiny": tiny,
}


def get_config(size: str = "base") -> ConfigDict:
    if size not in SIZES:
        raise ValueError(f"Unknown size {size!r}. Available: {', '.join(SIZES)}.")
    config = SIZES[size].get_config()
    config.model.norm_place = "pre"
    config.model.query_key_norm = True
    config.model.positions = "rotary"
    config.model.feed_forward = "gated"
    config.model.biases = False
    config.model.type_vocab_size = 0
    # With 0.02, a narrow model learns only the frequencies of words for hundreds of steps.
    config.model.initializer_range = 0.7 * config.model.hidden_size**-0.5
    config.model.next_sentence = False
    config.model.dropout_rate = 0.0
    config.model.attention_dropout_rate = 0.0

    config.data.segments = "full_sentences"
    config.data.masked_lm_prob = 0.3
    config.data.final_masked_lm_prob = 0.15
    config.data.max_examples_per_row = 4

    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 3e-3 if size in ("mini", "tiny") else 1e-3
    config.optimizer.beta2 = 0.98
    config.optimizer.schedule = "trapezoid"
    config.optimizer.warmup = "5%"
    config.optimizer.decay_fraction = 0.5
    if size == "tiny":
        config.steps = 2000  # 4 minutes on 2 slow cores
        config.eval.every = "500"
    return config
