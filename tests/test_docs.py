"""README.md and the pages of docs/: links, code, commands, flags and fields all exist.

A page has code in fences with a language (`sh`, `python`, `json`, `text`). The commands in `sh`
blocks are parsed, not run, except for a few cheap ones.
"""

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from absl import flags
from ml_collections import ConfigDict, config_flags

from bert_jax.commands import COMMANDS
from bert_jax.config import defaults

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path
    for path in (
        REPOSITORY / "README.md",
        *sorted((REPOSITORY / "docs").glob("*.md")),
        REPOSITORY / "launch" / "README.md",
    )
}
LANGUAGES = {"sh", "python", "json", "text"}
MOST_LINES_OF_README = 250
# Commands of these have subcommands, each with flags of its own.
SUBCOMMANDS = {
    "convert": ("from_hf", "from_google", "to_hf", "to_stablehlo", "inspect", "verify"),
    "benchmark": ("step", "train", "prepare", "finetune"),
}
# Programs of the shell blocks whose arguments are not checked.
OTHER_PROGRAMS = {"awk", "do", "done", "export", "for", "grep", "source"}

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
    prose, blocks, block, language, first = [], [], [], None, 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.fullmatch(r"```(\w*)", line)
        if fence and language is None:
            language, first, block = fence[1], number + 1, []
        elif fence:
            blocks.append(Block(language, first, "\n".join(block) + "\n"))
            language = None
        elif language is None:
            prose.append(line)
        else:
            block.append(line)
    assert language is None, f"{path.name}: the block in line {first} has no end"
    return Page("\n".join(prose) + "\n", blocks)


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
    assert path.exists(), f"there is no {target}"
    assert path.is_relative_to(REPOSITORY), f"{target} is outside of the repository"
    if anchor:
        assert anchor in anchors(path), f"{target}: no such heading in {path.name}"


@of_each_page
def test_links_resolve(name):
    targets = re.findall(r"\]\(([^)\s]+)\)", read_page(PAGES[name]).prose)
    for target in targets:
        if not target.startswith("https://"):
            check_link(PAGES[name], target)


def test_readme_links_every_page():
    text = PAGES["README.md"].read_text()
    assert [name for name in PAGES if name != "README.md" and f"({name})" not in text] == []


# ------------------------------------------------------------------------------------------ code


@of_each_page
def test_every_block_has_a_language(name):
    wrong = [block for block in read_page(PAGES[name]).blocks if block.language not in LANGUAGES]
    assert wrong == []


@of_each_page
def test_python_compiles_and_its_imports_of_this_package_resolve(name):
    for block in blocks_of(name, "python"):
        tree = ast.parse(block.text, f"{name}:{block.line}")
        compile(tree, f"{name}:{block.line}", "exec")
        check_imports(tree)


