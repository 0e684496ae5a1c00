"""Causal: every target sees the sources up to its own place."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...basis.band import sequence
from ...basis.base import Basis
from ...graph.structure import Structure
from .support import Support


@dataclass(frozen=True)
class Causal(Support):
    r"""Sources up to the place of the target, in a sequence.

    .. math:: A_0[m, n] = 1 \iff m \le n \qquad (m < n \text{ if strict})

    The masked attention of a decoder. Nodes follow each other in the order of their numbers, those
    of a graph of a batch from its first one on. Where M ≠ N both sequences begin together: target
    0 sees source 0. From the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_
    paper, section 3.2.3.

    Args:
        strict (bool, optional): whether a target does not see its own place. Target 0 then sees
            nothing. (default: ``False``)

    Raises:
        TypeError: the option has the wrong type.
        ValueError: when a basis is made, the number of nodes is unknown.
    """

    equation = "A_0[m, n] = 1 where m <= n"
    page = ("m ≤ n, or m < n", "1706.03762, section 3.2.3")

    strict: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return ("all before",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A :class:`Band` without limit to the left, or edges within each graph."""
        return sequence(structure, None, -1 if self.strict else 0)
