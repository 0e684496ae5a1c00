"""Node sets: numbers of nodes, with positions and graphs, but without edges."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..errors import RefusedType, RefusedValue
from ..signatures import typed
from .checks import agreed, check_batch, check_size
from .edge_index import require_data
from .structure import Structure, refuse_beside

Ends = tuple[Tensor, Tensor]


@typed
@dataclass(frozen=True, eq=False)
class NodeSet(Structure):
    """Nodes without edges, read from ``edge_index=None``.

    Attributes:
        num_nodes: (M, N), each None if not known.
        device: the device of a basis on these nodes.
        batch: the graph of each source (M,) and of each target (N,), or None.
        pos: positions (M, D) of sources and (N, D) of targets, or None; only M and N are checked.
        bipartite: whether sources and targets are different nodes; M ≠ N implies it.
    """

    noun: ClassVar[str] = "nodes without edges"
    expects: ClassVar[str] = "None"

    num_nodes: tuple[int | None, int | None]
    device: torch.device
    batch: Ends | None = None
    pos: Ends | None = None
    bipartite: bool = False

    def __post_init__(self) -> None:
        counted = not self.bipartite and None not in self.num_nodes
        if counted and self.num_nodes[0] != self.num_nodes[1]:
            object.__setattr__(self, "bipartite", True)

    @classmethod
    def recognises(cls, edge_index: Any) -> bool:
        """Whether the argument is None or a ``NodeSet``."""
        return edge_index is None or isinstance(edge_index, NodeSet)

    @classmethod
    def read(cls, edge_index: Any, *, device: torch.device | None = None, **beside: Any) -> NodeSet:
        """Count the nodes by ``size``, ``batch`` or ``pos``.

        ``batch`` and ``pos`` are one tensor for both, or a pair for sources and targets.

        Raises:
            TypeError: ``batch`` is not of integers, or ``pos`` is neither a tensor nor a pair.
            ValueError: edge weights, types or attributes were given, or numbers of nodes disagree.
        """
        if isinstance(edge_index, NodeSet):
            if all(value is None for value in beside.values()):
                return edge_index
            device = edge_index._add_to(beside)
        bipartite = bool(beside.pop("bipartite", None))
        size = beside.pop("size", None)
        check_size(size)
        batch, pos = (_both_ends(name, beside.pop(name, None)) for name in ("batch", "pos"))
        refuse_beside(cls.noun, beside)
        num_nodes = (None, None) if size is None else (size[0], size[1])
        for name, ends in (("batch", batch), ("pos", pos)):
            num_nodes = num_nodes if ends is None else _counted(name, ends, num_nodes)
        for end in batch or ():
            check_batch(end, end.size(0))
        ends = batch or pos
        where = device or torch.get_default_device() if ends is None else ends[0].device
        return NodeSet(num_nodes, where, batch, pos, bipartite)

    def _add_to(self, beside: dict[str, Any]) -> torch.device:
        """Write the attributes of these nodes into ``beside``, which must not have them already."""
        for name in ("batch", "pos"):
            if (own := getattr(self, name)) is not None:
                refuse_beside(f"nodes that have {name}", {name: beside.get(name)})
                beside[name] = own
        beside["size"] = agreed("the NodeSet", self.num_nodes, beside.get("size"))
        beside["bipartite"] = self.bipartite or beside.get("bipartite")
        return self.device

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """False: a ``Data`` object without edges is more likely a mistake than a set of nodes."""
        return False

    @classmethod
    def of_data(cls, data: Data) -> NodeSet:
        """The nodes of a ``Data`` object, with ``batch`` and ``pos``."""
        require_data(data)
        nodes = int(data.num_nodes or 0)
        return cls.read(None, size=(nodes, nodes), batch=data.get("batch"), pos=data.get("pos"))

    @classmethod
    def of_sources(cls, structure: Structure) -> NodeSet:
        """The sources of a structure as nodes; the number of targets stays unknown."""
        return cls((structure.size[0], None), structure.device)

    @property
    def size(self) -> tuple[int, int]:
        """(M, N), with N = M if N is not known.

        Raises:
            ValueError: M is not known.
        """
        sources, targets = self.num_nodes
        if sources is None:
            raise RefusedValue(
                "a basis without edges needs the number of nodes", "size=(M, N)", "None"
            )
        return sources, sources if targets is None else targets

    def at(self, pos: Ends) -> NodeSet:
        """The same nodes with positions (M, D) of sources and (N, D) of targets."""
        return replace(self, pos=pos)

    def made_of(self) -> tuple[tuple[Tensor | None, ...], Hashable]:
        """The batch vectors, with the numbers of nodes and the device."""
        return self.batch or (None, None), (self.num_nodes, self.bipartite, self.device)

    def reversed(self) -> NodeSet:
        """The same nodes with sources and targets exchanged."""
        batch, pos = (None if ends is None else ends[::-1] for ends in (self.batch, self.pos))
        return replace(self, num_nodes=self.num_nodes[::-1], batch=batch, pos=pos)


def _both_ends(name: str, tensors: Any) -> Ends | None:
    if tensors is None:
        return None
    ends = (tensors, tensors) if isinstance(tensors, Tensor) else tensors
    is_pair = isinstance(ends, tuple | list) and len(ends) == 2
    if not is_pair or not all(isinstance(end, Tensor) and end.dim() for end in ends):
        raise RefusedType(
            f"{name} has a row for each node",
            "a tensor, or a pair for sources and targets",
            type(tensors).__name__,
        )
    return ends[0], ends[1]


def _counted(name: str, ends: Ends, num_nodes: tuple[int | None, int | None]) -> tuple[int, int]:
    """(M, N), the numbers of rows of both tensors, which must not contradict ``num_nodes``."""
    counts = ends[0].size(0), ends[1].size(0)
    for what, count, other in zip(("source", "target"), counts, num_nodes, strict=True):
        if other not in (None, count):
            raise RefusedValue(f"{name} needs a row for each {what}", other, count)
    return counts
