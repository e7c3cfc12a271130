"""docs/commands.md is made from the flags of all commands."""

import os
import pathlib

from tests.tools.cli.commands_page import page

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "commands.md"


def test_the_page_is_up_to_date():
    if os.environ.get("UPDATE_GOLDENS"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "UPDATE_GOLDENS=1 pytest rewrites the page"
