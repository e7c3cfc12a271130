"""docs/commands.md is made from the flags of all commands."""

import os
import pathlib

from bert_jax.tools.cli import COMMANDS
from tests.tools.cli.commands_page import page

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "commands.md"


def test_the_page_is_up_to_date():
    if os.environ.get("UPDATE_GOLDENS"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "UPDATE_GOLDENS=1 pytest rewrites the page"


def test_the_page_has_every_command_and_its_flags():
    text = PAGE.read_text()
    assert all(f"\n### {name}\n" in text for name in COMMANDS)
    assert "| `--max_new_tokens` | `" in text and "**convert to_hf.**" in text
