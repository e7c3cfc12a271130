"""All commands: python -m bert_jax COMMAND [FLAG ...], or, once installed, bert_jax COMMAND ...

python -m bert_jax COMMAND --help prints the flags of a command and an example.
"""

import difflib
from collections.abc import Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.cli import COMMANDS, load
from bert_jax.tools.cli.flags import command_line


def main(argv: Sequence[str]) -> None:
    """Runs the command argv[1] with the rest of the command line.

    Raises:
      UserError: there is no such command.
    """
    name = argv[1] if len(argv) > 1 else ""
    if name in command_line.HELP:
        print(__doc__)
        width = max(map(len, COMMANDS))
        for command, description in COMMANDS.items():
            print(f"  {command:<{width}}  {description}")
        return
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, 1, 0.0)
        hint = f" Did you mean {close[0]}?" if name and close else ""
        problem = f"Unknown command {name!r}.{hint}" if name else "The command is missing."
        raise UserError(f"{problem} Available: {', '.join(COMMANDS)}.")
    load(name).main(argv[1:])


def start() -> None:
    """Entry point of the console script."""
    command_line.run(main)


if __name__ == "__main__":
    start()
