"""BasisToHetero: the labels of a basis as the edge types of a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from ..errors import RefusedType, RefusedValue
from ..families import Family, parse_family
from ..families.stored import check_storable, is_stored
from ..graph.edge_index import require_data
from ..signatures import typed
from .add_basis import is_entry

_OF_EDGES = ("edge_index", "adj_t", "num_nodes")


@functional_transform("basis_to_hetero")
class BasisToHetero(BaseTransform):
    r"""Turns the :math:`K` labels of a basis into the edge types of a heterogeneous graph with one
    type of nodes (functional name: :obj:`basis_to_hetero`).

    Relation :obj:`(node_type, label, node_type)` has the edges of :math:`\mathbf{A}_k`, their
    values as :obj:`edge_weight`. A layer with a matrix for each relation, such as
    :class:`~torch_geometric.nn.conv.HeteroConv` of one
    :class:`~torch_geometric.nn.conv.GraphConv` without root weights each, then computes

    .. math::
        \mathbf{Y} = \sum_k \mathbf{A}_k^{\top} \mathbf{X} \mathbf{\Theta}_k.

    Every graph gets all :math:`K` edge types, without edges where the label has none. Node-level
    attributes go to the nodes, graph-level ones to the graph; attributes of the edges that the
    basis was made of are left out.

    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> data = BasisToHetero("walk(2)")(Data(x=torch.ones(3, 4), edge_index=edge_index))
    >>> [relation for _, relation, _ in data.edge_types]
    ['forward walks of length 0', 'forward walks of length 1', 'forward walks of length 2']

    Args:
        family (Family or str): The recipe for the basis, or text such as :obj:`"walk(2)"`.
        labels (list of str, optional): The names of the :math:`K` relations.
            (default: those of the family, with a number behind a label that comes again)
        node_type (str, optional): The name of the type of nodes. (default: :obj:`"node"`)

    Raises:
        TypeError: an argument has the wrong type; at a call, the graph is heterogeneous.
        ValueError: values depend on parameters or features, targets are not the nodes of the
            graph, or labels are not :math:`K` different names.
    """

    @partial(typed, but=("family", "labels", "node_type"))
    def __init__(
        self, family: Family | str, labels: Sequence[str] | None = None, node_type: str = "node"
    ) -> None:
        self.family, self.node_type = parse_family(family), node_type
        check_storable(self.family)
        count = self.family.num_bases
        if not isinstance(labels, list | tuple | None):
            raise RefusedType("labels are names of relations", "a list of them", repr(labels))
        self.labels = _numbered(self.family.labels) if labels is None else tuple(labels)
        for name in (*self.labels, node_type):
            if not isinstance(name, str):
                raise RefusedType("relations and nodes have names", "text", repr(name))
        if len(set(self.labels)) != count or len(self.labels) != count:
            raise RefusedValue(
                f"labels name the relations of {self.family}", f"{count} names", self.labels
            )

    def forward(self, data: Data) -> HeteroData:  # type: ignore[override]
        require_data(data)
        edges = self.family.basis_of(data).edges()
        index, value, label = edges.index.long(), edges.values(), edges.label
        hetero_data = HeteroData()
        nodes = hetero_data[self.node_type]
        for key, part in data.to_dict().items():
            if not (part is None or key in _OF_EDGES or is_entry(part) or is_stored(key)):
                if key == "ptr" or data.is_node_attr(key):
                    nodes[key] = part
                elif not data.is_edge_attr(key):
                    setattr(hetero_data, key, part)
        nodes.num_nodes = data.num_nodes
        for k, name in enumerate(self.labels):
            (own,) = torch.where(label == k)
            relation = hetero_data[self.node_type, name, self.node_type]
            relation.edge_index, relation.edge_weight = index[:, own], value[own]
        return hetero_data

    def __repr__(self) -> str:
        name = self.__class__.__name__
        return f"{name}({self.family}, labels={list(self.labels)}, node_type={self.node_type!r})"


def _numbered(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels, those that come again with a number: a, b, a (2)."""
    names: list[str] = []
    for label in labels:
        again, name = 1, label
        while name in names:
            again += 1
            name = f"{label} ({again})"
        names.append(name)
    return tuple(names)
