"""A linear map to the channels of every head, of dense or sparse features."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Union

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import UninitializedParameter, is_lazy

from ..contract.heads import check_type, project
from ..errors import RefusedValue, refusal
from ..graph import Features, SparseMatrix
from ..graph.checks import check_positive
from ..signatures import typed
from ..theta import autocast_pair


@dataclass(frozen=True)
class PerHead:
    """Queries that differ from head to head, from an alignment of each head.

    Attributes:
        value: (N, *batch, H, P).
    """

    value: Tensor

    @property
    def shape(self) -> torch.Size:
        """(N, *batch, H, P)."""
        return self.value.shape


Queries = Union[Features, PerHead]  # noqa: UP007
"""Queries Tᵀ X: features (N, *batch, P_q) for all heads, or those of each head."""


class Projection(torch.nn.Module):
    """X W_h + b_h for each of H heads: (nodes, *batch, P) to (nodes, *batch, H, D).

    Args:
        in_channels: P, or -1 to learn it from the first input.
        heads: H.
        channels: D, or -1 for the D passed to :meth:`settle`; then without a bias.
        bias: whether there is a bias b (H, D), initialised to zero.
    """

    weight: Parameter

    @typed
    def __init__(self, in_channels: int, heads: int, channels: int, bias: bool = False) -> None:
        super().__init__()
        check_positive("a projection", heads=heads)
        self.in_channels, self.heads, self.channels = in_channels, heads, channels
        self.initial: Callable[[Projection], None] | None = None  # instead of Glorot-uniform
        if in_channels < 0 or channels < 0:
            self.weight = UninitializedParameter()  # type: ignore[assignment]
        else:
            self.weight = Parameter(torch.empty(heads, in_channels, channels))
        self.bias = Parameter(torch.empty(heads, channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight Glorot-uniform, as one linear map to all heads; the bias is zero."""
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        if is_lazy(self.weight):
            return
        if self.initial is not None:
            self.initial(self)
            return
        fan = self.weight.size(1) + self.heads * self.channels
        bound = math.sqrt(6.0 / max(fan, 1))
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Queries) -> Tensor:
        """The projection of features, dense or sparse, or of the queries of each head."""
        self.settle(x)
        return project_heads(x, self.weight, self.bias)

    def dot(self, x: Queries, vector: Tensor) -> Tensor:
        """⟨X W_h + b_h, a_h⟩ for a (H, D): (nodes, *batch, H), computed as X (W_h a_h)."""
        self.settle(x)
        return project_dot(x, self.weight, self.bias, vector)

    def settle(self, x: Queries, out_channels: int | None = None) -> None:
        """Set P by the first input, and D if it is not known; afterwards refuse other channels."""
        channels = channels_of(x)
        wanted = self.channels if out_channels is None else out_channels
        if min(self.in_channels, self.channels) < 0:  # is_lazy, as torch.compile can trace it
            self.in_channels = channels if self.in_channels < 0 else self.in_channels
            self.channels = wanted if self.channels < 0 else self.channels
            self.weight.materialize((self.heads, self.in_channels, self.channels))  # type: ignore[attr-defined]
            self.reset_parameters()
        if (channels, wanted) != (self.in_channels, self.channels):
            rule = "a projection needs the channels that it was made for"
            expected = f"{self.in_channels} to {self.channels}"
            raise RefusedValue(rule, expected, f"{channels} to {wanted}")
        found, own = x.value if isinstance(x, PerHead) else x, self.weight.device
        if found is not None and found.device != own:
            raise RefusedValue("features are projected where weights are", own, found.device)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars or is_lazy(self.weight))

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        kept = state.get(prefix + "weight")
        if kept is not None and is_lazy(kept):
            self.in_channels = -1
            self.weight = UninitializedParameter()  # type: ignore[assignment]
        elif kept is not None and is_lazy(self.weight):
            own, shape = (self.heads, self.in_channels, self.channels), tuple(kept.shape)
            pairs = zip_longest(own, shape)
            if any(size not in (-1, other) for size, other in pairs):
                said = refusal(
                    "weights of a projection have a shape, of any size for -1", own, shape
                )
                args[-1].append(f"{prefix}weight: {said}")  # load_state_dict raises what is here
                return
            _, self.in_channels, self.channels = shape
            self.weight.materialize(shape)  # type: ignore[attr-defined]
        super()._load_from_state_dict(state, prefix, *args)

    def extra_repr(self) -> str:
        """P, H and D."""
        bias = "" if self.bias is None else ", bias=True"
        return f"{self.in_channels}, heads={self.heads}, channels={self.channels}{bias}"


def both_ends(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    """Channels of sources and of queries: a pair, or one number for both."""
    return in_channels if isinstance(in_channels, tuple) else (in_channels, in_channels)


def check_queries(projection: Projection, query: Queries, source: Features) -> None:
    """Refuse queries of other channels than their projection; the error names the right pair."""
    of_query = channels_of(query)
    if projection.in_channels in (-1, of_query):
        return
    if source is not None and source.is_floating_point() and source.size(-1) != of_query:
        of_source = source.size(-1)
        rule = "a projection of queries needs the channels that it was made for"
        expected = f"{projection.in_channels}, or in_channels=({of_source}, {of_query})"
        raise RefusedValue(rule, expected, of_query)


def project_heads(x: Queries, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X W_h + b_h: (nodes, *batch, H, D) for W (H, P, D); X may differ from head to head."""
    if isinstance(x, PerHead):
        check_type(x.value, weight)
        value, weight = autocast_pair(x.value, weight)
        found = torch.einsum("n...hp,hpd->n...hd", value, weight)
    else:
        found = project(x, weight)
    if bias is None:
        return found
    found, bias = autocast_pair(found, bias)
    return found + bias


def project_dot(x: Queries, weight: Tensor, bias: Tensor | None, vector: Tensor) -> Tensor:
    """⟨X W_h + b_h, a_h⟩ (nodes, *batch, H) for a (H, D), computed as X (W_h a_h)."""
    folded = (weight @ vector.unsqueeze(-1)).to(weight.dtype)
    of_bias = None if bias is None else (bias * vector).sum(-1, keepdim=True)
    return project_heads(x, folded, of_bias).squeeze(-1)


def channels_of(x: Queries) -> int:
    """P, the number of channels. Raises ValueError if ``x`` is None, or not floating point."""
    found = x.value if isinstance(x, PerHead) else x
    if not isinstance(found, Tensor | SparseMatrix) or not found.is_floating_point():
        got = "none" if found is None else getattr(found, "dtype", type(found).__name__)
        raise RefusedValue("scores are made of features", "a float tensor", got)
    return found.size(found.dim() - 1)


def spread(x: Queries, heads: int) -> Tensor:
    """Dense features expanded over heads: (nodes, *batch, H, P), a view."""
    if isinstance(x, PerHead):
        return x.value
    if not isinstance(x, Tensor) or not x.is_floating_point():
        rule = "this score compares the features themselves"
        got = x.dtype if isinstance(x, Tensor) else x
        raise RefusedValue(rule, "dense features, or a score that projects them", got)
    return x.unsqueeze(-2).expand(*x.shape[:-1], heads, -1)
