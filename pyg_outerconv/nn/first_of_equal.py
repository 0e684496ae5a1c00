"""Max and min of messages as the kernels compute them: the first of equal messages wins."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation


class FirstOfEqual(Aggregation):
    """The maximum or minimum of the messages of each row and channel; 0 without messages.

    Of equal messages the first takes the whole gradient; PyG's aggregations share it among them.
    NaN wins over every number.

    Args:
        aggr: 'max' or 'min'.
    """

    def __init__(self, aggr: str) -> None:
        super().__init__()
        self.aggr = aggr

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        """Reduce messages ``x`` (*, E, C) to rows ``index`` (E,): (*, N, C)."""
        self.assert_index_present(index)
        assert index is not None
        x = x.movedim(dim, 0)
        rows = dim_size if dim_size is not None else int(index.max()) + 1 if index.numel() else 0
        if not x.size(0):
            return (x.new_zeros(rows, *x.shape[1:]) + x.sum(0)).movedim(0, dim)
        to = index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
        with torch.no_grad():
            zeros = x.new_zeros(rows, *x.shape[1:])
            best = zeros.scatter_reduce(0, to, x, f"a{self.aggr}", include_self=False)
            wins = (x == best.gather(0, to)) | x.isnan()
            place = torch.arange(len(x), device=x.device).view(-1, *(1,) * (x.dim() - 1))
            place = torch.where(wins, place, len(x))
            none = torch.full_like(best, len(x), dtype=place.dtype)
            first = none.scatter_reduce(0, to, place, "amin")
            found = first < len(x)
        out = torch.where(found, x.gather(0, first.clamp(max=len(x) - 1)), 0.0)
        return out.movedim(0, dim)
