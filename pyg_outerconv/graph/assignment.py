"""Assignments of sources to clusters, by one criterion or by several."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_torch_sparse_tensor

from ..errors import RefusedType, RefusedValue
from .checks import agreed, check_batch, check_range, check_size, holds
from .edge_index import require_data
from .structure import Structure, refuse_beside

_SELECTED = ("node_index", "num_nodes", "cluster_index", "num_clusters", "weight")


@dataclass(frozen=True, eq=False)
class Criterion:
    """One assignment of M sources to N clusters: its (source, cluster) pairs, in input order.

    Attributes:
        source: (E,) the source of each pair.
        target: (E,) its cluster.
        weight: (E,) floating point, how strongly the source belongs to the cluster, or None for
            ones; may require gradients.
        num_sources, num_targets: M and N; None where the criterion does not determine them.
    """

    source: Tensor
    target: Tensor
    weight: Tensor | None
    num_sources: int | None
    num_targets: int | None


@dataclass(frozen=True, eq=False)
class Assignment(Structure):
    """An assignment of M sources to N clusters, by one criterion or by several.

    A criterion is an integer vector (M,), as ``batch`` and ``cluster`` are in PyG; a
    ``SelectOutput``; or an assignment matrix (M, N), dense or ``torch.sparse``, whose nonzero
    entries are weights. Several criteria are given as a list.

    Attributes:
        criteria: one or more criteria.
        size: (M, N).
        bipartite: True, because clusters are not nodes.
    """

    noun: ClassVar[str] = "assignments"
    expects: ClassVar[str] = (
        "a cluster for each source (M,), a SelectOutput, an assignment matrix (M, N), or a list"
    )

    bipartite = True

    criteria: tuple[Criterion, ...]
    size: tuple[int, int]

    @property
    def device(self) -> torch.device:
        """The device of the first criterion."""
        return self.criteria[0].source.device

    @classmethod
    def recognises(cls, edge_index: Any) -> bool:
        """Whether the argument has the form of a criterion or of a list of criteria."""
        if isinstance(edge_index, list | tuple):
            return len(edge_index) > 0 and all(_is_criterion(one) for one in edge_index)
        return isinstance(edge_index, Assignment) or _is_criterion(edge_index)

    @classmethod
    def read(
        cls, edge_index: Any, *, device: torch.device | None = None, **beside: Any
    ) -> Assignment:
        """Check the criteria; ``size`` gives (M, N) where they do not determine it.

        ``batch``, the graph of each source (M,), or a pair for sources and clusters, is checked but
        not used.

        Raises:
            TypeError: the argument is not a criterion.
            ValueError: the criteria disagree in M or N, or an index is out of range.
        """
        size, batch = beside.pop("size", None), beside.pop("batch", None)
        beside.pop("bipartite", None)  # assignments are bipartite whatever x is
        check_size(size)
        refuse_beside(cls.noun, beside)
        if isinstance(edge_index, Assignment):
            agreed("the assignments", edge_index.size, size)
            return edge_index._checked(batch)
        if not cls.recognises(edge_index):
            raise RefusedType("assignments have a known form", cls.expects, repr(edge_index))
        several = edge_index if isinstance(edge_index, list | tuple) else (edge_index,)
        criteria = tuple(map(_criterion, several))
        sources, targets = size or (None, None)
        sources = _agreed("sources", sources, [one.num_sources for one in criteria])
        targets = _agreed("clusters", targets, [one.num_targets for one in criteria])
        if targets is None:
            ends = [one.target for one in criteria if one.target.numel()]
            targets = max((int(end.max()) + 1 for end in ends), default=0)
        assert sources is not None  # every criterion has num_sources
        for one in criteria:
            check_range("source of an assignment", one.source, sources)
            check_range("cluster of an assignment", one.target, targets)
        return Assignment(criteria, (sources, targets))._checked(batch)

    def _checked(self, batch: Any) -> Assignment:
        """The same assignment, if ``batch`` has one graph for each source (and cluster)."""
        ends = batch if isinstance(batch, tuple | list) else (batch,)
        for end, count in zip(ends, self.size, strict=False):
            check_batch(end, count)
        return self

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether the ``Data`` object has a batch vector."""
        return data.get("batch") is not None

    @classmethod
    def of_data(cls, data: Data) -> Assignment:
        """Assign each node to its graph; all nodes to one graph if there is no batch vector."""
        require_data(data)
        batch = data.get("batch")
        nodes = int(data.num_nodes or 0)
        if batch is None:
            tensor = next((t for t in data.to_dict().values() if isinstance(t, Tensor)), None)
            on = None if tensor is None else tensor.device
            batch = torch.zeros(nodes, dtype=torch.long, device=on)
            return cls.read(batch, size=(nodes, 1))
        return cls.read(batch, size=(nodes, getattr(data, "num_graphs", None)))

    @classmethod
    def identity(cls, edge_index: Any) -> tuple[tuple[Any, ...], Hashable]:
        """The tensors of all criteria, and their numbers of nodes and clusters."""
        several = edge_index if isinstance(edge_index, list | tuple) else (edge_index,)
        tensors: list[Any] = []
        numbers: list[Any] = []
        for one in several:
            if isinstance(one, Tensor | Assignment):
                tensors.append(one)
                numbers.append(None)
                continue
            tensors += [one.node_index, one.cluster_index, one.weight]
            numbers.append((one.num_nodes, one.num_clusters))
        return tuple(tensors), tuple(numbers)


def _is_criterion(criterion: Any) -> bool:
    if not isinstance(criterion, Tensor):
        return all(hasattr(criterion, name) for name in _SELECTED)
    if criterion.is_floating_point():
        return criterion.dim() == 2
    return criterion.dim() == 1 and criterion.dtype != torch.bool and not criterion.is_complex()


def _criterion(criterion: Any) -> Criterion:
    if not isinstance(criterion, Tensor):
        ends = criterion.node_index, criterion.cluster_index
        return Criterion(
            *ends, criterion.weight, int(criterion.num_nodes), int(criterion.num_clusters)
        )
    if not criterion.is_floating_point():
        members = torch.arange(criterion.numel(), device=criterion.device)
        return Criterion(members, criterion, None, criterion.numel(), None)
    if is_torch_sparse_tensor(criterion):
        matrix = criterion.to_sparse_coo().coalesce()
        (source, target), weight = matrix.indices(), matrix.values()
        keep = weight.detach() != 0
        source, target, weight = source[keep], target[keep], weight[keep]
    else:
        source, target = (criterion.detach() != 0).nonzero(as_tuple=True)
        weight = criterion[source, target]
    if not holds(torch.isfinite(weight.detach()).all()):
        raise RefusedValue("an assignment must be finite", "numbers", "NaN or infinity")
    return Criterion(source, target, weight, criterion.size(0), criterion.size(1))


def _agreed(what: str, expected: int | None, counts: list[int | None]) -> int | None:
    """The one number on which all criteria agree, or None where none states it."""
    stated = {count for count in (expected, *counts) if count is not None}
    if len(stated) > 1:
        raise RefusedValue(f"all assignments have the same number of {what}", "one", sorted(stated))
    return next(iter(stated), None)
