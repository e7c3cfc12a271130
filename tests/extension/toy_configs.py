"""Configurations: new tasks with BERT, and tasks of the package with a new encoder."""

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.config.task import default_config
from tests import tiny
from tests.extension.toy_encoder import BagConfig


def count_words() -> FinetuningConfig:
    """Returns the configuration of the task in toy_task.py."""
    return default_config("count_words")


def next_token() -> PretrainingConfig:
    """Returns the configuration of the task in toy_corpus_task.py, whose encoder is like GPT's."""
    return default_config("next_token").replace(
        {
            "model.next_sentence": False,
            "model.attention_pattern": "causal",
            "model.positions": "rotary",
            "model.norm_place": "pre",
            "data.segments": "full_sentences",
        }
    )


def use_bag(config: RunConfig, vocab_size: int) -> RunConfig:
    """Returns a configuration with the encoder of toy_encoder.py instead of BERT."""
    model = BagConfig(
        vocab_size=vocab_size,
        pad_vocab_to_multiple_of=8,
        hidden_size=32,
        num_layers=1,
        max_position_embeddings=32,
        initializer_range=0.1,
        layer_norm_epsilon=1e-6,
        activation="gelu",
    )
    return config.replace(tiny.rows_of(config, 16), model=model)
