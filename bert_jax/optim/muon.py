"""Muon's direction: the momentum of a matrix with its singular values replaced by 1."""

import math
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import optax

# Coefficients (a, b, c) of p(x) = a x + b x^3 + c x^5, one triple per step. Each p minimizes the
# maximum of |p(x) - 1| on the interval to which the previous steps map [0.003, 1]; the last one
# maps it to [0.802, 1.198]. This is the construction of Polar Express (Amsel et al. 2025,
# arXiv:2505.16932), there from 0.001. tests/optim/test_muon.py finds them by linear programming.
STEPS = (
    (8.383674, -24.765906, 18.357082),
    (4.043420, -3.011405, 0.569512),
    (3.505571, -2.626654, 0.525719),
    (2.490116, -1.834275, 0.436835),
)
# The smallest positive normal float32: a zero matrix stays zero.
_TINY = float(jnp.finfo(jnp.float32).tiny)


def scale_by_muon(momentum: float = 0.95) -> optax.GradientTransformation:
    """Returns Muon (Jordan et al. 2024) for a tree of matrices: Nesterov momentum, orthogonalized.

    Directions are multiplied by 0.2 * sqrt(larger dimension), which gives them the root mean square
    of Adam's, so that both can use the same learning rate (Liu et al. 2025, section 2.2).
    """
    return optax.chain(
        optax.trace(momentum, nesterov=True), optax.stateless(lambda tree, _: _directions(tree))
    )


def _directions(tree: Any) -> Any:
    """Orthogonalizes each matrix; tall ones are transposed, and those of one shape are stacked."""
    leaves, structure = jax.tree.flatten(tree)
    wide = [leaf.T if leaf.shape[0] > leaf.shape[1] else leaf for leaf in leaves]
    of_shape = defaultdict(list)
    for index, leaf in enumerate(wide):
        of_shape[leaf.shape].append(index)
    for shape, indices in of_shape.items():
        stack = orthogonalize(jnp.stack([wide[index] for index in indices]))
        for index, matrix in zip(indices, 0.2 * math.sqrt(max(shape)) * stack, strict=True):
            leaf = leaves[index]
            leaves[index] = matrix if matrix.shape == leaf.shape else matrix.T
    return jax.tree.unflatten(structure, leaves)


def orthogonalize(x: jax.Array) -> jax.Array:
    """Returns approximately U V^T, where x = U S V^T is the singular value decomposition.

    Singular values of at least 0.003 times sqrt(norm(x x^T)), a bound on the largest, become 0.8 to
    1.2, smaller ones up to 296 times as large.

    A wide matrix is multiplied once, at the end, by the product of the polynomials, which are
    computed from its Gram matrix alone: with 4 times as many columns as rows, 21 products of the
    size of the Gram matrix in place of 36.

    Args:
      x: float32[..., rows, columns], rows <= columns.
    """
    rows, columns = x.shape[-2:]
    # The Gram form takes 13 + 2 r products of rows^3, r = columns / rows; the plain one 4 + 8 r.
    is_wide = columns > 1.5 * rows
    # The eigenvalues of the Gram matrix are the squared singular values: rounded to fewer bits, as
    # accelerators do by default, the small ones are lost: they may become negative and diverge.
    matmul = lambda a, b: jnp.matmul(a, b, precision="highest" if is_wide else None)  # noqa: E731
    x = x / jnp.maximum(_norm(x), _TINY)
    gram = matmul(x, x.mT)
    bound = jnp.sqrt(jnp.maximum(_norm(gram), _TINY))
    x, gram = x / bound, gram / bound**2
    identity = jnp.broadcast_to(jnp.eye(rows), gram.shape)
    product = None
    for a, b, c in STEPS:
        p = a * identity + b * gram + c * matmul(gram, gram)
        if is_wide:
            product = p if product is None else matmul(p, product)
            gram = matmul(matmul(gram, p), p)
        else:
            x = matmul(p, x)
            gram = matmul(x, x.mT)
    return x if product is None else matmul(product, x)


def _norm(x: jax.Array) -> jax.Array:
    return jnp.linalg.norm(x, axis=(-2, -1), keepdims=True)
