"""README.md and the pages of docs/: links, code, commands, flags and fields all exist.

A page has code in fences with a language (`sh`, `python`, `json`, `text`, `toml`). The commands in
`sh` blocks are parsed, not run, except for a few cheap ones.
"""

import ast
import contextlib
import functools
import importlib
import importlib.metadata
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from benchmarks import __main__ as benchmark_list
from benchmarks import command as benchmark_command
from bert_jax import __main__ as front_door
from bert_jax import main
from bert_jax.config import store
from bert_jax.data import init_from
from bert_jax.files import buckets
from bert_jax.tasks import TASKS, default_config
from bert_jax.tools.cli import COMMANDS, command_line

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path
    for path in (
        REPOSITORY / "README.md",
        *sorted((REPOSITORY / "docs").rglob("*.md")),
        REPOSITORY / "launch" / "README.md",
        REPOSITORY / "race" / "program.md",
    )
}
LANGUAGES = {"sh", "python", "json", "text", "toml"}
IMPORTS = (ast.Import, ast.ImportFrom)
OURS = re.compile(r"(from|import) (bert_jax|benchmarks|configs)\b")


# Programs of the shell blocks whose arguments are not checked.
OTHER_PROGRAMS = {"awk", "cat", "cp", "curl", "grep", "rm"}
# Before a shell block: no program is found, and bash notes the words of each.
NOTE_WORDS = """
PATH=/nowhere
command_not_found_handle() { printf '%s\\0' $# "$@" >>words; echo VALUE; }
"""

# ml_collections loads configuration files by it.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
of_each_page = pytest.mark.parametrize("name", PAGES)


class Block(NamedTuple):
    """A fenced block: the tag after the fence, the number of its first line, its text."""

    language: str
    line: int
    text: str


class Page(NamedTuple):
    prose: str
    blocks: list[Block]


