"""The dense reference for tests, and closeness to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite

import torch
from torch import Tensor

from ..basis import Basis, EdgeBasis
from ..errors import RefusedValue
from ..graph import Features, SparseMatrix
from ..graph.sparse_features import as_matrix
from ..nn.dense import full_matrices
from ..signatures import typed
from ..theta import ThetaValue, as_theta, full

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@typed
def assert_near(
    actual: Tensor, reference: Tensor, tolerance: float | None = None, at_least: float = 0.0
) -> None:
    """Two tensors differ by at most ``tolerance`` times the largest entry of the reference.

    ``at_least`` replaces that entry if it is smaller: where sums cancel, rounding errors do not.

    Raises:
        AssertionError: they differ in shape or type, hold NaN, or are too far apart.
    """
    assert actual.shape == reference.shape, f"shapes {actual.shape} and {reference.shape} differ"
    assert actual.dtype == reference.dtype, f"types {actual.dtype} and {reference.dtype} differ"
    tolerance = TOLERANCE[actual.dtype] if tolerance is None else tolerance
    gap, largest = difference(actual, reference)
    allowed = tolerance * max(at_least, largest)
    assert gap <= allowed, f"largest difference {gap:g} exceeds {allowed:g}"  # False for NaN


def difference(actual: Tensor, reference: Tensor) -> tuple[float, float]:
    """The largest difference of two tensors of equal shape, and the reference's largest entry."""
    if actual.numel() == 0:
        return 0.0, 0.0
    actual, reference = actual.detach().double(), reference.detach().double()
    return float((actual - reference).abs().max()), float(reference.abs().max())


@typed
def assert_same_gradients(
    actual: Tensor, reference: Tensor, inputs: Iterable[Tensor], tolerance: float | None = None
) -> None:
    """Two results have equal gradients in each of ``inputs``, along one random direction.

    Gradients are compared relative to 0.1 at least, so inputs should be of order one.
    """
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    if not wanted:
        raise RefusedValue("gradients are of inputs", "at least one that requires them", "none")
    direction = torch.randn_like(reference)
    gradients = _gradients(actual, wanted, direction)
    for gradient, expected in zip(gradients, _gradients(reference, wanted, direction), strict=True):
        assert_near(gradient, expected, tolerance, at_least=0.1)


def _gradients(out: Tensor, inputs: Sequence[Tensor], direction: Tensor) -> list[Tensor]:
    if not out.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    how = {"retain_graph": True, "materialize_grads": True}
    return list(torch.autograd.grad(out, inputs, direction, **how))


@typed
def assert_seen_alone(
    run: Callable[[Tensor], Tensor],
    x: Tensor,
    seen: Tensor,
    number: float,
    forward: bool = True,
    backward: bool = True,
) -> None:
    """A number that is not finite, of one row at a time, reaches the rows that see it and no other.

    Args:
        run: from x (M, ...) to a result (N, ...).
        x: (M, ...) finite features.
        seen: (M, N) booleans, whether row n of the result sees row m of x.
        number: NaN or infinity.
        forward: whether it must arrive in all rows that see it.
        backward: whether it must arrive, as a gradient of the result, in all rows of x that are
            seen.

    Raises:
        AssertionError: it reaches another row, or not all of these.
    """
    if isfinite(number):
        raise RefusedValue("what is looked for is no number", "NaN or infinity", number)
    for learns in (False, True):
        for source in range(x.size(0)):
            spoilt = x.detach().clone()
            spoilt[source] = number
            spoilt_rows = _spoilt_rows(run(spoilt.requires_grad_(learns)))
            _assert_reached(spoilt_rows, seen[source], forward, f"source {source} reaches targets")
    features = x.detach().clone().requires_grad_()
    out = run(features)
    for target in range(out.size(0) if out.requires_grad else 0):
        above = torch.ones_like(out)
        above[target] = number
        (grad,) = torch.autograd.grad(out, features, above, retain_graph=True)
        wanted = seen[:, target]
        _assert_reached(_spoilt_rows(grad), wanted, backward, f"target {target} reaches sources")


def _spoilt_rows(x: Tensor) -> Tensor:
    return ~x.detach().isfinite().flatten(1).all(1)


def _assert_reached(reached: Tensor, seen: Tensor, all_of_them: bool, what: str) -> None:
    right = torch.equal(reached, seen) if all_of_them else not bool((reached & ~seen).any())
    places = [x.nonzero().view(-1).tolist() for x in (reached, seen)]
    assert right, f"{what} {places[0]}, and {places[1]} see it"


