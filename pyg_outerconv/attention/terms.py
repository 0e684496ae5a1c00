"""Terms of positions and of edges, which are added to scores before they are normalised."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import Parameter

from ..equations import row
from ..errors import RefusedType, RefusedValue
from ..graph.checks import check_dense, check_positive
from ..graph.positions import as_whole, exact_type
from ..signatures import typed
from .positions import numbered


@runtime_checkable
class IndexTerm(Protocol):
    """A number for each edge and head, from the position of its source relative to its target.

    A ``torch.nn.Module`` whose result is added to scores before they are normalised. One with
    ``reads = "edge_attr"`` gets attributes of edges in the place of relative positions.

    Attributes:
        heads: H.
    """

    heads: int

    def forward(self, relative: Tensor) -> Tensor:
        """The terms (E, H) of edges, in the dtype of ``relative`` or a wider one of parameters.

        Args:
            relative: (E, D) floating point, the position of each edge's source minus that of its
                target.
        """
        ...

    def __call__(self, relative: Tensor) -> Tensor:
        """:meth:`forward`, as modules are called."""
        ...


def _check_relative(relative: Tensor, axes: int | None = None) -> None:
    """Refuse relative positions that are not floating point (E, axes); any D if None."""
    if not isinstance(relative, Tensor) or not relative.is_floating_point():
        got = getattr(relative, "dtype", type(relative).__name__)
        raise RefusedType("relative positions are floating point", "torch.float32", got)
    if relative.dim() != 2 or (axes is not None and relative.size(1) != axes):
        wanted = f"(E, {'D' if axes is None else axes})"
        raise RefusedValue(
            "edges have a relative position on each axis", wanted, tuple(relative.shape)
        )


@row(
    "Positions",
    "−slope_h \\|n − m\\|",
    "Press et al., *ALiBi* (2108.12409), section 3",
    option="`terms=(ALiBi(heads),)`",
)
class ALiBi(torch.nn.Module):
    r"""A term that falls linearly with distance, with a slope for each head.

    .. math:: b_h(m, n) = -s_h \sum_d |p_{m,d} - p_{n,d}|

    From section 3 of `"Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation" <https://arxiv.org/abs/2108.12409>`_, whose sequences are causal: its
    distance i − j is |p_m − p_n| here. On several axes the distances along the axes add up.

    Slopes are 2^(−8/H), 2^(−16/H), …, 2^(−8) where H is a power of two. For any other H they are,
    as in the paper's code, the slopes for the largest power of two G < H, then the first, third, …
    slope for 2·G.

    Args:
        heads: H.
        learned: whether the slopes are parameters, initialised with these numbers.

    Raises:
        TypeError: ``heads`` is not an integer.
        ValueError: ``heads`` is not positive.

    >>> ALiBi(heads=2)(torch.tensor([[-3.0]])).tolist()
    [[-0.1875, -0.01171875]]
    """

    @typed
    def __init__(self, heads: int, learned: bool = False) -> None:
        super().__init__()
        check_positive("ALiBi", heads=heads)
        self.heads, self.learned = heads, learned
        self.slopes = Parameter(torch.empty(heads)) if learned else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to the paper's."""
        if self.slopes is not None:
            with torch.no_grad():
                self.slopes.copy_(slopes(self.heads, dtype=torch.float64))

    def forward(self, relative: Tensor) -> Tensor:
        """The terms (E, H) of relative positions (E, D)."""
        _check_relative(relative)
        dtype, result = exact_type(relative.dtype), relative.dtype
        if self.slopes is None:
            slope = slopes(self.heads, dtype, relative.device)
        else:
            slope, result = self.slopes, torch.promote_types(result, self.slopes.dtype)
        return (-relative.to(dtype).abs().sum(1, keepdim=True) * slope).to(result)

    def extra_repr(self) -> str:
        """The options."""
        return f"heads={self.heads}{', learned=True' if self.learned else ''}"


