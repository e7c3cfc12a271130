"""Messages of errors, as the command line and Python write flags."""

import pytest

from bert_jax.files.errors import spell_in_python


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Set --config.task.on_missing=skip.", 'Set task__on_missing="skip".'),
        ("(--config.model.remat=true)", "(model__remat=True)"),
        ("--config.task.label=NAME names --long.", "task__label=NAME names long."),
        ("--config.optimizer.warmup=10%, --config.steps=5", 'optimizer__warmup="10%", steps=5'),
        ("--config.data.source=text:PATH", 'data__source="text:PATH"'),
        ("--config.data.train=train.conll.", 'data__train="train.conll".'),
        ("run: bert_jax evaluate --model=x", "run: bert_jax evaluate --model=x"),
    ],
)
def test_flags_become_arguments(text, expected):
    assert spell_in_python(text) == expected
