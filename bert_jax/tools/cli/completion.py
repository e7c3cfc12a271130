"""Prints a script that completes commands, flags and file names in bash or zsh.

    eval "$(bert_jax completion bash)"      # in ~/.bashrc
    eval "$(bert_jax completion zsh)"       # in ~/.zshrc, after compinit

The command must be installed as `bert_jax`.
"""

import argparse
import importlib
from collections.abc import Iterator

from bert_jax.files.errors import UserError
from bert_jax.tools import cli
from bert_jax.tools.cli import command_line

FLAGS = (command_line.Flag("SHELL", "", "bash or zsh"),)

# The candidates are the words in the line of the command before the cursor; file names, if none of
# them fits. bash splits --NAME=VALUE at the sign and replaces the value only.
_SCRIPT = """\
_bert_jax() {
  local value="${COMP_WORDS[COMP_CWORD]#=}" line="${COMP_LINE:0:$COMP_POINT}" words
  local word="${line##* }" key="${COMP_WORDS[1]}"
  if [[ $COMP_CWORD -gt 2 ]]; then key+=" ${COMP_WORDS[2]}"; fi
  if [[ $COMP_CWORD -eq 1 ]]; then key=; fi
  case "$key" in
%s
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  COMPREPLY=("${COMPREPLY[@]#"${word%%"$value"}"}")
  if [[ -z ${COMPREPLY[*]} ]]; then COMPREPLY=($(compgen -f -- "$value")); fi
}
complete -o nospace -o filenames -F _bert_jax bert_jax"""


def run(flags: argparse.Namespace) -> None:
    if flags.shell not in ("bash", "zsh"):
        raise UserError(f"No completion for {flags.shell!r}. Available: bash, zsh.")
    # zsh runs bash's completions.
    start = "autoload -Uz bashcompinit && bashcompinit\n" if flags.shell == "zsh" else ""
    cases = "\n".join(f'    "{key}"*) words="{words}" ;;' for key, words in _candidates())
    print(start + _SCRIPT % cases)


def _candidates() -> Iterator[tuple[str, str]]:
    """Yields the words that may follow the words of a command, the longest commands first."""
    found = {"": " ".join(cli.COMMANDS)}
    for name in cli.COMMANDS:
        module = importlib.import_module(f"bert_jax.tools.cli.{name}")
        if not hasattr(module, "COMMANDS"):
            found[name] = _words(module.FLAGS)
            continue
        found[name] = " ".join(module.COMMANDS)
        for part, (_, flags) in module.COMMANDS.items():
            found[f"{name} {part}"] = _words(flags)
    return iter(sorted(found.items(), reverse=True))


def _words(flags: tuple[command_line.Flag, ...]) -> str:
    words = []
    for flag in flags:
        if flag.name.isupper():
            continue
        if flag == command_line.OVERRIDES:
            words.append("--config.")
        elif flag.choices:
            words += [f"--{flag.name}={choice}" for choice in flag.choices]
        elif flag.default is None or isinstance(flag.default, bool):
            words += [f"--{flag.name}"] if not flag.default else []
            words += [f"--no{flag.name}"] if flag.default is not False else []
        else:
            words.append(f"--{flag.name}=")
    return " ".join([*words, "--help"])
