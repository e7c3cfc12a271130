"""A modern encoder: masked tokens of full sentences, with a recipe that learns fast.

    python -m bert_jax.main --config=configs/fast.py --workdir=DIR --config.data.source=text:PATH
    python -m bert_jax.main --config=configs/fast.py:tiny --workdir=DIR
    python -m bert_jax.main --config=configs/fast.py:record --workdir=DIR

The argument is a size of BERT: base (the default), large, medium, small, mini, tiny. Text and steps
are those of its configuration; tiny has fewer steps. Or it is a recipe that learns most in minutes
on a CPU: plain, whose head is a softmax, or record, which may also copy words from its example;
both of size tiny, and plain_mini and record_mini of size mini.
docs/pretraining.md has the source of each part, docs/log/recipes.md what they do.

Time and result on 2 CPU cores, on the default text: plain 4 minutes, 47.1 % of the held-out masked
tokens correct and 1.083 bits per character; record 4 minutes, 51.5 % and 0.960; tiny 4 minutes on
slower cores, 37.7 %. On 30 MB of novels, after 20 minutes: mini 40.4 %, plain_mini 41.9 %,
record_mini 41.7 %. small was run for up to 30 minutes (docs/log/recipes.md), larger sizes were not.
"""

from ml_collections import ConfigDict

from configs import bert

RECIPES = ("plain", "record", "plain_mini", "record_mini")


def get_config(name: str = "base") -> ConfigDict:
    if name not in (known := (*bert.SIZES, *RECIPES)):
        raise ValueError(f"Unknown size or recipe {name!r}. Available: {', '.join(known)}.")
    if name in bert.SIZES:
        return _modern(name)
    recipe, _, size = name.partition("_")
    return make_recipe(recipe, size or "tiny")


def make_recipe(recipe: str, size: str) -> ConfigDict:
    """Returns plain or record in a size of BERT."""
    config = _modern(size)
    config.model.copy_head = recipe == "record"
    _shorten_steps(config)
    return config


def _modern(size: str) -> ConfigDict:
    config = bert.get_config(size)
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


def _shorten_steps(config: ConfigDict) -> None:
    """Does less in a step: for the same quality in more steps, but less time."""
    config.dtype = "bfloat16_products"
    config.model.feed_forward = "plain"
    config.model.activation = "relu_squared"
    config.model.norm = "rms_norm"
    config.model.lm_head = "tied"
    config.model.convolution = 3
    config.model.last_layer_predicted_only = True

    # First short rows, whose attention is cheap, then long ones, which have more to copy from.
    config.phases = ((64, 1 / 3, 32), (128, 2 / 3, 16))
    if config.model.copy_head:
        config.phases = ((64, 1 / 3, 32), (256, 1 / 3, 8), (512, 1 / 3, 4))
    # One program for each, whose slots for predictions are all used.
    config.data.mask_rounding = "row"
    config.data.mask_stages = 3
    config.data.eval_masked_lm_prob = 0.15

    config.optimizer.name = "muon"
    # Muon's rate of 0.02 * sqrt(max(1, out / in)) (Jordan et al. 2024) at a hidden size of 128,
    # and half of it for attention/output.
    config.optimizer.rates = (
        (r"attention/(query|key|value)/kernel|intermediate/kernel", 2.9),
        (r"encoder/.*output/kernel", 1.5),
        (r"word_embeddings", 2.5),
    )
    config.optimizer.no_decay = ("layer_norm", "bias", "taps", "gate")
    config.steps = 3600  # 4 minutes on 2 slow cores
    config.eval.every = "1200"
