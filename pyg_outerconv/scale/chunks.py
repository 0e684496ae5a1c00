"""Targets in chunks of bounded size, the part of a basis that reaches a chunk, rows of features."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.edge_sets import edge_sets, reached
from ..basis.subpattern import spread_runs
from ..errors import RefusedValue
from ..graph import Features

MOST_EDGES = 2**20
"""The default bound on edges plus targets of a chunk."""


def chunks(basis: Basis, most: int = MOST_EDGES) -> Iterator[Tensor]:
    """The targets of a basis (N,) in order, split so that each part has a bounded size.

    Args:
        basis: K matrices of size M × N.
        most: the largest number of edges and targets of a part, in which a target with more edges
            is alone.

    Raises:
        ValueError: ``most`` is not positive.
    """
    if most < 1:
        raise RefusedValue("a chunk has targets", "a positive number of edges", most)
    count = basis.size[1]
    sizes = torch.ones(count, dtype=torch.long)
    for edges in edge_sets(basis):
        if edges.size[1] == count:
            sizes += edges.pattern.target_ptr.diff().cpu()
    ends = sizes.cumsum(0)
    begin, before = 0, 0
    while begin < count:
        end = max(begin + 1, int(torch.searchsorted(ends, before + most, right=True)))
        yield torch.arange(begin, end, device=basis.device)
        begin, before = end, int(ends[end - 1])


def reaching(basis: Basis, targets: Tensor) -> tuple[Basis, Tensor]:
    """The part of a basis that reaches some targets, with all of its values.

    Returns:
        A_k[sources, targets] for every k, and the sources (M',), ascending.
    """
    into = basis.restricted(None, targets)
    seen = torch.ones(targets.numel(), dtype=torch.bool, device=targets.device)
    sources = reached(into, seen, range(into.num_bases)).nonzero().view(-1)
    return into.restricted(sources, None), sources


def rows_of(x: Tensor, nodes: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of dense features, or of features in CSR, which remain CSR, in a floating point type."""
    if x.layout == torch.strided:
        return x.index_select(0, nodes).to(dtype)
    begin, end = (x.crow_indices()[at] for at in (nodes, nodes + 1))
    row, within = spread_runs(end - begin)
    chosen = begin[row] + within
    ptr = torch.cat([begin.new_zeros(1), (end - begin).cumsum(0)])
    parts = ptr, x.col_indices()[chosen], x.values()[chosen].to(dtype)
    return torch.sparse_csr_tensor(*parts, (nodes.numel(), x.size(1)), check_invariants=False)


def check_features(x: Features) -> None:
    """Raise ValueError for features that cannot be read row by row."""
    plain = isinstance(x, Tensor) and x.dim() == 2 and x.is_floating_point()
    layouts = (torch.strided, torch.sparse_csr)
    if x is not None and not (plain and isinstance(x, Tensor) and x.layout in layouts):
        raise RefusedValue(
            "layer-wise inference reads features row by row",
            "a matrix of floating point numbers, dense or CSR, or None",
            f"{type(x).__name__} {tuple(getattr(x, 'shape', ()))}",
        )
