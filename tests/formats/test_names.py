"""Names of weights and properties of vocabularies, against the released files."""

import pytest

from bert_jax.formats.foreign import is_lowercase
from bert_jax.formats.names import bert as bert_names


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
