"""Images: torch's convolution against ours, lowered; and against cells that are partly there."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from ....families import Grid
from ....graph import Cells
from ....nn import GridConv
from ..case import OURS, PREPARATION, TORCH, Contender, Context, Point, Setup, case
from ..roofline import relation_rows
from ..sides import Sides
from ..targets import ahead_up_to, faster, within

ACTIVE = (0.01, 0.05, 0.1, 0.2, 0.5)
CHANNELS = 32
BATCH = 8


def _layers(context: Context) -> tuple[GridConv, nn.Conv2d]:
    """Both layers, with the same weights."""
    torch.manual_seed(context.seed)
    ours = GridConv(CHANNELS, CHANNELS, 3, padding=1, dim=2)
    torch.manual_seed(context.seed)
    theirs = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
    where = (context.device, context.dtype)
    return ours.to(*where), theirs.to(*where)


@case(
    "grid-conv",
    "grid",
    "3×3 convolution of 64×64 images, 32 → 32 channels, batch 8, lowered",
    targets=(faster(TORCH, 0.9),),
)
def full_grid(context: Context) -> Setup:
    """GridConv by its own choice, and torch.nn.Conv2d."""
    side = context.size(64, at_least=8, quick=False)
    ours, theirs = _layers(context)
    sides = Sides(context, (BATCH, CHANNELS, side, side))
    sides.layer(OURS, ours)
    sides.layer(TORCH, theirs)
    sizes = {"cells": side * side, "batch": BATCH, "channels": CHANNELS}
    return sides.setup({**sizes, "chosen": ours.contraction_path(sides.x).chosen[0]})


@case(
    "grid-active",
    "grid",
    "the same on images of which a part of the cells is active, against torch on full images",
    axis="density",
    points=lambda context: ACTIVE,
    targets=(ahead_up_to(TORCH, 0.1), ahead_up_to(TORCH, 0.1, "forward")),
)
def active_cells(context: Context, point: Point) -> Setup:
    """GridConv with outputs where inputs are, and torch.nn.Conv2d with zeros elsewhere."""
    assert isinstance(point, float)  # ACTIVE
    generator, side = context.generator(), context.size(64, at_least=8, quick=False)
    ours, theirs = _layers(context)
    mask = torch.rand(BATCH, side, side, generator=generator) < point
    mask[0, 0, 0] = True
    mask = mask.to(context.device)
    basis = ours.family.basis(Cells.of_mask(mask, batched=True))
    cells = basis.size[0]
    sides = Sides(context, (cells, CHANNELS), generator=generator)
    x, on_grid = sides.x, copy(sides)
    on_grid.x = _on_grid(x.detach(), mask).requires_grad_()
    on_grid.direction, on_grid.contenders = _on_grid(sides.direction, mask), []
    dense = on_grid.layer(TORCH, theirs)

    def check() -> Sequence[Tensor]:
        assert dense.check is not None
        return [images.movedim(1, -1)[mask] for images in dense.check()]

    sides.layer(OURS, ours, basis)
    sides.contenders.append(replace(dense, check=check))
    edges = basis.edges().num_edges
    work = sides.work(9 * CHANNELS**2, edges, relation_rows(basis), valued=False)
    chosen = ours.contraction_path(x, basis).chosen[0]
    return sides.setup({"cells": cells, "edges": edges, "chosen": chosen}, work)


def _on_grid(rows: Tensor, mask: Tensor) -> Tensor:
    """(B, C, H, W) with the rows (n, C) at the active cells, zeros elsewhere."""
    images = rows.new_zeros((*mask.shape, rows.size(1)))
    images[mask] = rows
    return images.movedim(-1, 1).contiguous()


@case(
    "grid-rule",
    "grid",
    "the basis of a 512×512 image with a 3×3 kernel, as a rule",
    targets=(within(5e-3),),
)
def rule_of_a_grid(context: Context) -> Setup:
    """The rule alone, which holds no edges."""
    side = context.size(512, at_least=4, quick=False)
    family = Grid(3, padding=1, dim=2)
    steps = {PREPARATION: lambda: family.basis((side, side))}
    return Setup([Contender(OURS, steps)], {"cells": side * side, "labels": family.num_bases})


@case(
    "grid-edges",
    "grid",
    "the same with its edges, sorted",
    targets=(within(1.0, mebibytes=200 * 1e6 / 2**20),),
    memory=(OURS,),
)
def edges_of_a_grid(context: Context) -> Setup:
    """All edges of the rule."""
    side = context.size(512, at_least=4, quick=False)
    family = Grid(3, padding=1, dim=2)
    edges = family.basis((side, side)).num_edges  # type: ignore[attr-defined]
    steps = {PREPARATION: lambda: family.basis((side, side)).edges()}
    return Setup([Contender(OURS, steps)], {"cells": side * side, "edges": edges})
