"""Names of BERT's parameters in other programs: one table for each format.

The encoder's rows and the heads' rows are separate: an encoder of another model with the same heads
has a file like this one. `TABLES` has the tables of all its formats.
"""

import re

from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable


def _dense(path: str, tensor: str) -> tuple[WeightRow, WeightRow]:
    return (
        WeightRow(f"{path}/kernel", f"{tensor}.weight", "transpose"),
        WeightRow(f"{path}/bias", f"{tensor}.bias"),
    )


def _layer_norm(path: str, tensor: str) -> tuple[WeightRow, WeightRow]:
    return (
        WeightRow(f"{path}/scale", f"{tensor}.weight"),
        WeightRow(f"{path}/bias", f"{tensor}.bias"),
    )


_PATH, _TENSOR = "bert/encoder/layer_{i}", "bert.encoder.layer.{i}"

# transformers: BertModel, and the classes with heads.
_HUGGINGFACE_ENCODER: tuple[WeightRow, ...] = (
    *(
        WeightRow(f"bert/embeddings/{name}/embedding", f"bert.embeddings.{name}.weight")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    *_layer_norm("bert/embeddings/layer_norm", "bert.embeddings.LayerNorm"),
    *_dense(f"{_PATH}/attention/query", f"{_TENSOR}.attention.self.query"),
    *_dense(f"{_PATH}/attention/key", f"{_TENSOR}.attention.self.key"),
    *_dense(f"{_PATH}/attention/value", f"{_TENSOR}.attention.self.value"),
    *_dense(f"{_PATH}/attention/output", f"{_TENSOR}.attention.output.dense"),
    *_layer_norm(f"{_PATH}/attention/layer_norm", f"{_TENSOR}.attention.output.LayerNorm"),
    *_dense(f"{_PATH}/intermediate", f"{_TENSOR}.intermediate.dense"),
    *_dense(f"{_PATH}/output", f"{_TENSOR}.output.dense"),
    *_layer_norm(f"{_PATH}/layer_norm", f"{_TENSOR}.output.LayerNorm"),
    *_dense("bert/pooler", "bert.pooler.dense"),
)
_HUGGINGFACE_HEADS: tuple[WeightRow, ...] = (
    *_dense("masked_lm/transform", "cls.predictions.transform.dense"),
    *_layer_norm("masked_lm/layer_norm", "cls.predictions.transform.LayerNorm"),
    WeightRow("masked_lm/bias", "cls.predictions.bias"),
    *_dense("next_sentence", "cls.seq_relationship"),
    *_dense("classifier", "classifier"),
    *_dense("span", "qa_outputs"),
)


def _google(row: WeightRow) -> WeightRow:
    """Returns a row in google-research/bert's names: paths; kernels are stored as [in, out]."""
    name = row.tensor.replace("layer.{i}", "layer_{i}").replace(".", "/")
    if "LayerNorm" in name:
        name = name.replace("/weight", "/gamma").replace("/bias", "/beta")
    elif "embeddings" in name:
        name = name.removesuffix("/weight")
    return WeightRow(row.path, re.sub("/weight$", "/kernel", name))


# google-research/bert: modeling.py.
_GOOGLE_ENCODER = tuple(map(_google, _HUGGINGFACE_ENCODER))
# run_pretraining.py, run_classifier.py, run_squad.py: kernels that `tf.layers.dense` did not make
# are stored as [out, in].
_GOOGLE_HEADS: tuple[WeightRow, ...] = (
    *(
        _google(row)
        for row in _HUGGINGFACE_HEADS
        if row.path.startswith(("masked_lm/transform/", "masked_lm/layer_norm/"))
    ),
    WeightRow("masked_lm/bias", "cls/predictions/output_bias"),
    WeightRow("next_sentence/kernel", "cls/seq_relationship/output_weights", "transpose"),
    WeightRow("next_sentence/bias", "cls/seq_relationship/output_bias"),
    WeightRow("classifier/kernel", "output_weights", "transpose"),
    WeightRow("classifier/bias", "output_bias"),
    WeightRow("span/kernel", "cls/squad/output_weights", "transpose"),
    WeightRow("span/bias", "cls/squad/output_bias"),
)

HUGGINGFACE = WeightTable(
    rows=(*_HUGGINGFACE_ENCODER, *_HUGGINGFACE_HEADS),
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
    rows=(*_GOOGLE_ENCODER, *_GOOGLE_HEADS),
    non_parameters=(
        NonParameter(r"global_step", "the number of updates"),
        NonParameter(r".+/(adam|lamb)_[mv]", "a slot of the optimizer"),
        NonParameter(r".+/Adam(_1)?", "a slot of the optimizer"),
        NonParameter(r"beta[12]_power", "a counter of the optimizer"),
    ),
)
# By the names of bert_jax.formats.FORMATS.
TABLES = {"huggingface": HUGGINGFACE, "google": GOOGLE}
