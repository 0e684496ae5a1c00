"""Encodings of positions in graphs by PyG's transforms: eigenvectors and random walks."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
from torch_geometric.utils import is_undirected

from ..equations import row
from ..errors import RefusedValue, unknown
from ..graph.checks import check_positive
from ..graph.edge_index import require_data
from ..graph.graph import Graph
from ..graph.interop import edge_list_of
from ..graph.positions import places_within
from ..signatures import typed

_ATTRIBUTES = {"laplacian": "laplacian_eigenvector_pe", "random-walk": "random_walk_pe"}
_LARGE = 0.999  # entries above this share of the largest count as equal to it, for rounding


@row(
    "Positions",
    "eigenvectors of the Laplacian; returns of random walks",
    "Dwivedi et al. (2003.00982), section 4.1; (2110.07875), section 3.1",
)
class GraphPositions(torch.nn.Module):
    r"""Encodings of the positions of nodes in a graph without coordinates.

    - ``'laplacian'``: entries of the eigenvectors of I − D^(−1/2) W D^(−1/2) with the smallest
      eigenvalues, without the first. From section 4.1 of `"Benchmarking Graph Neural
      Networks" <https://arxiv.org/abs/2003.00982>`_ and section 2.1 of `"A Generalization of
      Transformer Networks to Graphs" <https://arxiv.org/abs/2012.09699>`_. The sign
      of an eigenvector is arbitrary: it is random in training, for every graph and eigenvector,
      otherwise the first of the largest entries is positive.
    - ``'random-walk'``: the probabilities of being back after 1, 2, …, C steps. From section 3.1 of
      `"Graph Neural Networks with Learnable Structural and Positional Representations"
      <https://arxiv.org/abs/2110.07875>`_. PyG's transform treats weights and parallel edges
      differently in degrees and in steps, so both are refused.

    PyG's transforms compute both, graph by graph of a batch. A graph with fewer than C eigenvectors
    (of n nodes n − 1 are found, from 100 nodes on n − 2) is padded with zeros.

    Args:
        kind: ``'laplacian'`` or ``'random-walk'``.
        channels: C.
        flip: whether signs of eigenvectors are random in training.

    Raises:
        TypeError: ``channels`` is not an integer.
        ValueError: ``channels`` is not positive, or the kind is unknown.

    >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> GraphPositions("random-walk", channels=2)(path).tolist()
    [[0.0, 0.5], [0.0, 1.0], [0.0, 0.5]]
    """

    @typed
    def __init__(self, kind: str, channels: int, flip: bool = True) -> None:
        super().__init__()
        if kind not in _ATTRIBUTES:
            raise RefusedValue(unknown("kind of graph positions", kind, _ATTRIBUTES))
        check_positive("an encoding of graphs", channels=channels)
        self.kind, self.channels, self.flip = kind, channels, flip

    @property
    def attribute(self) -> str:
        """Attribute of the data in which :meth:`store`, and PyG's transforms, put encodings."""
        return _ATTRIBUTES[self.kind]

    def forward(self, data: Data) -> Tensor:
        """The stored encodings (N, C), or :meth:`encode`; with random signs in training."""
        require_data(data)
        known = data.get(self.attribute)
        position = self.encode(data) if known is None else known
        if position.shape != (data.num_nodes, self.channels):
            rule = f"data.{self.attribute} has a row for each node"
            expected = (data.num_nodes, self.channels)
            raise RefusedValue(rule, expected, tuple(position.shape))
        if self.kind == "random-walk" or not (self.flip and self.training):
            return position
        batch = data.get("batch")
        group = torch.zeros(len(position), dtype=torch.long) if batch is None else batch
        group = group.to(position.device)
        count = int(group.max()) + 1 if group.numel() else 0
        sign = torch.randint(0, 2, (count, self.channels), device=position.device) * 2 - 1
        return position * sign[group].to(position.dtype)

    def store(self, data: Data) -> Data:
        """A copy of the data with its encodings, for ``pre_transform=`` of a data set."""
        out = copy(data)
        out[self.attribute] = self.encode(data)
        return out

    def encode(self, data: Data) -> Tensor:
        """The encodings (N, C) of the nodes of ``data``, in torch's default dtype.

        Raises:
            TypeError: ``data`` is not a homogeneous graph.
            ValueError: the data has no edges; edges run between graphs of a batch; weights are
                negative; or random walks get weights or parallel edges.
        """
        edges = edge_list_of(data)
        if self.kind == "random-walk":
            return self._walks(edges)
        edges.require_nonnegative("the Laplacian")
        dtype = torch.get_default_dtype()
        out = torch.zeros(edges.size[0], self.channels, dtype=dtype, device=edges.device)
        for nodes, graph in _graphs(edges):
            out[nodes] = self._eigenvectors(graph).to(out)
        return out

    def _walks(self, edges: Graph) -> Tensor:
        if edges.edge_weight is not None:
            raise RefusedValue("walks take all edges alike", "no edge_weight", edges.edge_weight)
        index, count = edges.edge_index, edges.size[0]
        distinct = len((index[0].long() * count + index[1]).unique())
        if distinct != edges.num_edges:
            raise RefusedValue("walks take each edge once", f"{distinct} edges", edges.num_edges)
        transform = AddRandomWalkPE(self.channels, attr_name=self.attribute)
        return transform(Data(edge_index=index.long(), num_nodes=count))[self.attribute]

    def _eigenvectors(self, graph: Data) -> Tensor:
        """The eigenvectors (n, C) of one graph, padded with zeros."""
        nodes = int(graph.num_nodes or 0)
        sparse = nodes >= AddLaplacianEigenvectorPE.SPARSE_THRESHOLD
        count = min(self.channels, nodes - (2 if sparse else 1))
        if count < 1:
            return torch.zeros(nodes, self.channels)
        symmetric = is_undirected(graph.edge_index, graph.edge_weight, nodes)
        # The same start of the sparse solver at every call.
        start = np.random.default_rng(0).random(nodes, dtype=np.float32)
        transform = AddLaplacianEigenvectorPE(count, self.attribute, symmetric, v0=start)
        vectors = transform(graph)[self.attribute]
        return F.pad(_signed(vectors), (0, self.channels - count))


def _signed(vectors: Tensor) -> Tensor:
    """Columns with signs that do not depend on the solver: the first large entry is positive."""
    length = vectors.abs()
    # In symmetric graphs the largest entries are pairs of opposite signs, up to rounding.
    first = (length >= _LARGE * length.amax(0)).int().argmax(0, keepdim=True)
    return torch.where(vectors.gather(0, first) < 0, -vectors, vectors)


def _graphs(edges: Graph) -> Iterator[tuple[Tensor, Data]]:
    """The nodes of each graph of a batch, and the graph by itself."""
    nodes = torch.arange(edges.size[0], device=edges.device)
    batch = torch.zeros_like(nodes) if edges.batch is None else edges.batch
    of_source, of_target = batch[edges.source], batch[edges.target]
    if not torch.equal(of_source, of_target):
        wrong = edges.edge_index[:, of_source != of_target][:, 0].tolist()
        raise RefusedValue("edges are within a graph of the batch", "one graph", wrong)
    place, weight = places_within(batch), edges.weight(torch.get_default_dtype())
    members = batch.argsort(stable=True).split(batch.bincount().tolist())
    order = of_source.argsort(stable=True)
    counts = of_source.bincount(minlength=len(members)).tolist()
    for own, chosen in zip(members, order.split(counts), strict=True):
        index = place[edges.edge_index[:, chosen].long()]
        yield own, Data(edge_index=index, edge_weight=weight[chosen], num_nodes=len(own))
