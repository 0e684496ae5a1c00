"""The two reductions of a layer, as the contraction takes them: means are folded where they can."""

from __future__ import annotations

from torch import Tensor

from ..graph import SparseFeatures
from ..theta import ThetaValue, scaled
from .prepare import Inputs
from .theta import Theta

COMPARISONS = ("max", "min")


def message_aggregation(aggr: str, label_aggr: str) -> str:
    """How messages come together at a target and label: as the contraction reduces inputs."""
    return "sum" if aggr == "mean" and label_aggr not in COMPARISONS else aggr


class Reductions:
    """What ``aggr`` and ``label_aggr`` say to the contraction.

    A mean within labels is divided into the values, and a mean over labels into Θ, so that both are
    sums. Where labels are compared, Θ_k follows a mean that stays one.

    Attributes:
        folds_mean: whether values of the basis are divided by the number of edges of target and
            label.
        reduce: the reduction over the inputs of a label that is left to do.
        label_reduce: the reduction over labels that is left to do.
    """

    aggr: str
    label_aggr: str
    theta: Theta
    folds_mean: bool
    reduce: str
    label_reduce: str

    def _set_reductions(self, aggr: str, label_aggr: str) -> None:
        compares = label_aggr in COMPARISONS
        self.aggr, self.label_aggr = aggr, label_aggr
        self.folds_mean = aggr == "mean" and not compares
        self.reduce = message_aggregation(aggr, label_aggr)
        self.label_reduce = label_aggr if compares else "sum"

    def _parameter(self, inputs: Inputs) -> ThetaValue:
        like = inputs.source
        if isinstance(like, SparseFeatures):
            like = like.value
        if like is not None and not like.is_floating_point():
            like = None
        theta = self.theta_value(like)
        return scaled(theta, 1.0 / self.theta.num_labels) if self.label_aggr == "mean" else theta

    def theta_value(self, like: Tensor | None = None) -> ThetaValue:
        """Θ as it is contracted, before labels are averaged; see :meth:`Theta.parameter`."""
        return self.theta.parameter(like)
