"""ELMo's pre-training (Peters et al. 2018; allenai/bilm-tf `bin/train_elmo.py`).

    python -m bert_jax.main --config=configs/elmo.py --workdir=DIR --config.data.source=text:PATH
    python -m bert_jax.main --config=configs/elmo.py:small --workdir=DIR \\
        --config.data.source=text:PATH --config.data.line_format=paragraphs

The default has the published sizes and settings: one sentence per line, its words separated by
spaces (the 1 Billion Word Benchmark), 10 epochs of batches of 3 x 128 rows of 20 words. `small` has
2.5 million parameters besides the softmax and takes some 20 minutes on 2 cores: on 30 MB of novels,
the held-out loss is 5.31 nats (word frequencies: 6.35). The published size was not run.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config

SIZES = ("published", "small")


def get_config(size: str = "published") -> ConfigDict:
    if size not in SIZES:
        raise ValueError(f"Unknown size {size!r}. Available: {', '.join(SIZES)}.")
    config = default_config("bidirectional_lm").to_config_dict()
    return _make_small(config) if size == "small" else config


def _make_small(config: ConfigDict) -> ConfigDict:
    config.model.vocab_size = 20_000
    config.model.hidden_size = 256
    config.model.cell_size = 512
    config.model.filters = ((1, 16), (2, 32), (3, 64), (4, 64))
    config.model.highway_layers = 1
    config.task.num_samples = 1024

    config.epochs = 0.0
    config.steps = 1500
    config.global_batch_size = 64
    config.data.validation_share = 0.05

    config.log.every = "100"
    config.eval.every = "500"
    config.eval.max_batches = 100
    config.checkpoint.every = "500"
    return config
