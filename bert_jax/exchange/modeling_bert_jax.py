"""Encoders of bert_jax that transformers has no class for, in torch.

An exported folder holds a copy of this file. It needs torch and transformers only:

    AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)

The modules have the names of BERT's in transformers. The LayerNorm of `attention.output` and of
`output` is before their sub-layer with norm_place="pre", and after its sum with "post".
"""
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

_NEVER = -1e9
_ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),
}


class BertJaxConfig(PretrainedConfig):
    """BERT's configuration, and the fields of config.model of bert_jax that BERT does not have.

    config.json has a value for every key; the documentation of bert_jax has their meaning. `pool`
    and `pooler` are those of a classifier.
    """

    model_type = "bert_jax"


def _dense(config, inputs, outputs):
    return nn.Linear(inputs, outputs, bias=config.biases)


def _norm(config, features, bias=True):
    if config.norm == "rms_norm":
        return nn.RMSNorm(features, config.layer_norm_eps)
    return nn.LayerNorm(features, config.layer_norm_eps, bias=bias and config.biases)


class Convolution(nn.Module):
    """A weighted sum of neighbouring tokens, with weights for each feature."""

    def __init__(self, config):
        super().__init__()
        taps = torch.zeros(config.convolution, config.hidden_size)
        taps[config.convolution // 2] = 1.0
        self.taps = nn.Parameter(taps)

    def forward(self, x, is_token):
        middle, length = len(self.taps) // 2, x.shape[1]
        x = x * is_token[..., None]
        padded = F.pad(x, (0, 0, middle, middle))
        return sum(padded[:, i : i + length] * tap for i, tap in enumerate(self.taps))


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, hidden = config, config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, hidden)
        if config.positions == "learned":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, hidden)
        if config.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, hidden)
        if config.convolution:
            self.convolution = Convolution(config)
        self.LayerNorm = _norm(config, hidden)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, token_type_ids, position_ids, is_token):
        x = self.word_embeddings(input_ids)
        if self.config.positions == "learned":
            x = x + self.position_embeddings(position_ids)
        elif self.config.positions == "sinusoidal":
            angles = _angles(position_ids, self.config.hidden_size, 10_000.0)
            x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).to(x.dtype)
        if self.config.type_vocab_size:
            types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
            x = x + self.token_type_embeddings(types)
        if self.config.convolution:
            x = self.convolution(x, is_token)
        return self.dropout(self.LayerNorm(x))


def _angles(position_ids, features, base):
    """Returns position * base**(-2i / features), float32[batch, seq, features / 2]."""
    steps = torch.arange(0, features, 2, dtype=torch.float64, device=position_ids.device)
    return position_ids[..., None].float() * (base ** (-steps / features)).float()


