"""Pictures of a basis: the arrays that each kind of picture shows. Imports matplotlib."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..basis.grid_shift import GridShift
from ..errors import RefusedValue, unknown
from . import graph as graph_plot
from . import grids
from . import matrices as matrix_plot
from .canvas import check_entries, check_format, image_shape, save
from .frames import Frame, frames, grids_of

if TYPE_CHECKING:
    from ..basis.base import Basis
    from ..basis.edges import EdgeBasis

MAX_PANELS = 16
PARTS = "labels= for fewer, or a part of the basis (restrict, or a smaller structure)"
Cell = int | Sequence[int]


def draw(basis: Basis, kind: str, path: str | Path | None, options: dict[str, Any]) -> Figure:
    """Check the options of :meth:`.Basis.plot`, draw the picture, and write it to ``path``.

    Raises:
        ValueError: the kind or an option is unknown, the basis has no nodes, or ``path`` cannot be
            written.
    """
    if kind not in KINDS:
        raise RefusedValue(unknown("kind of picture", kind, KINDS))
    known = list(inspect.signature(KINDS[kind]).parameters)[1:]
    for option in options:
        if option not in known:
            raise RefusedValue(unknown(f"option of a picture of {kind}", option, known))
    if path is not None:
        check_format(path)
    if 0 in basis.size:
        raise RefusedValue("a picture needs nodes", "M >= 1 and N >= 1", basis.size)
    figure = KINDS[kind](basis, **options)
    if path is not None:
        save(figure, path)
    return figure


def matrices(
    basis: Basis,
    *,
    labels: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    max_panels: int = MAX_PANELS,
) -> Figure:
    """Draw a panel for each A_k."""
    chosen, names = _chosen(basis, labels, titles, max_panels)
    m, n = basis.size
    check_entries("M·N·K", m * n * len(chosen), (m, n), PARTS)
    edges = basis.select(chosen).edges()
    values = np.ma.masked_array(_array(edges.to_dense()), ~edges.support().cpu().numpy())
    shapes = grids_of(basis)
    blocks = None
    if shapes is not None and len(shapes[0]) > 1:
        blocks = (shapes[0][-1], shapes[1][-1])
    left_out = basis.num_bases - len(chosen) if labels is None else 0
    return matrix_plot.matrices(values, names, left_out=left_out, blocks=blocks)


def shift(
    basis: Basis,
    *,
    labels: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    max_panels: int = MAX_PANELS,
    cell: Cell | None = None,
    inputs: Any = None,
    outputs: Any = None,
) -> Figure:
    """Draw the output grid under each label, in the colours of the inputs that it sees."""
    chosen, names = _chosen(basis, labels, titles, max_panels)
    found = frames(basis, inputs, outputs)
    if found is None:
        raise RefusedValue(
            "a picture of shifts needs grids", "a grid, or inputs= and outputs=", basis
        )
    given, made = found
    _check_cells("M + N·K", given, made, len(chosen))
    followed = given.middle if cell is None else given.node(cell)
    seen = _seen(basis.select(chosen).edges())
    cells = np.full((len(chosen), prod(made.shape)), -1)
    cells[:, made.numbers] = np.where(seen < 0, -1, given.numbers[seen])
    left_out = basis.num_bases - len(chosen) if labels is None else 0
    return grids.shifts(cells, found, names, int(given.numbers[followed]), left_out=left_out)


def receptive_field(
    basis: Basis,
    *,
    cell: Cell = 0,
    reach: int = 1,
    inputs: Any = None,
    outputs: Any = None,
    layout: str = "spring",
    seed: int = 0,
) -> Figure:
    """Draw the inputs that reach an output: cells of a grid, or nodes of a graph."""
    found = frames(basis, inputs, outputs)
    target = (Frame((basis.size[1],)) if found is None else found[1]).node(cell)
    if found is not None:
        given, made = found
        _check_cells("M + N", given, made, 1)
        reached = given.numbers[_reaching(basis, target, reach)].tolist()
        return grids.receptive_field(reached, [int(made.numbers[target])], found)
    reached = _reaching(basis, target, reach)
    return graph_plot.receptive_field(_graph_edges(basis), reached, target, layout, seed)


def graph(
    basis: Basis,
    *,
    labels: Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    max_panels: int = MAX_PANELS,
    around: int | Sequence[int] = (),
    classes: Any = None,
    layout: str | None = None,
    seed: int = 0,
) -> Figure:
    """Draw a panel for each A_k: nodes, and edges in the colour and the width of their value."""
    every = range(basis.num_bases)
    _, names = _chosen(basis, every, titles, max_panels)
    chosen = None if labels is None else _chosen(basis, labels, titles, max_panels)[0]
    shapes = grids_of(basis) if layout is None else None
    is_grid = shapes is not None and shapes[0] == shapes[1] and len(shapes[0]) <= 2
    return graph_plot.graph(
        _graph_edges(basis),
        names,
        layout or "spring",
        seed,
        shape=image_shape(shapes[0]) if is_grid and shapes is not None else None,
        around=(around,) if isinstance(around, int) else tuple(around),
        classes=None if classes is None else np.asarray(classes),
        labels=chosen,
        max_panels=max_panels,
    )


def flattenings(
    basis: Basis, *, theta: Tensor | None = None, channels: tuple[int, int] = (2, 3), seed: int = 0
) -> Figure:
    """Draw Σ_k A_k ⊗ Θ_k and Σ_k Θ_k ⊗ A_k; Θ is drawn from a normal distribution if None."""
    if theta is None:
        if len(channels) != 2 or min(channels) < 1:
            raise RefusedValue("flattenings need channels", "(P, Q) >= 1", channels)
        random = torch.Generator().manual_seed(seed)
        theta = torch.randn((basis.num_bases, *channels), generator=random, dtype=torch.double)
    elif theta.dim() != 3 or theta.size(0) != basis.num_bases:
        raise RefusedValue(
            "Θ has a matrix for each label", f"({basis.num_bases}, P, Q)", theta.shape
        )
    p, q = int(theta.size(1)), int(theta.size(2))
    m, n = basis.size
    matrix_plot.check_flattenings(basis.size, (p, q))
    check_entries("M·N·K", m * n * basis.num_bases, (), PARTS)
    theta = theta.detach().to(basis.device)
    pairs = list(zip(basis.to_dense(theta.dtype).to(theta.dtype), theta, strict=True))
    hat = sum(torch.kron(a, t) for a, t in pairs)
    check = sum(torch.kron(t, a) for a, t in pairs)
    return matrix_plot.flattenings(_array(hat), _array(check), basis.size, (p, q))


KINDS: dict[str, Callable[..., Figure]] = {
    "matrices": matrices,
    "shift": shift,
    "flattenings": flattenings,
    "receptive-field": receptive_field,
    "graph": graph,
}


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().double().numpy()


def _check_cells(what: str, given: Frame, made: Frame, panels: int) -> None:
    sides = [side for frame in (given, made) for side in image_shape(frame.shape)]
    count = prod(given.shape) + panels * prod(made.shape)
    check_entries(what, count, tuple(sides), "labels= for fewer, or a smaller grid")


def _chosen(
    basis: Basis, labels: Sequence[int] | None, titles: Sequence[str] | None, max_panels: int
) -> tuple[list[int], list[str]]:
    """The labels to draw, and their titles."""
    count = basis.num_bases
    if titles is not None and len(titles) != count:
        raise RefusedValue("a basis has a title for each label", count, len(titles))
    if max_panels < 1:
        raise RefusedValue("a picture needs a panel", "max_panels >= 1", max_panels)
    if count == 0 or (labels is not None and not len(labels)):
        raise RefusedValue("a picture needs a label", "at least one", "none")
    chosen = list(range(count))[:max_panels] if labels is None else list(labels)
    basis.select(chosen)  # raises for labels out of range
    names = _names(basis) if titles is None else list(titles)
    return chosen, [names[k] for k in chosen]


def _names(basis: Basis) -> list[str]:
    """The name of each label: the shift of a grid, else its number."""
    if not isinstance(basis, GridShift):
        return [f"k = {k}" for k in range(basis.num_bases)]
    turned = ", transposed" if basis.is_transposed else ""
    return [f"shift ({', '.join(map(str, shift))}){turned}" for shift in basis.shifts]


def _seen(edges: EdgeBasis) -> Any:
    """(K, N) the input that each output sees under each label; −1 for none."""
    seen = torch.full((edges.num_bases, edges.size[1]), -1, dtype=torch.long, device=edges.device)
    target, label = edges.index[1].long(), edges.label.long()
    seen[label, target] = edges.index[0].long()
    if int((seen >= 0).sum()) < edges.num_edges:
        raise RefusedValue(
            "a picture of shifts shows one input for each output and label",
            "no output that sees several",
            "some that do; draw the kind 'matrices'",
        )
    return seen.cpu().numpy()


def _reaching(basis: Basis, target: int, reach: int) -> list[int]:
    return [int(source) for source in basis.receptive_field(target, reach)]


def _graph_edges(basis: Basis) -> graph_plot.Edges:
    edges = basis.edges()
    source, target = edges.index.long().cpu().numpy()
    values = _array(edges.values(torch.double))
    return graph_plot.Edges(source, target, edges.label.long().cpu().numpy(), values, edges.size)
