"""Content: what the nodes hold, for families whose values are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Content:
    """What a layer hands to a content-based family beside the structure; nodes come first.

    Attributes:
        source: (M, *batch, P) features of the sources; may be sparse features (M, P).
        target: (N, *batch, P_t) features of the targets, or None where only sources have some; it
            is ``source`` where one x stands for both ends.
        present: (M, *batch) booleans, the sources that may be attended to, or None for all.
        alignment: the structure that alignments read, or None for that of the edges.
        theta: the parameters of the values, for scores of transformed features; else None.
        values: (M, *batch, H, V) what these make of the sources, where the layer has made that.
        graph: (M,) the graph of each source, where there is a batch vector, for learned queries.
        only_sums: whether nothing is asked for but sums of what theta makes of the sources.
        target_is_used: whether the layer reads features of targets itself, for a root weight.
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
        """Whether one x stands for both ends."""
        return self.target is self.source
