"""The documentation of the installed packages as a corpus of English prose.

It has the topics of the standard library's `pydoc_data`, and the docstrings of the standard library
and of the scientific packages that this program needs. The source files are parsed, not imported.
"""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from bert_jax.text.docstrings import prose_of
from bert_jax.text.lines import Document

# In the order of the corpus: jax.numpy repeats text of numpy and scipy, and the first copy is kept.
PACKAGES = ("numpy", "scipy", "jax", "flax", "optax")
# Increment it whenever the same files give different documents.
CLEANING_VERSION = 1

_NO_DOCUMENTATION = {
    *("__pycache__", "_bundled", "_vendor", "_vendored", "dist-packages", "idle_test"),
    *("site-packages", "test", "tests", "testing", "turtledemo"),
}
_TOPICS = os.path.join("pydoc_data", "topics.py")
# Shorter sentences may repeat, as they do in any text.
_MIN_DUPLICATE = 40
_MIN_SENTENCES = 3
# Characters per unit of parallel work.
_CHUNK = 1 << 19


class Chunk(NamedTuple):
    """Documents of about _CHUNK characters; `counts`: of the whole corpus, in its first chunk."""

    documents: list[Document]
    counts: dict[str, int]


@dataclass(frozen=True)
class InstalledDocs:
    """`installed_docs`: a document is a module (its docstrings in their order) or a topic.

    A sentence of more than 40 characters is kept at its first occurrence only; a document with
    fewer than three sentences left is dropped. Both are counted (`duplicate_sentences`,
    `short_documents`), as are `missing_packages` and `unreadable_modules`.
    """

    packages: tuple[str, ...] = PACKAGES

    @functools.cache  # noqa: B019 (all equal sources are one entry)
    def chunks(self) -> list[Chunk]:
        """Reads everything, since each document depends on those before it: about 20 s, once."""
        counts, chunks, documents, size = Counter(), [], [], 0
        for document in self.documents(counts):
            documents.append(document)
            size += sum(map(len, document))
            if size >= _CHUNK:
                chunks.append(Chunk(documents, {}))
                documents, size = [], 0
        chunks.append(Chunk(documents, {}))
        return [chunks[0]._replace(counts=dict(+counts)), *chunks[1:]]

    def read(self, chunk: Chunk, counts: Counter) -> Iterator[Document]:
        counts.update(chunk.counts)
        yield from chunk.documents

    def documents(self, counts: Counter) -> Iterator[Document]:
        """Yields the documents of the corpus."""
        seen: set[bytes] = set()
        for docstrings in self._modules(counts):
            document = []
            for sentence in (s for docstring in docstrings for s in prose_of(docstring)):
                key = hashlib.blake2b(sentence.encode(), digest_size=16).digest()
                if len(sentence) > _MIN_DUPLICATE and key in seen:
                    counts["duplicate_sentences"] += 1
                else:
                    seen.add(key)
                    document.append(sentence)
            if len(document) >= _MIN_SENTENCES:
                yield document
            else:
                counts["short_documents"] += 1

    def fingerprint(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for _, folder in self._folders():
            for path in source_files(folder):
                with open(path, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return {
            "python": platform.python_version(),
            "packages": {name: importlib.metadata.version(name) for name, _ in self._folders()[1:]},
            "sentencex": importlib.metadata.version("sentencex"),
            "cleaning_version": CLEANING_VERSION,
            "sha256": digest.hexdigest(),
        }

    def _folders(self) -> list[tuple[str, str]]:
        """Returns (name, folder) of the standard library and of the installed packages."""
        folders = [("python", sysconfig.get_path("stdlib"))]
        for name in self.packages:
            spec = importlib.util.find_spec(name)
            if spec and spec.submodule_search_locations:
                folders.append((name, spec.submodule_search_locations[0]))
        return folders

    def _modules(self, counts: Counter) -> Iterator[list[str]]:
        """Yields the docstrings of each topic, then those of each module."""
        folders = self._folders()
        counts["missing_packages"] = 1 + len(self.packages) - len(folders)
        topics = os.path.join(folders[0][1], _TOPICS)
        if os.path.exists(topics):
            yield from topics_of(topics)
        for _, folder in folders:
            for path in source_files(folder):
                try:
                    yield docstrings_of(path)
                except (SyntaxError, ValueError, RecursionError):
                    counts["unreadable_modules"] += 1


def source_files(folder: str) -> list[str]:
    """Returns the Python files below a folder, sorted, without tests and bundled projects."""
    paths = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NO_DOCUMENTATION]
        paths += [os.path.join(parent, name) for name in files if name.endswith(".py")]
    return sorted(paths, key=lambda path: path.split(os.sep))


def docstrings_of(path: str) -> list[str]:
    """Returns the docstrings of a module, its classes, functions and `add_newdoc` calls."""
    return list(_visit(_parse(path)))


def _visit(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if docstring := ast.get_docstring(node):
            yield docstring
    elif isinstance(node, ast.Call) and "add_newdoc" in ast.unparse(node.func):
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                if "\n" in part.value:
                    yield inspect.cleandoc(part.value)
    # Docstrings are in statements only; expressions are the larger part of the tree.
    for child in ast.iter_child_nodes(node):
        is_call = isinstance(node, ast.Expr) and isinstance(child, ast.Call)
        if is_call or isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _visit(child)


def topics_of(path: str) -> Iterator[list[str]]:
    """Yields each topic of `pydoc_data.topics`, which is one large dictionary, by name."""
    (topics,) = (node.value for node in _parse(path).body if isinstance(node, ast.Assign))
    for _, topic in sorted(ast.literal_eval(topics).items()):
        yield [topic]


def _parse(path: str) -> ast.Module:
    with open(path, "rb") as file, warnings.catch_warnings():
        # Invalid escapes in strings of other projects.
        warnings.simplefilter("ignore")
        return ast.parse(file.read())
