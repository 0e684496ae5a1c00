"""Receptive fields: which inputs reach some outputs, without making products or powers."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from .algebra import Composed, Kronecker, Mixed, Repeated, Restricted, Scaled, Selected, Stacked
from .base import Basis
from .edges import EdgeBasis
from .eye import Eye
from .grid.shift import GridShift
from .polynomial import Polynomial
from .restricted import Nodes, check_nodes
from .transposed import Transposed

MOST_LAYERS = 100_000


def receptive_field(basis: Basis, targets: int | Nodes, reach: int = 1) -> Tensor:
    """The sources from which an edge of any label runs to ``targets``; a weight of 0 counts.

    Sets of nodes go back through products and powers, factor by factor. Layers beyond those after
    which the set settles, or repeats itself, cost nothing; where it does neither within 100,000, a
    greater reach is refused.

    Raises:
        TypeError, ValueError, IndexError: ``targets`` are no targets; or ``reach`` is not 1, and
            M ≠ N, or too many layers; see above.
    """
    if not isinstance(reach, Integral) or isinstance(reach, bool):
        raise RefusedType(refusal("reach is a number of layers", "an integer", repr(reach)))
    nodes: Any = targets
    if isinstance(targets, int) and not isinstance(targets, bool):
        nodes = [targets]
    chosen = check_nodes("targets", nodes, basis.size[1], basis.device)
    if reach < 0 or (reach != 1 and basis.size[0] != basis.size[1]):
        raise RefusedValue(
            refusal(
                "a basis is applied several times where it has one set of nodes",
                "reach = 1, or M = N and reach >= 0",
                f"reach={reach}, size {basis.size}",
            )
        )
    seen = torch.zeros(basis.size[1], dtype=torch.bool, device=basis.device)
    seen[slice(None) if chosen is None else chosen] = True
    return _layers_back(basis, seen, reach).nonzero().view(-1)


def _layers_back(basis: Basis, seen: Tensor, reach: int) -> Tensor:
    """``seen`` (N,) as many layers back, by no more steps than it takes until the set repeats.

    A set that was there before comes back with the same period ever after (1 where it settles).
    It is compared with one earlier set, ever later ones (Brent, *An improved Monte Carlo
    factorization algorithm*, 1980).
    """
    step, mark, marked, repeats = 0, seen, 0, False
    while step < reach:
        if step == MOST_LAYERS and not repeats:
            raise RefusedValue(
                refusal(
                    f"the sources seen neither settle nor repeat within {MOST_LAYERS} layers",
                    f"reach <= {MOST_LAYERS}",
                    reach,
                )
            )
        seen, step = _back(basis, seen, range(basis.num_bases)), step + 1
        if not repeats and torch.equal(seen, mark):
            repeats, reach = True, step + (reach - step) % (step - marked)
        elif step >= 2 * marked:
            mark, marked = seen, step
    return seen


def _back(basis: Basis, seen: Tensor, labels: Sequence[int], turned: bool = False) -> Tensor:
    """(M,) where edges under some of ``labels`` start that end in ``seen`` (N,).

    ``turned``: along the edges, from sources (M,) to targets (N,).
    """
    if isinstance(basis, Transposed):
        return _back(basis.base, seen, labels, not turned)
    if isinstance(basis, Stacked):
        return _through_stack(basis, seen, labels, turned)
    if isinstance(basis, Scaled):
        return _back(basis.base, seen, labels, turned)
    if isinstance(basis, Selected):
        return _back(basis.base, seen, [basis.labels[k] for k in labels], turned)
    if isinstance(basis, Mixed):
        every = range(basis.base.num_bases if labels else 0)
        return _back(basis.base, seen, every, turned)
    if isinstance(basis, Composed):
        return _through_product(basis, seen, labels, turned)
    if isinstance(basis, Kronecker):
        return _back(basis.chain(), seen, labels, turned)
    if isinstance(basis, Restricted):
        return _back(basis.product, seen, labels, turned)
    if isinstance(basis, Repeated):
        return _through_copies(basis, seen, labels, turned)
    if isinstance(basis, Polynomial):
        return _through_powers(basis, seen, labels, turned)
    if isinstance(basis, Eye):
        out = seen.new_zeros(basis.size[turned])
        shared = min(basis.size) if labels else 0
        out[:shared] = seen[:shared]
        return out
    if isinstance(basis, GridShift):
        return _through_shifts(basis, seen, labels, turned)
    return _along(basis.edges(), seen, labels, turned)


def _along(basis: EdgeBasis, seen: Tensor, labels: Sequence[int], turned: bool) -> Tensor:
    pattern = basis.pattern
    starts, ends = pattern.source, pattern.target
    starts, ends = (ends, starts) if turned else (starts, ends)
    counts = torch.zeros(pattern.num_labels, dtype=torch.bool, device=pattern.device)
    counts[list(labels)] = True
    used = seen.index_select(0, ends) & counts.index_select(0, pattern.label)
    out = seen.new_zeros(basis.size[turned])
    out[starts[used].long()] = True
    return out


def _through_stack(basis: Stacked, seen: Tensor, labels: Sequence[int], turned: bool) -> Tensor:
    out, start = seen.new_zeros(basis.size[turned]), 0
    for part in basis.parts:
        end = start + part.num_bases
        mine = [k - start for k in labels if start <= k < end]
        out, start = out | _back(part, seen, mine, turned), end
    return out


def _through_product(basis: Composed, seen: Tensor, labels: Sequence[int], turned: bool) -> Tensor:
    """One way through both for all labels of the first that come with the same of the second."""
    partners: dict[int, tuple[int, ...]] = {}
    for label in labels:
        first, second = divmod(label, basis.second.num_bases)
        partners[first] = (*partners.get(first, ()), second)
    groups: dict[tuple[int, ...], list[int]] = {}
    for first, seconds in partners.items():
        groups.setdefault(seconds, []).append(first)
    out = seen.new_zeros(basis.size[turned])
    for seconds, firsts in groups.items():
        if turned:
            between = _back(basis.first, seen, firsts, turned)
            out = out | _back(basis.second, between, seconds, turned)
        else:
            between = _back(basis.second, seen, seconds, turned)
            out = out | _back(basis.first, between, firsts, turned)
    return out


def _through_copies(basis: Repeated, seen: Tensor, labels: Sequence[int], turned: bool) -> Tensor:
    here, there = basis.base.size[not turned], basis.base.size[turned]
    copies = seen.view(basis.before, here, basis.after).transpose(1, 2).flatten(0, 1)
    out = seen.new_zeros(copies.size(0), there)
    for copy in copies.any(1).nonzero().view(-1).tolist():
        out[copy] = _back(basis.base, copies[copy], labels, turned)
    return out.view(basis.before, basis.after, there).transpose(1, 2).flatten()


def _through_powers(basis: Polynomial, seen: Tensor, labels: Sequence[int], turned: bool) -> Tensor:
    """Step by step; where a term subtracts one before it, it has the edges of that one too."""
    out, terms = torch.zeros_like(seen), [seen]
    for k in range(max(labels, default=-1) + 1):
        if k:
            ahead = _along(basis.operator, terms[-1], [0], turned)
            lower = k > 1 and bool(basis.recurrence.gamma)
            terms.append(ahead | terms[-2] if lower else ahead)
        if k in labels:
            out = out | terms[-1]
    return out


def _through_shifts(basis: GridShift, seen: Tensor, labels: Sequence[int], turned: bool) -> Tensor:
    """Axis by axis, for outputs of the axes that are seen, or that may see what is."""
    from_outputs = turned == basis.is_turned
    shape = torch.Size(axis.num_outputs for axis in basis.axes)
    outputs = seen if from_outputs else seen.new_ones(shape.numel())
    cells = outputs.view(shape).nonzero().unbind(1)
    number = outputs.nonzero().view(-1)
    tables = [axis.table(seen.device) for axis in basis.axes]
    out = seen.new_zeros(basis.size[turned])
    for label in labels:
        inputs, inside = torch.zeros_like(number), torch.ones_like(number, dtype=torch.bool)
        for axis, table, tap, cell in zip(
            basis.axes, tables, basis.taps[label], cells, strict=True
        ):
            found = table[cell, tap]
            inputs, inside = inputs * axis.num_inputs + found, inside & (found >= 0)
        if from_outputs:
            out[inputs[inside]] = True
        else:
            out[number[inside]] |= seen[inputs[inside]]
    return out
