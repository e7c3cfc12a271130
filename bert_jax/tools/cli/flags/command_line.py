"""Parses the flags of a command, and reports what the user can fix in one line.

A command exits with code 2 after one line on standard error for what the user can fix (a flag, a
field, a file). Any other error is a defect of the program and prints its traceback.
"""

import argparse
import contextlib
import difflib
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TextIO, cast

from bert_jax.files import buckets
from bert_jax.files.errors import UserError

HELP = ("--help", "-h", "-help", "--helpfull")
_PACKAGE = str(pathlib.Path(__file__).parents[3])


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs a command's `main(sys.argv)` and ends the process with its exit code."""
    try:
        with contextlib.redirect_stdout(cast(TextIO, _WithAddresses(sys.stdout))):
            main(sys.argv)
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))


def _fail(message: str) -> NoReturn:
    print("error:", buckets.shown(" ".join(message.split())), file=sys.stderr)
    sys.exit(2)


class _WithAddresses:
    """A text stream that prints the address of a bucket instead of the path of its local cache."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(buckets.shown(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Parser(argparse.ArgumentParser):
    """The flags of a command.

    Flags may stand anywhere, in any order, as --name=value or --name value; of a repeated flag the
    last one counts. A value that is the address of a bucket becomes the path of its local cache,
    which is brought up to date.
    """

    def __init__(self, command: str, description: str | None):
        """Describes a command without flags.

        Args:
          command: what follows `python -m`.
          description: text for --help, which ends in examples.
        """
        super().__init__(
            prog=f"python -m {command}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._names: set[str] = set()
        self._texts = ""  # name of the positional arguments of any number

    def flag(
        self,
        name: str,
        default: str | int | float | None,
        help: str,
        *,
        choices: Sequence[str] = (),
        least: int | None = None,
        metavar: str | None = None,
    ) -> None:
        """Adds --name=VALUE, of the type of `default`.

        Args:
          name: name of the flag and of the attribute.
          default: value without the flag; None: an optional string.
          help: one line.
          choices: allowed values; empty: any.
          least: smallest allowed value.
          metavar: name of the value in --help.
        """
        self._names.add(name)
        shown = f" (default: {default})" if default not in ("", None) else ""
        self.add_argument(
            f"--{name}",
            default=default,
            type=_value_type(default, choices, least),
            metavar=metavar or "|".join(choices) or "VALUE",
            help=(help + shown).replace("%", "%%"),
        )

    def switch(self, name: str, help: str, default: bool | None = False) -> None:
        """Adds --name and --noname."""
        self._names |= {name, f"no{name}"}
        on, off = (argparse.SUPPRESS, help) if default else (help, argparse.SUPPRESS)
        self.add_argument(f"--{name}", action="store_true", default=default, help=on)
        self.add_argument(f"--no{name}", action="store_false", dest=name, help=off)

    def repeated(self, name: str, help: str, metavar: str) -> None:
        """Adds --name=VALUE, which may be given several times; the attribute is a list."""
        self._names.add(name)
        self.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=help)

    def words(self, name: str, help: str, count: str | None = None) -> None:
        """Adds positional arguments: one path, or with count="*" any number of texts."""
        if count:
            self._texts = name.lower()
        self.add_argument(name.lower(), metavar=name, nargs=count, help=help)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parses a command line without a configuration; argv[0] is the command.

        Raises:
          UserError: for a flag or a word that the command does not have, or an invalid value.
        """
        flags, rest = self.parse_known(argv)
        for word in rest:
            if not word.startswith("-"):
                hint = f" Did you mean --{word}?" if word.startswith("config.") else ""
                raise UserError(f"{word!r} is not a flag: flags begin with two dashes.{hint}")
            name = word.lstrip("-").split("=")[0]
            close = difflib.get_close_matches(name, self._names, 1)
            hint = f"did you mean --{close[0]}?" if close else "see --help."
            raise UserError(f"Unknown flag --{name}: {hint}")
        return flags

    def parse_known(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Returns what `parse` does, and the words that are not the command's, in order."""
        self.print_help_if_asked(argv)
        words, after = list(argv[1:]), []
        if "--" in words:  # texts after it may begin with a dash
            end = words.index("--")
            words, after = words[:end], words[end + 1 :]
        flags, rest = self.parse_known_intermixed_args(list(self._normalized(words)))
        for name, value in vars(flags).items():
            setattr(flags, name, value if name == self._texts else _local(name, value))
        if after and self._texts:
            setattr(flags, self._texts, [*getattr(flags, self._texts), *after])
            after = []
        return flags, [*rest, *after]

    def print_help_if_asked(self, argv: Sequence[str]) -> None:
        """Prints the help and ends the process if a flag asks for it."""
        if set(HELP) & set(argv[1:]):
            self.print_help()
            sys.exit(0)

    def _normalized(self, words: Sequence[str]) -> Iterator[str]:
        """Yields the words with two dashes before known flags, and switches without a value."""
        for word in words:
            if match := re.fullmatch(r"--?(\w+)(=.*)?", word, re.DOTALL):
                name, value = match[1], match[2] or ""
                if name in self._names:
                    word = f"--{name}{value}"
                if f"no{name}" in self._names and value in ("=true", "=false"):
                    word = f"--{name}" if value == "=true" else f"--no{name}"
            yield word

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help).")


def _local(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_local(name, item) for item in value]
    if not isinstance(value, str):
        return value
    buckets.check_scheme(f"--{name}", value)
    return buckets.local(value)


def _value_type(default: Any, choices: Sequence[str], least: int | None) -> Callable[[str], Any]:
    """Returns the function that converts and checks the text of a value."""
    kind = str if default is None else type(default)

    def convert(text: str) -> Any:
        if text == default:  # argparse converts it too
            return text
        try:
            value: Any = kind(text)
        except ValueError:
            what = "an integer" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
        if choices and value not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} should be one of <{'|'.join(choices)}>")
        if least is not None and value < least:
            raise argparse.ArgumentTypeError(f"{text} must be at least {least}")
        return value

    return convert


def flag_value(argv: Sequence[str], name: str) -> str:
    """Returns the value of a flag on an unparsed command line; empty if it is missing."""
    value = ""
    for word, following in itertools.zip_longest(argv, argv[1:], fillvalue=""):
        if word == "--":
            break
        if word.startswith("-") and word.lstrip("-").split("=")[0] == name:
            value = word.split("=", 1)[1] if "=" in word else following
    return _local(name, value)
