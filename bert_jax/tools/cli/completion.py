"""Prints a script that completes commands, flags and file names in bash or zsh.

    eval "$(bert_jax completion bash)"      # in ~/.bashrc
    eval "$(bert_jax completion zsh)"       # in ~/.zshrc, after compinit

The command must be installed as `bert_jax`, with shtab (the extra `completion`).
"""

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.tools import cli
from bert_jax.tools.cli import command_line

FLAGS = (command_line.Flag("SHELL", "", "bash or zsh"),)

# bash splits --NAME=VALUE at the sign, which is a part of the flag's name in our parser.
_JOIN = """
_bert_jax() {
  local word words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ $word == = ]]; then words[-1]+="="; else words+=("$word"); fi
  done
  if [[ $word == = ]]; then words+=(""); fi
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
  _shtab_bert_jax
}
complete -o nospace -o filenames -F _bert_jax bert_jax"""


def run(flags: argparse.Namespace) -> None:
    if flags.shell not in ("bash", "zsh"):
        raise UserError(f"No completion for {flags.shell!r}. Available: bash, zsh.")
    try:
        import shtab
    except ImportError as error:
        install = "pip install -c constraints.txt '.[completion]'"
        raise UserError(f"completion needs shtab: {install}.") from error
    script = shtab.complete(_parser(shtab.FILE), flags.shell, root_prefix="bert_jax")
    # In zsh, "-" after a name says that the rest of the same word is its value.
    print(script + _JOIN if flags.shell == "bash" else script.replace("--config.[", "--config.-["))


def _parser(files: Any) -> argparse.ArgumentParser:
    """Returns a parser of all commands; its values that have no choices are `files`."""
    parser = argparse.ArgumentParser("bert_jax")
    commands = parser.add_subparsers()
    for name, help in cli.COMMANDS.items():
        module = importlib.import_module(f"bert_jax.tools.cli.{name}")
        command = commands.add_parser(name, help=help)
        if not hasattr(module, "COMMANDS"):
            _add_flags(command, module.FLAGS, files)
            continue
        parts = command.add_subparsers()
        for part, (function, flags) in module.COMMANDS.items():
            _add_flags(parts.add_parser(part, help=function.__doc__), flags, files)
    return parser


def _add_flags(
    parser: argparse.ArgumentParser, flags: Sequence[command_line.Flag], files: Any
) -> None:
    for flag in flags:
        command_line.add_flag(parser, flag)
    for action in parser._actions:
        if action.nargs != 0:
            is_field = action.option_strings == ["--config.FIELD"]
            if not (action.choices or is_field):
                action.complete = files  # pyright: ignore[reportAttributeAccessIssue]
            action.option_strings = (
                ["--config."] if is_field else [f"{name}=" for name in action.option_strings]
            )
