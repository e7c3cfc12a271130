"""BERT pre-training as in the paper (Devlin et al. 2019), in all published sizes.

    python -m bert_jax.main --config=configs/bert.py:base --workdir=DIR \\
        --config.data.source=text:PATH
    python -m bert_jax.main --config=configs/bert.py:tiny --workdir=DIR

The argument is base (the default), large, medium, small, mini (Turc et al. 2019, trained like base)
or tiny. Hardware and time: base takes at least 2.8 hours on 8 H100, a lower bound that
`bert_jax doctor` prints (docs/questions.md); it has not been run to the end. tiny has settings for
a laptop and reads the documentation of the installed packages: 6 minutes on 2 CPU cores, 16.7 % of
the held-out masked tokens and 73.4 % of the pairs correct. base.py, large.py, ... are short names.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config

# Layers, hidden size, heads.
SIZES = {
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
    "medium": (8, 512, 8),
    "small": (4, 512, 8),
    "mini": (4, 256, 4),
    "tiny": (2, 128, 2),
}


def get_config(size: str = "base") -> ConfigDict:
    if size not in SIZES:
        raise ValueError(f"Unknown size {size!r}. Available: {', '.join(SIZES)}.")
    config = default_config("pretraining").to_config_dict()
    config.model.num_layers, config.model.hidden_size, config.model.num_heads = SIZES[size]
    config.model.intermediate_size = 4 * config.model.hidden_size
    config.model.vocab_size = 30522
    config.model.dropout_rate = 0.1
    config.model.attention_dropout_rate = 0.1

    config.steps = 1_000_000
    config.phases = ((128, 0.9), (512, 0.1))  # length in tokens, fraction of the steps
    config.global_batch_size = 256
    config.data.masked_lm_prob = 0.15
    config.data.short_seq_prob = 0.1
    config.data.dupe_factor = 10

    config.optimizer.name = "bert_adam"
    config.optimizer.learning_rate = 1e-4
    config.optimizer.schedule = "bert_linear"
    config.optimizer.warmup = "10000"
    config.optimizer.weight_decay = 0.01
    if size == "tiny":
        config.data.dupe_factor = 5
        return for_a_laptop(config)
    return config


def for_a_laptop(config: ConfigDict) -> ConfigDict:
    """Sets what a small model trains on in minutes, of GPT too."""
    config.model.vocab_size = 8192
    config.steps = 4000
    config.phases = ((64, 1.0),)
    config.global_batch_size = 32
    config.data.validation_share = 0.05

    # In five epochs, a small model underfits: no regularization.
    config.model.dropout_rate = 0.0
    config.model.attention_dropout_rate = 0.0
    # Small models take a higher learning rate than the paper's; above 1e-3 this one learns no more
    # than word frequencies.
    config.optimizer.learning_rate = 5e-4
    config.optimizer.warmup = "5%"

    config.log.every = "200"
    config.eval.every = "1000"
    config.checkpoint.every = "1000"
    return config
