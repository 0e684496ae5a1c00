"""Propagation: an OuterConv without Θ, for features of any width."""

from __future__ import annotations

from ..families import Family
from ..nn import OuterConv
from ..nn.call import Call
from ..nn.theta import ThetaModule
from ..theta import Theta, ThetaValue


class Propagation(OuterConv):
    r"""Y = Σ_k A_kᵀ X, with Θ_k = I: no parameters, and as many channels as X has at each call.

    Args:
        family: the recipe for the basis.
        aggr: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        flow: PyG's direction of messages.
    """

    def __init__(self, family: Family, aggr: str = "sum", flow: str = "source_to_target") -> None:
        super().__init__(-1, -1, family, bias=False, theta="identity", aggr=aggr, flow=flow)

    def _waiting(self, call: Call) -> list[tuple[ThetaModule, int]]:
        """None: P stays open."""
        return []

    def _parameter(self, call: Call) -> ThetaValue:
        """The identity, of the width of the sources."""
        assert call.source is not None
        assert call.like is not None
        return Theta.identity(self.family.num_bases, call.source.size(-1), call.like)
