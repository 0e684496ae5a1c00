"""The explicit edge sets within a basis: listed, replaced, dropped, renumbered, followed back."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..errors import RefusedType, RefusedValue
from ..graph.checks import Nodes, check_nodes
from ..signatures import typed
from .base import Basis
from .edges import EdgeBasis, PatternBasis
from .pattern import Pattern
from .registry import ByKind, contents, makes


def edge_sets(basis: Basis) -> list[EdgeBasis]:
    """The distinct edge sets within a basis, in order; a rule has none."""
    return _distinct(_flatten(basis)[0])


@ByKind
def with_edges(
    basis: Basis, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
) -> Basis:
    """The basis with ``change`` applied to every explicit edge set within it.

    With ``same_nodes``, parts on other nodes, such as the factors of a Kronecker product, are
    first converted into edges on the nodes of this basis.
    """
    return change(basis.edges())


def hidden_part(basis: Basis) -> Basis | None:
    """The basis itself or a part of it that hides its edges; None if no part does."""
    if basis.hides_edges:
        return basis
    return next(filter(None, map(hidden_part, _parts(basis))), None)


@makes("mean")
@ByKind
def averaged(basis: Basis, dtype: torch.dtype | None = None) -> Basis:
    """What :meth:`.Basis.mean` returns: by edges, unless some part hides them."""
    hidden = hidden_part(basis)
    if hidden is not None:
        rule = "a mean within labels counts edges, which a"
        rule = f"{rule} {type(hidden).__name__} does not store"
        raise RefusedValue(rule, "an explicit basis: basis.edges()", repr(hidden))
    return basis.edges().mean(dtype)


def with_edge_sets(basis: Basis, change: Callable[[list[EdgeBasis]], list[EdgeBasis]]) -> Basis:
    """The basis with its edge sets replaced by ``change``, which returns as many as it gets."""
    leaves, spec = _flatten(basis)
    own = _distinct(leaves)
    new = {id(old): edges for old, edges in zip(own, change(own), strict=True)}
    new_basis: Basis = tree_unflatten([new.get(id(leaf), leaf) for leaf in leaves], spec)
    return new_basis


def outline(basis: Basis) -> int:
    """A checksum of the tree of kinds of basis and of the number of labels of each edge set.

    ``outline >> 32`` is the number of edge sets. The checksum depends on whether values are ones,
    but not on nodes, edges or other values.
    """
    sets: dict[int, int] = {}

    def describe(part: Basis) -> str:
        if isinstance(part, EdgeBasis):
            number = sets.setdefault(id(part), len(sets))
            return f"{number}: {part.num_bases}{' ones' if part.dtype is None else ''}"
        return f"{type(part).__name__}({', '.join(map(describe, _parts(part)))})"

    text = describe(basis)
    return len(sets) << 32 | zlib.crc32(text.encode())


def differ_in_edges(first: Basis, second: Basis) -> bool:
    """Whether two bases are equal except for their edge sets."""
    (ours, spec), (theirs, other) = _flatten(first), _flatten(second)
    if spec != other or outline(first) != outline(second):
        return False
    pairs = zip(ours, theirs, strict=True)
    return all(_is_set(one) or torch.equal(one, another) for one, another in pairs)


def _parts(basis: Basis) -> list[Basis]:
    """The bases that a basis is made of; edges are made of none, and are not sorted to see that."""
    if isinstance(basis, PatternBasis):
        return []
    return [part for part in contents(basis) if isinstance(part, Basis)]


def _flatten(basis: Basis) -> tuple[list[Any], TreeSpec]:
    """The edge sets and the tensors of the other parts, as pytree leaves; see :mod:`.registry`."""
    return tree_flatten(basis, is_leaf=_is_set)


def _distinct(leaves: list[Any]) -> list[EdgeBasis]:
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, EdgeBasis)}.values())


def _is_set(part: Any) -> bool:
    return isinstance(part, EdgeBasis)


@partial(typed, but=("basis", "p"))
def drop_edges(
    basis: Basis,
    p: float = 0.5,
    training: bool = True,
    *,
    whole: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Basis:
    """Set each edge's value to zero with probability ``p``, and divide the others by 1 − p.

    The pattern object is shared, so that nothing is sorted again. A dropped edge stays an edge of
    value zero, which takes part in a maximum. From the `"DropEdge"
    <https://arxiv.org/abs/1907.10903>`_ paper, but with the remaining values scaled as in dropout,
    and after normalisation.

    The expected values are those of the basis, if it consists of edges, or of edges transposed,
    scaled, selected, mixed, stacked, repeated or restricted, or is a product of two such bases,
    whose edges are dropped independently.

    For a polynomial (walks, diffusion, Chebyshev) the edges of its operator are dropped, once for
    all powers, as if the graph lacked them; no power is computed. **The expectation of powers
    changes**: a walk that takes an edge of weight w j times has the factor (w / (1 − p))ʲ if the
    edge remains, which is wʲ (1 − p)^(1−j) on average. ``drop_edges(basis.edges())`` preserves all
    expectations, by dropping the edges of each power independently; these can be many.

    In a training step::

        basis = drop_edges(conv.basis(x, edge_index), 0.1, conv.training)
        out = conv(x, basis)

    Learned edge weights are set in the same way: ``edges.with_values(pattern.sort_values(w))``.

    In a basis made of others, each part and each factor drops its own edges; identities drop none;
    other rules are converted into edges first.

    Args:
        basis: any basis; ``conv.basis(x, edge_index)`` is that of a layer, which takes the result
            in the place of ``edge_index``.
        p: the probability of dropping an edge, from 0 to 1.
        training: if False, the basis is returned unchanged.
        whole: whether an edge of the user's list is dropped under all of its labels together; edges
            that a family added are then kept.
        generator: the random number generator; torch's default if None.
        dtype: the dtype of values that are ones; torch's default if None.

    Raises:
        TypeError: ``basis`` is not a basis, or ``p`` is not a number.
        ValueError: ``p`` is not in [0, 1]; or ``whole`` is set, and edges have no origin in a list.
    """
    if not isinstance(basis, Basis):
        raise RefusedType("drop_edges takes a basis", "a Basis", type(basis).__name__)
    if not isinstance(p, Real) or isinstance(p, bool):
        raise RefusedType("edges are dropped with a probability", "a number", repr(p))
    if not 0 <= p <= 1:
        raise RefusedValue("edges are dropped with a probability", "0 <= p <= 1", p)
    if not training or p == 0:
        return basis

    value_type = basis.dtype or dtype  # the same for all parts
    return with_edges(basis, lambda edges: _drop(edges, p, whole, generator, value_type))


def _drop(
    edges: EdgeBasis,
    p: float,
    whole: bool,
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
) -> EdgeBasis:
    """The same pattern with values scaled at random."""
    value = edges.values(dtype)
    count = _num_given(edges.pattern) if whole else edges.num_edges
    drawn = torch.rand(count, generator=generator, device=edges.device)
    scale = (drawn >= p).to(value.dtype) / (1 - p if p < 1 else 1)
    if whole:
        assert edges.pattern.origin is not None  # as _num_given checks
        # An edge that a family added has the origin -1, which indexes the appended one.
        scale = torch.cat([scale, scale.new_ones(1)])[edges.pattern.origin.long()]
    return edges.with_values(value * scale)


def _num_given(pattern: Pattern) -> int:
    if pattern.origin is None:
        raise RefusedValue(
            "whole=True needs edges that come from an edge list",
            "a pattern with an origin",
            f"{pattern!r}, whose edges are products or were stored by a transform",
        )
    return int(pattern.origin.max()) + 1 if pattern.num_edges else 0


class Reordered(NamedTuple):
    """A basis on renumbered nodes, and the permutations between old and new numbers.

    ``conv(x[nodes], basis)[place]`` equals ``conv(x, …)`` on the original basis.

    Attributes:
        basis: the basis on renumbered nodes.
        nodes: (N,) the old number of each node.
        place: (N,) the new number of each old node.
    """

    basis: Basis
    nodes: Tensor
    place: Tensor


@makes("reorder")
def reorder(basis: Basis) -> Reordered:
    """What :meth:`.Basis.reorder` returns."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    if basis.size[0] != basis.size[1]:
        raise RefusedValue(
            "renumbering needs one set of nodes, at both ends",
            "M = N",
            f"M = {basis.size[0]}, N = {basis.size[1]}",
        )
    source, target = (end.cpu().numpy() for end in _ends(basis))
    ones = np.ones(2 * source.size, dtype=np.int8)
    ends = (np.concatenate([source, target]), np.concatenate([target, source]))
    matrix = coo_matrix((ones, ends), shape=basis.size).tocsr()
    order = np.arange(0)
    if matrix.shape[0]:  # scipy refuses an empty matrix
        order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    nodes = torch.from_numpy(order.astype(np.int64)).to(basis.device)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    renumbered = with_edges(basis, lambda edges: _renumbered(edges, place), same_nodes=True)
    return Reordered(renumbered, nodes, place)


