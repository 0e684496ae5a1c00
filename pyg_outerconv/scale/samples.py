"""Samples of a graph by parts and by PyG's loader, the same for the same seed and epoch.

They carry the edges, labels and values of the basis of the whole graph.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric import typing as pyg
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from ..basis import Basis
from ..basis.algebra import Compound
from ..basis.edge_sets import differ_in_edges, edge_sets, with_edge_sets
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..basis.pattern import Pattern
from ..errors import RefusedValue
from ..families import Family
from ..graph import Graph
from ..graph.checks import check_batch, check_positive
from ..signatures import typed

# Attributes with "edge" in their names are those of edges to PyG, also where M = E.
EDGES = ("edge_set", "edge_label", "edge_value")


class Carried:
    """Makes the basis of a sample: the edges of the whole graph between its nodes.

    Values are those of the whole graph: degrees and means are not counted again in a sample. Powers
    of a matrix become powers of the matrix of the sample.

    Args:
        family: the recipe of the basis.
        structure: the whole graph, which the family reads.
        basis: the basis of the whole graph; made here by default.
        mapped: whether its edges are mapped to files, so that nobody may copy all of them.

    Raises:
        ValueError: values learn, or more than edges distinguishes the basis from that of a graph
            without edges, so that edges alone do not carry it.
    """

    @typed
    def __init__(
        self,
        family: Family,
        structure: Graph,
        basis: Basis | None = None,
        mapped: bool = False,
    ) -> None:
        self.family, self._structure, self.mapped = family, structure.bare(), mapped
        self.basis = family.basis_on(structure) if basis is None else basis
        self.num_nodes = structure.size[0]
        # Shares of attention come later, over edges without values.
        if self.basis.learns or structure.bipartite:
            raise RefusedValue(
                "samples carry constant values of one set of nodes",
                "a family without parameters, on a graph with one set of nodes",
                repr(family),
            )
        if _has_rules(self.basis) or not differ_in_edges(self.basis, self.frame(self.num_nodes)):
            raise RefusedValue(
                "samples carry the edges of a basis",
                "a basis of edges and powers, such as that of Explicit(family)",
                repr(family),
            )
        self.sets = edge_sets(self.basis)

    def frame(self, num_nodes: int) -> Basis:
        """The basis of this many nodes without edges."""
        size = (num_nodes, num_nodes)
        bare = replace(self._structure, size=size, batch=None, pos=None)
        return self.family.basis_on(bare, self.basis.dtype)

    def data(self) -> Data:
        """A PyG graph of all edges of the basis, for PyG's loaders.

        It has ``edge_index``, and for each edge the number of its set, its label and its value; and
        ``node``, the number of each node.

        Raises:
            ValueError: the edges are mapped to files.
        """
        if self.mapped:
            raise RefusedValue(
                "PyG's loaders read all edges into memory",
                "RandomNodes, Clusters or Blocks for a basis in mapped files",
                repr(self.family),
            )
        index = [edges.index.long() for edges in self.sets]
        number = [torch.full_like(ends[0], place) for place, ends in enumerate(index)]
        dtype = self.basis.dtype or torch.get_default_dtype()
        none = torch.empty(0, dtype=torch.long)
        return Data(
            edge_index=torch.cat([none.view(1, 0).expand(2, 0), *index], dim=1),
            edge_set=torch.cat([none, *number]),
            edge_label=torch.cat([none, *(edges.label.long() for edges in self.sets)]),
            edge_value=torch.cat([none.to(dtype), *(edges.values(dtype) for edges in self.sets)]),
            node=torch.arange(self.num_nodes),
            num_nodes=self.num_nodes,
        )

    def of_data(self, sample: Data) -> Basis:
        """The basis of a sample of :meth:`data`, in the sample's numbering of nodes."""
        count = sample.node.numel()
        sets = []
        for number, whole in enumerate(self.sets):
            mine = (sample.edge_set == number).nonzero().view(-1)
            pattern = Pattern.of_list(
                sample.edge_index[:, mine],
                sample.edge_label[mine] if whole.num_bases > 1 else None,
                size=(count, count),
                num_labels=whole.num_bases,
            )
            value = None if whole.dtype is None else sample.edge_value[mine]
            sets.append(EdgeBasis.of_list(pattern, value))
        return self._on(count, sets)

    def induced(self, nodes: Tensor) -> Basis:
        """The basis of distinct nodes (n,): the edges between them."""
        return self._on(nodes.numel(), [edges.restricted(nodes, nodes) for edges in self.sets])

    def _on(self, count: int, sets: list[EdgeBasis]) -> Basis:
        return with_edge_sets(self.frame(count), lambda bare: sets[: len(bare)])


