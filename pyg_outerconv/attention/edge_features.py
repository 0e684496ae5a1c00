"""Edge features in scores and values, without a tensor of edges × channels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.inits import glorot

from ..basis.multi_head_edges import MultiHeadEdges, by_head
from ..equations import row
from ..kernels import sddmm, spmm
from ..kernels.csr import CSR
from ..kernels.tiles import exact
from .edge_context import EdgeContext, check_attr, of_given
from .projection import Projection


class EdgeScores(torch.nn.Module):
    """⟨a_h, E W_h⟩ = E (W_h a_h), a number for each edge and head.

    Args:
        edge_dim: D_e.
        heads: H.
        channels: D.
    """

    def __init__(self, edge_dim: int, heads: int, channels: int) -> None:
        super().__init__()
        self.projection = Projection(edge_dim, heads, channels)
        self.att = Parameter(torch.empty(heads, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, Glorot-uniform."""
        self.projection.reset_parameters()
        glorot(self.att)

    def forward(self, support: EdgeContext) -> Tensor:
        """The terms (E, H/L) of the edges, in the order of scores."""
        numbers = self.projection.dot(support.given_attr(), self.att)
        return support.own_heads(support.of_given(numbers))


@row(
    "Scores",
    "+ ⟨Q_n W_q, E_e W_e⟩ / √D, and Σ α E W_e in values",
    "Shi et al., *Masked Label Prediction* (2009.03509), equations 3 and 4",
    option="`edge_dim=`",
)
class EdgeFeatures(Projection):
    """W_e (H, D_e, C), which projects edge features that are added to keys and to values.

    Since ``⟨q, k + E W_e⟩ = ⟨q, k⟩ + ⟨W_e q, E⟩`` and ``Σ_e α_e (v + E_e W_e) = Σ_e α_e v +
    (Σ_e α_e E_e) W_e``, edges handle D_e numbers instead of C. As in PyG's ``TransformerConv``,
    of `"Masked Label Prediction" <https://arxiv.org/abs/2009.03509>`_ (equations 3 and 4).

    Args:
        edge_dim: D_e, or -1 to learn it from the first input.
        heads: H.
        channels: C, the channels of keys and of values.

    Raises:
        ValueError: at a call, there are no edge features, or they have other channels than D_e.
    """

    def of_keys(self, query: Tensor, support: EdgeContext) -> Tensor:
        """⟨W_e q_n, E_e⟩ for queries (N, *batch, H, C): (E, *batch, H/L) in the pattern's order."""
        attr = support.edge_attr
        self.settle(attr)
        query = exact(query)
        projected = torch.einsum("n...hd,hed->n...he", query, self.weight.to(query.dtype))
        edges = _incidence(support.csr.ptr, attr.size(0))
        found = sddmm(edges, support.fold(projected), attr.to(projected.dtype).unsqueeze(1))
        return support.unfold(found, self.heads, tuple(query.shape[1:-2]))

    def of_values(self, heads: MultiHeadEdges, edge_attr: Tensor | None) -> Tensor:
        """(Σ_e α_e E_e) W_e: (N, *batch, H, C), with the values α of a basis.

        Args:
            heads: the basis.
            edge_attr: (E', D_e) of the edges of the user's list.
        """
        edge_attr = of_given(heads.pattern, check_attr(edge_attr))
        self.settle(edge_attr)
        labels, value = heads.pattern.num_labels, heads.value
        edges = _incidence(heads.csr.ptr, value.size(0))
        operand = edge_attr.to(value.dtype).unsqueeze(1)
        received = spmm(edges, value.flatten(1), operand)
        received = by_head(received, labels, heads.num_bases, heads.batch)
        return torch.einsum("n...he,hed->n...hd", received, self.weight.to(received.dtype))


def _incidence(pointers: Tensor, num_edges: int) -> CSR:
    """The (R, E) incidence matrix of rows and edges; edges are sorted by row."""
    edge = torch.arange(num_edges, dtype=pointers.dtype, device=pointers.device)
    row = torch.arange(pointers.numel() - 1, dtype=pointers.dtype, device=pointers.device)
    ends = torch.arange(num_edges + 1, dtype=pointers.dtype, device=pointers.device)
    row = row.repeat_interleave(pointers.diff())
    return CSR.of(pointers, edge, num_edges, (ends, row, edge))
