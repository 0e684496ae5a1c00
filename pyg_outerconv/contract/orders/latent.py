"""Orders for products of features: through D latent nodes, or by a scan if they are causal."""

from __future__ import annotations

import torch
from torch import Tensor

from ...basis.feature_product import FeatureProduct, divided
from ...kernels.latent import collect, spread
from ...theta.theta import autocast_pair
from ..cost import Cost, Work, moving
from ..head_products import collect_values, making_values, value_width, values
from ..order import Order, needs_features
from ..problem import Problem
from ..rank import (
    at_full_precision,
    feature_product_of,
    folds,
    in_full,
    needs_time,
    rank_work,
    received_by_values,
)


class LatentTransformFirst(Order):
    """Compute X Θ_h or the values of each head, then multiply by φ(K)ᵀ and by φ(Q)."""

    name = "latent_transform_first"
    solves = (FeatureProduct,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires a basis without causality."""
        return needs_time(problem, causal=False)

    def cost(self, problem: Problem) -> Cost:
        """M·H·P·V, then (M + N)·H·D·V, all dense."""
        made, back_made = making_values(problem)
        width = value_width(problem)
        sources, targets = problem.basis.size
        work, back, held = rank_work(problem, width, sources + targets)
        return Cost(made + work, back_made + back, held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        return collect_values(problem, received_by_values(problem, values(problem)))


class Latent(Order):
    """φ(K)ᵀ X for all heads in one product, Θ_h at the latent nodes, then φ(Q)."""

    name = "latent"
    solves = (FeatureProduct,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires a basis without causality, and dense features."""
        return needs_time(problem, causal=False) + needs_features(problem)

    def cost(self, problem: Problem) -> Cost:
        """M·H·D·P, G·H·D·P·V, and N·H·D·V, all dense."""
        basis, (of_x, of_theta, of_basis) = feature_product_of(problem), problem.gradients
        rows = float(problem.num_labels * basis.num_channels * problem.num_columns)
        width = float(value_width(problem) if _concatenates(problem) else problem.out_channels)
        inside = 2.0 * basis.num_blocks * rows * problem.in_channels * width
        first = Work(dense_flops=2.0 * basis.size[0] * rows * problem.in_channels, calls=2)
        middle = Work(dense_flops=inside, calls=2)
        last = Work(dense_flops=2.0 * basis.size[1] * rows * width, calls=2)
        any_wanted = of_x or of_theta or of_basis
        back = first * (of_x + of_basis) + middle * (of_theta + (of_x or of_basis))
        back += last * (of_basis + any_wanted)
        latent = basis.num_blocks * rows * (problem.in_channels + width)
        held = latent + basis.query.numel() + basis.size[1] * problem.num_columns * width
        held *= problem.itemsize
        return Cost(first + middle + last + moving(held), back, held)

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        theta, x = problem.of_heads, problem.features
        matrix = theta.value.unsqueeze(1) if theta and _concatenates(problem) else problem.theta
        with at_full_precision(problem):
            out = _through(problem, x, matrix)
        like, _ = autocast_pair(x, matrix)
        return out.to(like.dtype)


def _through(problem: Problem, x: Tensor, matrix: Tensor) -> Tensor:
    """Y (N, *batch, Q): heads are concatenated, or summed by the last product."""
    basis, (own, shared) = feature_product_of(problem), folds(problem)
    query, key, x, matrix = in_full(basis.query, basis.key, x, matrix)
    heads, channels, inputs = problem.num_labels, basis.num_channels, x.size(-1)
    query, key = (part.reshape(part.size(0), own, heads, channels) for part in (query, key))
    x = x.reshape(x.size(0), own, shared * inputs)
    chunks = basis.chunks(inputs)
    latent = collect(key.flatten(2), torch.cat([x, x.new_ones(*x.shape[:2], 1)], -1), chunks)
    latent = latent.unflatten(2, (heads, channels))
    latent, total = latent[..., :-1].unflatten(-1, (shared, inputs)), latent[..., -1:]
    if basis.normalised:
        sums = spread(query.flatten(1, 2), total.flatten(1, 2), chunks)
        query = divided(query, sums.view(*query.shape[:-1], 1))
    given = _transformed(problem, latent, total, matrix)  # (G, own, H, D, shared, V)
    if _concatenates(problem):
        found = spread(query.flatten(1, 2), given.flatten(1, 2).flatten(-2), chunks)
        found = found.view(found.size(0), own, heads, shared, given.size(-1)).transpose(2, 3)
    else:
        found = spread(query.flatten(2), given.flatten(2, 3).flatten(-2), chunks)
    return found.reshape(basis.size[1], *problem.batch, problem.out_channels)


def _transformed(problem: Problem, latent: Tensor, total: Tensor, matrix: Tensor) -> Tensor:
    """Θ_h applied at the latent nodes, with the bias of values times the sums of φ(K)."""
    blocks = latent.unflatten(-1, matrix.shape[1:3])
    out = torch.einsum("grhdbxp,hxpq->grhdbxq", blocks, matrix).flatten(-2)
    theta = problem.of_heads
    if theta is None or theta.bias is None:
        return out
    bias = theta.bias if _concatenates(problem) else theta.full_bias()
    assert bias is not None
    return out + total.unsqueeze(-1) * bias.reshape(-1, 1, 1, out.size(-1)).to(out.dtype)


def _concatenates(problem: Problem) -> bool:
    """Whether heads are concatenated: Θ_h as a matrix of Q columns would be mostly zeros."""
    theta = problem.of_heads
    return theta is not None and theta.output is None and not theta.adds


class Scan(Order):
    """Compute the values of each head, then scan states of D × V numbers along the sequence.

    Propagating X first is not implemented: its states of D × P numbers for each head are larger.
    """

    name = "scan"
    solves = (FeatureProduct,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires a causal basis."""
        return needs_time(problem, causal=True)

    def cost(self, problem: Problem) -> Cost:
        """(M + N)·H·D·V for states, and N·H·C·(D + V) within chunks of C."""
        basis, width = feature_product_of(problem), value_width(problem)
        made, back_made = making_values(problem)
        work, back, held = rank_work(problem, width, float(sum(basis.size)))
        chunks = basis.chunks(width)
        assert chunks is not None  # a causal basis has chunks
        copies = float(problem.num_labels * problem.num_columns)
        scores = chunks.count * chunks.size * chunks.size * copies
        flops = 2.0 * scores * (basis.num_channels + width)
        near = Work(dense_flops=flops, calls=2)
        states = 2.0 * chunks.count * basis.num_channels * width * copies
        held += (scores + states) * problem.itemsize
        return Cost(
            made + work + near, back_made + back + near * (2.0 * any(problem.gradients)), held
        )

    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""
        return collect_values(problem, received_by_values(problem, values(problem)))
