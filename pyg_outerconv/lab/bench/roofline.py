"""The least work of a step, the bandwidth and flop rate of this machine, and so the least time.

Each pass reads its operands once and writes its results once, as if caches held all else; a
sparse product's flops are counted at the rate of dense ones. A step cannot be faster.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from ...basis import Basis
from .case import FORWARD, TRAINING, Context, Step, Work, synchronizer

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


@dataclass(frozen=True)
class Roofline:
    """Measured in the same run as everything else."""

    bandwidth: float
    flop_rate: float

    def bound(self, work: Work) -> dict[str, float | str]:
        """The least seconds of some work here, and whether traffic or arithmetic sets them."""
        traffic, arithmetic = work.num_bytes / self.bandwidth, work.flops / self.flop_rate
        return {
            "bytes": work.num_bytes,
            "flops": work.flops,
            "seconds": max(traffic, arithmetic),
            "limit": "traffic" if traffic >= arithmetic else "arithmetic",
        }


def measure_roofline(context: Context) -> Roofline:
    """Copy a buffer larger than caches, and multiply square matrices; the best of some trials."""
    on_cuda = torch.device(context.device).type == "cuda"
    trials = 3 if context.quick else 10
    count = ((1 << 30) if on_cuda else (1 << 28)) // context.item_size
    source = torch.ones(count, dtype=context.dtype, device=context.device)
    target = torch.zeros_like(source)
    copying = _best(lambda: target.copy_(source), trials, context.device)
    num_bytes = 2 * count * context.item_size
    size = 8192 if on_cuda else 1024 if context.quick else 2048
    matrix = torch.ones(size, size, dtype=context.dtype, device=context.device)
    multiplying = _best(lambda: matrix @ matrix, trials, context.device)
    return Roofline(num_bytes / copying, 2.0 * size**3 / multiplying)


def _best(step: Step, trials: int, device: str) -> float:
    synchronize = synchronizer(device)
    best = float("inf")
    for trial in range(trials + 2):
        synchronize()
        began = time.perf_counter()
        step()
        synchronize()
        if trial > 1:  # the first two are warm-ups
            best = min(best, time.perf_counter() - began)
    return best
