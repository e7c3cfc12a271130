"""The directions of imports, and what no file of the package may contain.

Each rule is a function of a repository's root folder that returns its violations, one line each.
They read syntax trees; nothing is imported. The tests at the end show that each rule can fail.
"""

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "bert_jax"

# The files and folders of the package from top to bottom: each imports only itself and what stands
# below it.
FLOORS = (
    "main",
    "__main__",
    "tools",
    "api",
    "adaptation",
    "plans",
    "inference",
    "training",
    "exchange",
    "tasks",
    "models",
    "data",
    "formats",
    "text",
    "scores",
    "optim",
    "devices",
    "config",
    "files",
)
MAX_FILES = 24  # of a folder, without __init__.py: cli has a file for each command
WITHOUT_JAX = (
    "tools.pages",
    "tools.report",
    "data",
    "formats",
    "text",
    "scores",
    "config",
    "files",
)
JAX = {"jax", "jaxlib", "flax", "optax", "orbax"}
PARSES_FLAGS = ("main", "__main__", "tools.cli")
FLAG_PARSERS = {"argparse", "absl.flags", "absl.app", "sys.argv", "getopt", "optparse"}
# Where a configuration is edited, as a ConfigDict; below, it is a frozen dataclass.
EDITS_CONFIGURATIONS = ("api", "adaptation", "plans", "tools", "config")
# What executes data, or reads it in a form that does.
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
FORBIDDEN_MODULES = {"pickle", "dill", "marshal", "shelve", "yaml"}
# The only files that know tasks and encoders by their names.
KNOWS_NAMES = {"tasks/__init__.py", "models/__init__.py"}
DRAWERS = {"utils", "helpers", "common", "manager"}


# ------------------------------------------------------------------ files and their imports


def module_files(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the files of the package by dotted name; a folder's is its __init__.py."""
    files = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def place(root: pathlib.Path, path: pathlib.Path) -> str:
    return path.relative_to(root).as_posix()


def syntax_tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the dotted names of all that the nodes themselves import.

    Raises:
      ValueError: for a relative import.
    """
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"line {node.lineno} has a relative import")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imports(path: pathlib.Path) -> set[str]:
    """Returns the dotted names of all that a file imports, anywhere in it."""
    return imported_names(ast.walk(syntax_tree(path)))


def imports_at_import(path: pathlib.Path) -> set[str]:
    """Returns the dotted names of what a file imports when it is imported itself."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            is_type_check = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if not is_type_check and not isinstance(
                child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            ):
                yield child
                yield from walk(child)

    return imported_names(walk(syntax_tree(path)))


