"""Trees of arrays and the paths of their leaves, such as "bert/encoder/layer_0/output/kernel"."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np


def path_name(path: tuple[Any, ...]) -> str:
    """Returns a jax key path as "encoder/layer_0/attention/query/kernel"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def map_paths(function: Callable[[str], Any], tree: Any) -> Any:
    """Returns the tree with function(path) in place of each leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, _: function(path_name(path)), tree)


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """{"a": {"b": x}} -> {"a/b": x}, in the order of the tree."""
    return dict(_leaves(tree, ""))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": x} -> {"a": {"b": x}}."""
    tree: dict[str, Any] = {}
    for path, value in leaves.items():
        *folders, name = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = value
    return tree


def described(tree: Any) -> dict[str, str]:
    """Returns path -> "float32[2, 3]" for each leaf."""
    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: hasattr(x, "shape"))[0]
    return {
        path_name(path): f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}" for path, leaf in leaves
    }


def diff_of_trees(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Returns lines `- path: leaf` and `+ path: leaf` for leaves that differ, sorted by path."""
    lines = []
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            lines += [f"- {path}: {old[path]}"] if path in old else []
            lines += [f"+ {path}: {new[path]}"] if path in new else []
    return lines
