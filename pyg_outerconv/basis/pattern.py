"""Patterns: labelled edges without values, sorted once, with pointers by target and by source.

The paper counts from 1, the code from 0: label k, source m and target n start at 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import RefusedValue
from ..graph.checks import check_edge_vector, check_index, check_range
from ..kernels.capture import is_capturing
from ..kernels.csr import CSR
from ..kernels.edge_lists import (
    counting_sort,
    pointers,
    sort_edges,
    spread,
)
from ..kernels.index_checks import check_integers, is_exporting, surely
from ..kernels.lasting import lasting, part
from ..memo import cached_property
from ..signatures import check_type
from . import pairs
from .registry import make, register

if TYPE_CHECKING:
    from .edges import EdgeBasis

EDGES_PER_ROW = 4
"""Mean number of edges per (target, label) from which orders give each such pair a row."""

KEEP_UNSORTED = 2**15
"""Up to this number of edges a pattern keeps its unsorted edges, for products that sort nothing."""

FEW_ROWS = 2**16
"""Up to so many (target, label), each has a count however few edges there are."""

INT32_LIMIT = 2**31 - 1
INT64_LIMIT = 2**63 - 1


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Pattern:
    """E edges from M sources to N targets, each with one of K labels; no values, no gradient.

    Edges are sorted by target, then label (then input order) at the first use of that order, and by
    source at the first use of that one. Parallel edges are kept. Indices are int32 if every product
    of sizes fits. Built once by :meth:`build`, which checks what kernels read memory at, and shared
    by all layers.

    Attributes:
        size: (M, N).
        num_labels: K.
        source, target, label: (E,) the edges, sorted.
        order: (E,) the position of each sorted edge in the input list.
        origin: (E,) the edge of the user's list that each sorted edge comes from, -1 for one that
            a family added; None if edges have no such origin (products of edges).
        target_ptr: (N + 1,) the edges of target n are ``target_ptr[n]:target_ptr[n + 1]``.
        source_ptr: (M + 1,) the same for source m, in the order of ``by_source``.
        by_source: (E,) positions of the edges sorted by source, then label.
        listed: (2, E) sources and targets in input order, to index with, while edges are not sorted
            or few; else None.
        listed_label: (E,) the label of each of these, or None for label 0.
        listed_origin: (E,) the origin of each of these, or the number of leading edges that are the
            user's.
        listed_rows, listed_columns: the same with target · K + label in the place of targets, or
            source · K + label in the place of sources.
        index_dtype: the integer dtype of the sorted edges.
        is_short: whether edges are so few that their input order is kept beside the sorted one.
        is_captured: whether it was made while a CUDA graph was captured.
    """

    size: tuple[int, int]
    num_labels: int
    source: Tensor = part("_sorted_by_target")
    target: Tensor = part("_expand")
    label: Tensor = part("_expand")
    order: Tensor = part("_sorted_by_target")
    origin: Tensor | None = part("_expand")
    target_ptr: Tensor = part("_sorted_by_target")
    source_ptr: Tensor = part("_sorted_by_source")
    by_source: Tensor = part("_sorted_by_source")

    label_ptr = part("_expand")
    listed: ClassVar[Tensor | None] = None
    listed_label: ClassVar[Tensor | None] = None
    listed_origin: ClassVar[Tensor | int | None] = None
    listed_rows = part("_under_label")
    listed_columns = part("_under_label")
    index_dtype: ClassVar[torch.dtype]
    is_short: ClassVar[bool] = False
    is_captured: ClassVar[bool] = False

    @staticmethod
    def of_parts(**parts: Any) -> Pattern:
        """The pattern of attributes that fit by the way they were computed."""
        pattern = object.__new__(Pattern)
        own = vars(pattern)
        for name, value in parts.items():  # torch's compiler may not follow update()
            own[name] = value
        edges = parts.get("listed") if "source" not in parts else parts["source"]
        if edges is not None and edges.is_cuda and is_capturing():
            own["is_captured"] = True
        return pattern

    @staticmethod
    def build(
        edge_index: Tensor,
        label: Tensor | None = None,
        *,
        size: tuple[int, int],
        num_labels: int = 1,
        origin: Tensor | None = None,
    ) -> Pattern:
        """Build a pattern from an edge list, and check its indices.

        Args:
            edge_index: (2, E) sources and targets.
            label: (E,) integers in [0, K), or None for label 0.
            size: (M, N).
            num_labels: K.
            origin: (E,) the edge of the user's list that each edge comes from.

        Raises:
            TypeError: a part is no tensor of integers, or M, N or K is no integer.
            ValueError: parts have other lengths or devices, an index or a label is out of range, or
                max(M, N) · K exceeds int64.
        """
        if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):  # sizes may be tensors
            check_type("a pattern", "size", size, tuple[int, int])
            check_type("a pattern", "num_labels", num_labels, int)
            _check_parts(edge_index, label, num_labels, origin)
        check_range("source of a pattern", edge_index[0], size[0])
        check_range("target of a pattern", edge_index[1], size[1])
        if label is not None or not num_labels:
            labels = edge_index.new_zeros(edge_index.size(1)) if label is None else label
            check_range("label of a pattern", labels, num_labels)
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
        """Build a pattern from a checked edge list; sorting is deferred to the first use.

        Args:
            edge_index, label, size, num_labels: as :meth:`build`.
            origin: (E,) see :attr:`origin`; or the number of leading edges that are the user's.
            own: whether the list has no other owner, so that it need not be copied.

        Raises:
            ValueError: max(M, N) · K exceeds int64.
        """
        compiles, count = torch.compiler.is_compiling(), edge_index.size(1)
        is_small = not compiles and count <= KEEP_UNSORTED
        dtype = SHORT
        if compiles or max(*size, count) >= INT32_LIMIT // max(1, num_labels):
            dtype = index_type(size, num_labels, count)
        # Copies, because the list may be written to before it is sorted.
        kept = torch.int64 if is_small else dtype  # to index with
        if edge_index.dtype != kept:
            edge_index = edge_index.to(kept)
        elif not own:
            edge_index = edge_index.clone()
        pattern = object.__new__(Pattern)
        parts = vars(pattern)
        parts["size"], parts["num_labels"] = size, num_labels
        parts["num_edges"], parts["device"] = count, edge_index.device
        parts["listed"], parts["listed_origin"] = edge_index, origin
        parts["index_dtype"], parts["is_short"] = dtype, is_small
        if num_labels == 1:
            parts["listed_rows"] = parts["listed_columns"] = edge_index
        elif label is not None:
            parts["listed_label"] = label.to(kept, copy=True)
        if edge_index.is_cuda and is_capturing():
            parts["is_captured"] = True
        if compiles:  # a traced graph cannot defer the sort
            pattern._keep(pattern._sorted_by_target())
            pattern._keep(pattern._sorted_by_source())
        return pattern

    @staticmethod
    def of_sorted(
        source: Tensor, target: Tensor, label: Tensor, *, size: tuple[int, int], num_labels: int
    ) -> Pattern:
        """Build a pattern from edges (E,) that are sorted by target, then label, without checks.

        Indices have the dtype of :func:`.index_type`. There is no origin.
        """
        order = torch.arange(source.numel(), dtype=source.dtype, device=source.device)
        return Pattern.of_parts(
            size=size,
            num_labels=num_labels,
            source=source,
            target=target,
            label=label,
            order=order,
            origin=None,
            target_ptr=pointers(target, size[1]),
        )

    # Sorting, deferred to the first use ----------------------------------------------------------

    def _sorted_by_target(self, name: str = "source") -> dict[str, Any]:
        listed, label, dtype = self.listed, self.listed_label, vars(self).get("index_dtype")
        if listed is None:
            return dict(vars(self))  # another thread has sorted them
        with lasting(listed):
            source, target = listed.to(dtype)
            label = None if label is None else label.to(dtype)
            sorted_edges = sort_edges(target, source, self.size[1], label, self.num_labels)
            ptr, source, order, label_ptr = sorted_edges
            attributes: dict[str, Any] = {"source": source, "order": order, "target_ptr": ptr}
            attributes["listed"] = listed
            if label_ptr is not None:
                attributes["label_ptr"] = label_ptr
            if label is not None:
                attributes["label"] = label.index_select(0, order)
            origin = self.listed_origin
            if isinstance(origin, Tensor) and origin.dim():  # under a tracer a count is a tensor
                attributes["origin"] = origin.index_select(0, order)
            if torch.compiler.is_compiling():
                attributes["target"] = target.index_select(0, order)
            if torch.compiler.is_compiling() or order.numel() > KEEP_UNSORTED:
                attributes |= dict.fromkeys(_LISTED)
                if "origin" in attributes:
                    attributes["listed_origin"] = None
            return attributes

    def _expand(self, name: str) -> dict[str, Tensor | None]:
        """Compute an attribute from the pointers and the order of the sorted edges."""
        order = self.order
        if name in vars(self):  # set while the edges were sorted
            return {name: vars(self)[name]}
        with lasting(order):
            out: Tensor | None
            if name == "label":
                out = order.new_zeros(order.numel())
            elif name == "target":
                nodes = torch.arange(self.size[1], dtype=order.dtype, device=order.device)
                out = spread(nodes, self.target_ptr, order.numel())
            elif name == "label_ptr":  # (N·K + 1,) row pointers by target and label
                count = self.size[1] * self.num_labels
                out = self.target_ptr
                if self.num_labels != 1:
                    out = pointers(self.target * self.num_labels + self.label, count)
            else:  # the origin
                out, count = order, vars(self)["listed_origin"]
                if count is None:
                    out = None
                elif count != order.numel():
                    out = torch.where(order < count, order, -1)
        return {name: out}

    def _sorted_by_source(self, name: str = "by_source") -> dict[str, Any]:
        with lasting(self.source):
            count = self.size[0]
            label = None if self.num_labels == 1 else self.label
            ptr, _, order, _ = sort_edges(self.source, self.source, count, label, self.num_labels)
        return {"source_ptr": ptr, "by_source": order}

    def _keep(self, attributes: dict[str, Any]) -> None:
        own = vars(self)["source"] if self.listed is None else self.listed
        if not isinstance(own, FakeTensor):
            for value in attributes.values():
                if isinstance(value, FakeTensor):
                    return  # a tensor of a traced graph must not outlive the trace
        if own.is_cuda and is_capturing() and not self.is_captured:
            return  # nor one that has no numbers before a captured graph is replayed
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    @cached_property
    def num_edges(self) -> int:
        """Number of edges E, parallel edges included."""
        return self.source.numel()

    @cached_property
    def device(self) -> torch.device:
        """The device of the edges."""
        return self.source.device

    @property
    def index(self) -> Tensor:
        """(2, E) sources and targets, sorted by target, then label."""
        return torch.stack([self.source, self.target])

    def with_values(self, value: Tensor | None) -> EdgeBasis:
        """A basis of these edges, with ``value`` (E,) in sorted order; None means ones."""
        return make("with_values", self, value)

    def sort_values(self, value: Tensor) -> Tensor:
        """Permute values (E,) from input order into sorted order."""
        if value.shape != (self.num_edges,):
            raise RefusedValue(
                "a pattern needs one value for each edge",
                f"shape ({self.num_edges},)",
                tuple(value.shape),
            )
        return value.index_select(0, self.order)

    def mean_weights(self, dtype: torch.dtype, as_given: bool = False) -> Tensor:
        """(E,) 1 over the number of edges that share the target and the label of each edge.

        In sorted order; with ``as_given`` in input order, if the pattern still has it.
        """
        num_rows = self.size[1] * self.num_labels
        if as_given and self.listed is not None:
            row = self.listed_rows[1]
            if num_rows > max(FEW_ROWS, 4 * self.num_edges):  # a count of each would be mostly 0
                _, row, counts = row.unique(return_inverse=True, return_counts=True)
                return counts.to(dtype).reciprocal_().index_select(0, row)
            count = row.new_zeros(num_rows, dtype=dtype)
            count.index_add_(0, row, torch.ones_like(row, dtype=dtype))
            return count.reciprocal_().index_select(0, row)
        if surely(num_rows <= 4 * self.num_edges):
            with lasting(self.source):
                share = self.label_ptr.diff().to(dtype).reciprocal_()
                return spread(share, self.label_ptr, self.num_edges)
        key = self.target * self.num_labels + self.label
        run = key.diff(prepend=key[:1]).ne(0).cumsum(0)  # one number for each target and label
        count = torch.zeros_like(run).index_add(0, run, torch.ones_like(run))
        return count.to(dtype).reciprocal_().index_select(0, run)

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transposed matrices, made from the order by source."""
        with lasting(self.source):
            return self._transpose()

    def _transpose(self) -> Pattern:
        def by_source(edges: Tensor) -> Tensor:
            return edges.index_select(0, self.by_source)

        return Pattern.of_parts(
            size=self.size[::-1],
            num_labels=self.num_labels,
            source=by_source(self.target),
            target=by_source(self.source),
            label=by_source(self.label),
            order=by_source(self.order),
            origin=None if self.origin is None else by_source(self.origin),
            target_ptr=self.source_ptr,
            source_ptr=self.target_ptr,
            by_source=pairs.inverted(self.by_source),
        )

    # As listed -----------------------------------------------------------------------------------

    @property
    def can_list(self) -> bool:
        """Whether it has one label, and its edges in input order."""
        return self.listed is not None and self.num_labels == 1 and self.is_short

    def _under_label(self, name: str) -> dict[str, Tensor]:
        listed, label, end = self.listed, self.listed_label, int(name == "listed_rows")
        assert listed is not None
        with lasting(listed):
            node, ends = listed[end] * self.num_labels, list(listed)
            ends[end] = node if label is None else node + label
            return {name: torch.stack(ends)}

    # Sparse matrices, each made at its first use --------------------------------------------------

    @cached_property
    def by_target(self) -> CSR:
        """The N × (M·K) matrix with a column for each source and label."""
        with lasting(self.source):
            column = self.source
            if self.num_labels != 1:
                column = column * self.num_labels + self.label
            return CSR.of(self.target_ptr, column, self.size[0] * self.num_labels)

    @cached_property
    def by_target_label(self) -> CSR:
        """The (N·K) × M matrix with a row for each target and label."""
        if self.num_labels == 1:
            return self.by_target
        with lasting(self.source):
            return CSR.of(self.label_ptr, self.source, self.size[0])

    @cached_property
    def by_both(self) -> CSR:
        """The (N·K) × (M·K) matrix with a row per target and label, a column per source and label.

        The rows and columns of different labels are not connected.
        """
        if self.num_labels == 1:
            return self.by_target
        return CSR.of(self.label_ptr, self.by_target.index, self.size[0] * self.num_labels)

    @cached_property
    def ends(self) -> CSR:
        """The N × M matrix of all edges, without regard to labels."""
        if self.num_labels == 1:
            return self.by_target
        return CSR.of(self.target_ptr, self.source, self.size[0])

    @cached_property
    def by_label(self) -> tuple[Tensor, Tensor]:
        """(K + 1,) the start of each label, and (E,) the positions of the edges sorted by label."""
        with lasting(self.source):
            return counting_sort(self.label, self.num_labels)

    source_pairs = cached_property(pairs.source_pairs)
    target_pairs = cached_property(pairs.target_pairs)
    label_blocks = cached_property(pairs.label_blocks)

    @cached_property
    def uses(self) -> Counter[str]:
        """How often its edges were used in some way, where that decides whether to sort them."""
        return Counter()

    @cached_property
    def num_source_pairs(self) -> int:
        """Number of distinct pairs (source, label), U_in."""
        order = self.by_source
        source, label = self.source.index_select(0, order), self.label.index_select(0, order)
        return pairs.count_pairs(source, label, self.num_labels)

    @cached_property
    def num_target_pairs(self) -> int:
        """Number of distinct pairs (target, label), U_out."""
        return pairs.count_pairs(self.target, self.label, self.num_labels)

    def map(self, fn: Callable[[Tensor], Tensor]) -> Pattern:
        """The pattern with ``fn`` applied to every tensor, for example to move it.

        Returns the pattern itself, with its cached matrices, if ``fn`` changes nothing.
        """
        own = vars(self)
        parts = {name: own[name] for name in _TENSORS if name in own}
        tensors = {id(one): one for one in parts.values() if isinstance(one, Tensor)}
        mapped = {number: fn(tensor) for number, tensor in tensors.items()}
        if all(mapped[number] is tensor for number, tensor in tensors.items()):
            return self
        moved = {name: mapped.get(id(one), one) for name, one in parts.items()}
        new = Pattern.of_parts(size=self.size, num_labels=self.num_labels, **moved)
        if "index_dtype" in own:
            vars(new)["index_dtype"], vars(new)["is_short"] = self.index_dtype, self.is_short
        return new

    @cached_property
    def shape_class(self) -> tuple[int, ...]:
        """K; M, N and E up to a factor of two; and densities, for the key of a plan.

        The densities are the edges per (source, label), up to 1, per (target, label), up to
        ``EDGES_PER_ROW``, and per entry of the matrices, in twentieths: the plain rule reads them.
        """
        (sources, targets), labels = map(int, self.size), self.num_labels  # tensors in a tracer
        edges, pairs = int(self.num_edges), labels * targets or 1
        near = min(edges // (labels * sources or 1), 1), min(edges // pairs, EDGES_PER_ROW)
        full = 20 * edges // (sources * pairs or 1)
        logs = sources.bit_length(), targets.bit_length(), edges.bit_length()
        return labels, *logs, *near, full

    def __repr__(self) -> str:
        return (
            f"Pattern(labels={self.num_labels}, size={self.size}, edges={self.num_edges}, "
            f"device={str(self.device)!r})"
        )


register(Pattern)


TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
SHORT = torch.int32 if TORCH >= (2, 11) else torch.int64
"""The shortest type of indices: torch.func.vmap of torch 2.6 gathers by no int32."""


def index_type(size: tuple[int, int], num_labels: int, num_edges: int) -> torch.dtype:
    """The dtype of a pattern's indices: int32 if every product of sizes fits, else int64.

    Under torch.export it is int64, because an exported graph takes any sizes; so it is where a
    compiler does not know a size, as that of edges without their self-loops.
    """
    if is_exporting():
        return torch.int64
    # Compared one by one: a maximum would make a compiler specialise on which one is the largest.
    products = (size[0] * num_labels, size[1] * num_labels)
    if surely(products[0] > INT64_LIMIT) or surely(products[1] > INT64_LIMIT):
        raise RefusedValue(
            "a pattern numbers pairs of a node and a label in int64",
            "max(M, N) * K < 2**63",
            f"size {size}, K = {num_labels}",
        )
    fits = (products[0] < INT32_LIMIT, products[1] < INT32_LIMIT, num_edges < INT32_LIMIT)
    return SHORT if surely(*fits) else torch.int64


def _check_parts(
    edge_index: Tensor, label: Tensor | None, num_labels: int, origin: Tensor | None
) -> None:
    """Refuse an edge list, labels or origins of a wrong type, shape or device."""
    check_index(edge_index)
    if num_labels < 0:
        raise RefusedValue("a pattern has a number of labels", ">= 0", num_labels)
    if label is not None:
        check_edge_vector("label of a pattern", label, edge_index, floating=False)
    if origin is not None:
        check_integers("origin of a pattern", origin)
        if (origin.shape, origin.device) != (edge_index.shape[1:], edge_index.device):
            rule = "a pattern has the origin of each edge, or of none"
            raise RefusedValue(rule, tuple(edge_index.shape[1:]), tuple(origin.shape))


_BY_TARGET = ("source", "order", "target_ptr")
_EXPANDED = ("target", "label", "origin", "label_ptr")
_BY_SOURCE = ("source_ptr", "by_source")
_LISTED = ("listed", "listed_label", "listed_rows", "listed_columns")
_TENSORS = _BY_TARGET + _EXPANDED + _BY_SOURCE + _LISTED + ("listed_origin",)
