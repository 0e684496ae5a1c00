"""What checks and families ask of the numbers of a graph on a device, read at once.

To read a number of a tensor on a device is to wait for all that was put on its stream before. So a
new graph is read once: the ranges of its indices and types, the signs of its weights and its
self-loops. That is remembered for the tensors, as long as they do not change
(:mod:`pyg_outerconv.memo`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..kernels.index_checks import PLAIN
from ..memo import Memo

_summaries = Memo()


@dataclass(frozen=True)
class Summary:
    """Numbers of a list of edges.

    Attributes:
        lowest: the least index of a source and of a target.
        highest: the largest ones.
        num_loops: the number of self-loops.
        num_looped: that of nodes with a self-loop; None where the number of nodes was not known.
        is_finite: whether all weights are, if there are weights.
        has_negative: whether a weight is negative.
        lowest_type, highest_type: the range of the types of edges, if they have types.
    """

    lowest: tuple[int, int]
    highest: tuple[int, int]
    num_loops: int
    num_looped: int | None
    is_finite: bool
    has_negative: bool
    lowest_type: int
    highest_type: int

    def reversed(self) -> Summary:
        """That of the edges with sources and targets exchanged."""
        return replace(self, lowest=self.lowest[::-1], highest=self.highest[::-1])


def summary_of(
    edge_index: Tensor, weight: Tensor | None, types: Tensor | None, num_nodes: int | None
) -> Summary | None:
    """The summary of edges (2, E), read from the device; None without edges.

    Args:
        edge_index: (2, E) int32 or int64.
        weight, types: numbers of edges, if there are any; others than (E,) on the same device are
            passed over, for they are refused later.
        num_nodes: N, if self-loops may be asked for and N is known.
    """
    if not edge_index.numel():
        return None
    weight, types = _beside(weight, edge_index), _beside(types, edge_index)
    key = num_nodes, weight is None, types is None
    arguments = edge_index, None if weight is None else weight.detach(), types
    tensors = [one for one in (edge_index, weight, types) if one is not None]
    return _summaries.get(key, lambda: _read(*arguments, num_nodes), *tensors)  # type: ignore[no-any-return]


def _beside(numbers: Tensor | None, edge_index: Tensor) -> Tensor | None:
    """Numbers of edges, if they are one for each on the same device."""
    if numbers is None or type(numbers) not in PLAIN or numbers.device != edge_index.device:
        return None
    return numbers if numbers.shape == edge_index.shape[1:] else None


def _read(
    edge_index: Tensor, weight: Tensor | None, types: Tensor | None, num_nodes: int | None
) -> Summary:
    source, target = edge_index
    is_loop = source == target
    ends = edge_index.aminmax(dim=1)
    parts = [ends.min, ends.max, is_loop.sum()]
    if num_nodes is not None:  # indices may be out of range as yet
        place = torch.where(is_loop, source.clamp(0, num_nodes), num_nodes).long()
        looped = torch.zeros(num_nodes + 1, dtype=torch.bool, device=place.device)
        parts.append(looped.index_fill_(0, place, 1)[:-1].sum())
    if weight is not None:
        parts += [weight.isfinite().all(), (weight < 0).any()]
    if types is not None:
        parts += [*types.aminmax()]
    numbers = iter(torch.cat([part.reshape(-1).long() for part in parts]).tolist())
    lowest, highest = ((next(numbers), next(numbers)) for _ in range(2))
    num_loops = next(numbers)
    num_looped = None if num_nodes is None else next(numbers)
    finite, negative = (True, False) if weight is None else (next(numbers), next(numbers))
    of_types = (0, 0) if types is None else (next(numbers), next(numbers))
    return Summary(lowest, highest, num_loops, num_looped, bool(finite), bool(negative), *of_types)
