"""BERT-Tiny (2 layers, hidden 128, 2 heads) in minutes on a laptop, on text it already carries.

    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR

Trains a vocabulary of 8,192 and the model on the documentation that comes with every installation
(`installed_docs`), evaluates on documents held out, and ends with a verdict.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.model.num_layers = 2
    config.model.hidden_size = 128
    config.model.num_heads = 2
    config.model.intermediate_size = 512
    config.model.vocab_size = 8192

    config.steps = 3000
    config.phases = ((128, 1.0),)
    config.global_batch_size = 32
    config.data.dupe_factor = 5
    config.data.validation_share = 0.05

    # A small model on few words takes, and needs, a larger rate than the paper's.
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup = "10%"

    config.log.every = "100"
    config.eval.every = "500"
    config.checkpoint.every = "500"
    return config
