"""Relative bias: a learned number for each head and relative position."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor
from torch.nn import Parameter

from ..equations import row
from ..errors import RefusedValue, refusal
from ..graph.checks import check_positive
from ..graph.positions import as_whole
from .learned import numbered
from .term import check_relative

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
            raise RefusedValue(refusal("a relative bias is on an axis", "a reach for each", reach))
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
        """The entries (E, H) of relative positions (E, D), which must be whole numbers.

        Raises:
            TypeError: they are not floating point.
            ValueError: ``relative`` has another number of axes, or fractions.
        """
        check_relative(relative, len(self.reach))
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
            raise RefusedValue(refusal("causal is an option of buckets", "buckets=B", "None"))
        return
    check_positive("a relative bias", buckets=buckets)
    parts = 2 if causal else 4
    if buckets % parts:
        raise RefusedValue(
            refusal("buckets are halved by direction and by distance", f"{parts}·i", buckets)
        )
    if min(reaches) <= buckets // parts:
        raise RefusedValue(
            refusal(
                "buckets grow from single distances to the reach",
                f"reach > {buckets // parts}",
                min(reaches),
            )
        )
