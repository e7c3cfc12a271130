"""Suggestions for fields that do not exist."""

import pytest

from bert_jax.config.editing import OTHER_NAMES, suggestion
from bert_jax.config.task import default_config

PRETRAINING, FINETUNING = (
    list(config.fields())
    for config in (default_config("pretraining"), default_config("classification"))
)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("learning_rate", FINETUNING, "did you mean 'optimizer.learning_rate'?"),
        ("learning_rte", FINETUNING, "did you mean 'optimizer.learning_rate'?"),
        (
            "max_seq_length",
            PRETRAINING,
            "did you mean 'phases', for example --config.phases='((128, 1.0),)'?",
        ),
        (
            "warmup_ratio",
            FINETUNING,
            "did you mean 'optimizer.warmup', for example --config.optimizer.warmup=10%?",
        ),
        ("fp16", FINETUNING, "did you mean 'dtype', for example --config.dtype=bfloat16?"),
        ("sed", FINETUNING, "did you mean 'seed'?"),
        ("xyzzy", FINETUNING, "docs/configuration.md has them all."),
    ],
)
def test_a_field_is_suggested(name, fields, expected):
    assert suggestion(name, [], fields) == expected


def test_all_names_of_other_programs_lead_to_a_field():
    for names in OTHER_NAMES.values():
        assert {*names} & {*PRETRAINING, *FINETUNING} == {*names}
