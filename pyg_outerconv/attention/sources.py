"""Sources beside the nodes, whose keys and values are parameters or zero."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from ..basis.attention_basis import AttentionBasis
from ..basis.band import Band
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import Edges
from ..basis.pattern import Pattern
from ..errors import RefusedType
from ..graph import Features
from ..kernels.lasting import lasting
from ..memo import Memo
from ..theta import Theta

_extended: WeakKeyDictionary[Basis, Memo] = WeakKeyDictionary()


class AddedSources(torch.nn.Module):
    """Sources that every target sees beside those of its support, in front of the nodes.

    Keys and values of learned ones are parameters: the persistent vectors of `"Augmenting
    Self-attention with Persistent Memory" <https://arxiv.org/abs/1907.01470>`_, and torch's
    ``add_bias_kv``. Those of an empty one are zero, so that a softmax is ``softmax-plus-one``:
    torch's ``add_zero_attn``.

    Attributes:
        key: (A, H, D), or None without learned sources.
        value: (A, H, V), or None.
        count: A, plus one with an empty source.

    Args:
        learned: A.
        empty: whether there is an empty source.
        heads: H.
        channels: D of keys and queries.
        value_channels: V.
    """

    key: Tensor | None
    value: Tensor | None

    def __init__(
        self, learned: int, empty: bool, heads: int, channels: int, value_channels: int
    ) -> None:
        super().__init__()
        self.learned, self.empty, self.count = learned, empty, learned + empty
        for name, width in (("key", channels), ("value", value_channels)):
            parameter = Parameter(torch.empty(learned, heads, width)) if learned else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw keys and values anew, normal with a variance of 1 over all channels of a source."""
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)

    def _with_zeros(self, learned: Tensor | None, like: Tensor) -> Tensor:
        """Keys or values (count, H, C) of all these sources, for those of nodes (…, H, C)."""
        zeros = like.new_zeros(int(self.empty), *like.shape[-2:])
        return zeros if learned is None else torch.cat([zeros, learned.to(like.dtype)])

    def beside(self, basis: Basis) -> AttentionBasis:
        """The basis with an edge from each of these sources to each target."""
        if not isinstance(basis, AttentionBasis):
            rule = "added sources have keys, which queries are multiplied by"
            raise RefusedType(rule, "an AttentionBasis", type(basis).__name__)
        bias, present, batch = basis.bias, basis.present, basis.batch
        over = _with_sources(basis.over, self.count, listed=bias is not None)
        if bias is not None:
            bias = bias.expand(basis.num_edges, *bias.shape[1:])
            bias = pad(bias.movedim(0, -1), (0, over.num_edges - bias.size(0))).movedim(-1, 0)
            bias = bias.index_select(0, over.edges().pattern.order.long())
        if present is not None:
            present = torch.cat([present.new_ones((self.count, *present.shape[1:])), present])
        key = self._with_zeros(self.key, basis.key)
        key = key.view(self.count, *(1,) * len(batch), *key.shape[1:])
        key = torch.cat([key.expand(-1, *batch, -1, -1), basis.key])
        return replace(basis, over=over, key=key, bias=bias, present=present)

    def joined(self, x: Features, theta: Theta) -> tuple[Tensor, Theta]:
        """Features of all sources (*batch, M', P'), and Θ, with the values of these and of x.

        As many more channels mark these sources, and V has their values as its rows.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point():
            rule = "added sources stand beside features"
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise RefusedType(rule, "a dense tensor of floating point numbers", got)
        marks = torch.eye(self.count, dtype=x.dtype, device=x.device)
        marks = pad(marks, (x.size(-1), 0)).expand(*x.shape[:-2], -1, -1)
        x = torch.cat([marks, pad(x, (0, self.count))], -2)
        value = self._with_zeros(self.value, theta.value.transpose(0, 1))
        rows = value if theta.bias is None else value - theta.bias  # which all sources get
        inner = torch.cat([theta.inner, rows.transpose(0, 1).unsqueeze(1)], 2)
        return x, theta.but(inner=inner)

    def extra_repr(self) -> str:
        """How many they are."""
        return f"learned={self.learned}, empty={self.empty}"


def _with_sources(over: Edges, count: int, listed: bool) -> Edges:
    """The support where ``count`` sources come first that all targets see.

    A band stays one where it has all sources up to some place, unless its edges are ``listed``.
    """
    make: Callable[[], Edges] = partial(_edges_with_sources, over, count)
    is_band = isinstance(over, Band) and not listed and over.sees_all_before
    if isinstance(over, Band) and is_band:
        ends = {"num_sources": over.num_sources + count, "offset": over.offset + count}
        make = partial(replace, over, **ends)
    if torch.compiler.is_compiling():
        return make()
    kept = _extended.setdefault(over, Memo())  # a rule too: plans are of the rule itself
    with nullcontext() if is_band else lasting(over.edges().pattern.source):
        return kept.get((count, is_band), make)  # type: ignore[no-any-return]


def _edges_with_sources(over: Edges, count: int) -> EdgeBasis:
    """The edges, and listed after them those of the first ``count`` sources to all targets."""
    pattern, (sources, targets), labels = over.edges().pattern, over.size, over.num_bases
    ends = [torch.arange(n, device=over.device) for n in (count, targets, labels)]
    source, target, label = torch.cartesian_prod(*ends).unbind(1)
    source = torch.cat([pattern.source.long() + count, source])
    target = torch.cat([pattern.target.long(), target])
    label = torch.cat([pattern.label.long(), label])
    origin = pattern.origin
    if origin is not None:  # -1, as of edges that a family adds
        origin = pad(origin, (0, source.numel() - origin.numel()), value=-1)
    extended_pattern = Pattern.of_list(
        torch.stack([source, target]),
        label if labels > 1 else None,
        size=(sources + count, targets),
        num_labels=labels,
        origin=origin,
        own=True,
    )
    return EdgeBasis(extended_pattern)
