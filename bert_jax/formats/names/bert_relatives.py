"""Names in transformers of the models that are BERT's stack: DistilBERT, ELECTRA, RoBERTa.

Each table is BERT's with other names of modules. The pooler is the first dense layer of their
classifiers; the encoders have none.
"""

from collections.abc import Iterable, Mapping

from bert_jax.formats.names.bert import HUGGINGFACE as BERT
from bert_jax.formats.names.bert import OPTIONS
from bert_jax.formats.weight_table import NonParameter, WeightRow, WeightTable, dense


def _rows(
    encoder: str, prefix: str, modules: Mapping[str, str], lacking: Iterable[str] = ()
) -> Iterable[WeightRow]:
    """Yields BERT's rows with other names; modules may be renamed with `prefix` or without.

    `lacking` are paths of modules that do not exist.
    """
    for row in BERT.rows:
        if row in OPTIONS or row.path.startswith(("next_sentence/", *lacking)):
            continue
        module, _, leaf = row.tensor.rpartition(".")
        module = modules.get(module, module)
        path = row.path.replace("bert/", f"{encoder}/", 1)
        tensor = f"{module}.{leaf}".replace("bert.", f"{prefix}.", 1)
        yield WeightRow(path, tensor, row.transform)


def _copy(pattern: str, of: str) -> NonParameter:
    return NonParameter(pattern, "a parameter once more", of)


def _old_names(prefix: str) -> tuple[tuple[str, str], ...]:
    """Returns the names of a model without heads, and of the last layer of a classifier."""
    return (
        (r"^(?=(embeddings|embeddings_project|encoder|transformer|pooler)\.)", f"{prefix}."),
        (r"^classifier\.out_proj\.", "classifier."),
    )


_POSITIONS = NonParameter(r".+\.embeddings\.position_ids", "the numbers 0, 1, 2 ...", "arange")

_OURS, _THEIRS = "bert.encoder.layer.{i}", "bert.transformer.layer.{i}"
_DISTILBERT = {
    f"{_OURS}.attention.self.query": f"{_THEIRS}.attention.q_lin",
    f"{_OURS}.attention.self.key": f"{_THEIRS}.attention.k_lin",
    f"{_OURS}.attention.self.value": f"{_THEIRS}.attention.v_lin",
    f"{_OURS}.attention.output.dense": f"{_THEIRS}.attention.out_lin",
    f"{_OURS}.attention.output.LayerNorm": f"{_THEIRS}.sa_layer_norm",
    f"{_OURS}.intermediate.dense": f"{_THEIRS}.ffn.lin1",
    f"{_OURS}.output.dense": f"{_THEIRS}.ffn.lin2",
    f"{_OURS}.output.LayerNorm": f"{_THEIRS}.output_layer_norm",
    "bert.pooler.dense": "pre_classifier",
    "cls.predictions.transform.dense": "vocab_transform",
    "cls.predictions.transform.LayerNorm": "vocab_layer_norm",
    "cls.predictions": "vocab_projector",
}
DISTILBERT = WeightTable(
    rows=tuple(
        _rows("distilbert", "distilbert", _DISTILBERT, ["bert/embeddings/token_type_embeddings"])
    ),
    non_parameters=(
        _POSITIONS,
        _copy(r"vocab_projector\.weight", "distilbert.embeddings.word_embeddings.weight"),
    ),
    old_names=_old_names("distilbert"),
)

_ELECTRA = {
    "bert.pooler.dense": "classifier.dense",
    "cls.predictions.transform.dense": "generator_predictions.dense",
    "cls.predictions.transform.LayerNorm": "generator_predictions.LayerNorm",
    "cls.predictions": "generator_lm_head",
}
ELECTRA = WeightTable(
    rows=(
        *_rows("electra", "electra", _ELECTRA),
        *dense("electra/embeddings/projection", "electra.embeddings_project"),
    ),
    non_parameters=(
        _POSITIONS,
        _copy(r"generator_lm_head\.weight", "electra.embeddings.word_embeddings.weight"),
        NonParameter(
            r"discriminator_predictions\..+",
            "the head that detects replaced tokens, which this package does not have",
        ),
    ),
    old_names=_old_names("electra"),
)

_ROBERTA = {
    "bert.pooler.dense": "classifier.dense",
    "cls.predictions.transform.dense": "lm_head.dense",
    "cls.predictions.transform.LayerNorm": "lm_head.layer_norm",
    "cls.predictions": "lm_head",
}


def _roberta(encoder: str) -> WeightTable:
    return WeightTable(
        rows=tuple(_rows(encoder, "roberta", _ROBERTA)),
        non_parameters=(
            _POSITIONS,
            _copy(r"lm_head\.decoder\.weight", "roberta.embeddings.word_embeddings.weight"),
            _copy(r"lm_head\.decoder\.bias", "lm_head.bias"),
            NonParameter(r"roberta\.pooler\..+", "a pooler, which its pre-training does not have"),
        ),
        old_names=_old_names("roberta"),
    )


ROBERTA, XLM_ROBERTA = _roberta("roberta"), _roberta("xlm_roberta")
