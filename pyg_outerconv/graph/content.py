"""Content: node features and parameters that content-based families compute values from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Content:
    """Features that a layer passes to a content-based family with the structure; nodes come first.

    Attributes:
        source: (M, *batch, P) features of the sources; may be sparse features (M, P).
        target: (N, *batch, P_t) features of the targets, or None if only sources have features;
            the same object as ``source`` if one x is for both.
        present: (M, *batch) booleans, the sources that may be attended to, or None for all.
        alignment: the structure that alignments read, or None to use that of the edges.
        theta: the parameter Θ of the values, for scores of transformed features; else None.
        values: (M, *batch, H, V) the values x Θ, if the layer has computed them.
        graph: (M,) the graph of each source, if there is a batch vector, for learned queries.
        only_sums: whether the layer needs only sums of values.
        target_is_used: whether the layer itself reads the target features, for a root weight.
    """

    source: Any
    target: Any
    present: Tensor | None = None
    alignment: Any = None
    theta: Any = None
    values: Tensor | None = None
    graph: Tensor | None = None
    only_sums: bool = False
    target_is_used: bool = False

    @property
    def is_single(self) -> bool:
        """Whether one x is for both sources and targets."""
        return self.target is self.source
