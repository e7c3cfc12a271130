"""Names of weights in other programs: by model name, then by format.

`NAMES["bert"]["huggingface"]` is the table between BERT's parameters and the tensors of a Hugging
Face checkpoint. The keys are those of `models.MODELS` and of `formats.FORMATS`; no other program
has a model without a row.
"""

import dataclasses
from collections.abc import Mapping

from bert_jax.formats.names import bert, bert_relatives, gpt
from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable, dense, norm

# ------------------------------------------------------------------ ModernBERT

# Of transformers: ModernBertModel and ModernBertForMaskedLM. The kernels of query, key and value
# are one tensor, as are those of the gate and of the inner layer.
_LAYER, _THEIR_LAYER = "modernbert/encoder/layer_{i}", "model.layers.{i}"
_WORDS = "model.embeddings.tok_embeddings.weight"
# The kernels that are parts of one tensor.
_PARTS = {
    f"{_THEIR_LAYER}.attn.Wqkv": ("attention/query", "attention/key", "attention/value"),
    f"{_THEIR_LAYER}.mlp.Wi": ("gate", "intermediate"),
}
# The only bias is that of the decoder.
_MODERNBERT = (
    WeightRow("modernbert/embeddings/word_embeddings/embedding", _WORDS),
    *dense(f"{_LAYER}/attention/output", f"{_THEIR_LAYER}.attn.Wo", bias=False),
    *dense(f"{_LAYER}/output", f"{_THEIR_LAYER}.mlp.Wo", bias=False),
    *dense("masked_lm/transform", "head.dense", bias=False),
    *(
        WeightRow(f"{_LAYER}/{name}/kernel", f"{tensor}.weight", "transpose", (number, len(names)))
        for tensor, names in _PARTS.items()
        for number, name in enumerate(names)
    ),
    *norm("modernbert/embeddings/layer_norm", "model.embeddings.norm", bias=False),
    *norm(
        f"{_LAYER}/attention/layer_norm", f"{_THEIR_LAYER}.attn_norm", bias=False
    ),  # not in the first layer
    *norm(f"{_LAYER}/layer_norm", f"{_THEIR_LAYER}.mlp_norm", bias=False),
    *norm("modernbert/encoder/layer_norm", "model.final_norm", bias=False),
    *norm("masked_lm/layer_norm", "head.norm", bias=False),
    WeightRow("masked_lm/bias", "decoder.bias"),
)

MODERNBERT = WeightTable(
    rows=_MODERNBERT,
    # The reason is stored in certificate.json.
    non_parameters=(
        NonParameter(r"decoder\.weight", "the table of word embeddings once more", _WORDS),
    ),
    old_names=((r"^(?=(embeddings|layers|final_norm)\.)", "model."),),
)

# ------------------------------------------------------------------ ELMo

# In bilm-tf: the datasets of its hdf5 files.
# More than any published model has; a row without a parameter is not used.
_MAX_FILTERS, _MAX_HIGHWAYS = 32, 16
_CHARACTERS, _LSTM = "elmo/characters", "RNN/MultiRNNCell/Cell{i}/LSTMCell"

_ELMO = (
    # The graph of predictions adds a row of zeros for padding in front.
    WeightRow("elmo/characters/embedding", "char_embed", "zero_row"),
    WeightRow("elmo/embeddings/word_embeddings/embedding", "embedding"),
    *(
        WeightRow(f"{_CHARACTERS}/filter_{i}/{ours}", f"CNN/{theirs}_cnn_{i}", transform)
        for i in range(_MAX_FILTERS)
        for ours, theirs, transform in (("kernel", "W", "first_of_one"), ("bias", "b", "same"))
    ),
    *(
        WeightRow(f"{_CHARACTERS}/highway_{i}/{gate}/{ours}", f"CNN_high_{i}/{theirs}_{gate}")
        for i in range(_MAX_HIGHWAYS)
        for gate in ("carry", "transform")
        for ours, theirs in (("kernel", "W"), ("bias", "b"))
    ),
    WeightRow(f"{_CHARACTERS}/projection/kernel", "CNN_proj/W_proj"),
    WeightRow(f"{_CHARACTERS}/projection/bias", "CNN_proj/b_proj"),
    *(
        WeightRow(f"elmo/{direction}_{{i}}/{ours}", f"RNN_{number}/{_LSTM}/{theirs}")
        for number, direction in enumerate(("forward", "backward"))
        for ours, theirs in (("kernel", "W_0"), ("bias", "B"), ("projection", "W_P_0"))
    ),
)
BILM = WeightTable(_ELMO)


def _projects(table: WeightTable) -> WeightTable:
    """Returns a table with the projection of tokens, which sentence-transformers stores apart."""
    rows = dense("projection", "projection", bias=False)
    return dataclasses.replace(table, rows=(*table.rows, *rows))


NAMES: dict[str, Mapping[str, WeightTable]] = {
    "bert": {"huggingface": _projects(bert.HUGGINGFACE), "google": bert.GOOGLE},
    "distilbert": {"huggingface": _projects(bert_relatives.DISTILBERT)},
    "electra": {"huggingface": _projects(bert_relatives.ELECTRA)},
    "roberta": {"huggingface": _projects(bert_relatives.ROBERTA)},
    "xlm_roberta": {"huggingface": _projects(bert_relatives.XLM_ROBERTA)},
    "modernbert": {"huggingface": _projects(MODERNBERT)},
    "gpt": {"huggingface": gpt.HUGGINGFACE, "openai": gpt.OPENAI},
    "elmo": {"bilm": BILM},
}