def check_imports(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_ours(node.module):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if is_ours(alias.name):
                    importlib.import_module(alias.name)


def is_ours(module: str | None) -> bool:
    return (module or "").split(".")[0] in ("bert_jax", "configs")


@of_each_page
def test_configurations_in_python_blocks_can_be_made(name):
    for block in blocks_of(name, "python"):
        if "def get_config" in block.text:
            names = {}
            exec(compile(block.text, f"{name}:{block.line}", "exec"), names)
            assert names["get_config"]().task


@of_each_page
def test_json_parses(name):
    for block in blocks_of(name, "json"):
        json.loads(block.text)


def test_readme_is_short():
    assert len(PAGES["README.md"].read_text().splitlines()) <= MOST_LINES_OF_README


# -------------------------------------------------------------------------------------- commands


class Command(NamedTuple):
    """A simple command of a shell block, its variables replaced."""

    line: int
    words: list[str]


def shell_commands(block: Block) -> Iterator[Command]:
    """Splits a block into simple commands, without assignments and redirections.

    A variable stands for its first value in the block, or for its name.
    """
    variables: dict[str, str] = {}
    number = block.line
    for text in re.sub(r"\\\n", "\0", block.text).splitlines():
        line, number = number, number + 1 + text.count("\0")
        if found := re.fullmatch(r"(\w+)=\$\((.*)\)", text):
            variables[found[1]] = found[1]
            continue
        lexer = shlex.shlex(text.replace("\0", " "), posix=True, punctuation_chars=";|&<>")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if word == ";" or set(word) <= set("|&"):
                if words := simple_command(command, variables):
                    yield Command(line, words)
                command = []
            else:
                command.append(re.sub(r"\$(\w+)", lambda m: variables.get(m[1], m[1]), word))


def simple_command(words: list[str], variables: dict[str, str]) -> list[str]:
    if words[:1] == ["for"]:
        variables[words[1]] = words[3]
        return []
    if words[:1] in (["do"], ["then"]):
        return simple_command(words[1:], variables)
    while words and (found := re.fullmatch(r"(\w+)=(.*)", words[0])):
        variables[found[1]] = found[2]
        words = words[1:]
    redirections = [i for i, word in enumerate(words) if set(word) <= set("<>")]
    for i in reversed(redirections):
        words = [*words[:i], *words[i + 2 :]]
    return words


def check_command(words: list[str], is_complete: bool = True) -> None:
    """Checks the program, the command, its flags, its configuration and the overrides.

    Args:
      words: of a simple command.
      is_complete: False: the words are mentioned in prose, and may lack some that are required.

    Raises:
      AssertionError: something of it does not exist.
    """
    program, *rest = words
    if program == "bert_jax":
        check_front_door(rest)
    elif program == "python":
        check_python(rest)
    elif program == "bash":
        script, *rest = rest
        assert (REPOSITORY / script).is_file(), f"there is no {script}"
        if any(word.startswith("--config") for word in rest):
            check_flags(("main",), rest)
    elif program == "pip":
        check_pip(rest)
    else:
        assert program in OTHER_PROGRAMS, f"{program} is not known to this test"


def check_python(words: list[str]) -> None:
    assert words[0] == "-m", f"python {words[0]}"
    _, module, *rest = words
    if module == "bert_jax":
        check_front_door(rest)
    elif module == "bert_jax.main":
        check_flags(("main",), rest)
    elif module == "pytest":
        paths = [word for word in rest if not word.startswith("-")]
        assert all((REPOSITORY / path).exists() for path in paths), f"pytest {paths}"
    else:
        raise AssertionError(f"python -m {module} is no command of this package")


def check_front_door(words: list[str]) -> None:
    name, *rest = words
    if name == "--help":
        return
    if name == "COMMAND":  # any of them
        assert rest == ["--help"]
        return
    assert name in COMMANDS, f"{name} is none of {', '.join(COMMANDS)}"
    path = (name,)
    if name in SUBCOMMANDS and rest:
        assert rest[0] in SUBCOMMANDS[name], f"{name} has no {rest[0]}"
        path, rest = (name, rest[0]), rest[1:]
    check_flags(path, rest)


def check_pip(words: list[str]) -> None:
    assert words[0] == "install"
    extras = importlib.metadata.metadata("bert_jax").get_all("Provides-Extra") or []
    for before, word in zip(words, words[1:], strict=False):
        if before == "-c":
            assert (REPOSITORY / word).is_file()
        elif word.startswith("."):
            named = re.fullmatch(r"\.(?:\[(.*)\])?", word)[1] or ""
            assert set(filter(None, named.split(","))) <= set(extras), word


def check_flags(path: tuple[str, ...], words: list[str]) -> None:
    """Checks the flags of a command against its --help, and its overrides against its fields."""
    known = known_flags(path)
    given = [re.match(r"--?([\w.]+)", word)[1] for word in words if word.startswith("--")]
    for flag in given:
        if not flag.startswith("config."):
            assert flag in known, f"{' '.join(path)} has no flag --{flag}"
    if "config" in known or any(flag.startswith("config") for flag in given):
        assert "config" in known, f"{' '.join(path)} takes no --config"
        config_words = [word for word in words if word.startswith("--config=")]
        path = config_words[0].partition("=")[2] if config_words else "configs/base.py"
        if path != "...":
            check_overrides(path, [word for word in words if word.startswith("--config.")])


@functools.cache
def known_flags(path: tuple[str, ...]) -> frozenset[str]:
    return frozenset(re.findall(r"(?<![\w-])--(?:\[no\])?(\w+)", help_of(path)))


@functools.cache
def help_of(path: tuple[str, ...]) -> str:
    words = ["bert_jax.main"] if path == ("main",) else ["bert_jax", *path]
    return run_program(["-m", *words, "--help"]).stdout


def run_program(
    words: list[str], stdin: str = "", cwd: pathlib.Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words],
        input=stdin,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def check_overrides(path: str, words: list[str]) -> None:
    """Parses overrides with the types of the configuration's fields."""
    flag_values, argv = flags.FlagValues(), ["program", *words]
    try:
        config = load_config(path)
        config_flags.DEFINE_config_dict("config", config, flag_values=flag_values, sys_argv=argv)
        left_over = flag_values(argv)[1:]
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise AssertionError(f"{path} {' '.join(words)}: {error}") from error
    assert left_over == []


def load_config(path: str) -> ConfigDict:
    name, *argument = path.split(":")
    file = REPOSITORY / name
    assert file.is_file(), f"there is no {name}"
    spec = importlib.util.spec_from_file_location("config_of_docs", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(*argument)


def all_commands(name: str) -> list[tuple[int, list[str]]]:
    """Line and words of each command in shell blocks, then of those in prose (line 0)."""
    blocks = [command for block in blocks_of(name, "sh") for command in shell_commands(block)]
    starts = ("python -m ", "bert_jax ", "bash launch/", "pip install ")
    spans = [code for code in inline_code(name) if code.startswith(starts)]
    return [*blocks, *(Command(0, shlex.split(code)) for code in spans)]


@pytest.fixture(scope="module", autouse=True)
def all_help():
    """Runs all --help at once."""
    paths = [("main",)]
    for name in COMMANDS:
        paths += [(name, sub) for sub in SUBCOMMANDS.get(name, ())] or [(name,)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(help_of, paths))


@of_each_page
def test_commands_exist_with_their_flags_and_fields(name):
    problems = []
    for line, words in all_commands(name):
        try:
            check_command(words)
        except AssertionError as error:
            problems.append(f"{name}:{line or ''} {shlex.join(words)}: {error}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "line, reason",
    [
        (
            "python -m bert_jax.main --config=configs/tiny.py --workdir=D --steps=3",
            "no flag --steps",
        ),
        (
            "python -m bert_jax.main --config=configs/tinny.py --workdir=D",
            "there is no configs/tinny",
        ),
        ("python -m bert_jax.main --config=configs/tiny.py --config.modell.x=3", "modell"),
        ("python -m bert_jax.main --config=configs/tiny.py --config.steps=many", "steps"),
        ("python -m bert_jax.main --config=configs/glue.py:mrcp --workdir=D", "mrcp"),
        ("python -m bert_jax.prepare --config=configs/tiny.py", "no command of this package"),
        ("python -m bert_jax prepair --config=configs/tiny.py", "prepair"),
        ("python -m bert_jax prepare --config=configs/tiny.py --dumps=3", "no flag --dumps"),
        ("bert_jax score --workdir=D --outputs=x 'A text.'", "no flag --outputs"),
        ("python -m bert_jax convert from_tf DIR OUT", "from_tf"),
        ("python -m bert_jax convert from_hf --comparison DIR OUT", "no flag --comparison"),
        ("python -m bert_jax benchmark step --config=configs/tiny.py", "--config"),
        ("bash launch/quick.sh", "there is no launch/quick.sh"),
        ("bash launch/local.sh --config=configs/tiny.py --config.seeed=1", "seeed"),
        ("pip install -c constraints.txt '.[tests]'", "tests"),
        ("tensorbord --logdir=D", "tensorbord"),
    ],
)
def test_a_wrong_command_is_found(line, reason):
    (command,) = shell_commands(Block("sh", 1, line + "\n"))
    with pytest.raises(AssertionError, match=re.escape(reason)):
        check_command(command.words)


def test_shell_blocks_are_split_into_commands():
    text = (
        "X=$(python -c 'print(1)')\n"
        "for rate in 1e-4 2e-4; do for n in 1 2; do\n"
        "  python a.py --rate=$rate \\\n"
        "      --n=$n  # a comment\n"
        "done; done\n"
        "N=2 bash b.sh --dir=$X < in.txt | grep '\"a b\"'\n"
    )
    assert list(shell_commands(Block("sh", 10, text))) == [
        (12, ["python", "a.py", "--rate=1e-4", "--n=1"]),
        (14, ["done"]),
        (14, ["done"]),
        (15, ["bash", "b.sh", "--dir=X"]),
        (15, ["grep", '"a b"']),
    ]


# ---------------------------------------------------------------------------------------- fields


def all_fields() -> set[str]:
    configs = [defaults.pretraining(), defaults.finetuning("classification")]
    return {name for config in configs for name in dotted_names(config)}


def dotted_names(config: ConfigDict, prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        yield prefix + name
        if isinstance(value, ConfigDict):
            yield from dotted_names(value, f"{prefix}{name}.")


@of_each_page
def test_fields_that_prose_names_exist(name):
    """`data.mode`, `data.mode=static`, `--config.data.mode=static`."""
    fields = all_fields()
    groups = "checkpoint|data|eval|head|log|mesh|model|optimizer"
    pattern = rf"(?:--config\.([\w.]+)|((?:{groups})\.\w+))(?:=.*)?"
    files = {"model.safetensors", "model.stablehlo", "model.json"}
    found = [re.fullmatch(pattern, code) for code in inline_code(name) if code not in files]
    named = {match[1] or match[2] for match in found if match} - {"FIELD"}
    assert named - fields == set()


# ----------------------------------------------------------------------------------- really run


def test_help_lists_every_command():
    lines = run_program(["-m", "bert_jax", "--help"]).stdout.splitlines()
    for command, description in COMMANDS.items():
        assert any(re.match(rf"\s*{command}\s", line) for line in lines), command
        assert description and "\n" not in description


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(command):
    assert f"bert_jax {command}" in help_of((command,))


def test_the_tokenize_command_of_the_docs_runs(tmp_path):
    (words,) = [
        words
        for _, words in all_commands("docs/data.md")
        if words[3:4] == ["--vocab=runs/data/vocab.txt"]
    ]
    (tmp_path / "runs" / "data").mkdir(parents=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##able", "text", "."]
    (tmp_path / "runs" / "data" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    done = run_program(words[1:], stdin="Unable text.\n", cwd=tmp_path)
    assert done.stdout == "un ##able text .\n"
