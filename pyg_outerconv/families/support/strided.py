"""Strided: every target sees every s-th source."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...basis.band import sequence
from ...basis.base import Basis
from ...graph.structure import Structure
from ..per_axis import check_least
from .support import Support


@dataclass(frozen=True)
class Strided(Support):
    r"""Sources a whole number of strides from the target, in a sequence.

    .. math:: A_0[m, n] = 1 \iff n - m \equiv 0 \pmod s \qquad (m \le n \text{ if causal})

    One of the two heads of the `"Sparse Transformer" <https://arxiv.org/abs/1904.10509>`_ paper
    (section 4.3), whose other one is ``SlidingWindow(s, causal=True)``; of an image in the order of
    its pixels, with a stride of its width, it is the column. Nodes follow each other in the order
    of their numbers, those of a graph of a batch from its first one on, and where M ≠ N both
    sequences begin together.

    Args:
        stride (int): s.
        causal (bool, optional): whether a target sees only itself and sources before it.
            (default: ``False``)

    Raises:
        TypeError: an option has the wrong type.
        ValueError: the stride is not positive; when a basis is made, nobody said how many nodes
            there are.
    """

    equation = "A_0[m, n] = 1 where n - m is a multiple of s"
    page = (
        "n − m is a multiple of s",
        "Child et al., *Sparse Transformer* (1904.10509), section 4.3",
    )

    stride: int
    causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, "stride", 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return (f"every {self.stride}th before" if self.causal else f"every {self.stride}th",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A :class:`~.band.Band` with that dilation, or edges within each graph."""
        return sequence(structure, None, 0 if self.causal else None, self.stride)
