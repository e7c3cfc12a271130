"""The command line: flags, the configuration that they select, and errors of one line.

A command exits with code 2 after one line on standard error for what the user can fix (a flag, a
field, a file). Any other error is a defect of the program and prints its traceback.
"""

import argparse
import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from bert_jax.files import buckets
from bert_jax.files.errors import UserError
from bert_jax.tools.listeners import standard_error

if TYPE_CHECKING:
    from bert_jax.config.run import RunConfig
    from bert_jax.inference.loading import TrainedModel


@dataclass(frozen=True)
class Flag:
    """A flag of a command, or its words without a name.

    Attributes:
      name: name of the flag and of the parsed attribute; in capitals, name of the words without a
        name, whose attribute is in lower case.
      default: value without the flag, whose type is that of the values: --NAME=VALUE for str, int
        and float. --NAME sets False to True, --noNAME sets True to False, and None has both forms.
        [] collects the values of a repeated flag, or any number of words.
      help: one line.
      choices: allowed values; empty: any.
      minimum: smallest allowed value.
      missing: description of the value, for the error if it is not given; empty: it is optional.
    """

    name: str
    default: Any
    help: str
    choices: Collection[str] = ()
    minimum: int | None = None
    missing: str = ""

    @property
    def attribute(self) -> str:
        return self.name.lower() if self.name.isupper() else self.name


def optional(flag: Flag) -> Flag:
    """Returns a flag that may be left out."""
    return replace(flag, missing="")


# ------------------------------------------------------------------ flags of several commands

OVERRIDES = Flag("config.FIELD", "", "Value that replaces a field's.")
IMPORT = Flag("import", "", "Module that adds a task or an encoder of your own (config.imports).")
CONFIG = (
    Flag(
        "config",
        "",
        "Configuration file, such as configs/base.py, or configs/glue.py:mrpc with an argument."
        " docs/configuration.md describes all fields.",
    ),
    IMPORT,
    OVERRIDES,
)
CACHE = Flag(
    "compilation_cache",
    "",
    "Folder that keeps compiled programs, or off (default: in the user's cache folder).",
)
RUN = (
    Flag(
        "workdir",
        "",
        "Folder of the run: configuration, data, checkpoints, metrics.",
        missing="the folder that the run is kept in",
    ),
    Flag("coordinator", "", "Address of process 0, HOST:PORT, if there are several."),
    Flag("num_processes", 0, "Number of processes of the run.", minimum=0),
    Flag("process_id", -1, "Number of this process, from 0."),
    CACHE,
    *CONFIG,
)
MODEL = Flag(
    "model",
    "",
    "A workdir, or a folder of Hugging Face, google-research/bert, bilm-tf or OpenAI.",
    missing="a workdir, or the folder of another program's model",
)
TRACKERS = Flag("trackers", "", "What gets the metrics too: wandb, mlflow, or wandb,mlflow.")
TRAINED = (MODEL, CACHE, IMPORT, OVERRIDES)
EXACT = Flag("exact", False, "Equal bytes for a text in any batch and order (docs/encode.md).")
TOP_K = Flag("top_k", 5, "Candidates for each [MASK].", minimum=1)
INPUTS = Flag("TEXT", [], "texts, files, or - for standard input")
COLUMN = Flag("column", "", "Column of the texts in tables, by name or number from 0.")
BATCH_TOKENS = Flag(
    "batch_tokens", 0, "Positions of a batch; 0: 1,024 on a CPU, 4,096 on others.", minimum=0
)


# ------------------------------------------------------------------ processes


def run(main: Callable[[Sequence[str]], None]) -> None:
    """Runs `main(sys.argv[1:])` and ends the process with its exit code."""
    standard_error.set_up()
    sys.path.append("")  # modules of the current folder, also for the console script
    message = ""
    try:
        with contextlib.redirect_stdout(cast(TextIO, standard_error.WithAddresses(sys.stdout))):
            main(sys.argv[1:])  # noqa: TID251
    except UserError as error:
        message = str(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        message = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
    if message:
        print("error:", buckets.shown(" ".join(message.split())), file=sys.stderr)
        sys.exit(2)


def choose(
    words: Sequence[str], kind: str, names: Collection[str], help: str | None
) -> Sequence[str]:
    """Returns `words`, which begin with one of `names`; --help instead prints the help.

    Raises:
      UserError: there is no such name.
    """
    name = words[0] if words else ""
    if name in ("-h", "--help"):
        print(help)
        sys.exit(0)
    if name in names:
        return words
    close = difflib.get_close_matches(name, names, 1, 0.0)
    hint = f" Did you mean {close[0]}?" if name and close else ""
    problem = f"Unknown {kind} {name!r}.{hint}" if name else f"The {kind} is missing."
    raise UserError(f"{problem} Available: {', '.join(names)}.")


# ------------------------------------------------------------------ parsing

_OVERRIDE = re.compile(r"--config\.([^=]+)=(.*)", re.DOTALL)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help).")


