"""Helpers of the orders for products of features φ(Q)φ(K)ᵀ: batches, precision and work."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from ..basis.feature_product import FeatureProduct, divided
from ..kernels.latent import collect, spread
from ..kernels.scan import scan, scan_exponentials
from .cost import Work, moving
from .problem import Problem


def needs_time(problem: Problem, causal: bool) -> list[str]:
    """Reasons if causality or batch do not fit: ``causal`` says whether the order is a scan."""
    basis = feature_product_of(problem)
    if (basis.causal is not None) != causal:
        return [
            "needs a causal basis: without causality two dense products suffice"
            if causal
            else "needs a basis without causality: sums over prefixes take a scan"
        ]
    if basis.batch in ((), problem.batch):
        return []
    return [f"the basis has batch shape {basis.batch}, and x has {problem.batch}"]


def feature_product_of(problem: Problem) -> FeatureProduct:
    """The basis of the problem, with its type narrowed to :class:`FeatureProduct`."""
    return problem.of(FeatureProduct)


def folds(problem: Problem) -> tuple[int, int]:
    """(R, B): how many items of the batch have their own factors, and how many share each."""
    if feature_product_of(problem).batch:
        return problem.num_columns, 1
    return 1, problem.num_columns


def at_full_precision(problem: Problem) -> AbstractContextManager[None]:
    """A context without autocast: sums over all nodes exceed the range of float16."""
    return torch.autocast(problem.device.type, enabled=False)


def in_full(*tensors: Tensor) -> list[Tensor]:
    """The tensors in their widest dtype, at least float32."""
    wide = torch.float32
    for tensor in tensors:
        wide = torch.promote_types(wide, tensor.dtype)
    return [tensor.to(wide) for tensor in tensors]


def received_by_values(problem: Problem, value: Tensor) -> Tensor:
    """φ(Q)(φ(K)ᵀ V) for each head and values V (M, *batch, H, V): (N, *batch, H, V).

    A column of ones is appended to the values; it yields the sums to divide by.
    """
    basis, (own, shared), dtype = feature_product_of(problem), folds(problem), value.dtype
    heads, width = value.shape[-2:]
    with at_full_precision(problem):
        query, key, value = in_full(basis.query, basis.key, value)
        query, key = (
            part.reshape(part.size(0), own * heads, part.size(-1)) for part in (query, key)
        )
        value = value.reshape(value.size(0), own, shared, heads, width).transpose(2, 3)
        value = value.reshape(value.size(0), own * heads, shared * width)
        if basis.normalised:
            value = torch.cat([value, value.new_ones(*value.shape[:2], 1)], -1)
        chunks = basis.chunks(value.size(-1))
        if basis.causal is not None:
            assert chunks is not None  # a causal basis has chunks
            run = scan_exponentials if basis.exponents else scan
            out = run(query, key, value, chunks, basis.causal == "strict")
        else:
            out = spread(query, collect(key, value, chunks), chunks)
        if basis.normalised:
            out = divided(out[..., :-1], out[..., -1:])
    out = out.view(out.size(0), own, heads, shared, width).transpose(2, 3)
    return out.reshape(out.size(0), *problem.batch, heads, width).to(dtype)


def rank_work(problem: Problem, width: int, rows: float) -> tuple[Work, Work, float]:
    """Forward and backward work of products of ``rows`` rows of rank D with ``width`` columns.

    And the bytes that the results allocate.
    """
    basis, (of_x, of_theta, of_basis) = feature_product_of(problem), problem.gradients
    columns = float(problem.num_labels * problem.num_columns * width)
    forward = Work(dense_flops=2.0 * rows * basis.num_channels * columns, calls=2)
    passed = sum(basis.size) * columns * problem.itemsize
    forward += moving(passed)
    return forward, forward * ((of_x or of_theta) + of_basis), passed
