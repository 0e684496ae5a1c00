"""Memberships: which source belongs to which cluster, by one criterion or by several."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import is_torch_sparse_tensor

from ..errors import RefusedType, RefusedValue, refusal
from .checks import agreed, check_batch, check_size, holds
from .pyg_data import require_data
from .structure import Structure, refuse_beside

_SELECTED = ("node_index", "num_nodes", "cluster_index", "num_clusters", "weight")


@dataclass(frozen=True, eq=False)
class Criterion:
    """The members that one criterion finds, in the order in which it was given.

    Attributes:
        source: (E,) the member.
        target: (E,) its cluster.
        weight: (E,) floating point, how much it is one, or None for ones; may carry gradients.
        num_sources, num_targets: M and N, None where it does not say.
    """

    source: Tensor
    target: Tensor
    weight: Tensor | None
    num_sources: int | None
    num_targets: int | None


@dataclass(frozen=True, eq=False)
class Assignment(Structure):
    """M sources that belong to N clusters, by one criterion or by several.

    A criterion is an integer vector (M,), as ``batch`` and ``cluster`` are in PyG; a
    ``SelectOutput``; or an assignment matrix (M, N), dense or ``torch.sparse``, whose entries that
    are not zero are the weights of members. Several come as a list.

    Attributes:
        criteria: one or more.
        size: (M, N).
        bipartite: True; clusters are no nodes.
    """

    noun: ClassVar[str] = "memberships"
    expects: ClassVar[str] = (
        "a cluster for each source (M,), a SelectOutput, an assignment matrix (M, N), or a list"
    )

    bipartite = True

    criteria: tuple[Criterion, ...]
    size: tuple[int, int]

    @property
    def device(self) -> torch.device:
        """Where the first criterion is."""
        return self.criteria[0].source.device

    @classmethod
    def recognises(cls, given: Any) -> bool:
        """Whatever looks like a criterion, or a list of such."""
        if isinstance(given, list | tuple):
            return len(given) > 0 and all(_is_criterion(one) for one in given)
        return isinstance(given, Assignment) or _is_criterion(given)

    @classmethod
    def read(cls, given: Any, *, device: torch.device | None = None, **beside: Any) -> Assignment:
        """The criteria, checked; ``size`` (M, N) where they do not say it.

        ``batch``, the graph of each source (M,), or a pair for sources and clusters, says no more
        than the criteria do.

        Raises:
            TypeError: what was given is no criterion.
            ValueError: they disagree in M or N, or hold a number that is out of range.
        """
        size, batch = beside.pop("size", None), beside.pop("batch", None)
        beside.pop("bipartite", None)  # which memberships are, whatever x is
        check_size(size)
        refuse_beside(cls.noun, beside)
        if isinstance(given, Assignment):
            agreed("the memberships", given.size, size)
            return given._checked(batch)
        if not cls.recognises(given):
            raise RefusedType(refusal("memberships have a form", cls.expects, repr(given)))
        several = given if isinstance(given, list | tuple) else (given,)
        criteria = tuple(map(_criterion, several))
        sources, targets = size or (None, None)
        sources = _agreed("sources", sources, [one.num_sources for one in criteria])
        targets = _agreed("clusters", targets, [one.num_targets for one in criteria])
        if targets is None:
            ends = [one.target for one in criteria if one.target.numel()]
            targets = max((int(end.max()) + 1 for end in ends), default=0)
        assert sources is not None  # every criterion says it
        for one in criteria:
            _check_range("member", one.source, sources)
            _check_range("cluster", one.target, targets)
        return Assignment(criteria, (sources, targets))._checked(batch)

    def _checked(self, batch: Any) -> Assignment:
        """Itself, if there is a graph for each source (and cluster)."""
        ends = batch if isinstance(batch, tuple | list) else (batch,)
        for end, count in zip(ends, self.size, strict=False):
            check_batch(end, count)
        return self

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether it says which graph each node is of."""
        return data.get("batch") is not None

    @classmethod
    def of_data(cls, data: Data) -> Assignment:
        """Nodes belong to their graphs; to one, if there is no batch."""
        require_data(data)
        batch = data.get("batch")
        nodes = int(data.num_nodes or 0)
        if batch is None:
            found = next((t for t in data.to_dict().values() if isinstance(t, Tensor)), None)
            on = None if found is None else found.device
            batch = torch.zeros(nodes, dtype=torch.long, device=on)
            return cls.read(batch, size=(nodes, 1))
        return cls.read(batch, size=(nodes, getattr(data, "num_graphs", None)))

    @classmethod
    def identity(cls, given: Any) -> tuple[tuple[Any, ...], Hashable]:
        """The tensors of all criteria, and the numbers beside them."""
        several = given if isinstance(given, list | tuple) else (given,)
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


def _is_criterion(given: Any) -> bool:
    if not isinstance(given, Tensor):
        return all(hasattr(given, name) for name in _SELECTED)
    if given.is_floating_point():
        return given.dim() == 2
    return given.dim() == 1 and given.dtype != torch.bool and not given.is_complex()


def _criterion(given: Any) -> Criterion:
    if not isinstance(given, Tensor):
        ends = given.node_index, given.cluster_index
        return Criterion(*ends, given.weight, int(given.num_nodes), int(given.num_clusters))
    if not given.is_floating_point():
        members = torch.arange(given.numel(), device=given.device)
        return Criterion(members, given, None, given.numel(), None)
    if is_torch_sparse_tensor(given):
        matrix = given.to_sparse_coo().coalesce()
        (source, target), weight = matrix.indices(), matrix.values()
        keep = weight.detach() != 0
        source, target, weight = source[keep], target[keep], weight[keep]
    else:
        source, target = (given.detach() != 0).nonzero(as_tuple=True)
        weight = given[source, target]
    if not holds(torch.isfinite(weight.detach()).all()):
        raise RefusedValue(refusal("an assignment must be finite", "numbers", "NaN or infinity"))
    return Criterion(source, target, weight, given.size(0), given.size(1))


def _agreed(what: str, given: int | None, known: list[int | None]) -> int | None:
    """The one number that somebody said."""
    said = {count for count in (given, *known) if count is not None}
    if len(said) > 1:
        raise RefusedValue(refusal(f"memberships are of one number of {what}", "one", sorted(said)))
    return next(iter(said), None)


def _check_range(what: str, index: Tensor, count: int) -> None:
    if index.numel() == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= count:
        raise RefusedValue(
            refusal(f"every {what} has a number", f"[0, {count})", min(lowest, 0) or highest)
        )
