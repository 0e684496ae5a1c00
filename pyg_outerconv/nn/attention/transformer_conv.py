"""TransformerConv: key-query attention on graphs, with edge features and a gated skip."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from ...equations import row
from ...errors import RefusedValue
from ...families import Hops
from ...signatures import typed
from .graph_attention import GraphAttention
from .initial import as_linear


@row("Ready-made layers", "2009.03509", "PyG `TransformerConv`", option="`transformer_conv`")
class TransformerConv(GraphAttention):
    r"""Y = (1 - β) Z + β R, where Z is key-query attention and R = X_t W_r + b_r a skip.

    .. math:: Z_n = \Big\Vert_h \sum_{e: m \to n} \alpha_{eh} (X_m V_h + b_h + E_e W_h), \qquad
        \alpha_{eh} \propto \exp \langle X_n W^q_h + b^q_h, X_m W^k_h + b^k_h + E_e W_h \rangle
        / \sqrt{Q}

    with β = σ(⟨w, (Z, R, Z - R)⟩) for each node; without ``beta``, Y = Z + R. From the `"Masked
    Label Prediction" <https://arxiv.org/abs/2009.03509>`_ paper, equations 3 to 5; PyG's
    ``TransformerConv``, with its initial weights.

    >>> TransformerConv(16, 8, heads=4, beta=True).out_channels
    32

    Args:
        in_channels: P, or (P, P_t) for sources and targets; -1 to derive them from the first input.
        out_channels: Q of each head.
        heads: H.
        concat: whether heads are concatenated instead of averaged.
        beta: whether the skip is gated.
        dropout: dropout probability of attention.
        edge_dim: D_e of ``edge_attr``, whose projections are added to keys and values.
        bias: whether keys, queries, values and the skip have a bias.
        root_weight: whether there is a skip.
        **options: options of :class:`AttentionConv`.

    Raises:
        ValueError: an option is out of range.
    """

    @typed
    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **options: Any,
    ) -> None:
        total = out_channels * (heads if concat else 1)
        super().__init__(
            in_channels,
            total,
            heads,
            score=f"key-query(bias={bias})",
            combine="concat" if concat else "mean",
            channels=out_channels,
            value_bias=bias,
            dropout=dropout,
            edge_dim=edge_dim,
            bias=False,
            **{"support": Hops(), **options},
        )
        score = self.family.score
        for part in (self.theta, score.key, score.query, score.edge):
            if part is not None:
                part.initial = as_linear
                part.reset_parameters()
        of_target = in_channels[1] if isinstance(in_channels, tuple) else in_channels
        self.skip = Linear(of_target, total, bias=bias) if root_weight else None
        self.gate = Linear(3 * total, 1, bias=False) if beta and root_weight else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for part in (self._modules.get("skip"), self._modules.get("gate")):
            if part is not None:
                part.reset_parameters()  # type: ignore[operator]

    def forward(  # type: ignore[override]
        self, x: Any, edge_index: Any = None, edge_weight: Tensor | None = None, **beside: Any
    ) -> Any:
        found = super().forward(x, edge_index, edge_weight, **beside)
        if self.skip is None:
            return found
        out, *basis = found if isinstance(found, tuple) else (found,)
        target = x[self.flow == "source_to_target"] if isinstance(x, tuple | list) else x
        if target is None:
            raise RefusedValue("a skip is of the targets", "a pair of features", "None")
        skip = self.skip(target)
        if self.gate is None:
            out = out + skip
        else:
            gate = self.gate(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
            out = gate * skip + (1 - gate) * out
        return (out, *basis) if basis else out


transformer_conv = TransformerConv
