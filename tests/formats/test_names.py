"""Names of weights and properties of vocabularies, against the released files."""

import dataclasses

import pytest

from bert_jax.exchange.loaded import encoder_shapes, pretraining_shapes
from bert_jax.formats import FORMATS
from bert_jax.formats.foreign import is_lowercase
from bert_jax.formats.names import NAMES
from bert_jax.formats.names import bert as bert_names
from bert_jax.models import MODELS
from bert_jax.tasks import TASKS, default_config, find_task
from tests import tiny

# The programs with models that are fine-tuned for every task.
WITH_ALL_HEADS = [("bert", "huggingface"), ("bert", "google")]
# Their tables have names for more filters and highway layers than any model has.
WITH_SPARE_NAMES = ["bilm"]
# The models that transformers has with the head of masked tokens.
WITH_MASKED_LM = ("bert", "distilbert", "electra", "roberta", "xlm_roberta", "modernbert")
# Those of them whose classifiers have a pooler, and that are fine-tuned for all other tasks.
RELATIVES = WITH_MASKED_LM[1:-1]
# Rows of a table for each layer, of which the first layer lacks these.
LACKING = {"modernbert/encoder/layer_0/attention/layer_norm/scale"}
# What only a BERT with other options than the published ones has.
_TABLE = dataclasses.replace(bert_names.HUGGINGFACE, rows=bert_names.OPTIONS)
OPTIONS = {row.path for row in _TABLE.expand(12)}


def test_google_names_are_those_of_the_released_program():
    """A few by hand, from modeling.py and run_pretraining.py."""
    names = {row.path: (row.tensor, row.transform) for row in bert_names.GOOGLE.expand(1)}
    layer = "bert/encoder/layer_0"
    assert names[f"{layer}/attention/layer_norm/scale"] == (
        f"{layer}/attention/output/LayerNorm/gamma",
        "same",
    )
    assert names[f"{layer}/attention/query/kernel"] == (
        f"{layer}/attention/self/query/kernel",
        "same",
    )
    assert names["next_sentence/kernel"] == ("cls/seq_relationship/output_weights", "transpose")
    assert names["masked_lm/bias"] == ("cls/predictions/output_bias", "same")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-multilingual-cased", False),
        ("bert-base-chinese", True),  # its pieces <S> and <T> are no words
    ],
)
def test_the_case_of_the_released_vocabularies(shared_data, name, expected):
    assert is_lowercase((shared_data / "vocab" / name / "vocab.txt").read_bytes()) is expected


@pytest.mark.parametrize("model", NAMES)
def test_formats_of_a_model_exist_and_name_every_parameter(model):
    config = default_config("pretraining")
    if model != config.model.name:
        names = {field.name for field in dataclasses.fields(MODELS[model].config)}
        sizes = {name: value for name, value in tiny.SIZES.items() if name in names}
        sizes |= {"next_sentence": False}
        config = config.replace(tiny.rows_of(config, 8), model=MODELS[model].config(**sizes))
    model_config = config.model
    paths = set(encoder_shapes(model_config))
    if model in WITH_MASKED_LM:
        paths = set(pretraining_shapes(model_config))
    heads = {
        f"{row.HEAD}/{leaf}"
        for row in map(find_task, TASKS)
        if row.HEAD
        for leaf in ("kernel", "bias")
    }
    for format, table in NAMES[model].items():
        assert format in FORMATS
        rows = table.expand(model_config.num_layers)
        named = {row.path for row in rows} - LACKING
        assert len({(row.tensor, row.part) for row in rows}) == len(rows)
        if format in WITH_SPARE_NAMES:
            assert named > paths
        else:
            more = heads if (model, format) in WITH_ALL_HEADS or model in RELATIVES else set()
            if model in RELATIVES:
                more = more | {f"{model}/pooler/{leaf}" for leaf in ("kernel", "bias")}
            if format == "huggingface" and model in WITH_MASKED_LM:
                more = more | {"projection/kernel"}
            assert named - OPTIONS == paths | more