def roots(path: pathlib.Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def resolve(name: str, files: dict[str, pathlib.Path]) -> str:
    """Returns the module of the package that an imported name is, or is defined in."""
    while name not in files and "." in name:
        name = name.rpartition(".")[0]
    return name


def imported_modules(names: set[str], files: dict[str, pathlib.Path]) -> list[str]:
    ours = (name for name in names if name.split(".")[0] == PACKAGE)
    return sorted({resolve(name, files) for name in ours})


def floor(module: str) -> str:
    """Returns "text" of bert_jax.text.files, "" of bert_jax itself."""
    return (module.split(".") + [""])[1]


def is_in(module: str, folders: Iterable[str]) -> bool:
    """Returns whether a module is one of the folders of the package, or in one."""
    return f"{module}.".startswith(tuple(f"{PACKAGE}.{folder}." for folder in folders))


def chains_to(
    root: pathlib.Path, start: Iterable[str], forbidden: set[str], only_at_import: bool
) -> list[str]:
    """Returns "a -> b -> jax" for each module of `start` that imports something forbidden.

    Importing a module also runs the __init__.py of the folders that it is in.
    """
    files = module_files(root)
    read = imports_at_import if only_at_import else imports
    names = {module: read(path) for module, path in files.items()}
    # The package itself imports its API on first use.
    names[PACKAGE] = imports_at_import(files[PACKAGE]) if PACKAGE in files else set()
    chains = []
    for module in start:
        waiting, seen = [(module,)], {module}
        while waiting:
            chain = waiting.pop(0)
            if bad := sorted({name.split(".")[0] for name in names[chain[-1]]} & forbidden):
                chains.append(" -> ".join((*chain, bad[0])))
                break
            for found in imported_modules(names[chain[-1]], files):
                parents = [p for p in files if found.startswith(f"{p}.")]
                waiting += [(*chain, m) for m in (found, *parents) if m not in seen]
                seen |= {found, *parents}
    return chains


# ------------------------------------------------------------------ the rules


def upward_imports(root: pathlib.Path) -> list[str]:
    files, lines = module_files(root), []
    for module, path in files.items():
        for found in imported_modules(imports(path), files):
            if module == PACKAGE or found == PACKAGE:  # `import bert_jax` is the API
                is_allowed = (module, found) == (PACKAGE, f"{PACKAGE}.api")
            elif floor(found) not in FLOORS or floor(module) not in FLOORS:
                is_allowed = False
            else:
                is_allowed = FLOORS.index(floor(module)) <= FLOORS.index(floor(found))
            if not is_allowed:
                lines.append(f"{place(root, path)} -> {found}")
    return lines


def imports_of_other_tools(root: pathlib.Path) -> list[str]:
    files, lines = module_files(root), []
    for module, path in files.items():
        parts = module.split(".")
        if parts[1:2] != ["tools"] or len(parts) < 3 or parts[2] == "cli":
            continue
        for found in imported_modules(imports(path), files):
            other = (found.split(".") + ["", ""])[1:3]
            if other[0] == "tools" and other[1] not in (parts[2], "pages"):
                lines.append(f"{place(root, path)} -> {found}")
    return lines


def circles(root: pathlib.Path) -> list[str]:
    """Counts imports inside of functions too: a late import only hides a circle."""
    files = module_files(root)
    edges = {m: imported_modules(imports(path), files) for m, path in files.items()}
    done, found = set(), []

    def visit(module: str, chain: tuple[str, ...]) -> None:
        if module in chain:
            found.append(" -> ".join((*chain[chain.index(module) :], module)))
        elif module not in done:
            for following in edges[module]:
                visit(following, (*chain, module))
            done.add(module)

    for module in edges:
        visit(module, ())
    return found


def misplaced(root: pathlib.Path) -> list[str]:
    """Returns what FLOORS has and the disk has not, and the other way round."""
    on_disk = {
        path.stem
        for path in (root / PACKAGE).iterdir()
        if path.name not in ("__init__.py", "__pycache__")
    }
    lines = [f"{name} is in {PACKAGE}/ but not in FLOORS" for name in sorted(on_disk - {*FLOORS})]
    lines += [
        f"{name} is in FLOORS but not in {PACKAGE}/" for name in FLOORS if name not in on_disk
    ]
    files = {path.name for path in (root / PACKAGE).iterdir() if path.is_file()}
    single = {"main.py", "__main__.py", "__init__.py", "api.py", "plans.py", "adaptation.py"}
    more = sorted(files - single)
    return lines + [f"{PACKAGE}/{name} belongs in a folder" for name in more]


def crowded_folders(root: pathlib.Path) -> list[str]:
    counts: dict[pathlib.Path, int] = {}
    for path in module_files(root).values():
        counts[path.parent] = counts.get(path.parent, 0) + (path.name != "__init__.py")
    return [
        f"{place(root, folder)} has {count} files, more than {MAX_FILES}"
        for folder, count in counts.items()
        if count > MAX_FILES
    ]


def imports_of_jax(root: pathlib.Path) -> list[str]:
    start = [module for module in module_files(root) if is_in(module, WITHOUT_JAX)]
    return chains_to(root, start, JAX, only_at_import=False)


def commands_that_import_jax(root: pathlib.Path) -> list[str]:
    """When they are imported; what they run may."""
    start = [module for module in module_files(root) if is_in(module, PARSES_FLAGS)]
    return chains_to(root, start, JAX, only_at_import=True)


def editors_of_configurations(root: pathlib.Path) -> list[str]:
    return [
        f"{place(root, path)} -> ml_collections"
        for module, path in module_files(root).items()
        if not is_in(module, EDITS_CONFIGURATIONS) and "ml_collections" in roots(path)
    ]


def flag_parsers(root: pathlib.Path) -> list[str]:
    lines = []
    for module, path in module_files(root).items():
        if is_in(module, PARSES_FLAGS):
            continue
        tree = syntax_tree(path)
        used = imported_names(ast.walk(tree))
        used |= {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {name.rpartition(".")[0] for name in used}
        lines += [f"{place(root, path)} -> {name}" for name in sorted(used & FLAG_PARSERS)]
    return lines


def comparisons_of_names(root: pathlib.Path) -> list[str]:
    """Tasks and encoders are rows of TASKS and MODELS; nobody asks for them by name."""

    def is_name(node: ast.AST) -> bool:
        text = re.sub(r"\['(\w+)'\]", r".\1", ast.unparse(node))  # config['task']: config.task
        return text.endswith((".task", "model.name", "model_name"))

    def has_literal(node: ast.AST) -> bool:
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str)
        is_group = isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.pattern)
        return is_group and any(map(has_literal, ast.iter_child_nodes(node)))

    lines = []
    for path in module_files(root).values():
        if path.relative_to(root / PACKAGE).as_posix() in KNOWS_NAMES:
            continue
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.Match):
                sides = [node.subject, *(case.pattern for case in node.cases)]
            else:
                continue
            names = [side for side in sides if is_name(side)]
            if names and any(has_literal(side) for side in sides if side not in names):
                lines.append(f"{place(root, path)}:{node.lineno} compares {ast.unparse(names[0])}")
    return lines


