"""Names of ModernBERT's parameters in transformers: ModernBertModel and ModernBertForMaskedLM.

The kernels of query, key and value are one tensor, as are those of the gate and of the inner layer.
"""

from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable, dense, norm

_PATH, _TENSOR = "modernbert/encoder/layer_{i}", "model.layers.{i}"
_WORDS = "model.embeddings.tok_embeddings.weight"
# The kernels that are parts of one tensor.
_PARTS = {
    f"{_TENSOR}.attn.Wqkv": ("attention/query", "attention/key", "attention/value"),
    f"{_TENSOR}.mlp.Wi": ("gate", "intermediate"),
}
# The only bias is that of the decoder.
_ROWS = (
    WeightRow("modernbert/embeddings/word_embeddings/embedding", _WORDS),
    *dense(f"{_PATH}/attention/output", f"{_TENSOR}.attn.Wo", bias=False),
    *dense(f"{_PATH}/output", f"{_TENSOR}.mlp.Wo", bias=False),
    *dense("masked_lm/transform", "head.dense", bias=False),
    *(
        WeightRow(f"{_PATH}/{name}/kernel", f"{tensor}.weight", "transpose", (number, len(names)))
        for tensor, names in _PARTS.items()
        for number, name in enumerate(names)
    ),
    *norm("modernbert/embeddings/layer_norm", "model.embeddings.norm", bias=False),
    *norm(
        f"{_PATH}/attention/layer_norm", f"{_TENSOR}.attn_norm", bias=False
    ),  # not in the first layer
    *norm(f"{_PATH}/layer_norm", f"{_TENSOR}.mlp_norm", bias=False),
    *norm("modernbert/encoder/layer_norm", "model.final_norm", bias=False),
    *norm("masked_lm/layer_norm", "head.norm", bias=False),
    WeightRow("masked_lm/bias", "decoder.bias"),
)

HUGGINGFACE = WeightTable(
    rows=_ROWS,
    # The reason is stored in certificate.json.
    non_parameters=(
        NonParameter(r"decoder\.weight", "the table of word embeddings once more", _WORDS),
    ),
    old_names=((r"^(?=(embeddings|layers|final_norm)\.)", "model."),),
)
