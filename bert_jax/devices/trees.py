"""In what two trees of arrays differ: names, shapes, dtypes."""

from typing import Any

import jax
import numpy as np


def described(tree: Any) -> dict[str, str]:
    """path -> "float32[2, 3]" of each leaf."""
    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: hasattr(x, "shape"))[0]
    names = (
        "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
        for path, _ in leaves
    )
    return {
        name: f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        for name, (_, leaf) in zip(names, leaves, strict=True)
    }


def diff_of_trees(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Lines `- name: what` and `+ name: what` of all that is not the same in both, sorted."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            lines += [f"- {name}: {old[name]}"] if name in old else []
            lines += [f"+ {name}: {new[name]}"] if name in new else []
    return lines
