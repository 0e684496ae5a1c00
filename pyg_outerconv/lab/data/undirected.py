"""Edges that go both ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

from ...errors import RefusedValue, refusal


def make_undirected(data: Data, origin: str) -> None:
    """Give a graph the reverse of each edge that is listed one way only, see :func:`both_ways`.

    Raises:
        ValueError: an edge that is listed both ways has two weights.
    """
    weights, types = data.get("edge_weight"), data.get("edge_type")
    index, weights, types = both_ways(
        data.edge_index, weights, types, lambda row: f"{origin}, edge {row}"
    )
    values = {"edge_index": index, "edge_weight": weights, "edge_type": types}
    data.update({key: value for key, value in values.items() if value is not None})


def both_ways(
    index: Tensor, weights: Tensor | None, types: Tensor | None, where: Callable[[int], str]
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Edges (2, E') with the reverse of each edge that is listed one way only.

    Where m → n of a type is listed p times and n → m q times, both are there max(p, q) times.
    Self-loops stay as they are. What is added stands behind what was listed, in its order.

    Raises:
        ValueError: an edge that is listed both ways has two weights.
    """
    if not index.numel():
        return index, weights, types
    one_way, both = index[0] < index[1], index[0] != index[1]
    low, high = torch.minimum(index[0], index[1]), torch.maximum(index[0], index[1])
    group = group_of(torch.stack([low, high]), types)
    rank = _occurrence(2 * group + one_way)  # the k-th m → n is the reverse of the k-th n → m
    key = group * (int(rank.max()) + 1) + rank
    place = torch.full((2, int(key.max()) + 1), -1, dtype=torch.long)
    numbers = torch.arange(key.numel())
    place[one_way.long()[both], key[both]] = numbers[both]
    matched = (place >= 0).all(dim=0)
    if weights is not None:
        first, second = place[:, matched]
        different = (weights[first] != weights[second]).nonzero().flatten()
        if different.numel():
            one = int(torch.maximum(first, second)[different].min())
            rule = "an undirected edge has one weight"
            other = int(place[:, key[one]].min())
            expected = f"{weights[other]:g} as in {where(other)}"
            said = refusal(rule, expected, f"{weights[one]:g}")
            raise RefusedValue(f"{where(one)}: {said}")
    added = (both & ~matched[key]).nonzero().flatten()
    index = torch.cat([index, index[:, added].flip(0)], dim=1)
    weights = None if weights is None else torch.cat([weights, weights[added]])
    types = None if types is None else torch.cat([types, types[added]])
    return index, weights, types


def group_of(index: Tensor, types: Tensor | None) -> Tensor:
    """(E,) numbers from 0, equal for edges of the same ends and type."""
    if not index.numel():
        return index[0]
    _, group = torch.unique(index[0] * (int(index.max()) + 1) + index[1], return_inverse=True)
    if types is not None:
        _, group = torch.unique(group * (int(types.max()) + 1) + types, return_inverse=True)
    numbers: Tensor = group
    return numbers


def _occurrence(keys: Tensor) -> Tensor:
    """How often each key was there before, in the order of the list."""
    order = keys.sort(stable=True).indices
    ordered = keys[order]
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    begins = new.nonzero().flatten()
    numbers = torch.arange(keys.numel())
    found = torch.empty_like(keys)
    found[order] = numbers - begins[new.long().cumsum(0) - 1]
    return found
