"""What orders of factored bases have in common: how batches fold, and at which precision."""

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
    """Reasons where the factors have an order of time or none, or are of another batch."""
    basis = feature_product_of(problem)
    if (basis.causal is not None) != causal:
        return [
            "needs an order of time: all pairs take two products"
            if causal
            else "knows all pairs, within blocks: sums over prefixes take a scan"
        ]
    if basis.batch in ((), problem.batch):
        return []
    return [f"the basis is of a batch of {basis.batch}, and x of {problem.batch}"]


def feature_product_of(problem: Problem) -> FeatureProduct:
    """The basis."""
    return problem.of(FeatureProduct)


def folds(problem: Problem) -> tuple[int, int]:
    """(R, B): items of the batch with factors of their own, and items that share factors."""
    if feature_product_of(problem).batch:
        return problem.num_columns, 1
    return 1, problem.num_columns


def at_full_precision(problem: Problem) -> AbstractContextManager[None]:
    """Without autocast: sums over all nodes leave the range of float16."""
    return torch.autocast(problem.device.type, enabled=False)


def in_full(*tensors: Tensor) -> list[Tensor]:
    """The tensors in the widest of their types, and in float32 at least."""
    wide = torch.float32
    for tensor in tensors:
        wide = torch.promote_types(wide, tensor.dtype)
    return [tensor.to(wide) for tensor in tensors]


def received_by_values(problem: Problem, value: Tensor) -> Tensor:
    """What each head receives of the values (M, *batch, H, V): (N, *batch, H, V).

    A column of ones beside the values receives the sums that normalise.
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
            assert chunks is not None  # a sequence has them
            run = scan_exponentials if basis.exponents else scan
            out = run(query, key, value, chunks, basis.causal == "strict")
        else:
            out = spread(query, collect(key, value, chunks), chunks)
        if basis.normalised:
            out = divided(out[..., :-1], out[..., -1:])
    out = out.view(out.size(0), own, heads, shared, width).transpose(2, 3)
    return out.reshape(out.size(0), *problem.batch, heads, width).to(dtype)


def rank_work(problem: Problem, width: int, rows: float) -> tuple[Work, Work, float]:
    """Forward and backward of products of ``rows`` rows of rank D at a width, and bytes held."""
    basis, (of_x, of_theta, of_basis) = feature_product_of(problem), problem.gradients
    columns = float(problem.num_labels * problem.num_columns * width)
    forward = Work(dense_flops=2.0 * rows * basis.num_channels * columns, calls=2)
    passed = sum(basis.size) * columns * problem.itemsize
    forward += moving(passed)
    return forward, forward * ((of_x or of_theta) + of_basis), passed
