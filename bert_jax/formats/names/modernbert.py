"""Names of ModernBERT's parameters in transformers: ModernBertModel and ModernBertForMaskedLM.

The kernels of query, key and value are one tensor, as are those of the gate and of the inner layer.
"""

from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable

_PATH, _TENSOR = "modernbert/encoder/layer_{i}", "model.layers.{i}"
# Our module -> theirs, without biases; [in, out] here, [out, in] there.
_DENSE = {
    f"{_PATH}/attention/output": f"{_TENSOR}.attn.Wo",
    f"{_PATH}/output": f"{_TENSOR}.mlp.Wo",
    "masked_lm/transform": "head.dense",
}
# The kernels that are parts of one tensor.
_PARTS = {
    f"{_TENSOR}.attn.Wqkv": ("attention/query", "attention/key", "attention/value"),
    f"{_TENSOR}.mlp.Wi": ("gate", "intermediate"),
}
_NORMS = {
    "modernbert/embeddings/layer_norm": "model.embeddings.norm",
    f"{_PATH}/attention/layer_norm": f"{_TENSOR}.attn_norm",  # the first layer has none
    f"{_PATH}/layer_norm": f"{_TENSOR}.mlp_norm",
    "modernbert/encoder/layer_norm": "model.final_norm",
    "masked_lm/layer_norm": "head.norm",
}
_WORDS = "model.embeddings.tok_embeddings.weight"


def _rows() -> tuple[WeightRow, ...]:
    rows = [WeightRow("modernbert/embeddings/word_embeddings/embedding", _WORDS)]
    rows += [
        WeightRow(f"{ours}/kernel", f"{theirs}.weight", "transpose")
        for ours, theirs in _DENSE.items()
    ]
    rows += [
        WeightRow(f"{_PATH}/{name}/kernel", f"{theirs}.weight", "transpose", (number, len(names)))
        for theirs, names in _PARTS.items()
        for number, name in enumerate(names)
    ]
    rows += [WeightRow(f"{ours}/scale", f"{theirs}.weight") for ours, theirs in _NORMS.items()]
    rows.append(WeightRow("masked_lm/bias", "decoder.bias"))
    return tuple(rows)


HUGGINGFACE = WeightTable(
    rows=_rows(),
    # The reason is stored in certificate.json.
    non_parameters=(
        NonParameter(r"decoder\.weight", "the table of word embeddings once more", _WORDS),
    ),
    old_names=((r"^(?=(embeddings|layers|final_norm)\.)", "model."),),
)
# By the names of bert_jax.formats.FORMATS.
TABLES = {"huggingface": HUGGINGFACE}
