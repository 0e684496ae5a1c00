"""The reductions of PyG's layers that a contraction has: sum, mean, maximum, minimum."""

from __future__ import annotations

from torch_geometric.nn import MessagePassing, aggr

_REDUCTIONS = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
}


def reduction(layer: MessagePassing) -> str:
    """The name of a layer's reduction in OuterConv."""
    return _REDUCTIONS[type(layer.aggr_module)]


def check_reduction(layer: MessagePassing, *known: str) -> list[str]:
    """The reason why a layer's reduction has no equal; none if it has.

    Args:
        layer: a layer of PyG.
        known: the names of the reductions that its recipe has; all four without any.
    """
    name = _REDUCTIONS.get(type(layer.aggr_module))
    if name is not None and (not known or name in known):
        return []
    words = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum"}
    expected = [words[one] for one in known or words]
    listed = " or ".join(filter(None, [", ".join(expected[:-1]), expected[-1]]))
    return [f"aggr={layer.aggr} is not a {listed}"]
