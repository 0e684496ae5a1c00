"""Walk: powers of a transition matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..basis.algebra import Selected, Stacked
from ..basis.base import Basis
from ..basis.edge_products import REDUCTIONS, compose_edges, identity_edges, merge_parallel
from ..basis.edges import EdgeBasis, edge_basis
from ..basis.eye import Eye
from ..basis.polynomial import MONOMIAL, Polynomial
from ..errors import RefusedValue, unknown
from ..graph.graph import Graph
from ..graph.norm import check_norm, transition
from .family import Family
from .options import check_least, check_powers

DIRECTIONS = ("forward", "backward", "both")

_OF_A_PAIR = "powers=(0, 1) or one of these, direction='forward'"


@dataclass(frozen=True)
class Walk(Family):
    r"""Walks of every length up to L: the weight of a walk is the product of its edges' weights.

    .. math:: A_\ell[m, n] = \operatorname{aggr}_{\text{walks } m \to n \text{ of length }
        \ell} \prod_{e \in \text{walk}} w_e, \qquad \ell = 0, \dots, L

    With ``aggr='sum'`` this is the power T^ℓ of the transition matrix T, kept as a rule:

    - ``norm='source'``: T = D_out⁻¹W, as in the paper; weights that leave a node sum to one.
    - ``norm='target'``: T = W D_in⁻¹; weights that reach a node sum to one.
    - ``norm='sym'``: T = D^(−1/2) W D^(−1/2), as in GCN, TAGCN and SGC.
    - ``norm='both'``: T = D_out^(−1/2) W D_in^(−1/2), as in Dir-GNN.
    - ``norm=None``: T = W, the sum of path weights.

    ``direction='backward'`` walks against the edges; ``'both'`` has forward labels, then backward
    ones. Between two sets of nodes there are walks of length 0, on which target n sees source n for
    n < min(M, N) as in :class:`Identity`, and of length 1, along edges; ``powers`` excludes longer
    ones. ``Walk(L, norm='target', direction='both')`` is DCRNN's diffusion convolution
    Σ_ℓ (D_out⁻¹W)^ℓ X Θ_{ℓ,1} + (D_in⁻¹Wᵀ)^ℓ X Θ_{ℓ,2}: there a node collects along its out-edges,
    so its first sum has the backward labels here, its second the forward labels.

    References: section 3.3 of *Convolution is outer product*; the `"Diffusion Convolutional
    Recurrent Neural Network" <https://arxiv.org/abs/1707.01926>`_ paper, equation 2.

    Args:
        length (int): L, at most 10,000. K = L + 1 in one direction, unless ``powers`` selects
            fewer.
        norm (str, optional): T is W divided by the out-degrees for ``'source'``, by the in-degrees
            for ``'target'``, by the roots of both for ``'both'``, by those of the in-degrees at
            both ends for ``'sym'``, and W for ``None``. (default: ``'source'``)
        direction (str, optional): ``'forward'``, ``'backward'`` or ``'both'``.
            (default: ``'forward'``)
        aggr (str, optional): over the walks from m to n: ``'sum'``, ``'mean'``, ``'max'`` or
            ``'min'``. All but the sum make walks explicit, which can be many edges. Of equal walks
            the first takes the whole gradient of a maximum or minimum. (default: ``'sum'``)
        powers (tuple, optional): the lengths ℓ that have labels, all if ``None``.
            (default: ``None``)
        add_self_loops (bool, optional): add them before the norm. (default: ``False``)
        as_pyg (bool, optional): Whether edges are read as PyG's ``gcn_norm`` reads them, as in
            :class:`GCN`. (default: ``False``)

    Raises:
        ValueError: an option is unknown or out of range; when a basis is made, sources and targets
            are a pair and walks are longer than one step, backward, or with self-loops; or negative
            weights leave a sum to divide by that is not positive, or are given to max or min.
    """

    equation = "A_l = (D_out^-1 W)^l, l = 0..L"

    length: int = 2
    norm: str | None = "source"
    direction: str = "forward"
    aggr: str = "sum"
    powers: tuple[int, ...] | None = None
    add_self_loops: bool = False
    as_pyg: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, length=0)
        check_powers(self, "length")
        check_norm(self.norm)
        if self.direction not in DIRECTIONS:
            raise RefusedValue(unknown("direction", self.direction, DIRECTIONS))
        if self.aggr not in REDUCTIONS:
            raise RefusedValue(unknown("aggr", self.aggr, REDUCTIONS))
        if self.powers is not None:
            object.__setattr__(self, "powers", tuple(self.powers))
            bad = [power for power in self.powers or () if not 0 <= power <= self.length]
            if bad or not self.powers:
                raise RefusedValue(
                    "powers of a walk must be lengths that it has",
                    f"some of [0, {self.length}]",
                    self.powers,
                )

    @property
    def kept(self) -> tuple[int, ...]:
        """The lengths that have labels."""
        return self.powers if self.powers is not None else tuple(range(self.length + 1))

    @property
    def labels(self) -> tuple[str, ...]:
        ways = ("forward", "backward") if self.direction == "both" else (self.direction,)
        return tuple(f"{way} walks of length {power}" for way in ways for power in self.kept)

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """The chosen powers of the transition matrix, in each direction."""
        if max(self.kept) > 1 or self.direction != "forward":
            edges.require_one_set("a walk of more than one step, or not forward,", _OF_A_PAIR)
        ways = {
            "forward": [edges],
            "backward": [edges.reversed()],
            "both": [edges, edges.reversed()],
        }[self.direction]
        parts = tuple([self._walks(way, dtype) for way in ways])
        return parts[0] if len(parts) == 1 else Stacked(parts)

    def _walks(self, edges: Graph, dtype: torch.dtype | None) -> Basis:
        """The powers of one direction, or its explicit walks."""
        if self.add_self_loops:
            edges = edges.but(only_sums=edges.only_sums and self.aggr == "sum")
        if self.aggr in ("max", "min"):
            edges.require_nonnegative(f"the {self.aggr} over walks")
        loops = self.add_self_loops, False, self.as_pyg
        step = edge_basis(transition(edges, self.norm, dtype, *loops))
        if self.aggr == "sum":
            walks = _powers(step, max(self.kept) + 1)
        else:
            length = min(self.length, 1) if edges.bipartite else self.length
            walks = explicit_walks(step.with_values(step.values(dtype)), length, self.aggr)
        return walks if self.powers is None else Selected(walks, self.powers)


def _powers(step: EdgeBasis, count: int) -> Basis:
    """The first ``count`` powers of a matrix, as a rule if there are more than two."""
    if count > 2:
        return Polynomial(step, MONOMIAL, count)
    own = Eye(step.size, step.device)
    return own if count == 1 else Stacked((own, step))


def explicit_walks(step: EdgeBasis, length: int, aggr: str) -> EdgeBasis:
    """Walks of length 0 … L as explicit edges, the weights of parallel walks aggregated.

    A mean is the sum of the walks' weights divided by their number. Max and min are taken edge by
    edge, which is exact because weights are not negative.
    """
    if aggr == "mean":
        ones = step.with_values(torch.ones_like(step.values()))
        total, number = explicit_walks(step, length, "sum"), explicit_walks(ones, length, "sum")
        return total.with_values(total.values() / number.values())
    walks = [identity_edges(step.size, step.dtype, step.device)]
    if length:
        walks.append(merge_parallel(step.index, step.values(), step.size, aggr))
    while len(walks) <= length:
        walks.append(compose_edges(walks[-1], walks[1], aggr))
    return Stacked(tuple(walks)).edges()
