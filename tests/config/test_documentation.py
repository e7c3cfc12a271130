"""docs/configuration.md is made from the fields, all of which have a comment."""

import os
import pathlib

from bert_jax.config.encoders import ENCODERS
from bert_jax.config.group import rules
from bert_jax.config.task import default_config
from tests.config.documentation import comments_of, page

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date():
    if os.environ.get("UPDATE_GOLDENS"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "UPDATE_GOLDENS=1 pytest rewrites the page"


def test_every_field_has_a_comment():
    configs = (
        default_config("pretraining"),
        default_config("bidirectional_lm"),
        default_config("classification"),
    )
    groups = {type(group) for config in configs for _, group in config.groups()}
    for group in groups.union(map(type, configs), ENCODERS.values()):
        assert comments_of(group).keys() >= rules(group).keys(), group
