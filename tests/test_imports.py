"""The directions of import, held over the syntax tree; and what must not be in the package."""

import ast
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "bert_jax"
MODULES = sorted(PACKAGE.rglob("*.py"))
CONFIGS = sorted((REPOSITORY / "configs").glob("*.py"))
# What executes data, or reads it in a form that does.
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
FORBIDDEN_MODULES = {"pickle", "dill", "marshal", "shelve", "yaml"}


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def imports(path: pathlib.Path) -> set[str]:
    """Dotted names of all that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name_of(path)} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(path: pathlib.Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] in ("bert_jax", "configs")}


def roots(path: pathlib.Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", sorted((PACKAGE / "data").glob("*.py")), ids=name_of)
def test_data_knows_nothing_of_jax_nor_of_the_rest(path):
    assert not roots(path) & {"jax", "jaxlib", "flax", "optax", "orbax"}
    assert all(name.startswith("bert_jax.data.") for name in ours(path))


@pytest.mark.parametrize("path", sorted((PACKAGE / "models").glob("*.py")), ids=name_of)
def test_models_know_only_models(path):
    assert all(name.startswith("bert_jax.models.") for name in ours(path))


@pytest.mark.parametrize("name", ["masking", "objectives", "optim", "sharding"])
def test_leaves_import_third_parties_only(name):
    assert ours(PACKAGE / f"{name}.py") == set()


@pytest.mark.parametrize("path", sorted((PACKAGE / "tasks").glob("*.py")), ids=name_of)
def test_tasks_know_models_objectives_masking_and_data(path):
    allowed = ("tasks", "models", "objectives", "masking", "data")
    assert {name.split(".")[1] for name in ours(path)} <= set(allowed)


def test_the_machine_does_not_import_the_programs():
    programs = {"main", "train", "evaluate", "predict", "fill_mask"}
    for name in (
        "step",
        "state",
        "checkpointing",
        "metrics",
        "config",
        "experiment",
        "feed",
        "checksums",
    ):
        assert not {other.split(".")[1] for other in ours(PACKAGE / f"{name}.py")} & programs


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_configs_are_values_only(path):
    assert roots(path) <= {"ml_collections", "configs"}
    assert {name.split(".")[0] for name in ours(path)} <= {"configs"}


@pytest.mark.parametrize("name", ["config", "command_line", "main", "prepare"])
def test_what_answers_mistakes_does_not_import_jax_at_the_top(name):
    """Nor does anything that it imports at the top."""
    seen, waiting = set(), [PACKAGE / f"{name}.py"]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in getattr(node, "names", [])]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            elif not isinstance(node, ast.Import):
                continue
            for found in names:
                assert found.split(".")[0] not in ("jax", "flax", "optax", "orbax"), path
                stem = REPOSITORY / found.replace(".", "/")
                files = [stem.with_suffix(".py"), stem.parent.with_suffix(".py")]
                waiting += [f for f in files if f.is_file() and f not in seen]


@pytest.mark.parametrize("path", [*MODULES, *CONFIGS], ids=name_of)
def test_nothing_executes_data(path):
    assert not roots(path) & FORBIDDEN_MODULES
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"{name_of(path)}:{node.lineno}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_file_says_what_it_is_for(path):
    text = path.read_text()
    assert not text or ast.get_docstring(ast.parse(text))
    assert not {"utils", "helpers", "common", "manager"} & {path.stem, path.parent.name}
