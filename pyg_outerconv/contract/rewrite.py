"""From a lazy basis to leaves: linear rewritings move everything but sums into Θ."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..basis.algebra import (
    Composed,
    Derived,
    Kronecker,
    Mixed,
    Repeated,
    Restricted,
    Scaled,
    Selected,
    Stacked,
    Transposed,
)
from ..basis.attended import Attended
from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.eye import Eye
from ..basis.factored import Factored
from ..basis.heads import Heads
from ..basis.on_demand import OnDemand
from ..basis.pattern import Pattern
from ..basis.polynomial import Polynomial
from .mixture import Mixture, ThetaValue, gathered, labels_of, mixed, numbers_of, scaled

_LEAVES = (
    EdgeBasis | Polynomial | Eye | OnDemand | Composed | Repeated | Heads | Attended | Factored
)


def leaves(
    basis: Basis, theta: ThetaValue, reduce: str = "sum"
) -> Iterator[tuple[Basis, ThetaValue]]:
    """Pairs (leaf, Θ of the leaf) with Σ over leaves Σ_k A_k ⊗ Θ_k equal to the whole.

    - a stack splits Θ by label;
    - a scale multiplies Θ_k by c_k, which costs less than scaling edges, but for max and min, which
      a negative c_k turns into each other: there it multiplies the values of edges;
    - a mixing of labels mixes Θ: Θ'_k = Σ_j C[j, k] Θ_j; where edges are counted or compared, it
      becomes edges, for it joins all ends that any label of its base joins;
    - a selection adds Θ_k to the label it chose (zero for labels not chosen, and of a polynomial
      only the powers up to the highest chosen one); one of no labels has no edges;
    - a transposition moves inward until it meets edges;
    - a Kronecker product is a product along its two axes, and a restriction one with matrices that
      pick nodes; products themselves are leaves.

    Args:
        basis: any basis.
        theta: (K, G, P/G, Q/G), or a mixture.
        reduce: over the inputs of each label.
    """
    if isinstance(basis, Selected | Mixed) and not basis.num_bases:
        empty = torch.empty((2, 0), dtype=torch.long, device=basis.device)
        yield EdgeBasis(Pattern.build(empty, size=basis.size, num_labels=0)), theta
    elif isinstance(basis, Stacked):
        start = 0
        for part in basis.parts:
            end = start + part.num_bases
            yield from leaves(part, labels_of(theta, start, end), reduce)
            start = end
    elif isinstance(basis, Scaled) and not (reduce in ("max", "min") and _has_edges(basis.base)):
        yield from leaves(basis.base, scaled(theta, basis.factor.to(_rows(theta).dtype)), reduce)
    elif isinstance(basis, Scaled) and isinstance(basis.base, Stacked):
        yield from leaves(_split(basis.base, basis.factor), theta, reduce)
    elif isinstance(basis, Mixed) and not (reduce != "sum" and _has_edges(basis.base)):
        yield from leaves(basis.base, mixed(theta, basis.matrix.to(_rows(theta).dtype)), reduce)
    elif isinstance(basis, Selected) and not isinstance(basis.base, EdgeBasis):
        base = basis.base
        label = torch.tensor(basis.labels, device=_rows(theta).device)
        if isinstance(base, Polynomial):
            # Powers past the highest chosen one are not needed, nor a matrix for each below it.
            base = Polynomial(base.operator, base.recurrence, max(basis.labels) + 1)
            chosen = torch.nn.functional.one_hot(label, base.num_bases).to(_rows(theta).dtype)
            yield from leaves(base, mixed(theta, chosen), reduce)
            return
        yield from leaves(base, gathered(theta, label, base.num_bases), reduce)
    elif isinstance(basis, Transposed):
        yield from leaves(turn(basis.base), theta, reduce)
    elif isinstance(basis, Kronecker):
        yield basis.chain(), theta
    elif isinstance(basis, Restricted):
        yield from leaves(basis.product, theta, reduce)
    elif isinstance(basis, _LEAVES):
        yield basis, theta
    else:
        yield basis.edges(), theta


def _rows(theta: ThetaValue) -> Tensor:
    """A tensor with a row for each label."""
    return theta.coefficient if isinstance(theta, Mixture) else numbers_of(theta)


def _has_edges(basis: Basis) -> bool:
    """Whether it becomes explicit edges alone: then a scale may go into their values.

    The identity has one entry a row, which no scale reorders; what hides edges anywhere is refused
    where they are counted or compared.
    """
    inside = list(_leaves_of(basis))
    hides = any(leaf.hides_edges for leaf in inside)
    return not hides and any(not isinstance(leaf, Eye) for leaf in inside)


def _leaves_of(basis: Basis) -> Iterator[Basis]:
    """What a basis is made of by stacks, scales, and the like."""
    for part in basis.parts if isinstance(basis, Stacked) else ():
        yield from _leaves_of(part)
    if isinstance(basis, Derived):
        yield from _leaves_of(basis.base)
    elif not isinstance(basis, Stacked):
        yield basis


def _split(stack: Stacked, factor: Tensor) -> Stacked:
    """The stack with its scale in each of its parts."""
    factors = factor.split([part.num_bases for part in stack.parts])
    return Stacked(tuple(map(Scaled, stack.parts, factors)))


def turn(basis: Basis) -> Basis:
    """The transpose of ``basis``, one level further in."""
    if isinstance(basis, Transposed):
        return basis.base
    if isinstance(basis, Stacked):
        return Stacked(tuple(part.transpose() for part in basis.parts))
    if isinstance(basis, Scaled):
        return Scaled(basis.base.transpose(), basis.factor)
    if isinstance(basis, Mixed):
        return Mixed(basis.base.transpose(), basis.matrix)
    if isinstance(basis, Selected):
        return Selected(basis.base.transpose(), basis.labels)
    if isinstance(basis, Polynomial):
        operator = basis.operator.transposed_edges()
        return Polynomial(operator, basis.recurrence, basis.num_terms)
    if isinstance(basis, Eye):
        return Eye(basis.size[::-1], basis.device)
    turned = basis.transpose()
    return basis.edges().transposed_edges() if isinstance(turned, Transposed) else turned