def _has_rules(basis: Basis) -> bool:
    """Whether a part of a basis is a rule whose edges a sample of nodes would change."""
    if isinstance(basis, Compound):
        return any(map(_has_rules, basis.parts))
    return isinstance(basis, ImplicitEdges)


# Samples ------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Some nodes of a graph, with the part of its basis between them.

    Attributes:
        nodes: (n,) their numbers in the graph.
        basis: K matrices of size n × n.
        num_seeds: how many of the first nodes the sample was drawn for, whose outputs count.
    """

    nodes: Tensor
    basis: Basis
    num_seeds: int


Samples = Iterator[Sample]


def stream(*state: int) -> torch.Generator:
    """Random numbers that depend on nothing but some integers."""
    digest = hashlib.sha256(repr(state).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


class Sampler(ABC):
    """Splits an epoch into samples, of which each process draws some."""

    carried: Carried

    @abstractmethod
    def plan(self, seeds: Tensor, seed: int, epoch: int) -> list[Tensor]:
        """The nodes of every sample that has some of the seeds (T,), in the order of training.

        It depends on nothing but the arguments. Each seed is in exactly one sample.
        """

    def draw(self, plan: list[Tensor], numbers: list[int], seed: int, epoch: int) -> Samples:
        """The samples of these numbers in a plan; each depends on its own number alone."""
        for number in numbers:
            nodes = plan[number]
            yield Sample(nodes, self.carried.induced(nodes), nodes.numel())


class RandomNodes(Sampler):
    """Random parts of all nodes.

    Args:
        carried: the basis.
        parts: number of parts of about the same size.

    Raises:
        ValueError: there are more parts than nodes.
    """

    @typed
    def __init__(self, carried: Carried, parts: int) -> None:
        _check_parts(parts, carried.num_nodes)
        self.carried, self.parts = carried, parts

    def plan(self, seeds: Tensor, seed: int, epoch: int) -> list[Tensor]:
        order = torch.randperm(self.carried.num_nodes, generator=stream(seed, epoch))
        drawn = order.split(math.ceil(self.carried.num_nodes / self.parts))
        parts = (part.sort().values for part in drawn)  # so that edges are sorted as they are
        return _with_seeds(parts, seeds, self.carried.num_nodes)


class Neighbors(Sampler):
    """Sampled neighbourhoods of seeds, by PyG's ``NeighborLoader``.

    A sampled edge keeps its value: sums over sampled neighbours are smaller than over all of them,
    as in PyG's examples.

    Args:
        carried: the basis.
        fan_outs: how many edges into a node are drawn at each step away from the seeds, -1 for all.
        batch_size: number of seeds of a sample.

    Raises:
        ValueError: neither pyg-lib nor torch-sparse is installed.
    """

    @typed
    def __init__(self, carried: Carried, fan_outs: list[int], batch_size: int) -> None:
        require_sampler()
        self.carried, self.fan_outs, self.batch_size = carried, fan_outs, batch_size
        self._data = carried.data()

    def plan(self, seeds: Tensor, seed: int, epoch: int) -> list[Tensor]:
        order = torch.randperm(seeds.numel(), generator=stream(seed, epoch))
        return list(seeds.cpu()[order].split(self.batch_size))

    def draw(self, plan: list[Tensor], numbers: list[int], seed: int, epoch: int) -> Samples:
        loader = NeighborLoader(
            self._data, self.fan_outs, torch.cat(plan), batch_size=self.batch_size
        )
        for number in numbers:
            with own_numbers(stream(seed, epoch, number)):
                first = number * self.batch_size
                place = torch.arange(first, first + plan[number].numel())
                part = loader(place)
            yield Sample(part.node, self.carried.of_data(part), part.batch_size)


def require_sampler() -> None:
    """Raise ValueError where PyG has no engine that samples neighbours."""
    if not (pyg.WITH_PYG_LIB or pyg.WITH_TORCH_SPARSE):
        raise RefusedValue(
            "PyG's NeighborLoader samples by pyg-lib or torch-sparse",
            "pip install torch-sparse, or --batches random-nodes or clusters, which need neither",
            "neither",
        )


@contextmanager
def own_numbers(generator: torch.Generator) -> Iterator[None]:
    """A block in which torch's random numbers are those of a generator, on a CPU.

    Samplers draw from the state from which dropout draws, too.
    """
    outside = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        torch.set_rng_state(outside)


class Clusters(Sampler):
    """Unions of clusters, as in the `"Cluster-GCN" <https://arxiv.org/abs/1905.07953>`_ paper
    (section 3.2), but with the values of the whole graph.

    Args:
        carried: the basis.
        cluster: (N,) the cluster of each node, such as :func:`metis` finds.
        together: number of clusters of a sample.
    """

    @typed
    def __init__(self, carried: Carried, cluster: Tensor, together: int = 1) -> None:
        check_batch(cluster, carried.num_nodes)
        check_positive("a sample of clusters", together=together)
        self.carried, self.together = carried, together
        order = torch.argsort(cluster, stable=True)
        self._members: Sequence[Tensor] = order.split(torch.bincount(cluster).tolist())

    def plan(self, seeds: Tensor, seed: int, epoch: int) -> list[Tensor]:
        order = torch.randperm(len(self._members), generator=stream(seed, epoch))
        unions = (
            torch.cat([self._members[number] for number in chosen]).sort().values
            for chosen in order.split(self.together)
        )
        return _with_seeds(unions, seeds, self.carried.num_nodes)


class Blocks(Clusters):
    """Unions of blocks: nodes whose numbers follow one another, where these tell who is near.

    Args:
        carried: the basis.
        parts: number of blocks of about the same size.
        together: number of blocks of a sample.

    Raises:
        ValueError: there are more parts than nodes.
    """

    @typed
    def __init__(self, carried: Carried, parts: int, together: int = 1) -> None:
        _check_parts(parts, carried.num_nodes)
        self.carried, self.together = carried, together
        self._members = torch.arange(carried.num_nodes).tensor_split(parts)


@typed
def metis(carried: Carried, parts: int) -> Tensor:
    """(N,) clusters with few edges between them, by METIS through pymetis; always the same ones.

    Raises:
        ValueError: pymetis is not installed, or there are more parts than nodes.
    """
    rows = [(edges.pattern.target_ptr, edges.pattern.source) for edges in carried.sets]
    return partition(rows, carried.num_nodes, parts)


def partition(rows: Iterable[tuple[Tensor, Tensor]], num_nodes: int, parts: int) -> Tensor:
    """:func:`metis` of edges in rows of targets, read into memory.

    Args:
        rows: of each set of edges the pointers (N + 1,) and the sources (E,).
        num_nodes: N.
        parts: number of clusters.
    """
    _check_parts(parts, num_nodes)
    if importlib.util.find_spec("pymetis") is None:
        raise RefusedValue(
            "clusters are found by pymetis", "pip install 'pyg_outerconv[scale]'", "no pymetis"
        )
    import pymetis
    from scipy.sparse import csr_matrix

    matrix = csr_matrix((num_nodes, num_nodes), dtype=bool)
    for ptr, source in rows:
        ones = np.ones(source.numel(), dtype=bool)
        matrix += csr_matrix((ones, source.numpy(), ptr.numpy()), shape=matrix.shape)
    matrix = (matrix + matrix.T).tocsr()
    matrix.setdiag(False)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    options = pymetis.Options(seed=0)
    adjacency = pymetis.CSRAdjacency(matrix.indptr, matrix.indices)
    graph_partition = pymetis.part_graph(parts, adjacency, options=options)
    return torch.tensor(graph_partition[1], dtype=torch.long)


def _with_seeds(parts: Iterable[Tensor], seeds: Tensor, num_nodes: int) -> list[Tensor]:
    """The parts of all nodes that have some of the seeds."""
    wanted = torch.zeros(num_nodes, dtype=torch.bool)
    wanted[seeds.cpu()] = True
    return [part for part in parts if bool(wanted[part].any())]


def _check_parts(parts: int, num_nodes: int) -> None:
    if not 1 <= parts <= max(num_nodes, 1):
        raise RefusedValue("a graph is split into parts with nodes", f"1 to {num_nodes}", parts)