def derivatives(out: Tensor, inputs: Sequence[Tensor], depth: int) -> list[Tensor]:
    """The value, and its derivatives in each input along random directions, up to order ``depth``.

    The directions depend on shapes only, so that equal functions have equal derivatives.
    """
    value_and_grads, last = [out], [out]
    for step in range(depth):
        generator = torch.Generator().manual_seed(step)
        total = torch.stack([along(tensor, generator) for tensor in last]).sum()
        last = [torch.zeros_like(tensor) for tensor in inputs]
        if total.requires_grad:
            last = [*torch.autograd.grad(total, inputs, create_graph=True, materialize_grads=True)]
        value_and_grads += last
    return value_and_grads


def along(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """The inner product of a tensor with a random direction."""
    return (tensor * direction(tensor, generator)).sum()


def direction(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A random tensor like another one, of numbers that every dtype holds exactly."""
    return (torch.randint(-3, 3, tensor.shape, generator=generator) + 0.5).to(tensor)


@typed
def dense_contraction(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    aggr: str = "sum",
    label_aggr: str = "sum",
) -> Tensor:
    """``Y[n] = label_reduce_k ((reduce_m A[k, m, n] X[m]) Θ_k)`` with dense tensors.

    For sums it is ``einsum('kmn,mp,kpq->nq')`` for each item of a batch. Other reductions use a
    mask of edges, because a value of zero differs from an absent edge, and a dimension for parallel
    edges, which a dense matrix would add.
    """
    matrices = full_matrices(full(theta))
    if x is None and matrices.size(1) != basis.size[0]:
        rule = "without features theta needs a row for each source"
        raise RefusedValue(rule, basis.size[0], matrices.size(1))
    rows = _dense_features(x, matrices.size(1), matrices)
    if (aggr, label_aggr) == ("sum", "sum"):
        dense = basis.to_dense(matrices.dtype)
        out = torch.einsum("kmn,m...p,kpq->n...q", dense, rows, matrices)
        of_bias = as_theta(theta).full_bias()
        if of_bias is None:
            return out
        added = torch.einsum("kmn,kq->nq", dense, of_bias[:, 0, 0])
        return out + added.view(out.size(0), *(1,) * (out.dim() - 2), -1)
    received, is_edge = _layers(basis.edges(), rows)
    h = _reduced(received, is_edge, aggr, 2)
    out = torch.einsum("nk...p,kpq->nk...q", h, matrices)
    return _reduced(out, is_edge.any(2), label_aggr, 1)


def _layers(edges: EdgeBasis, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A[k, m, n] X[m] as (N, K, L, *batch, P), and the mask (N, K, L) of edges.

    L is the largest number of edges with one target and label.
    """
    pattern = edges.pattern
    target, label, source = (t.long() for t in (pattern.target, pattern.label, pattern.source))
    messages = torch.einsum("e,e...p->e...p", edges.values(rows.dtype), rows[source])
    group = target * edges.num_bases + label  # sorted
    layer = torch.arange(group.numel(), device=group.device) - torch.searchsorted(group, group)
    depth = int(layer.max()) + 1 if layer.numel() else 1
    shape = (edges.size[1], edges.num_bases, depth)
    where = (target, label, layer)
    received = messages.new_zeros(*shape, *rows.shape[1:]).index_put(where, messages)
    is_edge = torch.zeros(shape, dtype=torch.bool, device=rows.device)
    is_edge[where] = True
    return received, is_edge


def _reduced(x: Tensor, mask: Tensor, aggr: str, dim: int) -> Tensor:
    """Reduce the entries in the mask along a dimension; 0 without entries."""
    mask = mask.view(*mask.shape, *(1,) * (x.dim() - mask.dim()))
    if aggr == "sum":
        return x.where(mask, 0.0).sum(dim)
    if aggr == "mean":
        return x.where(mask, 0.0).sum(dim) / mask.sum(dim).clamp(min=1)
    if x.size(dim) == 0:
        return x.sum(dim)
    largest = aggr == "max"
    filled = x.masked_fill(~mask, -torch.inf if largest else torch.inf)
    best = filled.max(dim).values if largest else filled.min(dim).values
    return best.masked_fill(~mask.any(dim), 0.0)


def _dense_features(x: Features, in_channels: int, like: Tensor) -> Tensor:
    """X (M, *batch, P); indices become rows of the identity matrix, None all of it."""
    x = as_matrix(x)
    if isinstance(x, SparseMatrix):
        counts = x.csr.ptr.diff()
        row = torch.arange(x.size(0), device=x.device).repeat_interleave(counts)
        zeros = x.value.new_zeros(x.shape)
        return zeros.index_put((row, x.csr.index.long()), x.value, accumulate=True)
    if x is not None and x.is_floating_point():
        return x
    eye = torch.eye(in_channels, dtype=like.dtype, device=like.device)
    return eye if x is None else eye[x]
