"""HighPass: each node minus its neighbours, ε I − Â for a norm of the adjacency matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..basis.base import Basis
from ..basis.edges import edge_basis
from ..basis.polynomial import MONOMIAL, Polynomial
from ..equations import row
from ..errors import RefusedValue
from ..graph.graph import Graph
from ..graph.norm import check_norm, transition
from ..memo import constant
from .family import Family


@row("Filters", "ε I − Â", "2101.00797, equation 1; 2210.07606", option="`HighPass`")
@dataclass(frozen=True)
class HighPass(Family):
    r"""A node minus its neighbours, weighted by a norm, as one matrix.

    .. math:: A_0 = \epsilon I - \hat A

    with Â the normalised adjacency matrix of :class:`GCN`. With the default options it is the
    high-pass filter I − Â_rw or I − Â_sym of the `"Revisiting Heterophily For Graph Neural
    Networks" <https://arxiv.org/abs/2210.07606>`_ paper (ACM-GNN), whose Â has
    self-loops. ``HighPass(add_self_loops=False, epsilon=0.3)`` is that of the `"Beyond
    Low-frequency Information in Graph Convolutional Networks" <https://arxiv.org/abs/2101.00797>`_
    paper (FAGCN, equation 1), ε I − D^-1/2 A D^-1/2. It stays a rule: I has no edges.

    Args:
        norm (str, optional): ``'sym'``, ``'source'``, ``'target'``, ``'both'`` or ``None``, as in
            :class:`GCN`;
            ``'target'`` subtracts the mean of the neighbours. (default: ``'sym'``)
        add_self_loops (bool, optional): Whether Â has self-loops, added before the norm.
            (default: ``True``)
        epsilon (float, optional): ε. (default: ``1.0``)

    Raises:
        ValueError: ``norm`` is unknown, or ε is not finite; when a basis is made, sources and
            targets are a pair, or negative weights make a degree that is not positive.
    """

    labels = ("self minus neighbours",)
    equation = "A_0 = epsilon I - D^-1/2 (W + I) D^-1/2"

    norm: str | None = "sym"
    add_self_loops: bool = True
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_norm(self.norm)
        if not math.isfinite(self.epsilon):
            raise RefusedValue("epsilon of HighPass is a number", "finite", self.epsilon)

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """ε I − Â, as a weighted sum of the powers 0 and 1 of Â."""
        edges.require_one_set("a high-pass filter", "Relation(1, 'mean') with root_weight=True")
        step = edge_basis(transition(edges, self.norm, dtype, self.add_self_loops))
        if step.dtype is None:
            step = step.with_values(step.values(dtype))
        weights = constant(((self.epsilon, -1.0),), step.dtype, edges.device)
        return Polynomial(step, MONOMIAL, 2).mix(weights)
