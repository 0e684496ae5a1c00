"""Sparse against dense: from one edge in ten thousand to all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ....basis import Pattern
from ....families import Relation
from ....nn import OuterConv
from ..case import DENSE, KRONECKER, OURS, SPARSE, Context, Point, Setup, case
from ..roofline import relation_rows
from ..sides import Sides

QUICK = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FULL = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
# The quadri-tensor has M·N·P·Q entries.
LARGEST_QUADRI_TENSOR = 1 << 24


def densities(context: Context) -> tuple[float, ...]:
    """Half decades, decades in a quick run."""
    return QUICK if context.quick else FULL


def over_density(
    context: Context, point: Point, nodes: int, channels: int, labels: int = 1, batch: int = 1
) -> Setup:
    """OuterConv, by its own choice and kept sparse, and dense forms that are given A (K, M, N)."""
    generator = context.generator()
    assert isinstance(point, float)  # densities
    nodes = context.size(nodes, at_least=8, quick=False)
    edges = max(1, round(point * nodes * nodes))
    keys = torch.cat(
        [
            torch.randperm(nodes * nodes, generator=generator)[:edges] + label * nodes * nodes
            for label in range(labels)
        ]
    )
    label, place = keys // (nodes * nodes), keys % (nodes * nodes)
    pattern = Pattern.build(
        torch.stack([place // nodes, place % nodes]).to(context.device),
        label.to(context.device),
        size=(nodes, nodes),
        num_labels=labels,
    )
    value = torch.rand(keys.numel(), generator=generator).to(context.device, context.dtype)
    basis = pattern.with_values(value)
    shape = (nodes, channels) if batch == 1 else (batch, nodes, channels)
    sides = Sides(context, shape, generator=generator)
    # What a layer does by itself may be dense too, where its cost model says so.
    conv, sparse = (
        sides.placed(OuterConv(channels, channels, Relation(labels, None), bias=False, order=order))
        for order in (None, "transform_first")
    )
    sparse.load_state_dict(conv.state_dict())
    sides.layer(OURS, conv, basis)
    sides.layer(SPARSE, sparse, basis, own=True)
    _dense(sides, basis.to_dense(), conv)
    rows = nodes if labels == 1 else relation_rows(basis)
    work = sides.work(labels * channels**2, keys.numel(), rows) if batch == 1 else {}
    sizes = {"nodes": nodes, "edges": keys.numel(), "channels": channels, "labels": labels}
    return sides.setup({**sizes, "batch": batch}, work)


def _dense(sides: Sides, matrices: Tensor, conv: OuterConv) -> None:
    """Dense products with A (K, M, N), and with the quadri-tensor Σ_k A_k ⊗ Θ_k."""
    labels, sources, targets = matrices.shape
    wide = matrices.permute(2, 0, 1).reshape(targets, labels * sources).contiguous()

    def by_einsum() -> Tensor:
        theta = conv.theta()[:, 0]
        return wide @ torch.einsum("...mp,kpq->...kmq", sides.x, theta).flatten(-3, -2)

    def by_quadri_tensor() -> Tensor:
        phi = torch.einsum("kmn,kpq->mpnq", matrices, conv.theta()[:, 0])
        out = sides.x.flatten(-2) @ phi.flatten(2).flatten(0, 1)
        return out.unflatten(-1, (targets, -1))

    sides.add(DENSE, by_einsum, conv.parameters(), own=True)
    if sources * sides.x.size(-1) * targets * sides.direction.size(-1) <= LARGEST_QUADRI_TENSOR:
        sides.add(KRONECKER, by_quadri_tensor, conv.parameters(), own=True)
    else:
        sides.absent[KRONECKER] = f"more than {LARGEST_QUADRI_TENSOR} entries"


for _name, _quick, _sizes in (
    ("base", True, {"nodes": 1024, "channels": 64}),
    ("small", True, {"nodes": 256, "channels": 16}),
    ("large", False, {"nodes": 4096, "channels": 64}),
    ("narrow", False, {"nodes": 1024, "channels": 16}),
    ("labels", True, {"nodes": 1024, "channels": 64, "labels": 4}),
    ("batch", False, {"nodes": 1024, "channels": 64, "batch": 8}),
    ("tiny", True, {"nodes": 64, "channels": 8, "labels": 2}),
):
    case(
        f"density-{_name}",
        "density",
        "Σ_k A_kᵀ X Θ_k over density, sparse against a dense A",
        axis="density",
        points=densities,
        quick=_quick,
        **_sizes,
    )(over_density)