def slopes(
    heads: int, dtype: torch.dtype | None = None, device: torch.device | None = None
) -> Tensor:
    """The slopes (H,) of the paper's code.

    >>> slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    power = 1 << (heads.bit_length() - 1)
    whole = torch.arange(1, power + 1, dtype=dtype, device=device)
    between = torch.arange(heads - power, dtype=dtype, device=device) + 0.5
    return torch.exp2(torch.cat([whole, between]) * (-8 / power))


@row(
    "Positions",
    "what `edge_attr` says of the edge",
    "Ying et al., *Graphormer* (2106.05234), equation 6",
    option="`terms=(EdgeBias(heads),)`",
)
class EdgeBias(torch.nn.Module):
    """A term that is what ``edge_attr`` says: a number of each edge, for all heads or for each.

    The bias b of an edge in equation 6 of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_; an ``attn_mask`` of numbers in torch.

    Args:
        heads: H.

    Raises:
        TypeError, ValueError: ``heads`` is not a positive integer.
    """

    reads = "edge_attr"

    @typed
    def __init__(self, heads: int) -> None:
        super().__init__()
        check_positive("an edge bias", heads=heads)
        self.heads = heads

    def forward(self, edge_attr: Tensor) -> Tensor:
        """The attributes (E, 1) or (E, H) themselves."""
        check_dense("an edge bias is added to scores", edge_attr, least=2)
        if edge_attr.size(1) not in (1, self.heads):
            rule = "an edge bias is for all heads or for each of them"
            raise RefusedValue(rule, f"edge_attr (E, 1) or (E, {self.heads})", edge_attr.size(1))
        return edge_attr

    def extra_repr(self) -> str:
        """H."""
        return f"heads={self.heads}"


_SPREAD = 0.02  # the usual standard deviation of such tables in vision transformers
_ROUNDING = 1e-9  # relative error of a power, so that a whole threshold stays whole


@row(
    "Positions",
    "b_h[m − n], clipped, in buckets, or of several axes",
    "Shaw et al. (1803.02155), section 3.2; T5 (1910.10683), section 2.1; 2103.14030, equation 4",
    option="`terms=(RelativeBias(…),)`",
)
class RelativeBias(torch.nn.Module):
    r"""A table of scores for relative positions, clipped to a reach.

    .. math:: b_h(m, n) = B_h[\operatorname{clip}(p_m - p_n, -r, r)]

    Clipping is that of `"Self-Attention with Relative Position Representations"
    <https://arxiv.org/abs/1803.02155>`_ (section 3.2), with a number for each head instead of
    a vector. On D axes the table has an entry for every combination, (2r_1 + 1)·…·(2r_D + 1)
    of them: for windows of W_1 × W_2 cells and reach W_d − 1 it is the table B̂ of `"Swin
    Transformer" <https://arxiv.org/abs/2103.14030>`_ (section 3.2, equation 4).

    With ``buckets``, distant relative positions share entries, more of them the farther they are:
    section 2.1 of `"Exploring the Limits of Transfer Learning with a Unified Text-to-Text
    Transformer" <https://arxiv.org/abs/1910.10683>`_. Of B buckets, half are for sources behind the
    target and half for sources ahead (if ``causal``, all are for sources not ahead). Of each part,
    the first half are for single distances, the others grow geometrically up to the reach, and the
    last has all larger distances. So each axis has B entries.

    Args:
        heads: H.
        reach: r, one number or one for each axis.
        buckets: B, a multiple of 4 (of 2 if causal), or None for one entry for each position.
        causal: with buckets, whether sources ahead of their target share the entry of distance 0,
            because the support has none.

    Attributes:
        weight: (entries, H); the last axis runs fastest.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is out of range, or ``causal`` comes without buckets.

    >>> term = RelativeBias(heads=4, reach=2)
    >>> seen = term(torch.tensor([[-9.0], [-2.0], [0.0], [9.0]]))
    >>> seen.shape, bool((seen[0] == seen[1]).all())
    (torch.Size([4, 4]), True)
    """

    @typed
    def __init__(
        self,
        heads: int,
        reach: int | Sequence[int],
        buckets: int | None = None,
        causal: bool = False,
    ) -> None:
        super().__init__()
        reaches = tuple(reach) if isinstance(reach, Sequence) else (reach,)
        check_positive("a relative bias", heads=heads)
        if not reaches:
            raise RefusedValue("a relative bias is on an axis", "a reach for each", reach)
        for one in reaches:
            check_positive("a relative bias", reach=one)
        _check_buckets(buckets, causal, reaches)
        self.heads, self.reach, self.buckets, self.causal = heads, reaches, buckets, causal
        if buckets is None:
            self.shape = tuple(2 * one + 1 for one in reaches)
        else:
            self.shape = (buckets,) * len(reaches)
            per_side = buckets if causal else buckets // 2
            thresholds = torch.tensor([_thresholds(per_side, one) for one in reaches])
            self.register_buffer("thresholds", thresholds, persistent=False)
        self.weight = Parameter(torch.empty(torch.Size(self.shape).numel(), heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table from a normal law of standard deviation 0.02."""
        torch.nn.init.normal_(self.weight, std=_SPREAD)

    def forward(self, relative: Tensor) -> Tensor:
        """The entries (E, H) of relative positions (E, D), which must be whole numbers."""
        _check_relative(relative, len(self.reach))
        place = as_whole(relative)
        columns = zip(place.unbind(1), self.reach, strict=True)
        if self.buckets is None:
            entries = [column.clamp(-reach, reach) + reach for column, reach in columns]
        else:
            entries = [self._bucket(column, axis) for axis, column in enumerate(place.unbind(1))]
        return self.weight.index_select(0, numbered(torch.stack(entries, dim=1), self.shape))

    def _bucket(self, relative: Tensor, axis: int) -> Tensor:
        """The bucket (E,) of relative positions on one axis: the number of thresholds reached."""
        thresholds = self.get_buffer("thresholds")[axis]
        if self.causal:
            return torch.bucketize(-relative, thresholds, right=True)
        assert self.buckets is not None  # forward
        ahead = (relative > 0) * (self.buckets // 2)
        return ahead + torch.bucketize(relative.abs(), thresholds, right=True)

    def extra_repr(self) -> str:
        """The options."""
        rest = "" if self.buckets is None else f", buckets={self.buckets}, causal={self.causal}"
        return f"heads={self.heads}, reach={self.reach}{rest}"


def _thresholds(buckets: int, reach: int) -> list[int]:
    """The smallest distance of each bucket but the first, which starts at 0."""
    exact = buckets // 2
    steps = buckets - exact
    grown = [exact * (reach / exact) ** (step / steps) for step in range(steps)]
    return [*range(1, exact), *(ceil(start * (1 - _ROUNDING)) for start in grown)]


def _check_buckets(buckets: int | None, causal: bool, reaches: tuple[int, ...]) -> None:
    if buckets is None:
        if causal:
            raise RefusedValue("causal is an option of buckets", "buckets=B", "None")
        return
    check_positive("a relative bias", buckets=buckets)
    parts = 2 if causal else 4
    if buckets % parts:
        raise RefusedValue("buckets are halved by direction and by distance", f"{parts}·i", buckets)
    if min(reaches) <= buckets // parts:
        rule = "buckets grow from single distances to the reach"
        raise RefusedValue(rule, f"reach > {buckets // parts}", min(reaches))
