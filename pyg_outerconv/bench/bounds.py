"""The least work of a convolution: traffic and arithmetic that no implementation can leave out.

Each pass reads its operands once and writes its results once, as if caches held all else; a
sparse product's flops are counted at the rate of dense ones. A step cannot be faster.
"""

from __future__ import annotations

from ..basis import Basis
from .case import Work
from .names import FORWARD, TRAINING

_INDEX = 4  # bytes of an int32


def convolution(
    problem_size: tuple[int, int, int, int],
    num_parameters: int,
    edges: int,
    dense_rows: int,
    item: int,
    *,
    products: int = 1,
    valued: bool = True,
) -> dict[str, Work]:
    """The least work of Σ_k A_kᵀ X Θ_k by explicit edges or a recurrence, by mode.

    Args:
        problem_size: (M, N, P, Q).
        num_parameters: of Θ.
        edges: E.
        dense_rows: rows that are multiplied with some Θ_k, in the order that needs fewest.
        item: bytes of a value.
        products: sparse products of width min(P, Q); more than one for polynomials.
        valued: whether edges have values.
    """
    sources, targets, p, q = problem_size
    narrow = min(p, q)
    structure = edges * (_INDEX + (item if valued else 0)) + (targets + 1) * _INDEX
    between = (products - 1) * item * (sources + targets) * narrow
    one_way = item * (sources * p + targets * q + num_parameters) + products * structure + between
    sparse, dense = 2.0 * products * edges * narrow, 2.0 * dense_rows * p * q
    # Backward reads the gradient of Y, X, Θ and the edges, and writes the gradients of X and Θ; it
    # has one sparse product for each of the forward pass, and two dense ones.
    back = one_way + item * (sources * p + num_parameters)
    return {
        FORWARD: Work(one_way, sparse + dense),
        TRAINING: Work(one_way + back, 2 * sparse + 3 * dense),
    }


def attention(nodes: int, edges: int, channels: int, item: int) -> dict[str, Work]:
    """The least work of scaled dot-product attention on E edges, all heads' channels together.

    Forward has two products over the edges, with keys and with values; backward has five: scores
    again, the gradients of weights, queries, keys and values.
    """
    structure = edges * _INDEX + (nodes + 1) * _INDEX
    rows = item * nodes * channels
    forward = Work(4.0 * rows + structure, 4.0 * edges * channels)
    backward = Work(8.0 * rows + structure, 10.0 * edges * channels)
    both = Work(forward.num_bytes + backward.num_bytes, forward.flops + backward.flops)
    return {FORWARD: forward, TRAINING: both}


def relation_rows(basis: Basis) -> int:
    """The fewest rows that some Θ_k must multiply: distinct (source, label) or (target, label)."""
    pattern = basis.edges().pattern
    return min(pattern.num_source_pairs, pattern.num_target_pairs)
