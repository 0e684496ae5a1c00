"""Convolutions without Θ, and the reductions of PyG's layers that they have, alone or several."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import ModuleList
from torch_geometric.nn import MessagePassing, aggr
from torch_geometric.typing import OptTensor, Size

from ..families import Family, Relation
from ..nn import OuterConv
from ..nn.call import Call
from ..nn.theta import ThetaModule
from ..theta import Theta, ThetaValue

_REDUCTIONS = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
}
_WORDS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum"}
EACH = tuple(_WORDS)
SEVERAL = (*EACH, "var", "std")
"""Also several side by side, as PyG's ``MultiAggregation`` combines them."""


def reduction(layer: MessagePassing) -> str:
    """The name of a layer's reduction in OuterConv."""
    return _REDUCTIONS[type(layer.aggr_module)]


def check_reduction(layer: MessagePassing, reductions: tuple[str, ...]) -> list[str]:
    """The reason why a layer's reduction is not among those that its recipe has; none if it is."""
    if reductions is SEVERAL:
        if all(type(part) in _REDUCTIONS or _is_spread(part) for part in _parts(layer)):
            return []
        return [f"aggr={layer.aggr} is not made of sums, means, maxima, minima or variances"]
    if _REDUCTIONS.get(type(layer.aggr_module)) in reductions:
        return []
    expected = [_WORDS[one] for one in reductions]
    listed = " or ".join(filter(None, [", ".join(expected[:-1]), expected[-1]]))
    return [f"aggr={layer.aggr} is not a {listed}"]


def is_one(layer: MessagePassing) -> bool:
    """Whether a layer's reduction is a sum, mean, maximum or minimum."""
    return type(layer.aggr_module) in _REDUCTIONS


def propagations(layer: MessagePassing) -> Propagation | ModuleList:
    """A convolution over the adjacency matrix without Θ for each sum, mean, maximum or minimum."""
    convs = [Propagation(Relation(1, None), name, layer.flow) for name in _needed(layer)]
    return convs[0] if is_one(layer) else ModuleList(convs)


def reduced(
    layer: MessagePassing,
    convs: Any,
    x: Any,
    edge_index: Tensor,
    edge_weight: OptTensor = None,
    size: Size = None,
) -> Tensor:
    """The neighbours of each target, reduced by ``convs``, which :func:`propagations` made.

    A variance is the mean of squares less the square of the mean, as in PyG.
    """
    if is_one(layer):
        return convs(x, edge_index, edge_weight, size=size)  # type: ignore[no-any-return]
    by_name = dict(zip(_needed(layer), convs, strict=True))
    aggregates = {
        name: conv(x, edge_index, edge_weight, size=size) for name, conv in by_name.items()
    }

    def squares() -> Tensor:
        square = (x[0] ** 2, x[1]) if isinstance(x, tuple | list) else x**2
        weight = None if edge_weight is None else edge_weight**2
        return by_name["mean"](square, edge_index, weight, size=size)  # type: ignore[no-any-return]

    outs = []
    for part in _parts(layer):
        name = _REDUCTIONS.get(type(part))
        if name is not None:
            outs.append(aggregates[name])
            continue
        variance = squares() - aggregates["mean"] ** 2
        outs.append(_root(variance) if isinstance(part, aggr.StdAggregation) else variance)
    whole = layer.aggr_module
    return whole.combine(outs) if isinstance(whole, aggr.MultiAggregation) else outs[0]


def _is_spread(part: Any) -> bool:
    """Whether a reduction is a variance or standard deviation, with its whole gradient."""
    var_aggr = part.var_aggr if type(part) is aggr.StdAggregation else part
    return type(var_aggr) is aggr.VarAggregation and not var_aggr.semi_grad


def _root(variance: Tensor) -> Tensor:
    """The standard deviation, with PyG's zero and gradient for variances up to 1e-5."""
    std = variance.clamp(min=1e-5).sqrt()
    return std.masked_fill(std <= 1e-5**0.5, 0.0)


def _parts(layer: MessagePassing) -> list[Any]:
    """The reductions of a layer, one or several."""
    whole = layer.aggr_module
    return list(whole.aggrs) if isinstance(whole, aggr.MultiAggregation) else [whole]


def _needed(layer: MessagePassing) -> list[str]:
    """The names of the reductions that those of a layer are computed from, each once."""
    return list(dict.fromkeys(_REDUCTIONS.get(type(part), "mean") for part in _parts(layer)))


class Propagation(OuterConv):
    """Y = Σ_k A_kᵀ X, with Θ_k = I: no parameters, and as many channels as X has at each call."""

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