@functools.cache
def read_page(path: pathlib.Path) -> Page:
    parts = re.split(r"^```(\w*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    prose, languages, texts, ends = (parts[start::4] for start in range(4))
    assert len(prose) == len(ends) + 1 and not any(ends), f"{path.name}: a block has no end"
    blocks = [
        Block(language, "".join(parts[: 4 * number + 1]).count("\n") + 2 * number + 2, text)
        for number, (language, text) in enumerate(zip(languages, texts, strict=True))
    ]
    return Page("".join(prose), blocks)


def blocks_of(name: str, language: str) -> Iterator[Block]:
    return (block for block in read_page(PAGES[name]).blocks if block.language == language)


def inline_code(name: str) -> list[str]:
    return [
        code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", read_page(PAGES[name]).prose)
    ]


# ------------------------------------------------------------------------------ links and anchors


def anchors(path: pathlib.Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", read_page(path).prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_link(page: pathlib.Path, target: str) -> None:
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    assert path.exists() and path.is_relative_to(REPOSITORY), f"there is no {target}"
    assert not anchor or anchor in anchors(path), f"{target}: no such heading in {path.name}"


@of_each_page
def test_links_resolve(name):
    targets = re.findall(r"\]\(([^)\s]+)\)", read_page(PAGES[name]).prose)
    for target in targets:
        if not target.startswith("https://"):
            check_link(PAGES[name], target)


def test_the_index_links_every_page():
    text = PAGES["docs/index.md"].read_text()
    names = {os.path.relpath(name, "docs") for name in PAGES} - {"index.md"}
    assert {name for name in names if f"({name})" not in text} == set()


# ------------------------------------------------------------------------------------------ code


@of_each_page
def test_blocks_have_a_language_and_can_be_read(name):
    """Python compiles, its imports of this package resolve, and its configurations can be made."""
    blocks = read_page(PAGES[name]).blocks
    assert {block.language for block in blocks} <= LANGUAGES
    for block in blocks:
        if block.language == "json":
            json.loads(block.text)
        if block.language != "python":
            continue
        code, names = compile(block.text, f"{name}:{block.line}", "exec"), {}
        nodes = (n for n in ast.walk(ast.parse(block.text)) if isinstance(n, IMPORTS))
        exec("\n".join(line for line in map(ast.unparse, nodes) if OURS.match(line)), {})
        if "def get_config" in block.text:
            exec(code, names)
            assert names["get_config"]().task


# -------------------------------------------------------------------------------------- commands


def shell_commands(text: str, folder: pathlib.Path) -> Iterator[list[str]]:
    """Yields the words of all commands of a shell block, which bash runs in an empty folder.

    A variable that the block does not set is its name.
    """
    (folder / "text.txt").touch()  # what the docs read from standard input
    unset = {name: name for name in re.findall(r"\$(\w+)", text)}
    command = ["bash", "-c", NOTE_WORDS + text]
    subprocess.run(command, cwd=folder, env=unset, capture_output=True)
    words = iter((folder / "words").read_text().split("\0")[:-1])
    for count in words:
        yield list(itertools.islice(words, int(count)))
    (folder / "words").unlink()


class Parsed(Exception):
    """Raised once a command line has been parsed, in place of running the command."""


@pytest.fixture
def parse(monkeypatch):
    """Returns a function that parses a command line with the program's own parser.

    `init_from` and buckets are not resolved, and the configuration of a run is that of
    pre-training: the files that the docs name do not exist. Of a process that a command starts the
    command line is parsed.
    """
    parse_flags, parse_config, run_process = command_line.parse, store.parse, subprocess.run

    def parse_then_stop(command, help, flags, words):
        found = parse_flags(command, help, flags, words)
        has_config = any(flag.name == "config" for flag in flags)
        reads_config = has_config and not getattr(found, "suite", "")
        if not reads_config or (command, words) == ("bert_jax doctor", []):
            raise Parsed
        return found

    def check_then_stop(values, *_):
        parse_config(values)
        raise Parsed

    def parse_instead(command, **options):
        if command[1:3] == ["-m", "bert_jax"]:
            return front_door.main(command[3:])
        return run_process(command, **options)

    for name in COMMANDS:  # an import must not keep what is replaced here
        importlib.import_module(f"bert_jax.tools.cli.{name}")
    for name in re.findall(r"benchmarks\.\w+", benchmark_list.__doc__):
        importlib.import_module(name)
    monkeypatch.setattr(subprocess, "run", parse_instead)
    monkeypatch.setattr(command_line, "parse", parse_then_stop)
    monkeypatch.setattr(store, "parse", check_then_stop)
    monkeypatch.setattr(init_from, "resolve", check_then_stop)
    monkeypatch.setattr(buckets, "local", lambda path: path)
    monkeypatch.setattr(store, "load", lambda _: default_config("pretraining"))
    monkeypatch.chdir(REPOSITORY)

    def parse(run: Callable[[list[str]], None], words: list[str]) -> None:
        with pytest.raises(Parsed):
            run(words)

    return parse


def check_command(words: list[str], parse) -> None:
    """Checks a command of a shell block.

    Raises:
      AssertionError: for a script, module or extra that does not exist.
      ValueError: for a command line that the program refuses.
    """
    program, *rest = words
    if program == "bash":
        script, *rest = rest
        assert (REPOSITORY / script).is_file(), f"there is no {script}"
        if rest:
            parse(main.main, rest)
    elif program == "pip":
        check_pip(rest)
    elif entry := entry_point(words):
        parse(*entry)
    else:
        is_code = words[:2] == ["python", "-c"]
        assert is_code or program in OTHER_PROGRAMS, f"{program} is not known to this test"


def entry_point(words: list[str]) -> tuple[Callable[[list[str]], None], list[str]] | None:
    """Returns the function that a command line of this package runs, and its words."""
    if words[0] == "bert_jax":
        return front_door.main, words[1:]
    if words[:2] != ["python", "-m"]:
        return None
    _, _, module, *rest = words
    if module.startswith("benchmarks."):
        return functools.partial(benchmark_command.main, module.removeprefix("benchmarks.")), rest
    if module.startswith("race."):
        return functools.partial(parse_race, module), rest
    modules = {"bert_jax": front_door, "bert_jax.main": main}
    assert module in modules, f"{module} is no command of this package"
    return modules[module].main, rest


def parse_race(module: str, words: list[str]) -> None:
    """Parses the words of a module of the race, without running it."""
    try:
        own = re.sub(r"race\.records\.\w+\.train", "race.train", module)  # those are copies
        importlib.import_module(own).parse(words)
    except SystemExit as error:  # of argparse, for the file that imports nothing of the package
        raise ValueError(f"{module} has other flags") from error
    raise Parsed


def check_pip(words: list[str]) -> None:
    assert words[0] == "install"
    extras = importlib.metadata.metadata("bert_jax").get_all("Provides-Extra") or []
    for before, word in zip(words, words[1:], strict=False):
        if before == "-c":
            assert (REPOSITORY / word).is_file()
        elif word.startswith("."):
            named = re.fullmatch(r"\.(?:\[(.*)\])?", word)[1] or ""
            assert set(filter(None, named.split(","))) <= set(extras), word


@of_each_page
def test_commands_in_shell_blocks_can_be_parsed(name, parse, tmp_path):
    problems = []
    for block in blocks_of(name, "sh"):
        for words in list(shell_commands(block.text, tmp_path)):
            try:
                check_command(words, parse)
            except (AssertionError, ValueError) as error:
                problems.append(f"{name}:{block.line} {shlex.join(words)}: {error}")
    assert not problems, "\n".join(problems)


@of_each_page
def test_commands_in_prose_exist_with_their_flags(name, capsys):
    """They may be incomplete, so that they are compared with --help."""
    for code in inline_code(name):
        if code.startswith(("python -m bert_jax", "python -m benchmarks.", "bert_jax ")):
            run, words = entry_point(shlex.split(code.replace("COMMAND", "train")))
            help_text = help_of(run, [word for word in words if not word.startswith("--")], capsys)
            for flag in re.findall(r"--(\w+)", code):
                assert f"--{flag}" in help_text or flag == "help", code


def help_of(run: Callable[[list[str]], None], words: list[str], capsys) -> str:
    with contextlib.suppress(SystemExit):
        run([*words, "--help"])
    return capsys.readouterr().out


# ---------------------------------------------------------------------------------------- fields


def all_fields() -> set[str]:
    configs = list(map(default_config, TASKS))
    groups = {name for config in configs for name, _ in config.groups()}
    return groups.union(*(config.fields() for config in configs))


@of_each_page
def test_fields_that_prose_names_exist(name):
    """`data.mode`, `data.mode=static`, `--config.data.mode=static`."""
    fields = all_fields()
    groups = "checkpoint|data|eval|log|mesh|model|optimizer|task"
    pattern = rf"(?:--config\.([\w.]+)|((?:{groups})\.\w+))(?:=.*)?"
    files = {"model.safetensors", "model.stablehlo", "model.onnx", "model.json"}
    found = [re.fullmatch(pattern, code) for code in inline_code(name) if code not in files]
    named = {match[1] or match[2] for match in found if match} - {"FIELD", "task.FIELD"}
    assert named - fields == set()


# ----------------------------------------------------------------------------------- really run