def _rotate(x, angles):
    """Rotates features i and i + head_dim / 2 of float[batch, heads, seq, head_dim]."""
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    real, imaginary = x.float().chunk(2, dim=-1)
    turned = (real * cos - imaginary * sin, real * sin + imaginary * cos)
    return torch.cat(turned, dim=-1).to(x.dtype)


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.query, self.key, self.value = (_dense(config, hidden, hidden) for _ in range(3))
        if config.query_key_norm:
            self.query_norm = _norm(config, hidden // self.num_heads, bias=False)
            self.key_norm = _norm(config, hidden // self.num_heads, bias=False)
        if config.convolution:
            self.convolution = Convolution(config)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, x, is_token, bias, angles):
        if hasattr(self, "convolution"):
            x = self.convolution(x, is_token)
        query, key, value = (
            dense(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for dense in (self.query, self.key, self.value)
        )
        if hasattr(self, "query_norm"):
            query, key = self.query_norm(query), self.key_norm(key)
        if angles is not None:
            query, key = _rotate(query, angles), _rotate(key, angles)
        scores = (query @ key.transpose(-1, -2)).float() / math.sqrt(query.shape[-1]) + bias
        probs = scores.softmax(-1)
        return (self.dropout(probs).to(value.dtype) @ value).transpose(1, 2).flatten(2), probs


class SubLayerOutput(nn.Module):
    """The last dense layer of a sub-layer, and the sub-layer's norm."""

    def __init__(self, config, features, has_norm=True):
        super().__init__()
        self.dense = _dense(config, features, config.hidden_size)
        self.LayerNorm = _norm(config, config.hidden_size) if has_norm else nn.Identity()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)


class Intermediate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = _dense(config, config.hidden_size, config.intermediate_size)
        if config.feed_forward == "gated":
            self.gate = _dense(config, config.hidden_size, config.intermediate_size)
        self.activation = _ACTIVATIONS[config.hidden_act]

    def forward(self, x):
        if hasattr(self, "gate"):
            return self.activation(self.gate(x)) * self.dense(x)
        return self.activation(self.dense(x))


class Layer(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.is_pre = config.norm_place == "pre"
        has_norm = config.first_layer_norm or number > 0
        output = SubLayerOutput(config, config.hidden_size, has_norm)
        self.attention = nn.ModuleDict({"self": SelfAttention(config), "output": output})
        self.intermediate = Intermediate(config)
        self.output = SubLayerOutput(config, config.intermediate_size)

    def forward(self, x, is_token, bias, angles):
        """Returns the hidden states, those after the attention, and the probabilities."""
        output = self.attention["output"]
        y = output.LayerNorm(x) if self.is_pre else x
        y, probs = self.attention["self"](y, is_token, bias, angles)
        x = x + output.dropout(output.dense(y))
        x = attended = x if self.is_pre else output.LayerNorm(x)
        y = self.output.LayerNorm(x) if self.is_pre else x
        x = x + self.output.dropout(self.output.dense(self.intermediate(y)))
        return x if self.is_pre else self.output.LayerNorm(x), attended, probs


class Stack(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layer = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        if config.norm_place == "pre":
            self.LayerNorm = _norm(config, config.hidden_size)

    def forward(self, x, is_token, position_ids):
        all_hidden, attentions, attended = [x], [], x
        views = {is_global: self._view(is_token, position_ids, is_global) for is_global in (0, 1)}
        for number, layer in enumerate(self.layer):
            every = self.config.global_every
            view = views[int(every > 0 and number % every == 0)]
            x, attended, probs = layer(x, is_token, *view)
            all_hidden.append(x)
            attentions.append(probs)
        if self.config.norm_place == "pre":
            all_hidden[-1] = self.LayerNorm(x)
        return all_hidden, attentions, attended

    def _view(self, is_token, position_ids, is_global):
        """Returns the bias of attention scores and the angles of positions, or None."""
        config = self.config
        allowed, base = is_token[:, None, None, :], config.rotary_base
        if not is_global:
            base = config.window_rotary_base or base
            if config.attention_pattern == "window":
                distance = position_ids[:, None, :, None] - position_ids[:, None, None, :]
                allowed = allowed & (distance.abs() <= config.attention_window)
        bias = torch.where(allowed, 0.0, config.mask_value)
        head_dim = config.hidden_size // config.num_attention_heads
        rotates = config.positions == "rotary"
        return bias, _angles(position_ids, head_dim, base) if rotates else None


class BertJaxPreTrainedModel(PreTrainedModel):
    config_class = BertJaxConfig
    base_model_prefix = "bert"

    def _init_weights(self, module):
        if isinstance(module, Convolution):
            nn.init.zeros_(module.taps)
            nn.init.ones_(module.taps[len(module.taps) // 2])
        elif isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)


class BertJaxModel(BertJaxPreTrainedModel):
    """The encoder: int[batch, seq] ids -> float[batch, seq, hidden]."""

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Stack(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def encode(self, input_ids, attention_mask=None, token_type_ids=None, position_ids=None):
        """Returns all hidden states, attention probabilities, the states after the last attention.

        The fourth result is bool[batch, seq], which positions are not padding.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        is_token = attention_mask > 0
        if position_ids is None:  # the distance to the first token of the text
            places = torch.arange(input_ids.shape[1], device=input_ids.device)
            position_ids = (places - is_token.int().argmax(1)[:, None]).clamp(min=0)
        x = self.embeddings(input_ids, token_type_ids, position_ids, is_token)
        return *self.encoder(x, is_token, position_ids), is_token

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        output_hidden_states=False,
        output_attentions=False,
        return_dict=True,
    ):
        inputs = attention_mask, token_type_ids, position_ids
        hidden, attentions, *_ = self.encode(input_ids, *inputs)
        all_hidden = tuple(hidden) if output_hidden_states else None
        output = (hidden[-1], all_hidden, tuple(attentions) if output_attentions else None)
        return BaseModelOutput(*output) if return_dict else output


class Predictions(nn.Module):
    """The layers before the product with the table of word embeddings."""

    def __init__(self, config):
        super().__init__()
        hidden = config.hidden_size
        layers = {"dense": _dense(config, hidden, hidden), "LayerNorm": _norm(config, hidden)}
        self.transform = nn.ModuleDict(layers)
        self.activation = _ACTIVATIONS[config.hidden_act]
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x, table):
        x = self.transform["LayerNorm"](self.activation(self.transform["dense"](x)))
        return F.linear(x, table, self.bias)


class CopyHead(nn.Module):
    """A pointer to the other tokens of the text, mixed with the softmax by a gate."""

    def __init__(self, config):
        super().__init__()
        hidden = config.hidden_size
        self.epsilon, self.mask_token_id = config.layer_norm_eps, config.mask_token_id
        self.query, self.key = (_dense(config, hidden, hidden) for _ in range(2))
        self.gate_kernel = nn.Parameter(torch.zeros(hidden))
        self.gate_bias = nn.Parameter(torch.full((1,), -2.0))

    def forward(self, slots, keys, input_ids, is_token, logits):
        """Returns float[batch, seq, words], log-probabilities."""
        norm = (slots.shape[-1:], None, self.epsilon)
        query, key = self.query(F.rms_norm(slots, *norm)), self.key(F.rms_norm(keys, *norm))
        is_source = (is_token & (input_ids != self.mask_token_id))[:, None, :]
        is_source = is_source & ~torch.eye(
            is_source.shape[-1], dtype=torch.bool, device=keys.device
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
        attention = scores.where(is_source, _NEVER).softmax(-1) * is_source
        gate = (slots @ self.gate_kernel + self.gate_bias).where(is_source.any(-1), _NEVER)
        ids = input_ids[:, None].expand_as(attention)
        copied = torch.zeros_like(logits).scatter_add(-1, ids, attention)
        gate, tiny = gate[..., None], torch.finfo(copied.dtype).tiny
        log_copied = torch.where(copied > tiny, copied.clamp(min=tiny).log(), _NEVER)
        words = F.logsigmoid(-gate) + logits.log_softmax(-1)
        return torch.logaddexp(words, F.logsigmoid(gate) + log_copied)


class BertJaxWithHead(BertJaxPreTrainedModel):
    """An encoder, `bert`, and a head: subclasses define `score`, `error` and `output_class`."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertJaxModel(config)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        labels=None,
        output_hidden_states=False,
        output_attentions=False,
        return_dict=True,
    ):
        inputs = attention_mask, token_type_ids, position_ids
        hidden, attentions, attended, is_token = self.bert.encode(input_ids, *inputs)
        logits = self.score(hidden[-1], attended, input_ids, is_token)
        loss = None if labels is None else self.error(logits, labels)
        all_hidden = tuple(hidden) if output_hidden_states else None
        return self.output_class(
            loss, logits, all_hidden, tuple(attentions) if output_attentions else None
        )

    def error(self, logits, labels):
        """Returns the mean loss of tokens; those with the label -100 do not count."""
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class BertJaxForMaskedLM(BertJaxWithHead):
    """Logits of words; with a copy head their log-probabilities, copies included."""

    output_class = MaskedLMOutput

    def __init__(self, config):
        super().__init__(config)
        if config.lm_head == "transform":
            self.cls = nn.ModuleDict({"predictions": Predictions(config)})
        if config.copy_head:
            self.copy_head = CopyHead(config)
        self.post_init()

    def score(self, slots, attended, input_ids, is_token):
        table = self.bert.embeddings.word_embeddings.weight
        head = self.cls["predictions"] if hasattr(self, "cls") else F.linear
        if self.config.predicts_next:  # the state before a token predicts it
            slots = torch.cat([slots[:, :1], slots[:, :-1]], dim=1)
        logits = head(slots, table)
        if hasattr(self, "copy_head"):
            logits = self.copy_head(slots, attended, input_ids, is_token, logits)
        return logits


def _pool(name, x, is_token):
    """Returns float[batch, hidden], a vector for each text."""
    weights = is_token[..., None].to(x.dtype)
    if name == "mean":
        return (x * weights).sum(1) / weights.sum(1).clamp(min=1)
    if name == "max":
        return x.where(is_token[..., None], -torch.inf).amax(1)
    places = torch.arange(x.shape[1], device=x.device)
    at = is_token.int().argmax(1) if name == "cls" else (places * is_token).amax(1)
    return x[torch.arange(len(x), device=x.device), at]


class BertJaxForSequenceClassification(BertJaxWithHead):
    output_class = SequenceClassifierOutput

    def __init__(self, config):
        super().__init__(config)
        if config.pooler:
            pooler = {"dense": _dense(config, config.hidden_size, config.hidden_size)}
            self.bert.pooler = nn.ModuleDict(pooler)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def score(self, hidden, attended, input_ids, is_token):
        x = _pool(self.config.pool, hidden, is_token)
        if self.config.pooler:
            x = self.bert.pooler["dense"](x).tanh()
        return self.classifier(self.dropout(x))

    def error(self, logits, labels):
        kind = self.config.problem_type
        if kind == "regression":
            return F.mse_loss(logits.squeeze(-1), labels.float())
        if kind == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, labels.float())
        return F.cross_entropy(logits, labels)


class BertJaxForTokenClassification(BertJaxWithHead):
    output_class = TokenClassifierOutput

    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def score(self, hidden, attended, input_ids, is_token):
        return self.classifier(self.dropout(hidden))