def parse(
    command: str, help: str | None, flags: Sequence[Flag], words: Sequence[str]
) -> argparse.Namespace:
    """Parses the flags of a command; --help prints them and ends the process.

    Flags may stand anywhere, in any order, as --name=value or --name value, fields too, with dashes
    or underscores in the name; of a repeated flag the last one counts. Words after -- may begin
    with a dash. A value that is the address of a bucket becomes the path of its local cache, which
    is brought up to date.

    Args:
      command: `bert_jax NAME`, or the module `bert_jax.main`.
      help: text for --help, which ends in examples.
      flags: flags of the command.
      words: the words after the command.

    Returns:
      The values by name; `overrides`, the text of each field; and the name of the `command`.

    Raises:
      UserError: for a flag or a word that the command does not have, or an invalid value.
    """
    parser = _Parser(
        prog=command if " " in command else f"python -m {command}",
        description=help,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for flag in flags:
        add_flag(parser, flag)
    words, after = list(words), []
    if "--" in words:
        end = words.index("--")
        words, after = words[:end], words[end + 1 :]
    words = [_with_underscores(word) for word in words]
    overrides = {}
    if OVERRIDES in flags:
        words = list(_joined(words))
        overrides = {match[1]: match[2] for match in map(_OVERRIDE.fullmatch, words) if match}
        words = [word for word in words if not _OVERRIDE.fullmatch(word)]
    parsed, rest = parser.parse_known_intermixed_args(words)
    texts = [flag.attribute for flag in flags if flag.name.isupper() and flag.default == []]
    (getattr(parsed, texts[0]) if texts else rest).extend(after)
    if rest:
        raise UserError(_describe_unknown(rest[0], flags))
    for flag in flags:
        value = getattr(parsed, flag.attribute)
        if flag.attribute not in texts:  # which may look like addresses
            setattr(parsed, flag.attribute, _local(flag.name, value))
        if flag.missing and not value:
            raise UserError(f"--{flag.name} is missing: {flag.missing}.")
        if flag.minimum is not None and value < flag.minimum:
            raise UserError(f"--{flag.name}={value} must be at least {flag.minimum}.")
    if modules := getattr(parsed, IMPORT.name, ""):
        overrides["imports"] = tuple(modules.split(","))
    parsed.overrides, parsed.command = overrides, command.split()[-1]
    return parsed


def _with_underscores(word: str) -> str:
    """--some-flag=a-b -> --some_flag=a-b; other words are unchanged."""
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else word


def _joined(words: Sequence[str]) -> Iterator[str]:
    """Yields the words with --config.FIELD VALUE as --config.FIELD=VALUE."""
    words = list(words)
    while words:
        word = words.pop(0)
        if re.fullmatch(r"--config\.[^=]+", word) and words and not words[0].startswith("--"):
            word = f"{word}={words.pop(0)}"
        yield word


def add_flag(parser: argparse.ArgumentParser, flag: Flag) -> None:
    name, default, help = flag.name, flag.default, flag.help.replace("%", "%%")
    if name.isupper():
        nargs = "*" if default == [] else None
        parser.add_argument(flag.attribute, metavar=name, nargs=nargs, help=help)
    elif default is None or isinstance(default, bool):
        for value, option in ((True, f"--{name}"), (False, f"--no{name}")):
            if default is not value:
                parser.add_argument(
                    option, dest=name, default=default, action="store_const", const=value, help=help
                )
    elif default == []:
        parser.add_argument(f"--{name}", action="append", default=[], metavar="VALUE", help=help)
    else:
        parser.add_argument(
            f"--{name}",
            default=default,
            type=type(default),
            choices=flag.choices or None,
            metavar="|".join(flag.choices) or "VALUE",
            help=help if default == "" else f"{help} (default: {default})",
        )


def _describe_unknown(word: str, flags: Sequence[Flag]) -> str:
    """Returns the error message for a word that a command does not have."""
    if not word.startswith("-"):
        hint = f" Did you mean --{word}?" if word.startswith("config.") else ""
        return f"{word!r} is not a flag: flags begin with two dashes.{hint}"
    word, _, value = word.partition("=")
    if word.startswith("--config.") and OVERRIDES in flags:
        return f"{word} lacks its value: write {word}=VALUE."
    if word == "--workdir" and MODEL in flags:
        return "This command writes no workdir: name the model by --model."
    if OVERRIDES in flags and (field := _field_of(word.lstrip("-"))):
        return f"Unknown flag {word}: did you mean --config.{field}={value or 'VALUE'}?"
    close = difflib.get_close_matches(word.lstrip("-"), [flag.name for flag in flags], 1)
    return f"Unknown flag {word}: {f'did you mean --{close[0]}?' if close else 'see --help.'}"


def _field_of(name: str) -> str:
    """Returns the field that a name means, as it is or as in other programs; "": none."""
    from bert_jax.config.editing import OTHER_NAMES
    from bert_jax.config.finetuning import FinetuningConfig
    from bert_jax.config.run import PretrainingConfig

    # Fields of tasks, whose classes import jax, are known by the names of other programs only.
    fields = FinetuningConfig().fields() | PretrainingConfig().fields()
    return name if name in fields else next(iter(OTHER_NAMES.get(name, ())), "")


def _local(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_local(name, item) for item in value]
    if not isinstance(value, str):
        return value
    buckets.check_scheme(f"--{name}", value)
    return buckets.local(value)


# ------------------------------------------------------------------ the configuration


def read_config(flags: argparse.Namespace, run_is_enough: bool = True) -> "RunConfig":
    """Returns the configuration of --config or of the run in --workdir, resolved and checked.

    `bert_jax/config/editing.py` describes the values that --config.FIELD=VALUE accepts.

    Args:
      flags: the parsed flags, CONFIG among them.
      run_is_enough: whether --config may be left out if --workdir has a run.

    Raises:
      UserError: for anything that is wrong in the configuration, or if there is none.
    """
    from bert_jax.config import store

    workdir = getattr(flags, "workdir", "")
    if flags.config:
        store.check_workdir(workdir)
        data_dir = getattr(flags, "data_dir", "")
        return resolve(flags.config, flags.overrides, workdir, data_dir)
    if not (workdir and run_is_enough):
        or_run = ", or --workdir=DIR of a run" if run_is_enough else ""
        raise UserError(
            f"--config is missing: give a file, for example --config=configs/base.py{or_run}."
        )
    return _changed(store.load(workdir), flags.overrides)


def _changed(config: "RunConfig", texts: Mapping[str, str]) -> "RunConfig":
    """Returns the configuration of a run with other values of some fields."""
    from bert_jax.config import store
    from bert_jax.config.editing import set_fields
    from bert_jax.config.group import flatten, unflatten
    from bert_jax.config.layers import DEFAULT, GIVEN, Layer, merge, preset_layer

    values = config.to_config_dict()
    set_fields(values, texts)
    fields = dict(flatten(values))
    # Without a new preset the run has the values of its own already.
    preset = [preset_layer(fields)] if "preset" in texts else []
    layers = [Layer(DEFAULT, fields), *preset, Layer.of(GIVEN, fields, texts)]
    return store.parse(unflatten(merge(layers)[0]))


def resolve(
    path: str, texts: Mapping[str, str], workdir: str = "", data_dir: str = ""
) -> "RunConfig":
    """Returns the configuration that `--config=PATH --config.NAME=TEXT ...` gives.

    Raises:
      UserError: as `read_config`.
    """
    from bert_jax.config import experiments
    from bert_jax.config.editing import set_fields, written
    from bert_jax.data import init_from

    config = experiments.load(path)
    by_file = written(config)
    set_fields(config, texts)
    return init_from.resolve(config.to_dict(), texts, workdir, data_dir, by_file)


# ------------------------------------------------------------------ runs and their models


def prepare_process(cache: str) -> None:
    """Prepares the memory and the compiled programs of this process. Imports jax.

    Args:
      cache: value of --compilation_cache.
    """
    from bert_jax.devices import allocator, compilation_cache

    allocator.keep_freed_memory()
    compilation_cache.use(cache)


def start_run(flags: argparse.Namespace) -> None:
    """Prepares this process for a run and connects it with the others. Imports jax.

    Args:
      flags: the parsed flags, RUN among them.
    """
    prepare_process(flags.compilation_cache)
    from bert_jax.devices import processes

    processes.start(flags.coordinator, flags.num_processes, flags.process_id)


def load_model(flags: argparse.Namespace) -> "TrainedModel":
    """Returns the model of --model, on the devices. Imports jax.

    Args:
      flags: the parsed flags, TRAINED among them.

    Raises:
      UserError: there is no model, or the folder of compiled programs cannot be written.
    """
    from bert_jax.formats import format_of

    format_of(flags.model)  # what is no model is reported before jax is imported
    prepare_process(flags.compilation_cache)
    from bert_jax.inference import loading

    exact = getattr(flags, "exact", False)
    return loading.load_model(flags.model, lambda config: _changed(config, flags.overrides), exact)
