"""Configurations: new tasks with BERT, and tasks of the package with a new encoder."""

from ml_collections import ConfigDict

from bert_jax.config import defaults


def count_words() -> ConfigDict:
    """Returns the configuration of the task in toy_task.py."""
    return defaults.finetuning("count_words")


def next_token() -> ConfigDict:
    """Returns the configuration of the task in toy_corpus_task.py, whose encoder is like GPT's."""
    config = defaults.pretraining()
    config.task = "next_token"
    config.model.next_sentence = False
    config.model.attention_pattern = "causal"
    config.model.positions = "rotary"
    config.model.norm_place = "pre"
    config.data.segments = "full_sentences"
    return config


def use_bag(config: ConfigDict, vocab_size: int) -> ConfigDict:
    """Returns a configuration with the encoder of toy_encoder.py instead of BERT."""
    config.model = ConfigDict(
        {
            "name": "bag",
            "vocab_size": vocab_size,
            "pad_vocab_to_multiple_of": 8,
            "hidden_size": 32,
            "num_layers": 1,
            "context_size": 16,
            "max_position_embeddings": 32,
            "dropout_rate": 0.1,
            "initializer_range": 0.1,
            "layer_norm_epsilon": 1e-6,
            "activation": "gelu",
            "next_sentence": False,
        }
    )
    return config
