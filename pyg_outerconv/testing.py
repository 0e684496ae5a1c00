"""The laws that every basis, family, layer and backend obeys, as assertions to call on your own.

Closeness is the largest difference, relative to the largest entry of the reference:
``max|Δ| <= tolerance * max|reference|``, with 1e-10 in float64 and 1e-5 in float32 unless given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from .basis import Basis, Family, Structure, structure
from .contract import (
    ORDERS,
    Features,
    Mixture,
    Problem,
    SparseFeatures,
    ThetaValue,
    contract,
    full,
)
from .contract.rewrite import leaves
from .kernels import BACKENDS, Sparsity, primitive_calls, use_backend
from .nn import OuterConv
from .nn.dense import full_matrices

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def assert_near(
    actual: Tensor, reference: Tensor, tolerance: float | None = None, at_least: float = 0.0
) -> None:
    """Two tensors are equal up to ``tolerance`` times the reference's largest entry.

    ``at_least`` stands in for that entry where it is smaller: where sums cancel, rounding does not.

    Raises:
        AssertionError: they differ in shape or type, hold NaN, or are too far apart.
    """
    assert actual.shape == reference.shape, f"shapes {actual.shape} and {reference.shape} differ"
    assert actual.dtype == reference.dtype, f"types {actual.dtype} and {reference.dtype} differ"
    if actual.numel() == 0:
        return
    tolerance = TOLERANCE[actual.dtype] if tolerance is None else tolerance
    actual, reference = actual.detach().double(), reference.detach().double()
    gap = float((actual - reference).abs().max())
    allowed = tolerance * max(at_least, float(reference.abs().max()))
    assert gap <= allowed, f"largest difference {gap:g} exceeds {allowed:g}"  # False for NaN


def assert_same_gradients(
    actual: Tensor, reference: Tensor, inputs: Iterable[Tensor], tolerance: float | None = None
) -> None:
    """Two results have equal gradients, for one random direction, in each of ``inputs``.

    Gradients whose terms cancel are compared with 0.1, so inputs should be of order one.
    """
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    direction = torch.randn_like(reference)
    found = _gradients(actual, wanted, direction)
    for gradient, expected in zip(found, _gradients(reference, wanted, direction), strict=True):
        assert_near(gradient, expected, tolerance, at_least=0.1)


def _gradients(out: Tensor, inputs: Sequence[Tensor], direction: Tensor) -> list[Tensor]:
    if not out.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    found = torch.autograd.grad(out, inputs, direction, allow_unused=True, retain_graph=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for gradient, tensor in zip(found, inputs, strict=True)
    ]


# Laws of a basis -----------------------------------------------------------------------------


def dense_contraction(basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
    """The oracle: ``einsum('kmn,mp,kpq->nq')`` with the dense basis, for each item of a batch."""
    matrices = full_matrices(full(theta))
    rows = _dense_features(x, matrices.size(1), matrices)
    return torch.einsum("kmn,m...p,kpq->n...q", basis.to_dense(matrices.dtype), rows, matrices)


def _dense_features(x: Features, in_channels: int, like: Tensor) -> Tensor:
    """X (M, *batch, P): rows of an identity matrix for indices, and all of them for None."""
    if isinstance(x, SparseFeatures):
        counts = x.sparsity.rowptr.diff()
        row = torch.arange(x.size(0), device=x.device).repeat_interleave(counts)
        zeros = x.value.new_zeros(x.shape)
        return zeros.index_put((row, x.sparsity.col.long()), x.value, accumulate=True)
    if x is not None and x.is_floating_point():
        return x
    eye = torch.eye(in_channels, dtype=like.dtype, device=like.device)
    return eye if x is None else eye[x]


def legal_orders(
    basis: Basis, x: Features, theta: ThetaValue, reduce: str = "sum"
) -> dict[str, list[str]]:
    """Every order, with the reasons why no leaf of a contraction can take it; none if one can."""
    problems = [Problem(leaf, x, part, reduce) for leaf, part in leaves(basis, theta, reduce)]
    found = {}
    for name, order in ORDERS.items():
        reasons = [order.why_not(problem) for problem in problems]
        found[name] = [] if [] in reasons else [reason for many in reasons for reason in many]
    return found


def assert_contraction(
    basis: Basis, x: Features, theta: ThetaValue, weights: Iterable[Tensor] = (), depth: int = 1
) -> None:
    """Every legal order equals the dense oracle, in value and in every gradient.

    Args:
        basis: K matrices of size M × N.
        x: as :func:`~pyg_outerconv.contract.contract` takes it.
        theta: Θ, or a mixture, whose coefficients and matrices then have the gradients.
        weights: further tensors whose gradients are compared, those that the basis is made of.
        depth: 1 compares first derivatives, 2 second ones too.

    Raises:
        AssertionError: an order differs, with its name; or the choice does.
    """
    inputs = [theta.coefficient, theta.matrices] if isinstance(theta, Mixture) else [theta]
    rows = x.value if isinstance(x, SparseFeatures) else x
    inputs = [tensor for tensor in (rows, *inputs, *weights) if tensor is not None]
    inputs = [tensor for tensor in inputs if tensor.requires_grad]
    expected = _derivatives(dense_contraction(basis, x, theta), inputs, depth)
    reasons = legal_orders(basis, x, theta)
    for name in (None, *(name for name in ORDERS if not reasons[name])):
        actual = _derivatives(contract(basis, x, theta, name), inputs, depth)
        for number, (found, reference) in enumerate(zip(actual, expected, strict=True)):
            try:
                assert_near(found, reference, (5 if number else 1) * TOLERANCE[found.dtype], 0.1)
            except AssertionError as error:
                what = f"derivative {number}" if number else "value"
                raise AssertionError(f"{what} of {name or 'the choice'}: {error}") from None


def _derivatives(out: Tensor, inputs: Sequence[Tensor], depth: int) -> list[Tensor]:
    """The value; its derivatives in each input along a direction; and theirs, ``depth`` times.

    Directions depend on nothing but shapes, so that those of two equal functions are equal.
    """
    found, last = [out], [out]
    for step in range(depth):
        generator = torch.Generator().manual_seed(step)
        total = torch.stack([_along(tensor, generator) for tensor in last]).sum()
        gradients: tuple[Tensor | None, ...] = (None,) * len(inputs)
        if total.requires_grad:
            gradients = torch.autograd.grad(
                total, inputs, allow_unused=True, create_graph=True, materialize_grads=False
            )
        last = [
            torch.zeros_like(tensor) if gradient is None else gradient
            for gradient, tensor in zip(gradients, inputs, strict=True)
        ]
        found += last
    return found


def _along(tensor: Tensor, generator: torch.Generator) -> Tensor:
    direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return (tensor * direction.to(tensor)).sum()


def assert_adjoint(basis: Basis) -> None:
    """⟨A_kᵀ x, y⟩ = ⟨x, A_k y⟩ for every k: the transpose is the adjoint."""
    num_sources, num_targets = basis.size
    x, y = _random(basis, num_sources, 3), _random(basis, num_targets, 3)
    weight = _random(basis, basis.num_bases).view(-1, 1, 1, 1)
    theta = weight * torch.eye(3, dtype=x.dtype, device=x.device)
    forward = (contract(basis, x, theta) * y).sum()
    backward = (x * contract(basis.transpose(), y, theta)).sum()
    scale = contract(basis, x.abs(), theta.abs()).abs().sum() + 1
    assert abs(forward - backward) <= TOLERANCE[x.dtype] * scale * 10


def assert_transpose(basis: Basis) -> None:
    """The dense form of the transpose is the transposed dense form; twice changes nothing."""
    dense = basis.to_dense(_dtype(basis))
    assert_near(basis.transpose().to_dense(_dtype(basis)), dense.transpose(1, 2))
    assert_near(basis.transpose().edges().to_dense(_dtype(basis)), dense.transpose(1, 2))
    assert_near(basis.transpose().transpose().to_dense(_dtype(basis)), dense)


def assert_lazy_equals_explicit(basis: Basis) -> None:
    """A basis and its edges have one dense form, and one contraction."""
    dtype, explicit = _dtype(basis), basis.edges()
    assert (explicit.num_bases, explicit.size) == (basis.num_bases, basis.size)
    assert_near(basis.to_dense(dtype), explicit.to_dense(dtype))
    key = explicit.pattern.target.long() * explicit.num_bases + explicit.label
    assert bool((key.diff() >= 0).all()), "edges are not sorted by target, then label"
    x, theta = _random(basis, basis.size[0], 3), _random(basis, basis.num_bases, 1, 3, 2)
    assert_near(contract(basis, x, theta), contract(explicit, x, theta))


def assert_stack(first: Basis, second: Basis) -> None:
    """A stack's convolution is the sum of its parts', and its dense form their concatenation."""
    both, dtype = first.stack(second), _dtype(first.stack(second))
    parts = (first.to_dense(dtype), second.to_dense(dtype))
    assert_near(both.to_dense(dtype), torch.cat(parts))
    x, theta = _random(both, both.size[0], 3), _random(both, both.num_bases, 1, 3, 2)
    parts_sum = contract(first, x, theta[: first.num_bases]) + contract(
        second, x, theta[first.num_bases :]
    )
    assert_near(contract(both, x, theta), parts_sum)


def _dtype(basis: Basis) -> torch.dtype:
    return basis.dtype or torch.float64


def _random(basis: Basis, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=_dtype(basis), device=basis.device)


# Laws of a family and a layer ------------------------------------------------------------------


def assert_layer_equals_dense(conv: OuterConv, x: Tensor, edges: Structure) -> None:
    """Φ contracted with x is the layer, in value and in every gradient; so are its messages.

    Gradients are those of x, of all parameters, and of the edge weights where they ask for them.
    """
    arguments: dict[str, Any] = {
        "edge_weight": edges.edge_weight,
        "edge_type": edges.edge_type,
        "size": edges.size,
        "batch": edges.batch,
    }
    ends = x if edges.size[0] == edges.size[1] else (x, None)
    actual = conv(ends, edges.edge_index, **arguments)
    phi = conv.to_dense(edges.edge_index, **arguments)
    expected = torch.einsum("mnpq,mp->nq", phi, x)
    expected = expected if conv.bias is None else expected + conv.bias
    wanted = [x, *conv.parameters()]
    wanted += [] if edges.edge_weight is None else [edges.edge_weight]
    by_messages = _by_messages(conv, ends, edges.edge_index, arguments)
    # Values of a layer may come out zero where the reference cancels; compare with what was added.
    scale = torch.einsum("mnpq,mp->nq", phi.abs(), x.abs()).detach()
    tolerance = TOLERANCE[x.dtype] * max(1.0, _ratio(scale, expected))
    for found in (actual, by_messages):
        assert_near(found, expected, tolerance)
        assert_same_gradients(found, expected, wanted, 5 * tolerance)


def _ratio(scale: Tensor, reference: Tensor) -> float:
    if reference.numel() == 0 or not float(reference.detach().abs().max()):
        return 1.0
    return float(scale.max() / reference.detach().abs().max())


def _by_messages(conv: OuterConv, x: Any, edge_index: Tensor, arguments: dict[str, Any]) -> Tensor:
    fuse, conv.fuse = conv.fuse, False
    try:
        return conv(x, edge_index, **arguments)
    finally:
        conv.fuse = fuse


def assert_permutation_equivariant(conv: OuterConv, x: Tensor, edges: Structure) -> None:
    """Renumbering nodes and reordering edges renumbers the output and changes nothing else."""
    edges.require_square("renumbering nodes")
    nodes, order = torch.randperm(edges.size[0]), torch.randperm(edges.num_edges)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(edges.size[0])
    expected = conv(
        x, edges.edge_index, edges.edge_weight, edges.edge_type, edges.size, edges.batch
    )
    actual = conv(
        x[nodes],
        place[edges.edge_index[:, order].long()],
        None if edges.edge_weight is None else edges.edge_weight[order],
        None if edges.edge_type is None else edges.edge_type[order],
        edges.size,
        None if edges.batch is None else edges.batch[nodes],
    )
    assert_near(actual, expected[nodes], 100 * TOLERANCE[x.dtype])


def assert_batch_equals_graphs(family: Family, graphs: Sequence[Data]) -> None:
    """The basis of a batch has the bases of its graphs as diagonal blocks, stored or not."""
    stored = Batch.from_data_list([family(graph.clone()) for graph in graphs])
    for batch in (stored, Batch.from_data_list(list(graphs))):
        dense = family.basis_of(batch).to_dense()
        blocks = [family.basis_of(graph).to_dense() for graph in graphs]
        expected = torch.stack(
            [torch.block_diag(*(block[k] for block in blocks)) for k in range(family.num_bases)]
        )
        assert_near(dense, expected)


# Laws of a backend -----------------------------------------------------------------------------


def assert_backend_equals_reference(
    backend: str,
    sparsity: Sparsity,
    dtype: torch.dtype,
    channels: int,
    tolerance: float,
    heads: int | None = None,
) -> None:
    """A backend's primitives equal the reference's, with first and second derivatives."""
    for name, (function, shapes) in primitive_calls(sparsity, channels, heads).items():
        if name.split()[0] not in BACKENDS[backend].primitives:
            continue
        inputs = [
            torch.randn(shape, dtype=dtype, device=sparsity.col.device, requires_grad=True)
            for shape in shapes.values()
        ]
        found, expected = (
            _with_derivatives(function, inputs, which) for which in (backend, "reference")
        )
        for label, actual, wanted in zip(
            ("value", *(f"{order} in {x}" for order in ("first", "second") for x in shapes)),
            found,
            expected,
            strict=True,
        ):
            try:
                assert_near(actual, wanted, tolerance, at_least=1.0)
            except AssertionError as error:
                raise AssertionError(f"{name} of {backend}, {label}: {error}") from None


def _with_derivatives(
    function: Callable[..., Tensor], inputs: list[Tensor], backend: str
) -> list[Tensor]:
    """The value, the gradients in each input, and those of a random sum of these gradients."""
    generator = torch.Generator().manual_seed(0)  # the same directions for all

    def along(tensor: Tensor) -> Tensor:
        direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return (tensor * direction.to(tensor)).sum()

    with use_backend(backend):
        out = function(*inputs)
        first = torch.autograd.grad(along(out), inputs, create_graph=True)
        total = sum((along(gradient) for gradient in first), start=out.new_zeros(()))
        total = total + sum((x * 0).sum() for x in inputs)  # of linear ones, the second is zero
        return [out, *first, *torch.autograd.grad(total, inputs)]


# Awkward graphs ----------------------------------------------------------------------------------


def awkward_structures(dtype: torch.dtype = torch.float64) -> dict[str, Structure]:
    """Small graphs that break careless code, by name; weights carry gradients.

    All have edge types below 3. Weights are positive. 'rectangular' and its kin have M ≠ N.
    """
    generator = torch.Generator().manual_seed(7)

    def make(pairs: list[tuple[int, int]], size: tuple[int, int], weighted: bool) -> Structure:
        edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()
        count = edge_index.size(1)
        weight = None
        if weighted:
            weight = torch.rand(count, dtype=dtype, generator=generator).add_(0.1)
            weight.requires_grad_()
        kinds = torch.randint(3, (count,), generator=generator)
        return structure(edge_index, weight, kinds, size=size)

    ring = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 1)]
    both_ways = ring + [(target, source) for source, target in ring]
    several = [*ring, (0, 1), (0, 1), (3, 0)]
    return {
        "directed": make(ring, (5, 5), False),
        "undirected": make(both_ways, (5, 5), False),
        "weighted": make(ring[::-1], (5, 5), True),
        "multi-edge": make(several, (5, 5), True),
        "self-loops": make([*ring, (2, 2), (2, 2), (4, 4)], (5, 5), True),
        "isolated nodes": make(ring, (8, 8), True),
        "zero edges": make([], (4, 4), True),
        "one node": make([], (1, 1), False),
        "one loop": make([(0, 0)], (1, 1), True),
        "no nodes": make([], (0, 0), False),
        "rectangular": make([(0, 1), (5, 0), (3, 1), (3, 1), (2, 2)], (6, 4), True),
        "wide rectangular": make([(0, 6), (2, 5), (1, 1)], (3, 7), False),
    }
