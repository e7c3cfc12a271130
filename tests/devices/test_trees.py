"""Paths of leaves."""

import jax
import numpy as np

from bert_jax.devices.trees import described, diff_of_trees, flatten, path_name, unflatten


def test_flatten_keeps_the_order_and_unflatten_inverts_it():
    tree = {"b": {"y": 1, "x": {"z": 2}}, "a": 3}
    assert list(flatten(tree).items()) == [("b/y", 1), ("b/x/z", 2), ("a", 3)]
    assert unflatten(flatten(tree)) == tree


def test_path_names_have_keys_and_indices():
    tree = {"a": [0, {"b": 1}]}
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    assert [path_name(path) for path, _ in leaves] == ["a/0", "a/1/b"]


def test_differences_of_trees_name_shape_and_dtype():
    old = described({"a": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.int32)})
    new = described({"a": np.zeros((2, 3), np.float16), "c": np.zeros(1, np.int32)})
    assert diff_of_trees(old, new) == [
        "- a: float32[2, 3]",
        "+ a: float16[2, 3]",
        "- b: int32[1]",
        "+ c: int32[1]",
    ]