def _renumbered(edges: EdgeBasis, place: Tensor) -> EdgeBasis:
    """The same edges with node n renamed to ``place[n]``."""
    pattern = edges.pattern
    moved = Pattern.build(
        place.index_select(0, pattern.index.flatten()).view(2, -1),
        pattern.label,
        size=pattern.size,
        num_labels=pattern.num_labels,
        origin=pattern.origin,
    )
    value = None if edges.value is None else moved.sort_values(edges.value)
    # ``order`` refers to the user's list, not to the old pattern.
    parts = {field.name: getattr(moved, field.name) for field in fields(moved)}
    parts["order"] = pattern.order.index_select(0, moved.order)
    return EdgeBasis(Pattern.of_parts(**parts), value)


def _ends(basis: Basis) -> tuple[Tensor, Tensor]:
    """Sources and targets of all edge sets within the basis."""
    index = [torch.empty((2, 0), dtype=torch.int64, device=basis.device)]

    def note(edges: EdgeBasis) -> EdgeBasis:
        index.append(edges.index.long())
        return edges

    with_edges(basis, note, same_nodes=True)
    source, target = torch.cat(index, dim=1)
    return source, target


# Which sources reach a target ---------------------------------------------------------------------

MOST_LAYERS = 100_000


@ByKind
def reached(basis: Basis, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    """(M,) booleans: sources of edges with a label in ``labels`` into targets ``seen`` (N,).

    With ``transposed``, from seen sources (M,) to the targets (N,) of their edges.
    """
    return reached(basis.simpler(), seen, labels, transposed)


@reached.register
def _(basis: EdgeBasis, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
    pattern = basis.pattern
    starts, ends = pattern.source, pattern.target
    starts, ends = (ends, starts) if transposed else (starts, ends)
    counts = torch.zeros(pattern.num_labels, dtype=torch.bool, device=pattern.device)
    counts[list(labels)] = True
    used = seen.index_select(0, ends) & counts.index_select(0, pattern.label)
    out = seen.new_zeros(basis.size[transposed])
    out[starts[used].long()] = True
    return out


@makes("receptive_field")
def receptive_field(basis: Basis, targets: int | Nodes, reach: int) -> Tensor:
    """What :meth:`.Basis.receptive_field` returns.

    Sets of nodes are followed back through products and powers, factor by factor.
    """
    if not isinstance(reach, Integral) or isinstance(reach, bool):
        raise RefusedType("reach is a number of layers", "an integer", repr(reach))
    is_one = isinstance(targets, int) and not isinstance(targets, bool)
    nodes: Any = [targets] if is_one else targets
    chosen = check_nodes("targets", nodes, basis.size[1], basis.device)
    if reach > MOST_LAYERS:
        raise RefusedValue("a receptive field is of so many layers", f"<= {MOST_LAYERS}", reach)
    if reach < 0 or (reach != 1 and basis.size[0] != basis.size[1]):
        raise RefusedValue(
            "several layers need a basis on one set of nodes",
            "reach = 1, or M = N and reach >= 0",
            f"reach={reach}, size {basis.size}",
        )
    seen = torch.zeros(basis.size[1], dtype=torch.bool, device=basis.device)
    seen[slice(None) if chosen is None else chosen] = True
    for _ in range(reach):
        before, seen = seen, reached(basis, seen, range(basis.num_bases))
        if torch.equal(seen, before):
            break
    return seen.nonzero().view(-1)
