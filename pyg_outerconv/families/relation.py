"""Relation: the edges with their labels, divided by a norm, as explicit edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..basis.pattern import Pattern
from ..equations import row
from ..errors import RefusedType, RefusedValue
from ..graph.checks import check_edge_vector, numbers
from ..graph.graph import Graph
from ..graph.norm import check_norm, normalise
from ..kernels.index_checks import can_read, has_numbers
from ..signatures import check_type, is_integer
from .family import Family
from .options import check_least


def edge_basis(edges: Graph, num_labels: int = 1, *, weight: Tensor | None = None) -> EdgeBasis:
    """The edges of a structure as explicit edges of K matrices.

    >>> import torch
    >>> from pyg_outerconv.graph import Graph
    >>> edges = Graph.read(torch.tensor([[0, 1], [1, 2]]))
    >>> edge_basis(edges, weight=torch.tensor([0.5, 2.0])).to_dense()[0]
    tensor([[0.0000, 0.5000, 0.0000],
            [0.0000, 0.0000, 2.0000],
            [0.0000, 0.0000, 0.0000]])

    Args:
        edges: E edges. If K > 1, their ``edge_type`` is the label of each.
        num_labels: K.
        weight: (E,) the values, in the place of the weights of ``edges``; may carry gradients.

    Raises:
        TypeError: ``num_labels`` is not an integer, or ``weight`` is not a tensor of numbers.
        ValueError: ``weight`` does not have one finite number for each edge.
    """
    if not isinstance(edges, Graph):
        check_type("edge_basis", "edges", edges, Graph)
    if type(num_labels) is not int and not is_integer(num_labels):
        raise RefusedType(
            "num_labels is the number of matrices K; values go by weight=",
            "an integer",
            num_labels if isinstance(num_labels, Tensor) else repr(num_labels),
        )
    if weight is not None:
        weight = numbers("weight", weight, edges.edge_index, None)
        check_edge_vector("weight", weight, edges.edge_index, floating=True)
        edges = edges.but(edge_weight=weight)
    label = edges.edge_type if num_labels > 1 else None
    origin = edges.num_edges if edges.origin is None else edges.origin
    own = edges.origin is not None  # a family made this list, and nobody else holds it
    pattern = Pattern.of_list(
        edges.edge_index, label, size=edges.size, num_labels=num_labels, origin=origin, own=own
    )
    weight = edges.edge_weight
    weight = weight if own or weight is None else weight.clone()
    return EdgeBasis.of_checked_list(pattern, weight)


@row(
    "Alignment",
    "weighted, soft",
    "Andreoli, section 4",
    option="`Relation(1, None)`, `Cluster()` with weights",
)
@row("Support", "the edges that are given", "", option="`Relation(1, None)`, any explicit family")
@dataclass(frozen=True)
class Relation(Family):
    r"""One adjacency matrix for each type of edge.

    .. math:: A_r[m, n] = w_{mn} / c_{n,r} \quad\text{over the edges of type } r

    with c the number of edges of type r that reach n (``'mean'``), or 1 (``None``, ``'given'``).
    Means are taken within each relation, and then added up, as in `"Modeling Relational Data with
    Graph Convolutional Networks" <https://arxiv.org/abs/1703.06103>`_ (equation 2).
    With one relation, edge types may be left out, and the mean is GraphSAGE's.

    Args:
        num_relations (int): R, the number of edge types.
        norm (str, optional): ``'mean'``, ``None``, or ``'given'``: the edge weights are the
            constants 1/c of the paper, and required. (default: ``'mean'``)

    Raises:
        ValueError: options are out of range; when a basis is made, an edge type is out of range
            or missing, or weights are missing with ``norm='given'``.
    """

    equation = "A_r = W_r / (number of edges of type r that reach n)"
    reads_beside = ("edge_weight", "edge_type")

    num_relations: int = 1
    norm: str | None = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, num_relations=1)
        check_norm(self.norm, ("mean", "given", None))

    @property
    def num_bases(self) -> int:
        """R, without the names of all relations."""
        return self.num_relations

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"relation {r}" for r in range(self.num_relations))

    @property
    def formula(self) -> str:
        if self.norm != "mean":
            return "A_r = W_r, the weights of the edges of type r"
        return self.equation

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The edges, with their types as labels."""
        self._check(edges)
        is_mean, counts = self.norm == "mean", edges.edge_weight is None
        if is_mean and counts and self.num_relations == 1 and can_read(edges.edge_index):
            return edge_basis(normalise(edges, "target", dtype))
        basis = edge_basis(edges, self.num_relations)
        return basis.mean(dtype) if is_mean else basis

    def _check(self, edges: Graph) -> None:
        if self.norm == "given" and edges.edge_weight is None:
            raise RefusedValue(
                "Relation(norm='given') takes its constants from the edges",
                "edge_weight of shape (E,)",
                "None",
            )
        types = edges.edge_type
        if types is None:
            if self.num_relations > 1:
                raise RefusedValue(
                    f"Relation({self.num_relations}) needs the type of every edge",
                    "edge_type of shape (E,), by its name: edge_type=",
                    "None",
                )
        elif has_numbers(types) and types.numel() and int(types.max()) >= self.num_relations:
            raise RefusedValue(
                "edge types must be below num_relations",
                f"[0, {self.num_relations})",
                int(types.max()),
            )