def settings_that_are_not_values(root: pathlib.Path) -> list[str]:
    """Files of configs/ import the defaults, each other and ml_collections; sweeps their plan."""
    allowed = (f"{PACKAGE}.config.defaults", "configs", "ml_collections")
    of_sweeps = (f"{PACKAGE}.tools.sweep.plan", "configs", "itertools", "typing")
    return [
        f"{place(root, path)} -> {name}"
        for folder, prefixes in (("configs", allowed), ("configs/sweeps", of_sweeps))
        for path in sorted((root / folder).glob("*.py"))
        for name in sorted(imports(path))
        if not f"{name}.".startswith(tuple(f"{prefix}." for prefix in prefixes))
    ]


def executed_data(root: pathlib.Path) -> list[str]:
    lines = []
    for path in [*module_files(root).values(), *sorted((root / "configs").rglob("*.py"))]:
        lines += [f"{place(root, path)} -> {name}" for name in roots(path) & FORBIDDEN_MODULES]
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in FORBIDDEN_CALLS:
                    lines.append(f"{place(root, path)}:{node.lineno} calls {node.func.id}")
    return lines


def undescribed_files(root: pathlib.Path) -> list[str]:
    lines = []
    for path in module_files(root).values():
        if path.read_text() and not ast.get_docstring(syntax_tree(path)):
            lines.append(f"{place(root, path)} has no docstring")
        if DRAWERS & {path.stem, path.parent.name}:
            lines.append(f"{place(root, path)} has a name that says nothing")
    return lines


