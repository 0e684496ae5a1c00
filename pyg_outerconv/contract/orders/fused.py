"""Both products in one kernel, if a backend has one: no intermediate result is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...basis.edges import EdgeBasis
from ...basis.pattern import Pattern
from ...kernels import BACKENDS, Request
from ...kernels.dispatch import choose, forced
from ...kernels.grouped import grouped_outer
from ...kernels.primitive import LinearInEach, Primitive
from ...kernels.products import product, sample
from ...kernels.spmm import fused_request, spmm_theta
from ...theta import autocast_pair
from ..cost import Steps, dense_product, sparse_product
from ..order import EdgeOrder, needs_features
from ..problem import Problem
from ..rule import transforms
from .edges import each_of_batch, grouped


class OneKernel(EdgeOrder):
    """Σ_k A_kᵀ X Θ_k with Θ_k applied in registers, target by target.

    The gradient of X runs the same kernel on the transposed edges; those of Θ and of values use the
    compact forms.
    """

    name = "fused"
    needs = (needs_features,)

    def lacks(self, problem: Problem) -> list[str]:
        """Requires dense features, G = 1, and a backend that has the kernel."""
        reasons = super().lacks(problem)
        if problem.num_blocks > 1:
            reasons.append("needs full matrices (G = 1)")
        return reasons or _no_backend(problem)

    def rank_of_edges(self, problem: Problem) -> int:
        """0 where the plain rule propagates first; the cost decides between these orders."""
        return int(transforms(problem))

    def is_prepared(self, problem: Problem) -> bool:
        if not problem.counted.has_edges:
            return False
        of_gradients = zip(
            ("transposed", "target_pairs", "source_pairs"), problem.gradients, strict=True
        )
        needed = "num_target_pairs", *(name for name, wanted in of_gradients if wanted)
        return all(name in vars(problem.edges.pattern) for name in needed)

    def steps(self, problem: Problem) -> Steps:
        """E·P sparse and U_out·P·Q dense; only the backward pass allocates memory."""
        pairs = problem.num_pairs(at_target=True)
        wanted, of_theta, of_basis = problem.gradients
        sparse = sparse_product(problem, problem.in_channels, problem.basis.size, wanted)
        both = sparse.forward + dense_product(problem, pairs * problem.num_columns, wanted).forward
        width = max(problem.in_channels * of_theta, problem.out_channels * of_basis)
        back = wanted + of_theta + of_basis
        return Steps(problem).work("one kernel", both, back, pairs * width * problem.itemsize)

    def run(self, problem: Problem) -> Tensor:
        theta, pattern = problem.theta[:, 0], problem.edges.pattern
        if not torch.compiler.is_compiling():  # sort edges now, not within the backward pass
            of_x, of_theta, of_basis = problem.gradients
            _ = (of_x and pattern.transposed, of_theta and pattern.target_pairs)
            _ = of_basis and pattern.source_pairs
        return each_of_batch(problem, lambda item: fused_product(problem.edges, item, theta))


def _no_backend(problem: Problem) -> list[str]:
    """A reason if no backend, or not the requested one, runs the kernel for this problem."""
    # Without exceptions, which torch.compile cannot trace.
    asked = forced()
    able = [b for b in BACKENDS.values() if (b.priority > 0 if asked is None else b.name == asked)]
    place = problem.theta.device.type  # compared first: the rest may read sizes of the graph
    able = [one for one in able if "spmm_theta" in one.primitives and place in one.devices]
    request = _request(problem) if able else None
    if any(not backend.why_not(request) for backend in able if request is not None):
        return []
    if asked is None:
        return ["needs the primitive spmm_theta, which no backend runs for this problem"]
    return [f"needs the primitive spmm_theta, which the backend {asked!r} does not run here"]


def _request(problem: Problem) -> Request:
    theta, basis = problem.theta[:, 0], problem.counted
    if not basis.has_edges:  # sizes are known without making edges
        size, count = basis.size[::-1], basis.num_edges
        kind, width = theta.device.type, theta.size(2)
        return Request("spmm_theta", kind, theta.dtype, torch.int32, size, count, width)
    pattern = problem.edges.pattern
    return fused_request(pattern.target_ptr, pattern.source, pattern.size[0], theta)


def fused_product(edges: EdgeBasis, x: Tensor, theta: Tensor) -> Tensor:
    """Σ_k A_kᵀ X Θ_k for X (M, P) and Θ (K, P, Q) by one kernel: (N, Q)."""
    x, theta = autocast_pair(x, theta)
    value = None if edges.value is None else edges.value.to(x.dtype)
    pattern = edges.pattern
    backend = choose(fused_request(pattern.target_ptr, pattern.source, x.size(0), theta)).name
    return _FusedProduct.apply(value, x, theta, _Edges(pattern), backend)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Edges:
    """A pattern as an opaque argument, which is no pytree.

    ``torch.func`` flattens and rebuilds pytrees at every call, which loses cached properties: the
    edges of a pattern would be transposed and sorted again each time.
    """

    pattern: Pattern


class _FusedProduct(LinearInEach, Primitive):
    """The fused product as a function that is linear in values, in x and in Θ."""

    operands = 3
    batch_axis = None

    @staticmethod
    def forward(
        value: Tensor | None, x: Tensor, theta: Tensor, edges: _Edges, backend: str
    ) -> Tensor:
        pattern = edges.pattern
        return spmm_theta(
            pattern.target_ptr, pattern.source, pattern.label, value, x, theta, backend
        )

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (value, x, theta), (edges, backend) = ctx.saved_tensors, ctx.rest
        pattern = edges.pattern
        of_value = of_x = of_theta = None
        if ctx.needs_input_grad[1]:
            value_t = None if value is None else value.index_select(0, pattern.by_source)
            back = theta.transpose(1, 2), _Edges(pattern.transposed), backend
            of_x = _FusedProduct.apply(value_t, grad, *back)
        if ctx.needs_input_grad[2]:
            pairs = pattern.target_pairs
            ordered = None if value is None else value.index_select(0, pairs.order).unsqueeze(1)
            h = product(pairs.csr, ordered, x.unsqueeze(1), backend).squeeze(1)
            of_theta = grouped_outer(h, pairs.ptr, grad, scatter=pairs.node)
        if ctx.needs_input_grad[0]:
            pairs = pattern.source_pairs
            z = grouped(x, pairs.ptr, theta.unsqueeze(1), gather=pairs.node)
            of_value = sample(pairs.csr, grad.unsqueeze(1), z.unsqueeze(1), backend).squeeze(1)
        return of_value, of_x, of_theta
