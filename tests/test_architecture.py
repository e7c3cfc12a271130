"""Rules of the code that pyproject.toml's import-linter and ruff cannot express.

That the commands import no jax before it is needed is tested by tests/test_main.py.
"""

import ast
import collections
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "bert_jax"
MAX_FILES = 24  # of a folder, without __init__.py: cli has a file for each command
DRAWERS = {"utils", "helpers", "common", "manager"}
# The only files that know tasks and encoders by their names.
KNOWS_NAMES = {PACKAGE / "tasks" / "__init__.py", PACKAGE / "models" / "__init__.py"}


def trees(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, ast.Module]]:
    """Yields the files in a folder and below, and their syntax trees."""
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_folders_are_small_and_their_files_have_names_that_say_something():
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    counts = collections.Counter(p.parent for p in files if p.name != "__init__.py")
    assert {folder: n for folder, n in counts.items() if n > MAX_FILES} == {}
    assert [path for path in files if DRAWERS & {path.stem, *path.parts}] == []


def is_name(node: ast.AST) -> bool:
    """Returns whether an expression is the name of a task or of an encoder."""
    text = re.sub(r"\['(\w+)'\]", r".\1", ast.unparse(node))  # config['task']: config.task
    return text.endswith((".task", ".task.name", "model.name", "model_name"))


def has_text(node: ast.AST) -> bool:
    """Returns whether an operand is a text, or a group or a pattern with one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    is_group = isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.pattern)
    return is_group and any(map(has_text, ast.iter_child_nodes(node)))


def operands(node: ast.AST) -> list[ast.AST]:
    """Returns what a comparison or a match compares; of other nodes, nothing."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Match):
        return [node.subject, *(case.pattern for case in node.cases)]
    return []


def test_no_code_asks_for_a_task_or_an_encoder_by_its_name():
    """They are rows of TASKS and MODELS."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path, tree in trees(PACKAGE)
        for node in ast.walk(tree)
        if any(map(is_name, compared := operands(node))) and any(map(has_text, compared))
    ]
    assert [place for place in found if REPOSITORY / place.split(":")[0] not in KNOWS_NAMES] == []


def imports(tree: ast.Module) -> Iterator[str]:
    """Yields the dotted names of all that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(
    "folder, allowed",
    [
        ("configs", r"(bert_jax\.tasks\.default_config|configs|ml_collections)\b"),
        ("configs/sweeps", r"(bert_jax\.tools\.sweep\.plan|configs|itertools|typing)\b"),
        ("examples", r"bert_jax$|(argparse|csv|flax|jax|numpy|optax|pathlib|typing)\b"),
    ],
)
def test_configurations_are_values_and_examples_use_what_is_public(folder, allowed):
    """They import the defaults, or the plan of a sweep, and each other; or the Python API."""
    found = [
        f"{path.name} imports {name}"
        for path, tree in trees(REPOSITORY / folder)
        for name in imports(tree)
        if path.parent == REPOSITORY / folder and not re.match(allowed, name)
    ]
    assert found == []


def test_importing_and_using_it_changes_nothing_of_other_libraries():
    """Filters and levels of loggers, orbax's table of types, warnings, the environment."""
    code = """
import logging, os, warnings
import jax, orbax.checkpoint as ocp
from absl import logging as absl_logging
from orbax.checkpoint._src.serialization import type_handler_registry as registry

def state():
    loggers = [logging.getLogger(), absl_logging.get_absl_logger(), logging.getLogger("gcsfs")]
    found = [(logger.level, [*logger.filters], [*logger.handlers]) for logger in loggers]
    arrays = registry.GLOBAL_TYPE_HANDLER_REGISTRY.get(jax.Array)
    return found, absl_logging.get_verbosity(), arrays, [*warnings.filters], dict(os.environ)

before = state()
import bert_jax.api, bert_jax.training.train, bert_jax.training.multitask
from bert_jax.files import buckets
from bert_jax.training.checkpoints import Checkpoints
import tempfile
with tempfile.TemporaryDirectory() as folder:
    checkpoints = Checkpoints(folder)
    checkpoints.save_params({"a": jax.numpy.ones(3)}, {})
    checkpoints.close()
assert state() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)
