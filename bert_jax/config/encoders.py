"""The configurations of encoders: sizes and numerics, independent of jax.

`BertConfig()` is BERT-Base; `BertConfig.tiny()` to `BertConfig.large()` are the published sizes
(Devlin et al. 2019; Turc et al. 2019).
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Self

from bert_jax.config.encoder_fields import EncoderConfig, TransformerConfig
from bert_jax.config.group import setting
from bert_jax.files.errors import UserError

# (layers, hidden size); a head has 64 features, the inner layer four times the hidden size.
_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(TransformerConfig):
    """BERT-Base of the paper (Devlin et al. 2019) by default."""

    name: str = "bert"
    # Token types; 0: none; 1: all tokens have the same.
    type_vocab_size: int = setting(2, minimum=0)
    next_sentence: bool = True

    @property
    def reads_token_types(self) -> bool:
        return self.type_vocab_size > 1

    @classmethod
    def of_size(cls, size: str, **changes: Any) -> Self:
        """Returns the configuration of a published size: tiny, mini, small, medium, base, large."""
        layers, hidden = _SIZES[size]
        sizes = {"num_layers": layers, "hidden_size": hidden, "num_heads": hidden // 64}
        return cls(**{**sizes, "intermediate_size": 4 * hidden, **changes})

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """Returns BERT-Tiny: 2 layers, hidden size 128."""
        return cls.of_size("tiny", **changes)

    @classmethod
    def mini(cls, **changes: Any) -> Self:
        """Returns BERT-Mini: 4 layers, hidden size 256."""
        return cls.of_size("mini", **changes)

    @classmethod
    def small(cls, **changes: Any) -> Self:
        """Returns BERT-Small: 4 layers, hidden size 512."""
        return cls.of_size("small", **changes)

    @classmethod
    def medium(cls, **changes: Any) -> Self:
        """Returns BERT-Medium: 8 layers, hidden size 512."""
        return cls.of_size("medium", **changes)

    @classmethod
    def base(cls, **changes: Any) -> Self:
        """Returns BERT-Base: 12 layers, hidden size 768."""
        return cls.of_size("base", **changes)

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """Returns BERT-Large: 24 layers, hidden size 1024."""
        return cls.of_size("large", **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """ModernBERT-Base (Warner et al. 2024): BERT's fields with the values of transformers."""

    name: str = "modernbert"
    vocab_size: int = 50_368
    num_layers: int = 22
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    layer_norm_epsilon: float = 1e-5
    activation: str = "gelu"
    norm_place: str = "pre"
    first_layer_norm: bool = False
    biases: bool = False
    type_vocab_size: int = 0
    positions: str = "rotary"
    rotary_base: float = 160_000.0
    window_rotary_base: float = 10_000.0
    attention_pattern: str = "window"
    attention_window: int = 64
    global_every: int = 3
    mask_value: float = -1e9
    feed_forward: str = "gated"
    next_sentence: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilBertConfig(BertConfig):
    """DistilBERT (Sanh et al. 2019, arXiv 1910.01108): BERT-Base with half of its layers.

    It has neither token types nor next-sentence prediction.
    """

    name: str = "distilbert"
    num_layers: int = 6
    activation: str = "gelu"
    type_vocab_size: int = 0
    next_sentence: bool = False

    pooler_activation = "relu"  # only fine-tuned classifiers have a pooler


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElectraConfig(BertConfig):
    """ELECTRA-Small (Clark et al. 2020, arXiv 2003.10555): BERT with narrower embeddings."""

    name: str = "electra"
    hidden_size: int = 256
    num_heads: int = 4
    intermediate_size: int = 1024
    activation: str = "gelu"
    next_sentence: bool = False
    # Features of the embedding tables, which a dense layer projects to hidden_size if they differ.
    embedding_size: int = setting(128)  # type: ignore[override]

    pooler_activation = "gelu"  # only fine-tuned classifiers have a pooler

    def check(self) -> None:
        super().check()
        if self.embedding_size != self.hidden_size and self.lm_head == "tied":
            raise UserError(
                f"lm_head='tied' needs embedding_size={self.embedding_size} to be hidden_size="
                f"{self.hidden_size}: set lm_head='transform'."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RobertaConfig(BertConfig):
    """RoBERTa-Base (Liu et al. 2019, arXiv 1907.11692): BERT without next-sentence prediction."""

    name: str = "roberta"
    vocab_size: int = 50_265
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-5
    # Rows of the table of token types, of which all tokens have the first.
    type_vocab_size: int = setting(1, minimum=1)
    next_sentence: bool = False

    position_offset = 2  # the published program counts from 2

    @property
    def reads_token_types(self) -> bool:
        return False  # all tokens have the first type


@dataclasses.dataclass(frozen=True, kw_only=True)
class XlmRobertaConfig(RobertaConfig):
    """XLM-RoBERTa-Base (Conneau et al. 2020, arXiv 1911.02116): RoBERTa for 100 languages."""

    name: str = "xlm_roberta"
    vocab_size: int = 250_002


@dataclasses.dataclass(frozen=True, kw_only=True)
class GptConfig(TransformerConfig):
    """GPT (Radford et al. 2018), with the values of openai/finetune-transformer-lm `train.py`.

    The vocabulary has 40,478 pieces and three special tokens. There are no token types.
    """

    name: str = "gpt"
    vocab_size: int = 40_481
    initializer: str = "normal"
    layer_norm_epsilon: float = 1e-5
    attention_pattern: str = "causal"
    mask_value: float = -1e9
    lm_head: str = "tied"

    @classmethod
    def finetuning_values(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those of openai/finetune-transformer-lm `train.py`."""
        return {
            "task.pool": "last",
            "task.pooler": False,
            "task.lm_weight": 0.5,
            "task.share_dropout": True,
            "optimizer.name": "gpt_adam",
            "optimizer.schedule": "gpt_linear",
            "optimizer.learning_rate": 6.25e-5,
            "optimizer.warmup": "0.2%",
            "optimizer.epsilon": 1e-8,
            "optimizer.no_decay": (),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElmoConfig(EncoderConfig):
    """ELMo (Peters et al. 2018), with the values of allenai/bilm-tf.

    A hidden state is the output of both directions, `hidden_size` = 2 * `projection_size` features.
    `activation` and `layer_norm_epsilon` concern heads only, `dropout_rate` the input of each layer
    and the output.
    """

    name: str = "elmo"
    # Words of the softmax, the most frequent ones; the others are the unknown word. Also the rows
    # of the embedding table, with tokens=embeddings.
    vocab_size: int = 793_471
    hidden_size: int = 1024
    num_layers: int = 2
    activation: str = "gelu"
    # What words are made of: characters, or embeddings (a table).
    tokens: str = setting("characters", choices=("characters", "embeddings"))
    # Features of a character.
    character_size: int = setting(16)
    # Maximum characters of a word, with markers of its begin and end.
    max_characters: int = setting(50)
    # (width, number) of the filters over characters.
    filters: tuple[tuple[int, int], ...] = setting(
        ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    )
    # Activation of the character CNN.
    cnn_activation: str = setting("relu", choices=("relu", "tanh"))
    # Highway layers after the filters.
    highway_layers: int = setting(2, minimum=0)
    # Cells of an LSTM; its output is projected to half of hidden_size.
    cell_size: int = setting(4096)
    # Maximum absolute value of the cells; 0: no limit.
    cell_clip: float = setting(3.0, minimum=0)
    # Maximum absolute value of the projected output; 0: no limit.
    projection_clip: float = setting(3.0, minimum=0)
    # From the second layer on, a layer's input is added to its output.
    skip_connections: bool = setting(True)

    @classmethod
    def finetuning_values(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Peters et al. 2018, section 3.3, and the model above of Devlin et al. 2019, section 5.3.

        The states of all layers are features, with dropout and a penalty of the mix's weights.
        """
        return {
            "task.pool": "max",
            "task.pooler": False,
            "task.layers": "mix_with_embeddings",
            "task.mix_l2": 1e-3,
            "task.dropout_rate": 0.5,
            "task.head": "bilstm",
            "optimizer.frozen_layers": -1,
            "optimizer.name": "adamw",
            "optimizer.learning_rate": 1e-3,
        }

    @property
    def projection_size(self) -> int:
        """Features of a word, and of each direction."""
        return self.hidden_size // 2

    @property
    def has_word_table(self) -> bool:
        """Whether the encoder has an embedding table of words, `Encoder.word_embedding`."""
        return self.tokens == "embeddings"

    has_directions = True

    @property
    def has_projection(self) -> bool:
        """Whether the output of an LSTM is projected."""
        return self.cell_size > self.projection_size

    def check(self) -> None:
        super().check()
        if self.rounds_products:
            raise UserError(
                f"dtype={self.dtype!r} is not available for LSTMs: set float32 or bfloat16."
            )
        if self.hidden_size % 2:
            raise UserError(
                f"hidden_size={self.hidden_size} is odd, and each direction has half of its"
                " features: set an even number."
            )
        if self.cell_size < self.projection_size:
            raise UserError(
                f"cell_size={self.cell_size} is below hidden_size / 2 = {self.projection_size},"
                " the features of each direction: change one of them."
            )
        if not self.filters:
            raise UserError("filters=() is empty: name (width, number), ...")
        if any(not 0 < width <= self.max_characters or n < 1 for width, n in self.filters):
            raise UserError(
                f"filters={self.filters!r} need widths from 1 to max_characters="
                f"{self.max_characters}, and at least one filter each."
            )


ENCODERS: dict[str, type[EncoderConfig]] = {
    "bert": BertConfig,
    "distilbert": DistilBertConfig,
    "electra": ElectraConfig,
    "roberta": RobertaConfig,
    "xlm_roberta": XlmRobertaConfig,
    "modernbert": ModernBertConfig,
    "gpt": GptConfig,
    "elmo": ElmoConfig,
}


def make_encoder_config(fields: Mapping[str, Any]) -> EncoderConfig:
    """Returns the configuration of an encoder.

    Args:
      fields: values by name; `name`, a key of ENCODERS, chooses the class and is "bert" by default.
        Fields that are not given have their defaults.

    Raises:
      UserError: for an unknown name, unknown fields, or values that are not allowed.
    """
    name = fields.get("name", "bert")
    if name not in ENCODERS:
        raise UserError(f"name={name!r} must be one of {', '.join(ENCODERS)}.")
    known = [item.name for item in dataclasses.fields(ENCODERS[name])]
    if unknown := [field for field in fields if field not in known]:
        raise UserError(
            f"name={name!r} has no field {', '.join(unknown)}. Available: {', '.join(known)}."
        )
    return ENCODERS[name](**fields)


def finetuning_values(model: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Returns the values of a fine-tuning run that follow from its encoder, by dotted name.

    Args:
      model: the fields of `config.model`, as far as they are known.
      fields: dotted names of the run's fields; others are left out, and `task.pool` too where there
        is no `task.pooler`: such a task chooses its own pooling.
    """
    found = ENCODERS.get(model.get("name", "bert"), EncoderConfig).finetuning_values(model)
    skipped = set() if "task.pooler" in fields else {"task.pool"}
    return {name: value for name, value in found.items() if name in fields and name not in skipped}
