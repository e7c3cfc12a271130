"""All commands: bert_jax COMMAND [FLAG ...], or python -m bert_jax COMMAND [FLAG ...]

bert_jax COMMAND --help prints the flags of a command and an example.
"""

import importlib
import inspect
from collections.abc import Sequence

from bert_jax.tools.cli import COMMANDS, GROUPS, command_line


def main(words: Sequence[str]) -> None:
    """Runs the command words[0] with the words after it as its flags.

    Raises:
      UserError: there is no such command, or it cannot use its flags.
    """
    name, *words = command_line.choose(words, "command", COMMANDS, _help())
    module = importlib.import_module(f"bert_jax.tools.cli.{name}")
    path, help = f"bert_jax {name}", module.__doc__
    if hasattr(module, "COMMANDS"):
        part, *words = command_line.choose(words, module.KIND, module.COMMANDS, help)
        run, flags = module.COMMANDS[part]
        path, help = f"{path} {part}", inspect.getdoc(run)
    else:
        run, flags = module.run, module.FLAGS
    run(command_line.parse(path, help, flags, words))


def _help() -> str:
    lines = [f"{__doc__}"]
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<13}  {text}" for name, text in commands.items()), ""]
    return "\n".join(lines)


def start() -> None:
    """Entry point of the console script."""
    command_line.run(main)


if __name__ == "__main__":
    start()
