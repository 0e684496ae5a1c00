"""Learned queries, which stand in the place of TᵀX."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..cache import IdentityCache
from ..equations import row
from ..graph.content import Content
from .projection import PerHead, Queries
from .score import positive

_graphs = IdentityCache()


class QueryModule(torch.nn.Module):
    """Makes queries in the place of an alignment; a new one defines :meth:`forward`."""

    @abstractmethod
    def forward(self, content: Content) -> Queries:
        """Queries (N, *batch, P_q), or those of each head, for what the nodes hold."""

    def graph(self, content: Content) -> Tensor | None:
        """(N,) the graph that each query asks, where ``content.graph`` says those of sources."""
        return None


@row(
    "Alignment",
    "parameters in the place of TᵀX",
    "Lee et al., *Set Transformer* (1810.00825), section 3.2, PMA",
    option="`LearnedQueries(N, P)`",
)
class LearnedQueries(QueryModule):
    r"""So many vectors that are parameters and ask all nodes: outputs are as many.

    The seed vectors of `"Set Transformer" <https://arxiv.org/abs/1810.00825>`_ (PMA, section 3.2);
    results do not change if nodes are permuted. A batch of X is asked by the same queries, and so
    is each graph of a batch vector: outputs are then those of the first graph, of the second, ….

    Args:
        num_queries: N, for each graph.
        channels: P_q.
        heads: H, if each head has queries of its own; None for the same ones.

    Attributes:
        weight: (N, P_q) or (N, H, P_q).

    Raises:
        TypeError, ValueError: a number is no positive integer.
    """

    def __init__(self, num_queries: int, channels: int, heads: int | None = None) -> None:
        super().__init__()
        self.num_queries = positive("queries", num_queries)
        self.channels = positive("channels of queries", channels)
        middle = () if heads is None else (positive("heads", heads),)
        self.weight = Parameter(torch.empty(num_queries, *middle, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform."""
        bound = math.sqrt(6.0 / (self.num_queries + self.channels))
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, content: Content) -> Queries:
        """The queries, those of each graph after the other; a view for a batch of X."""
        found: Tensor = self.weight
        if content.graph is not None:
            graphs = _number_of(content.graph)
            found = found.expand(graphs, *found.shape).flatten(0, 1)
        batch = content.source.shape[1:-1]
        per_head = self.weight.dim() == 3
        tail = found.shape[1:]
        found = found.view(found.size(0), *(1,) * len(batch), *tail).expand(-1, *batch, *tail)
        return PerHead(found) if per_head else found

    def graph(self, content: Content) -> Tensor | None:
        """(B·N,) the graph of each query; the same tensor as long as ``content.graph`` is."""
        given = content.graph
        if given is None:
            return None

        def make() -> Tensor:
            graphs = torch.arange(_number_of(given), device=given.device)
            return graphs.repeat_interleave(self.num_queries)

        return _graphs.get(given, (), self.num_queries, make)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The shape of the queries."""
        return ", ".join(map(str, self.weight.shape))


def _number_of(graph: Tensor) -> int:
    """B, the highest graph and one."""

    def make() -> Any:
        return int(graph.max()) + 1 if graph.numel() else 0

    return _graphs.get(graph, (), "count", make)  # type: ignore[no-any-return]
