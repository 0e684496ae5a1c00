"""Learned queries: parameters instead of TᵀX."""

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
    """A module that makes queries, in place of an alignment; subclasses define :meth:`forward`."""

    @abstractmethod
    def forward(self, content: Content) -> Queries:
        """Queries (N, *batch, P_q), or those of each head, from the features of nodes."""

    def graph(self, content: Content) -> Tensor | None:
        """The graph (N,) of each query, if ``content.graph`` has those of sources; else None."""
        return None


@row(
    "Alignment",
    "parameters in the place of TᵀX",
    "Lee et al., *Set Transformer* (1810.00825), section 3.2, PMA",
    option="`LearnedQueries(N, P)`",
)
class LearnedQueries(QueryModule):
    r"""N parameter vectors as queries, so that there are N outputs.

    The seed vectors of `"Set Transformer" <https://arxiv.org/abs/1810.00825>`_ (PMA, section 3.2);
    outputs do not change if nodes are permuted. All items of a batch of X have the same queries,
    and so have all graphs of a batch vector: the outputs of the first graph then come first.

    Args:
        num_queries: N, of each graph.
        channels: P_q.
        heads: H, if each head has queries of its own; None if heads share them.

    Attributes:
        weight: (N, P_q) or (N, H, P_q).

    Raises:
        TypeError, ValueError: a number is not a positive integer.
    """

    def __init__(self, num_queries: int, channels: int, heads: int | None = None) -> None:
        super().__init__()
        self.num_queries = positive("queries", num_queries)
        self.channels = positive("channels of queries", channels)
        middle = () if heads is None else (positive("heads", heads),)
        self.weight = Parameter(torch.empty(num_queries, *middle, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the queries anew, Glorot-uniform."""
        bound = math.sqrt(6.0 / (self.num_queries + self.channels))
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, content: Content) -> Queries:
        """The queries, graph after graph; expanded, without a copy, over a batch of X."""
        found: Tensor = self.weight
        if content.graph is not None:
            graphs = _num_graphs(content.graph)
            found = found.expand(graphs, *found.shape).flatten(0, 1)
        batch = content.source.shape[1:-1]
        per_head = self.weight.dim() == 3
        tail = found.shape[1:]
        found = found.view(found.size(0), *(1,) * len(batch), *tail).expand(-1, *batch, *tail)
        return PerHead(found) if per_head else found

    def graph(self, content: Content) -> Tensor | None:
        """The graph (B·N,) of each query; the same tensor for the same ``content.graph``."""
        given = content.graph
        if given is None:
            return None

        def make() -> Tensor:
            graphs = torch.arange(_num_graphs(given), device=given.device)
            return graphs.repeat_interleave(self.num_queries)

        return _graphs.get(given, (), self.num_queries, make)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The shape of the queries."""
        return ", ".join(map(str, self.weight.shape))


def _num_graphs(graph: Tensor) -> int:
    """B, the highest graph number plus one."""

    def make() -> Any:
        return int(graph.max()) + 1 if graph.numel() else 0

    return _graphs.get(graph, (), "count", make)  # type: ignore[no-any-return]
