"""A pattern: where the labelled edges are, sorted once, with both directions kept.

The paper counts from 1, the code from 0: label k, source m and target n start at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..cache import cached_property
from ..errors import RefusedValue, refusal
from ..kernels.counting_sort import counting_sort, pointers, sort_edges, spread
from ..kernels.counts import gathered, inverse_counts
from ..kernels.index_checks import can_read, has_numbers
from ..kernels.lasting import lasting
from ..kernels.sparsity import Sparsity, known_rows
from .compact import LabelBlock, Pairs, count_pairs, label_blocks, source_pairs, target_pairs
from .makers import make
from .pytree import register

if TYPE_CHECKING:
    from .edges import EdgeBasis

_INT32_LIMIT = 2**31 - 1
INT64_LIMIT = 2**63 - 1

LONG = 4
"""Edges of a target under a label, for their sum or largest to be worth a row."""

FEW = 2**15
"""So few edges are listed once more beside the sorted ones, for products that need no order."""


class UnsortedEdges(NamedTuple):
    """Labelled edges in the order in which they were given.

    Attributes:
        source, target: (E,) integers.
        label: (E,) integers, or None for label 0.
        origin: see :meth:`Pattern.of_list`.
        dtype: the integers that they are sorted with.
    """

    source: Tensor
    target: Tensor
    label: Tensor | None
    origin: Tensor | int | None
    dtype: torch.dtype

    def under_label(self, node: Tensor, num_labels: int) -> Tensor:
        """(E,) one number for each node and label, nodes being sources or targets."""
        if num_labels == 1:
            return node
        node = node * num_labels
        return node if self.label is None else node + self.label


@dataclass(frozen=True, eq=False, repr=False)
class Pattern:
    """E edges from M sources to N targets, each under one of K labels; no values, no gradient.

    Edges are sorted by target, then label (then as given), when something first asks for that, and
    by source when something asks for that too. Parallel edges are kept. Indices are int32 where
    every product of sizes fits. Made once by :meth:`build` and shared by all layers.

    Attributes:
        size: (M, N).
        num_labels: K.
        source, target, label: (E,) the edges, sorted.
        order: (E,) the position of each sorted edge in the list that was given.
        origin: (E,) the edge of the user's list that each sorted edge stems from, -1 for one that
            a family added; None where edges have no such origin (products of edges).
        target_ptr: (N + 1,) the edges of target n are ``target_ptr[n]:target_ptr[n + 1]``.
        source_ptr: (M + 1,) the same for source m, in the order of ``by_source``.
        by_source: (E,) positions of the edges sorted by source, then label.
    """

    size: tuple[int, int]
    num_labels: int
    source: Tensor
    target: Tensor
    label: Tensor
    order: Tensor
    origin: Tensor | None
    target_ptr: Tensor
    source_ptr: Tensor
    by_source: Tensor

    @staticmethod
    def build(
        edge_index: Tensor,
        label: Tensor | None = None,
        *,
        size: tuple[int, int],
        num_labels: int = 1,
        origin: Tensor | None = None,
    ) -> Pattern:
        """The pattern of an edge list, whose indices are checked.

        Args:
            edge_index: (2, E) sources and targets.
            label: (E,) integers in [0, K), or None for label 0.
            size: (M, N).
            num_labels: K.
            origin: (E,) the edge of the user's list that each edge stems from.

        Raises:
            ValueError: an index or a label is out of range, or there are too many of both.
        """
        _check_range("source", edge_index[0], size[0])
        _check_range("target", edge_index[1], size[1])
        if label is not None or not num_labels:
            given = edge_index.new_zeros(edge_index.size(1)) if label is None else label
            _check_range("label", given, num_labels)
        return Pattern.of_list(edge_index, label, size=size, num_labels=num_labels, origin=origin)

    @staticmethod
    def of_list(
        edge_index: Tensor,
        label: Tensor | None = None,
        *,
        size: tuple[int, int],
        num_labels: int = 1,
        origin: Tensor | int | None = None,
        own: bool = False,
    ) -> Pattern:
        """The pattern of an edge list that was checked; nothing is sorted before it is asked for.

        Args:
            edge_index: (2, E) sources and targets.
            label: (E,) integers in [0, K), or None for label 0.
            size: (M, N).
            num_labels: K.
            origin: (E,) see :attr:`origin`; or how many edges, the first ones, are the user's.
            own: whether nobody else holds the list, so that it need not be copied.

        Raises:
            ValueError: there are too many nodes and labels.
        """
        dtype = index_type(size, num_labels, edge_index.size(1))
        # Copies, for nobody knows who writes to the list before it is sorted.
        compiles = torch.compiler.is_compiling()
        kept = dtype if compiles or edge_index.size(1) > FEW else torch.int64  # to be read with
        if edge_index.dtype != kept:
            edge_index = edge_index.to(kept)
        elif not own:
            edge_index = edge_index.clone()
        source, target = edge_index.unbind(0)
        label = None if label is None else label.to(kept, copy=True)
        given = UnsortedEdges(source, target, label, origin, dtype)
        made = object.__new__(Pattern)
        vars(made).update(size=size, num_labels=num_labels, given=given)
        if compiles:  # what it makes of a pattern, it makes now
            made._keep(made._sorted_by_target())
            made._keep(made._sorted_by_source())
        return made

    @staticmethod
    def of_sorted(
        source: Tensor, target: Tensor, label: Tensor, *, size: tuple[int, int], num_labels: int
    ) -> Pattern:
        """Edges (E,) that a rule lists by target, then label: no user's list, nothing to check.

        Indices are of the type that :func:`index_type` says.
        """
        order = torch.arange(source.numel(), dtype=source.dtype, device=source.device)
        made = object.__new__(Pattern)
        vars(made).update(
            size=size,
            num_labels=num_labels,
            source=source,
            target=target,
            label=label,
            order=order,
            origin=None,
            target_ptr=pointers(target, size[1]),
        )
        return made

    # Sorting, where it is asked for -------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # What is not there yet; patterns that are made of a list hold no more than that at first.
        if "size" not in vars(self):  # it is being copied, or unpickled
            raise AttributeError(name)
        if name == "given":
            return None  # it holds them sorted alone
        made = {}
        if name in _BY_SOURCE:
            made = self._sorted_by_source()
        elif name in _BY_TARGET:
            made = self._sorted_by_target()
        elif name in _SPELLED_OUT:
            made = {name: self._spelled_out(name)}
        if name not in made:
            raise AttributeError(f"a pattern has no {name!r}")
        self._keep(made)
        return made[name]

    def _sorted_by_target(self) -> dict[str, Any]:
        given = self.given
        if given is None:
            return dict(vars(self))  # another thread has been here
        with lasting(given.source):
            source, target = given.source.to(given.dtype), given.target.to(given.dtype)
            label = None if given.label is None else given.label.to(given.dtype)
            found = sort_edges(target, source, self.size[1], label, self.num_labels)
            ptr, source, order, label_ptr = found
            made = {"source": source, "order": order, "target_ptr": ptr, "given": given}
            if label_ptr is not None:
                made["label_ptr"] = label_ptr
            if label is not None:
                made["label"] = label.index_select(0, order)
            origin = given.origin
            if isinstance(origin, Tensor) and origin.dim():  # a tracer counts in tensors
                made["origin"] = origin.index_select(0, order)
            else:
                made["num_given"] = origin
            if torch.compiler.is_compiling():
                made["target"] = target.index_select(0, order)
            if torch.compiler.is_compiling() or order.numel() > FEW:
                made["given"] = None
            return made

    def _spelled_out(self, name: str) -> Tensor | None:
        """What the sorted edges say of themselves."""
        order = self.order
        if name in vars(self):  # it was made while edges were sorted
            return vars(self)[name]  # type: ignore[no-any-return]
        with lasting(order):
            if name == "label":
                return order.new_zeros(order.numel())
            if name == "target":
                nodes = torch.arange(self.size[1], dtype=order.dtype, device=order.device)
                return spread(nodes, self.target_ptr, order.numel())
            if name == "label_ptr":  # (N·K + 1,) row pointers by target and label
                if self.num_labels == 1:
                    return self.target_ptr
                count = self.size[1] * self.num_labels
                return pointers(self.target * self.num_labels + self.label, count)
            added = vars(self)["num_given"]
            if added is None or added == order.numel():
                return None if added is None else order
            return torch.where(order < added, order, -1)

    def _sorted_by_source(self) -> dict[str, Any]:
        with lasting(self.source):
            count = self.size[0]
            label = None if self.num_labels == 1 else self.label
            ptr, _, order, _ = sort_edges(self.source, self.source, count, label, self.num_labels)
        return {"source_ptr": ptr, "by_source": order}

    def _keep(self, made: dict[str, Any]) -> None:
        own = vars(self)["source"] if self.given is None else self.given.source
        if any(
            isinstance(part, FakeTensor) and not isinstance(own, FakeTensor)
            for part in made.values()
        ):
            return  # of a graph that is traced, which the pattern is no part of
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @property
    def num_edges(self) -> int:
        """E, parallel edges counted each."""
        given = self.given
        return self.source.numel() if given is None else given.source.numel()

    @property
    def device(self) -> torch.device:
        """Where the edges are."""
        given = self.given
        return self.source.device if given is None else given.source.device

    @property
    def index(self) -> Tensor:
        """(2, E) sources and targets, sorted by target, then label."""
        return torch.stack([self.source, self.target])

    def with_values(self, value: Tensor | None) -> EdgeBasis:
        """The basis that has these edges, with ``value`` (E,) in sorted order; None means ones."""
        return make("with_values", self, value)

    def sort_values(self, value: Tensor) -> Tensor:
        """Bring values (E,) from the order in which edges were given into sorted order."""
        if value.shape != (self.num_edges,):
            raise RefusedValue(
                refusal(
                    "a pattern needs one value for each edge",
                    f"shape ({self.num_edges},)",
                    tuple(value.shape),
                )
            )
        return value.index_select(0, self.order)

    def share(self, dtype: torch.dtype, as_given: bool = False) -> Tensor:
        """(E,) 1 over the number of edges that share the target and the label of each edge.

        In sorted order; or in that in which edges were given, where the pattern still has it.
        """
        given, num_rows = self.given, self.size[1] * self.num_labels
        if as_given and given is not None:
            row = given.under_label(given.target, self.num_labels)
            if can_read(row):
                return gathered(inverse_counts(row, num_rows, dtype), row)
            count = torch.bincount(row, minlength=num_rows).to(dtype)
            return count.reciprocal_().index_select(0, row)
        if num_rows <= 4 * self.num_edges:
            with lasting(self.source):
                share = self.label_ptr.diff().to(dtype).reciprocal_()
                return spread(share, self.label_ptr, self.num_edges)
        key = self.target * self.num_labels + self.label
        run = key.diff(prepend=key[:1]).ne(0).cumsum(0)  # one number for each target and label
        count = torch.zeros_like(run).index_add(0, run, torch.ones_like(run))
        return count.to(dtype).reciprocal_().index_select(0, run)

    # Matrices to multiply with ------------------------------------------------------------------
    # What is kept must serve training too, and outlive ``torch.func``; see lasting.

    @cached_property
    def by_target(self) -> Sparsity:
        """The N × (M·K) matrix with a column for each source and label."""
        with lasting(self.source):
            column = self.source
            if self.num_labels != 1:
                column = column * self.num_labels + self.label
            return known_rows(self.target_ptr, column, self.size[0] * self.num_labels)

    @cached_property
    def by_target_label(self) -> Sparsity:
        """The (N·K) × M matrix with a row for each target and label."""
        if self.num_labels == 1:
            return self.by_target
        with lasting(self.source):
            return known_rows(self.label_ptr, self.source, self.size[0])

    @cached_property
    def by_both(self) -> Sparsity:
        """The (N·K) × (M·K) matrix with a row for each target, a column for each source, and label.

        Edges of one label join rows and columns of that label.
        """
        if self.num_labels == 1:
            return self.by_target
        return known_rows(self.label_ptr, self.by_target.col, self.size[0] * self.num_labels)

    @cached_property
    def ends(self) -> Sparsity:
        """The N × M matrix of all edges, whatever their label."""
        if self.num_labels == 1:
            return self.by_target
        return known_rows(self.target_ptr, self.source, self.size[0])

    @cached_property
    def by_label(self) -> tuple[Tensor, Tensor]:
        """(K + 1,) where the edges of each label begin, and (E,) their positions, by label."""
        with lasting(self.source):
            return counting_sort(self.label, self.num_labels)

    @cached_property
    def source_pairs(self) -> Pairs:
        """The distinct (source, label), label by label; see :mod:`.compact`."""
        with lasting(self.source):
            return source_pairs(self)

    @cached_property
    def target_pairs(self) -> Pairs:
        """The distinct (target, label), label by label; see :mod:`.compact`."""
        with lasting(self.source):
            return target_pairs(self)

    @cached_property
    def label_blocks(self) -> list[LabelBlock]:
        """The edges label by label; see :mod:`.compact`."""
        with lasting(self.source):
            return label_blocks(self)

    @cached_property
    def num_source_pairs(self) -> int:
        """U_in, the number of distinct (source, label)."""
        order = self.by_source
        source, label = self.source.index_select(0, order), self.label.index_select(0, order)
        return count_pairs(source, label, self.num_labels)

    @cached_property
    def num_target_pairs(self) -> int:
        """U_out, the number of distinct (target, label)."""
        return count_pairs(self.target, self.label, self.num_labels)

    @cached_property
    def transposed(self) -> Pattern:
        """Every edge turned round, without sorting: the order by source is at hand."""
        with lasting(self.source):
            return self._turn()

    def _turn(self) -> Pattern:
        inverse = torch.empty_like(self.by_source)
        inverse[self.by_source] = torch.arange(
            self.num_edges, dtype=inverse.dtype, device=inverse.device
        )

        def by_source(edges: Tensor) -> Tensor:
            return edges.index_select(0, self.by_source)

        return Pattern(
            size=self.size[::-1],
            num_labels=self.num_labels,
            source=by_source(self.target),
            target=by_source(self.source),
            label=by_source(self.label),
            order=by_source(self.order),
            origin=None if self.origin is None else by_source(self.origin),
            target_ptr=self.source_ptr,
            source_ptr=self.target_ptr,
            by_source=inverse,
        )

    def subset(
        self, keep: Tensor, source: Tensor, target: Tensor, size: tuple[int, int]
    ) -> Pattern:
        """Some of the edges between renumbered nodes, whose order stays; nothing is sorted.

        Args:
            keep: (E,) booleans.
            source, target: (E,) the new numbers, ascending with the old ones.
            size: (M, N) of the result.
        """
        kept = keep.nonzero().view(-1)
        place = keep.cumsum(0) - 1  # of each edge among those that are kept
        by_source = self.by_source[keep.index_select(0, self.by_source)]
        dtype = self.source.dtype
        source, target = (end.index_select(0, kept).to(dtype) for end in (source, target))
        return Pattern(
            size=size,
            num_labels=self.num_labels,
            source=source,
            target=target,
            label=self.label.index_select(0, kept),
            order=torch.arange(kept.numel(), dtype=dtype, device=kept.device),
            origin=None if self.origin is None else self.origin.index_select(0, kept),
            target_ptr=pointers(target, size[1]),
            source_ptr=pointers(source, size[0]),
            by_source=place.index_select(0, by_source).to(dtype),
        )

    def map(self, fn: Callable[[Tensor], Tensor]) -> Pattern:
        """The pattern with ``fn`` applied to every tensor (to move it, say).

        Itself, with all that was made of it, if that changes nothing.
        """
        given, made = self.given, vars(self)
        parts = {name: made[name] for name in _TENSORS if name in made}
        if given is not None:
            parts |= {f"given.{name}": part for name, part in given._asdict().items()}
        moved = {n: fn(part) if isinstance(part, Tensor) else part for n, part in parts.items()}
        if all(moved[name] is part for name, part in parts.items()):
            return self
        new = object.__new__(Pattern)
        vars(new).update(size=self.size, num_labels=self.num_labels)
        if "num_given" in made:
            vars(new)["num_given"] = made["num_given"]
        if given is not None:
            listed: Any = {name: moved.pop(f"given.{name}") for name in given._fields}
            vars(new)["given"] = UnsortedEdges(**listed)
        vars(new).update(moved)
        return new

    @cached_property
    def shape_class(self) -> tuple[int, ...]:
        """K, and M, N and E up to a factor of two: see :meth:`.Basis.shape_class`.

        And E for each source, target and place under a label, on whichever side of the numbers
        that a choice of order compares it with: 1; 1 to ``LONG``; and twentieths.
        """
        (sources, targets), labels = map(int, self.size), self.num_labels  # of a tracer tensors
        edges, pairs = int(self.num_edges), labels * targets or 1
        near = min(edges // (labels * sources or 1), 1), min(edges // pairs, LONG)
        full = 20 * edges // (sources * pairs or 1)
        logs = sources.bit_length(), targets.bit_length(), edges.bit_length()
        return labels, *logs, *near, full

    def __repr__(self) -> str:
        return (
            f"Pattern(labels={self.num_labels}, size={self.size}, edges={self.num_edges}, "
            f"device={str(self.device)!r})"
        )


register(Pattern)

_BY_TARGET = ("source", "order", "target_ptr")
_SPELLED_OUT = ("target", "label", "origin", "label_ptr")
_BY_SOURCE = ("source_ptr", "by_source")
_TENSORS = _BY_TARGET + _SPELLED_OUT + _BY_SOURCE


def index_type(size: tuple[int, int], num_labels: int, num_edges: int) -> torch.dtype:
    """The integers of a pattern: int32 where every product of sizes fits.

    What is exported has int64, for it takes any sizes.

    Raises:
        ValueError: a number for each node and label does not even fit into int64.
    """
    if is_exporting():
        return torch.int64
    # One by one: which is the largest would be one more thing that a compiler fixes.
    products = (size[0] * num_labels, size[1] * num_labels)
    if products[0] > INT64_LIMIT or products[1] > INT64_LIMIT:
        raise RefusedValue(
            refusal(
                "nodes and labels are numbered together, in int64",
                "max(M, N) * K < 2**63",
                f"size {size}, K = {num_labels}",
            )
        )
    fits = products[0] < _INT32_LIMIT and products[1] < _INT32_LIMIT
    return torch.int32 if fits and num_edges < _INT32_LIMIT else torch.int64


def is_exporting() -> bool:
    """Whether torch.export traces; torch has a name for it from 2.7 on."""
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def _check_range(name: str, index: Tensor, count: int) -> None:
    if not has_numbers(index) or index.numel() == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= count:
        raise RefusedValue(
            refusal(
                f"every {name} of a pattern must lie in range",
                f"[0, {count})",
                lowest if lowest < 0 else highest,
            )
        )
