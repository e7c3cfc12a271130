"""docs/troubleshooting.md quotes messages that the program has."""

import ast
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs/troubleshooting.md").read_text()
# What the first cell of a row quotes, and the parts that come from jax, not from this package.
ROWS = re.findall(r"^\| (`[^|]+`.*?) \|", PAGE, re.MULTILINE)
QUOTED = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row)]
OF_JAX = {"RESOURCE_EXHAUSTED"}


def texts() -> str:
    """Returns all string constants of the package; what is inserted in them is a blank line."""
    found = []
    for path in (REPOSITORY / "bert_jax").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "\n\n" for p in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n\n".join(found)


@pytest.fixture(scope="module")
def said() -> str:
    return texts()


@pytest.mark.parametrize("message", [text for text in QUOTED if text not in OF_JAX])
def test_a_quoted_message_is_one_of_the_program(message, said):
    """All its parts between what depends on the case, `...`, a number, a name or brackets."""
    parts = re.split(r"\.\.\.|'[^']*'|\([^)]*\)|--\w+|\b\d[\d.,]*%?", message)
    parts = [part.strip(" .:;,=") for part in parts]
    assert any(parts)
    for part in filter(None, parts):
        assert part in said, f"{part!r} of {message!r}"
