"""Encoders and heads as pure flax.linen modules, independent of data, losses and devices.

    bert = Bert(BertConfig())  # BERT-Base
    params = bert.init(jax.random.key(0), {"input_ids": ids})["params"]
    hidden = bert.apply({"params": params}, {"input_ids": ids}).hidden  # float32[batch, seq, 768]

An encoder is a row of `MODELS`, and has a file of its own unless it reuses the modules of another
encoder. Heads work with any encoder.
"""

import dataclasses
from typing import Any

from bert_jax.config.encoder_fields import EncoderConfig as EncoderConfig
from bert_jax.config.encoders import BertConfig as BertConfig
from bert_jax.config.encoders import DistilBertConfig as DistilBertConfig
from bert_jax.config.encoders import ElectraConfig as ElectraConfig
from bert_jax.config.encoders import ElmoConfig as ElmoConfig
from bert_jax.config.encoders import GptConfig as GptConfig
from bert_jax.config.encoders import ModernBertConfig as ModernBertConfig
from bert_jax.config.encoders import RobertaConfig as RobertaConfig
from bert_jax.config.encoders import XlmRobertaConfig as XlmRobertaConfig
from bert_jax.files.errors import UserError
from bert_jax.models.bert import BERT
from bert_jax.models.bert import Bert as Bert
from bert_jax.models.elmo import ELMO
from bert_jax.models.elmo import Elmo as Elmo
from bert_jax.models.gpt import GPT
from bert_jax.models.gpt import Gpt as Gpt
from bert_jax.models.model import AddFields, Encoder, Model
from bert_jax.models.model import complete_batch as complete_batch

MODELS: dict[str, Model] = {
    "bert": BERT,
    # BERT's module with other values of its configuration.
    "distilbert": dataclasses.replace(BERT, config=DistilBertConfig),
    "electra": dataclasses.replace(BERT, config=ElectraConfig),
    "roberta": dataclasses.replace(BERT, config=RobertaConfig),
    "xlm_roberta": dataclasses.replace(BERT, config=XlmRobertaConfig),
    "modernbert": dataclasses.replace(BERT, config=ModernBertConfig),
    "gpt": GPT,
    "elmo": ELMO,
}


def make_encoder(config: EncoderConfig, name: str | None = None) -> Encoder:
    """Returns the encoder module of a configuration.

    Args:
      config: its `name` is a key of MODELS.
      name: the module's name in its parent; None for a module without one.

    Raises:
      UserError: for an unknown `config.name`.
    """
    return _row(config.name).encoder(config, name=name)


def reads_new_words(config: EncoderConfig) -> bool:
    """Returns whether an encoder can read words that are not in its vocabulary."""
    return _row(config.name).add_fields is not None


def make_add_fields(config: EncoderConfig, tokenizer: Any) -> AddFields:
    """Returns the function that completes batches on the host, just before they go to the devices.

    Args:
      config: the encoder's configuration.
      tokenizer: the one that made the ids.

    Raises:
      UserError: the tokenizer does not fit the encoder.
    """
    if make := _row(config.name).add_fields:
        return make(config, tokenizer)
    if (pieces := len(tokenizer.pieces)) > config.padded_vocab_size:
        raise UserError(
            f"The vocabulary has {pieces:,} entries, more than"
            f" model.vocab_size={config.vocab_size:,}: set model.vocab_size={pieces}."
        )
    return lambda batch: batch


def _row(name: str) -> Model:
    if name not in MODELS:
        raise UserError(f"Unknown model {name!r}. Available: {', '.join(MODELS)}.")
    return MODELS[name]
