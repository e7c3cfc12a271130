"""Names of BERT's parameters in other programs: one table for each format."""

import re

from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable, dense, norm

_PATH, _TENSOR = "bert/encoder/layer_{i}", "bert.encoder.layer.{i}"

# transformers: BertModel, and the classes with heads.
_HUGGINGFACE = (
    *(
        WeightRow(f"bert/embeddings/{name}/embedding", f"bert.embeddings.{name}.weight")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    *norm("bert/embeddings/layer_norm", "bert.embeddings.LayerNorm"),
    *dense(f"{_PATH}/attention/query", f"{_TENSOR}.attention.self.query"),
    *dense(f"{_PATH}/attention/key", f"{_TENSOR}.attention.self.key"),
    *dense(f"{_PATH}/attention/value", f"{_TENSOR}.attention.self.value"),
    *dense(f"{_PATH}/attention/output", f"{_TENSOR}.attention.output.dense"),
    *norm(f"{_PATH}/attention/layer_norm", f"{_TENSOR}.attention.output.LayerNorm"),
    *dense(f"{_PATH}/intermediate", f"{_TENSOR}.intermediate.dense"),
    *dense(f"{_PATH}/output", f"{_TENSOR}.output.dense"),
    *norm(f"{_PATH}/layer_norm", f"{_TENSOR}.output.LayerNorm"),
    *dense("bert/pooler", "bert.pooler.dense"),
    *dense("masked_lm/transform", "cls.predictions.transform.dense"),
    *norm("masked_lm/layer_norm", "cls.predictions.transform.LayerNorm"),
    WeightRow("masked_lm/bias", "cls.predictions.bias"),
    *dense("next_sentence", "cls.seq_relationship"),
    *dense("classifier", "classifier"),
    *dense("span", "qa_outputs"),
)
# What `tf.layers.dense` did not make in run_pretraining.py, run_classifier.py and run_squad.py:
# kernels are stored as [out, in].
_GOOGLE_HEADS = {
    "masked_lm/bias": "cls/predictions/output_bias",
    "next_sentence/kernel": "cls/seq_relationship/output_weights",
    "next_sentence/bias": "cls/seq_relationship/output_bias",
    "classifier/kernel": "output_weights",
    "classifier/bias": "output_bias",
    "span/kernel": "cls/squad/output_weights",
    "span/bias": "cls/squad/output_bias",
}


def _google(row: WeightRow) -> WeightRow:
    """Returns a row in google-research/bert's names: paths; kernels are stored as [in, out]."""
    if name := _GOOGLE_HEADS.get(row.path):
        return WeightRow(row.path, name, row.transform)
    name = row.tensor.replace("layer.{i}", "layer_{i}").replace(".", "/")
    if "LayerNorm" in name:
        name = name.replace("/weight", "/gamma").replace("/bias", "/beta")
    elif "embeddings" in name:
        name = name.removesuffix("/weight")
    return WeightRow(row.path, re.sub("/weight$", "/kernel", name))


# What only a BERT with options of this package has, in the modules of an exported folder.
OPTIONS = (
    *norm(f"{_PATH}/attention/query_norm", f"{_TENSOR}.attention.self.query_norm", bias=False),
    *norm(f"{_PATH}/attention/key_norm", f"{_TENSOR}.attention.self.key_norm", bias=False),
    WeightRow(f"{_PATH}/attention/convolution/taps", f"{_TENSOR}.attention.self.convolution.taps"),
    *dense(f"{_PATH}/gate", f"{_TENSOR}.intermediate.gate"),
    WeightRow("bert/embeddings/convolution/taps", "bert.embeddings.convolution.taps"),
    *norm("bert/encoder/layer_norm", "bert.encoder.LayerNorm"),
    *dense("copy_head/query", "copy_head.query"),
    *dense("copy_head/key", "copy_head.key"),
    WeightRow("copy_head/gate_kernel", "copy_head.gate_kernel"),
    WeightRow("copy_head/gate_bias", "copy_head.gate_bias"),
)

HUGGINGFACE = WeightTable(
    rows=(*_HUGGINGFACE, *OPTIONS),
    # The reasons are stored in certificate.json.
    non_parameters=(
        NonParameter(r"bert\.embeddings\.position_ids", "the numbers 0, 1, 2 ...", "arange"),
        NonParameter(r"bert\.embeddings\.token_type_ids", "zeros", "zeros"),
        NonParameter(
            r"cls\.predictions\.decoder\.weight",
            "the table of word embeddings once more",
            "bert.embeddings.word_embeddings.weight",
        ),
        NonParameter(
            r"cls\.predictions\.decoder\.bias",
            "the bias of the masked-LM head once more",
            "cls.predictions.bias",
        ),
    ),
    old_names=(
        (r"^module\.", ""),
        (r"^(?=(embeddings|encoder|pooler)\.)", "bert."),
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
    ),
)
GOOGLE = WeightTable(
    rows=tuple(map(_google, _HUGGINGFACE)),
    non_parameters=(
        NonParameter(r"global_step", "the number of steps"),
        NonParameter(r".+/(adam|lamb)_[mv]", "a slot of the optimizer"),
        NonParameter(r".+/Adam(_1)?", "a slot of the optimizer"),
        NonParameter(r"beta[12]_power", "a counter of the optimizer"),
    ),
)
