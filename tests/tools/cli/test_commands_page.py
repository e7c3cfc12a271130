"""docs/commands.md is made from the flags of all commands."""

import importlib
import inspect
import os
import pathlib
from collections.abc import Iterator, Sequence

from bert_jax.tools.cli import GROUPS
from bert_jax.tools.cli.command_line import Flag

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "commands.md"
_INTRODUCTION = """\
# Commands

Every command with its flags; this page is made from their definitions in `bert_jax/tools/cli/`.
Flags are written `--name=value` or `--name value`, with dashes or underscores, in any order.
`--config.FIELD=VALUE` sets a field of the [configuration](configuration.md).
`bert_jax COMMAND --help` prints the same with examples.
"""


def lines() -> Iterator[str]:
    yield _INTRODUCTION
    for group, commands in GROUPS.items():
        yield f"## {group[0].upper()}{group[1:]}\n"
        for name, description in commands.items():
            yield f"### {name}\n\n{description}\n"
            module = importlib.import_module(f"bert_jax.tools.cli.{name}")
            if not hasattr(module, "COMMANDS"):
                yield from _table(module.FLAGS)
                continue
            for part, (run, flags) in module.COMMANDS.items():
                about = (inspect.getdoc(run) or "").splitlines()[0]
                yield f"**{name} {part}.** {about}\n"
                yield from _table(flags)


def _table(flags: Sequence[Flag]) -> Iterator[str]:
    yield "| flag | default | meaning |\n| --- | --- | --- |"
    for flag in flags:
        default = "" if flag.default in ("", [], None) else f"`{flag.default}`"
        name = flag.name if flag.name.isupper() else f"--{flag.name}"
        meaning = flag.help[0].upper() + flag.help[1:]
        if flag.choices:
            meaning += f" One of {', '.join(f'`{choice}`' for choice in flag.choices)}."
        yield f"| `{name}` | {default} | {meaning.replace('|', chr(92) + '|')} |"
    yield ""


def test_the_page_is_up_to_date():
    page = "\n".join(lines())
    if os.environ.get("UPDATE_GOLDENS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "UPDATE_GOLDENS=1 pytest rewrites the page"
