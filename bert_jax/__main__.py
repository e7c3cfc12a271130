"""All commands: python -m bert_jax COMMAND [FLAG ...], or, once installed, bert_jax COMMAND ...

python -m bert_jax COMMAND --help prints the flags of a command and an example.
"""

import importlib
import inspect
from collections.abc import Sequence

from bert_jax.tools.cli import COMMANDS, command_line


def main(words: Sequence[str]) -> None:
    """Runs the command words[0] with the words after it as its flags.

    Raises:
      UserError: there is no such command, or it cannot use its flags.
    """
    lines = (f"\n  {command:<13}  {description}" for command, description in COMMANDS.items())
    help = f"{__doc__}{''.join(lines)}"
    name, *words = command_line.choose(words, "command", COMMANDS, help)
    module = importlib.import_module(f"bert_jax.tools.cli.{name}")
    path, help = f"bert_jax {name}", module.__doc__
    if hasattr(module, "COMMANDS"):
        part, *words = command_line.choose(words, module.KIND, module.COMMANDS, help)
        run, flags = module.COMMANDS[part]
        path, help = f"{path} {part}", inspect.getdoc(run)
    else:
        run, flags = module.run, module.FLAGS
    run(command_line.parse(path, help, flags, words))


def start() -> None:
    """Entry point of the console script."""
    command_line.run(main)


if __name__ == "__main__":
    start()