RULES = (
    upward_imports,
    imports_of_other_tools,
    circles,
    misplaced,
    crowded_folders,
    imports_of_jax,
    commands_that_import_jax,
    editors_of_configurations,
    flag_parsers,
    comparisons_of_names,
    settings_that_are_not_values,
    executed_data,
    undescribed_files,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_repository_keeps(rule):
    assert rule(REPOSITORY) == []


# ------------------------------------------------------------------ the rules can fail


@pytest.fixture
def made_up(tmp_path):
    """Returns the function that writes {path: source} over a small tree that keeps all rules."""
    for name in FLOORS[2:]:
        (tmp_path / PACKAGE / name).mkdir(parents=True)
        (tmp_path / PACKAGE / name / "__init__.py").write_text("")
    for name in ("__init__", "main", "__main__"):
        (tmp_path / PACKAGE / f"{name}.py").write_text("")
    (tmp_path / "configs").mkdir()

    def write(sources: dict[str, str]) -> pathlib.Path:
        for name, source in sources.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            docstring = "" if source.startswith('"') else '"""A file."""\n'
            path.write_text(docstring + source)
        return tmp_path

    return write


def test_a_tree_without_violations(made_up):
    root = made_up(
        {
            "bert_jax/main.py": "from bert_jax.tools.cli import train\nimport sys\nsys.argv\n",
            "bert_jax/tools/cli/train.py": "def run():\n    import bert_jax.training.train\n",
            "bert_jax/training/train.py": "import jax\nfrom bert_jax.tasks import TASKS\n",
            "bert_jax/tasks/__init__.py": "from bert_jax.tasks.one import ONE\nONE == 'one'\n",
            "bert_jax/tasks/one.py": "from bert_jax.text.lines import x\nconfig.task == x['a']\n",
            "bert_jax/text/lines.py": "import numpy\nimport bert_jax.files\n",
            "configs/one.py": "from bert_jax.config import defaults\nimport configs.two\n",
        }
    )
    assert {rule.__name__: rule(root) for rule in RULES} == {rule.__name__: [] for rule in RULES}


@pytest.mark.parametrize(
    "rule, sources, line",
    [
        (
            upward_imports,
            {"text/x.py": "from bert_jax.data.y import z", "data/y.py": ""},
            "bert_jax/text/x.py -> bert_jax.data.y",
        ),
        (
            upward_imports,
            {"text/x.py": "def f():\n    import bert_jax.models"},
            "bert_jax/text/x.py -> bert_jax.models",
        ),
        (
            upward_imports,
            {"text/x.py": "if TYPE_CHECKING:\n    from bert_jax import tasks"},
            "bert_jax/text/x.py -> bert_jax.tasks",
        ),
        (
            upward_imports,
            {"text/x.py": "from bert_jax.lost import y"},
            "bert_jax/text/x.py -> bert_jax",
        ),
        (
            imports_of_other_tools,
            {"tools/serve/x.py": "import bert_jax.tools.report.y", "tools/report/y.py": ""},
            "bert_jax/tools/serve/x.py -> bert_jax.tools.report.y",
        ),
        (
            circles,
            {
                "text/x.py": "from bert_jax.text import y",
                "text/y.py": "from bert_jax.text.z import a",
                "text/z.py": "def f():\n    import bert_jax.text.x",
            },
            "bert_jax.text.x -> bert_jax.text.y -> bert_jax.text.z -> bert_jax.text.x",
        ),
        (misplaced, {"new/x.py": ""}, "new is in bert_jax/ but not in FLOORS"),
        (misplaced, {"text.py": ""}, "bert_jax/text.py belongs in a folder"),
        (
            crowded_folders,
            {f"text/x{n}.py": "" for n in range(MAX_FILES + 1)},
            f"bert_jax/text has {MAX_FILES + 1} files, more than {MAX_FILES}",
        ),
        (
            imports_of_jax,
            {"text/x.py": "def f():\n    import jax.numpy"},
            "bert_jax.text.x -> jax",
        ),
        (
            imports_of_jax,
            {
                "data/x.py": "import bert_jax.devices.y",
                "devices/__init__.py": "from flax import linen",
                "devices/y.py": "",
            },
            "bert_jax.data.x -> bert_jax.devices -> flax",
        ),
        (
            commands_that_import_jax,
            {
                "tools/cli/x.py": "import bert_jax.tasks.y",
                "tasks/y.py": "try:\n    import jax\nexcept ImportError:\n    pass",
            },
            "bert_jax.tools.cli.x -> bert_jax.tasks.y -> jax",
        ),
        (
            editors_of_configurations,
            {"training/x.py": "def f():\n    from ml_collections import ConfigDict"},
            "bert_jax/training/x.py -> ml_collections",
        ),
        (flag_parsers, {"text/x.py": "from absl import flags"}, "bert_jax/text/x.py -> absl.flags"),
        (flag_parsers, {"text/x.py": "import argparse"}, "bert_jax/text/x.py -> argparse"),
        (flag_parsers, {"text/x.py": "import sys\nsys.argv[1:]"}, "bert_jax/text/x.py -> sys.argv"),
        (
            comparisons_of_names,
            {"training/x.py": "if config.task in ('a', 'b'): pass"},
            "bert_jax/training/x.py:2 compares config.task",
        ),
        (
            comparisons_of_names,
            {"training/x.py": "y = 'bert' != config['model']['name']"},
            "bert_jax/training/x.py:2 compares config['model']['name']",
        ),
        (
            comparisons_of_names,
            {"training/x.py": "match run.config.task:\n    case 'a':\n        pass"},
            "bert_jax/training/x.py:2 compares run.config.task",
        ),
        (
            settings_that_are_not_values,
            {"../configs/x.py": "from bert_jax.config import store"},
            "configs/x.py -> bert_jax.config.store",
        ),
        (
            settings_that_are_not_values,
            {"../configs/sweeps/x.py": "from bert_jax.tools.sweep import jobs"},
            "configs/sweeps/x.py -> bert_jax.tools.sweep.jobs",
        ),
        (executed_data, {"text/x.py": "eval('1')"}, "bert_jax/text/x.py:2 calls eval"),
        (executed_data, {"../configs/x.py": "import yaml"}, "configs/x.py -> yaml"),
        (
            undescribed_files,
            {"text/x.py": '"no docstring".split()'},
            "bert_jax/text/x.py has no docstring",
        ),
        (
            undescribed_files,
            {"text/utils.py": ""},
            "bert_jax/text/utils.py has a name that says nothing",
        ),
    ],
)
def test_a_violation_is_reported(rule, sources, line, made_up):
    root = made_up({f"bert_jax/{name}": source for name, source in sources.items()})
    assert rule(root) == [line]


def test_a_folder_that_is_gone_is_reported(made_up):
    root = made_up({})
    (root / "bert_jax/scores/__init__.py").unlink()
    (root / "bert_jax/scores").rmdir()
    assert misplaced(root) == ["scores is in FLOORS but not in bert_jax/"]


def test_a_relative_import_is_refused(made_up):
    with pytest.raises(ValueError, match="line 2 has a relative import"):
        upward_imports(made_up({"bert_jax/text/x.py": "from . import y"}))


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
