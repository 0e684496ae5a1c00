"""GraphAttention: AttentionConv with PyG's self-loops, edge features and initial values."""

from __future__ import annotations

from typing import Any, Union

import torch
from torch import Tensor
from torch_geometric.utils import add_self_loops, remove_self_loops

from ...errors import RefusedType, refusal
from ..attention_conv import AttentionConv
from ..prepare import split_input
from ..theta import ThetaModule
from .initial import linear_bias

Fill = Union[str, float, Tensor]  # noqa: UP007


class GraphAttention(AttentionConv):
    """:class:`AttentionConv` with edge features for self-loops, and PyG's initial biases.

    Args:
        in_channels: see :class:`AttentionConv`.
        out_channels: likewise, of all heads together.
        heads: H.
        fill_value: what self-loops get for features, as PyG's ``add_self_loops`` takes it:
            ``'mean'`` of the edges that reach the node, another reduction, a number or a vector;
            loops that were given are replaced. None adds no loop.
        **options: of :class:`AttentionConv`.
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        fill_value: Fill | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, heads, **options)
        self.fill_value = fill_value
        self._fills = fill_value is not None
        self._given: Tensor | None = None  # the column of edge_index of each edge, -1 for loops
        self._draw_value_bias()

    @property
    def add_self_loops(self) -> bool:
        """Whether the layer adds self-loops; can be set."""
        return self._fills or bool(self.family.add_self_loops)

    @add_self_loops.setter
    def add_self_loops(self, add: bool) -> None:
        if self.fill_value is None:
            self.family = self.family.set_self_loops(add)
        else:
            self._fills = add

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""
        super().reset_parameters()
        self._draw_value_bias()

    def _materialize(self, waiting: list[tuple[ThetaModule, int]]) -> None:
        lazy = self.theta.in_channels < 0
        super()._materialize(waiting)
        if lazy:
            self._draw_value_bias()

    def _draw_value_bias(self) -> None:
        bias = self._parameters.get("value_bias")  # there is none yet while the layer is made
        if bias is not None and self.theta.in_channels > 0:
            linear_bias(bias, self.theta.in_channels)

    def forward(  # type: ignore[override]
        self, x: Any, edge_index: Any = None, edge_attr: Tensor | None = None, **beside: Any
    ) -> Any:
        """Runs the layer; see :class:`AttentionConv`."""
        if self.fill_value is None or not self._fills:
            return super().forward(x, edge_index, edge_attr, **beside)
        inputs = split_input(x, self.flow)
        ends = [count for count in (inputs.num_sources, inputs.num_targets) if count is not None]
        count = min(beside.get("size") or ends)
        edge_index, edge_attr, given = _with_loops(edge_index, edge_attr, self.fill_value, count)
        if self.explain:  # whose masks are of the user's edges; other calls write nothing
            self._given = given
        return super().forward(x, edge_index, edge_attr, **beside)

    def edge_mask(self, edge_origin: Tensor) -> Tensor:
        """The mask of each edge by its column in ``edge_index``, (E,); 1 for added loops."""
        if self._fills and self._given is not None:
            edge_origin = torch.cat([self._given, self._given.new_full((1,), -1)])[edge_origin]
        return super().edge_mask(edge_origin)


def _with_loops(
    edge_index: Any, edge_attr: Tensor | None, fill_value: Fill, count: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Edges without loops, then a loop at each of ``count`` nodes; and the origin of all edges."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise RefusedType(
            refusal(
                "self-loops get edge features where edges are listed",
                "edge_index (2, E)",
                type(edge_index).__name__,
            )
        )
    given = torch.arange(edge_index.size(1), device=edge_index.device)
    _, given = remove_self_loops(edge_index, given)
    edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
    edge_index, edge_attr = add_self_loops(edge_index, edge_attr, fill_value, count)
    return edge_index, edge_attr, torch.cat([given, given.new_full((count,), -1)])
