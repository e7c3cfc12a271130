"""BERT-Tiny (2 layers, hidden size 128, 2 heads): minutes on a laptop, without other data.

    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR

Trains a vocabulary of 8,192 and the model on the documentation of the installed Python packages
(`installed_docs`), evaluates on held-out documents, and prints a verdict.
"""

from ml_collections import ConfigDict

from bert_jax.config import defaults


def get_config() -> ConfigDict:
    config = defaults.pretraining().to_config_dict()
    config.model.num_layers = 2
    config.model.hidden_size = 128
    config.model.num_heads = 2
    config.model.intermediate_size = 512
    config.model.vocab_size = 8192

    config.steps = 4000
    config.phases = ((64, 1.0),)
    config.global_batch_size = 32
    config.data.dupe_factor = 5
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
