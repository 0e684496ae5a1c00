"""Sets of graphs as inputs: their disjoint union, and batches of some of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from ...basis import Basis
from ...basis.subpattern import spread_runs
from ...errors import RefusedValue
from ...families import Cluster
from ...scale.chunks import rows_of
from ..data import Dataset, Entry
from .inputs import WHOLE, Batch, Inputs, Share
from .settings import Settings

Part = Callable[[Tensor], Any]
Members = Callable[[Tensor, int], Any]


@dataclass(frozen=True)
class OfGraphs:
    """The argument of a classifier of graphs beside the features.

    Attributes:
        layers: the argument of the layers.
        members: the argument of the readout, which says which nodes are in which graph.
    """

    layers: Any
    members: Any


def clusters(batch: Tensor, num_graphs: int) -> Basis:
    """The pooling basis (1, N, G) from nodes to their graphs."""
    return Cluster().basis(batch, size=(batch.numel(), num_graphs))


class Graphs(Inputs):
    """The disjoint union of G graphs, of which an update reads some.

    The layers get the diagonal block of these graphs, with the weights that it has in the union.

    Args:
        x: (N, P) features, dense or CSR.
        layers: the argument of the layers for all graphs.
        batch: (N,) the graph of each node, ascending.
        batch_size: number of graphs of an update.
        part: the argument of the layers for some nodes (N',), ascending and of whole graphs.
        members: the argument of the readout, from the graph of each node and the number of graphs.
    """

    def __init__(
        self,
        x: Tensor,
        layers: Any,
        batch: Tensor,
        batch_size: int,
        part: Part,
        members: Members = clusters,
    ) -> None:
        self.x, self.batch_size, self.part, self.members = x, batch_size, part, members
        self.counts = torch.bincount(batch)
        self.begins = self.counts.cumsum(0) - self.counts
        self.whole = OfGraphs(layers, members(batch, self.counts.numel()))

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        settings: Settings,
        x: Tensor | None,
        layers: Any,
        part: Part,
        members: Members = clusters,
    ) -> Graphs:
        """The inputs of a dataset of graphs, with its features as the settings keep them."""
        if x is None:
            raise RefusedValue(
                "graphs are classified by the features of their nodes", "features", "none"
            )
        batch = dataset.data.batch.to(settings.device)
        if isinstance(layers, Basis):
            check_block_diagonal(layers, batch)
        return cls(x, layers, batch, settings.batch_size, part, members)

    def batches(
        self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE
    ) -> Iterator[Batch | None]:
        """The graphs ``nodes`` (T,) in an order that seed and epoch determine."""
        generator = torch.Generator().manual_seed(1_000_003 * epoch + seed)
        order = torch.randperm(nodes.numel(), generator=generator).to(nodes.device)
        parts = nodes[order].split(self.batch_size)
        for number in share.numbers(len(parts)):
            yield None if number is None else self.some(parts[number].sort().values, number)

    def some(self, graphs: Tensor, number: int = 0) -> Batch:
        """Some graphs (B,), ascending, as the batch of this number."""
        of, within = spread_runs(self.counts[graphs])
        nodes = self.begins[graphs][of] + within
        structure = OfGraphs(self.part(nodes), self.members(of, graphs.numel()))
        rows = torch.arange(graphs.numel(), device=graphs.device)
        return Batch(rows_of(self.x, nodes, self.x.dtype), structure, rows, graphs, number)

    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        """(B, C) of the graphs ``nodes`` (B,), or of all."""
        out: Tensor = model(self.x, self.whole)
        return out if nodes is None else out[nodes]


def check_task(entry: Entry, settings: Settings) -> str:
    """``'nodes'`` or ``'graphs'``, whatever the dataset has classes of."""
    of_graphs, pool = entry.task == "graphs", settings.pool
    if of_graphs == (pool == "none"):
        raise RefusedValue(
            f"{entry.name} has classes of {entry.task}",
            "pool sum, mean or max" if of_graphs else "pool none",
            f"pool {pool}",
        )
    for name, plain in (
        ("architecture", "layers"),
        ("propagation", ""),
        ("out_heads", 0),
        ("batches", "none"),
    ):
        if of_graphs and getattr(settings, name) != plain:
            raise RefusedValue(
                f"{name} is of classifiers of nodes", repr(plain), repr(getattr(settings, name))
            )
    return entry.task


def some_graphs(data: Data, nodes: Tensor) -> Data:
    """The structure of some nodes of whole graphs: edges, their types, and numbers of graphs."""
    nodes = nodes.to(data.edge_index.device)
    kept = induced({"edge_index": data.edge_index, "edge_type": data.get("edge_type")}, nodes)
    return Data(
        **kept, batch=data.batch[nodes].unique(return_inverse=True)[1], num_nodes=nodes.numel()
    )


def induced(arguments: dict[str, Any], nodes: Tensor) -> dict[str, Any]:
    """The arguments of a PyG layer for the subgraph of some nodes.

    Args:
        arguments: ``edge_index`` (2, E), tensors (E, *), which are those of edges, and others; or
            none, for a layer without edges.
        nodes: (N',), ascending.
    """
    if not arguments:
        return {}
    edges = arguments["edge_index"]
    count = 1 + max((int(part.max()) for part in (edges, nodes) if part.numel()), default=0)
    kept, _, mask = subgraph(
        nodes, edges, relabel_nodes=True, num_nodes=count, return_edge_mask=True
    )
    return {
        name: kept if name == "edge_index" else _of_edges(value, mask)
        for name, value in arguments.items()
    }


def _of_edges(value: Any, mask: Tensor) -> Any:
    per_edge = isinstance(value, Tensor) and value.dim() and value.size(0) == mask.numel()
    return value[mask] if per_edge else value


def check_block_diagonal(basis: Basis, batch: Tensor) -> None:
    """Refuse a basis with an edge between nodes of different graphs, under any label.

    The numbers of two graphs differ in a bit: a target whose graph has this bit must have no source
    whose graph has not, and the other way round.
    """
    labels = range(basis.num_bases)
    for bit in range(int(batch.max()).bit_length() if batch.numel() else 0):
        has = (batch >> bit & 1).bool()
        for seen in (has, ~has):
            if bool((basis.reached(seen, labels) & ~seen).any()):
                raise RefusedValue(
                    "graphs are classified one by one",
                    "a family without edges between them",
                    repr(basis),
                )
