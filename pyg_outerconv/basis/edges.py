"""The explicit basis: labelled edges with values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph.checks import check_edge_vector, numbers
from ..graph.graph import Graph
from ..kernels import sddmm
from ..kernels.capture import is_capturing
from ..kernels.csr import CSR
from ..kernels.edge_sums import edge_sums, most
from ..kernels.mode import mode
from ..kernels.primitive import is_lean
from ..kernels.spmm import reduce_rows
from ..memo import Memo
from ..signatures import check_type, is_integer
from .base import Basis, Shape, TensorMap
from .pattern import KEEP_UNSORTED, Pattern
from .registry import makes
from .subpattern import as_list, between, reaching


class PatternBasis(Basis):
    """A basis of edges of a pattern, with values that may still be in the input order of the edges.

    Attributes:
        pattern: the edges.
        in_order: (E, *) the values in the pattern's order, if they are stored so.
        listed: (E, *) the values in the input order of the edges, if they are stored so.
    """

    is_leaf: ClassVar[bool] = True
    has_edges: ClassVar[bool] = True

    if TYPE_CHECKING:
        pattern: Pattern

    listed: ClassVar[Tensor | None] = None
    in_order: ClassVar[Tensor | None] = None

    @property
    def value(self) -> Tensor | None:
        """(E, *) the values in the pattern's order, None for ones."""
        listed = self.listed
        if self.in_order is not None or listed is None:
            return self.in_order
        value = listed.index_select(0, self.pattern.order)
        if torch.compiler.is_compiling():  # a traced tensor must not be cached
            return value
        lasts = value.requires_grad == listed.requires_grad
        lasts = lasts and not torch.is_inference_mode_enabled()
        if value.is_cuda and is_capturing():
            lasts = lasts and self.pattern.is_captured
        if lasts and not torch._C._are_functorch_transforms_active():
            # Cached: later products use this tensor, so that gradients reach it.
            vars(self)["in_order"] = value
        return value

    @value.setter
    def value(self, value: Tensor | None) -> None:  # by constructors alone: bases are frozen
        vars(self)["in_order"] = value

    @property
    def _listed(self) -> Tensor | None:
        """The values in input order; None if there are none, or sorted ones require gradients."""
        in_order = self.in_order
        return None if in_order is not None and in_order.requires_grad else self.listed

    @property
    def _in_some_order(self) -> Tensor | None:
        """The values, sorted or in input order."""
        return self.listed if self.in_order is None else self.in_order

    @property
    def size(self) -> tuple[int, int]:
        return self.pattern.size

    @property
    def device(self) -> torch.device:
        return self.pattern.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the values, None for ones."""
        value = self.listed if self.in_order is None else self.in_order
        return None if value is None else value.dtype

    @property
    def learns(self) -> bool:
        value = self._in_some_order
        return value is not None and value.requires_grad

    @property
    def batch(self) -> Shape:
        return ()

    def plan_key(self) -> tuple[Hashable, ...]:
        pattern, value = self.pattern, self.listed if self.in_order is None else self.in_order
        if value is None:
            return pattern.shape_class, pattern.device
        of_values = value.shape[1:], value.dtype, value.requires_grad
        return pattern.shape_class, pattern.device, *of_values

    @property
    def num_edges(self) -> int:
        """Number of edges E, parallel edges included; heads of one label share them."""
        return self.pattern.num_edges


@makes("with_values")
@dataclass(frozen=True, eq=False, repr=False, init=False)
class EdgeBasis(PatternBasis):
    """K sparse matrices as labelled, weighted edges.

    Attributes:
        pattern: the sorted edges.
        value: (E,) floating point in the pattern's order, or None for ones; may require gradients.

    Raises:
        ValueError: ``value`` does not have one entry for each edge, or is on another device.
        TypeError: ``value`` is not floating point.
    """

    pattern: Pattern
    value: Tensor | None = field()  # type: ignore[misc]

    def __init__(self, pattern: Pattern, value: Tensor | None = None) -> None:
        if value is not None:
            check_values(value, pattern)
        elif not isinstance(pattern, Pattern):
            check_type("EdgeBasis", "pattern", pattern, Pattern)
        vars(self)["pattern"], vars(self)["in_order"] = pattern, value

    @staticmethod
    def of_list(pattern: Pattern, value: Tensor | None) -> EdgeBasis:
        """The basis whose ``value`` (E,) is in the input order of the pattern's edges.

        Small edge lists are not sorted before the sorted order is needed.
        """
        if value is not None:
            check_values(value, pattern)
        return EdgeBasis.of_checked_list(pattern, value)

    @staticmethod
    def of_checked_list(pattern: Pattern, value: Tensor | None) -> EdgeBasis:
        """:meth:`of_list` for values that fit by the way they were made."""
        basis = object.__new__(EdgeBasis)
        own = vars(basis)
        own["pattern"] = pattern
        if value is None or (pattern.listed is not None and pattern.is_short):
            own["listed"] = value
        else:
            own["in_order"] = value.index_select(0, pattern.order)
        return basis

    @property
    def num_bases(self) -> int:
        return self.pattern.num_labels

    @property
    def num_source_pairs(self) -> int:
        """Number of distinct pairs (source, label), U_in."""
        return self.pattern.num_source_pairs

    @property
    def num_target_pairs(self) -> int:
        """Number of distinct pairs (target, label), U_out."""
        return self.pattern.num_target_pairs

    @property
    def index(self) -> Tensor:
        """(2, E) sources and targets, sorted by target, then label."""
        return self.pattern.index

    @property
    def label(self) -> Tensor:
        """(E,) the label k of each edge."""
        return self.pattern.label

    def edges(self) -> EdgeBasis:
        return self

    def with_values(self, value: Tensor | None) -> EdgeBasis:
        """The same edges with other values (E,), in sorted order."""
        return EdgeBasis(self.pattern, value)

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        """(E,) the values, as a tensor of ones of ``dtype`` if they are ones."""
        if self.value is not None:
            return self.value
        return torch.ones(self.num_edges, dtype=dtype, device=self.device)

    def times(self, factor: float, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The same edges with all values times a number; ones become values of ``dtype``."""
        if (listed := self._listed) is not None:
            return EdgeBasis.of_checked_list(self.pattern, factor * listed)
        return EdgeBasis(self.pattern, factor * self.values(dtype))

    def times_of_ends(
        self, at_source: Tensor, at_target: Tensor, function: Callable[[Tensor], Tensor]
    ) -> EdgeBasis:
        """The same edges m → n with all values times f(a[m] + b[n]).

        Args:
            at_source: a (M,).
            at_target: b (N,).
            function: f, from numbers (E,) to numbers (E,).
        """
        pattern, listed, ends = self.pattern, self._listed, self.pattern.listed
        if ends is not None and pattern.is_short and (listed is not None or self.dtype is None):
            source, target = ends.long()
            factor = function(at_source.index_select(0, source) + at_target.index_select(0, target))
            return EdgeBasis.of_list(pattern, factor if listed is None else factor * listed)
        factor = function(sddmm(pattern.ends, at_target, at_source, op="add"))
        return EdgeBasis(pattern, factor if self.value is None else factor * self.value)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        value = self.values(dtype)
        zeros = value.new_zeros((self.num_bases, *self.size))
        return zeros.index_put(self._position(), value, accumulate=True)

    def support(self) -> Tensor:
        mask = torch.zeros((self.num_bases, *self.size), dtype=torch.bool, device=self.device)
        mask[self._position()] = True
        return mask

    def mean(self, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The basis with each value divided by the number of edges of its target and label."""
        pattern, listed = self.pattern, self._listed
        as_given = pattern.listed is not None and pattern.is_short
        as_given = as_given and (listed is not None or self.dtype is None)
        value = listed if as_given else self.value
        narrow = (dtype or torch.get_default_dtype()) if value is None else value.dtype
        share = pattern.mean_weights(narrow if narrow == torch.float64 else torch.float32, as_given)
        value = share if value is None else value * share
        value = value if value.dtype == narrow else value.to(narrow)
        return EdgeBasis.of_list(pattern, value) if as_given else EdgeBasis(pattern, value)

    def transposed_edges(self) -> EdgeBasis:
        """The transpose as edges, without sorting."""
        value = self.value
        if value is not None:
            value = value.index_select(0, self.pattern.by_source)
        return EdgeBasis(self.pattern.transposed, value)

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> EdgeBasis:
        """The edges between these nodes; sorted again only if the nodes do not ascend."""
        pattern, kept = between(self.pattern, sources, targets)
        return EdgeBasis(pattern, None if self.value is None else self.value.index_select(0, kept))

    def narrowed(self, place: range | Tensor) -> EdgeBasis:
        """The edges into some targets (N',), in the given order; targets may be repeated."""
        return EdgeBasis(reaching(self.pattern, as_list(place, self.device)))

    # Products ---------------------------------------------------------------------------------

    def propagate(self, x: Tensor, aggr: str = "sum") -> Tensor:
        """H_k = A_kᵀ X, (N, K, *batch, P), in one sparse product; or another reduction."""
        return self.propagate_rows(x, aggr).view(self.size[1], self.num_bases, *x.shape[1:])

    def propagate_rows(self, x: Tensor, aggr: str = "sum", few: int | None = None) -> Tensor:
        """:meth:`propagate` as (N·K, *batch, P), with row n·K + k.

        Args:
            x: X (M, *batch, P).
            aggr: the reduction.
            few: up to so many edges times channels, edges are summed as they were listed; by
                default as :func:`.edge_sums.most` says.
        """
        pattern = self.pattern
        # Values in sorted order tell that many edges are sorted, or ask for it.
        is_listed = pattern.listed is not None and (self.in_order is None or pattern.is_short)
        if is_listed and aggr == "sum":
            wide = x if x.dim() == 2 else x.flatten(1)
            if pattern.num_edges * wide.size(1) <= (most(x, mode()) if few is None else few):
                value = self.listed
                if self.in_order is not None or (value is not None and value.dtype != x.dtype):
                    value = self.values_as_listed(x)
                num_rows = pattern.size[1] * pattern.num_labels
                out = edge_sums(pattern.listed_rows, value, wide, num_rows)
                return out if x.dim() == 2 else out.view(num_rows, *x.shape[1:])
        return multiply(pattern.by_target_label, self, x, aggr=aggr)

    def gather(self, z: Tensor, few: int | None = None) -> Tensor:
        """Σ_k A_kᵀ z_k, (N, *batch, Q), for z (M, K, *batch, Q), features under each label.

        ``few``: see :meth:`propagate_rows`.
        """
        pattern, wide = self.pattern, z.flatten(0, 1).flatten(1)
        num_targets, few = pattern.size[1], most(wide, mode()) if few is None else few
        is_listed = pattern.listed is not None and (self.in_order is None or pattern.is_short)
        if is_listed and pattern.num_edges * wide.size(1) <= few:
            value = self.values_as_listed(wide)
            out = edge_sums(pattern.listed_columns, value, wide, num_targets)
        else:
            out = multiply(pattern.by_target, self, wide)
        return out.view(num_targets, *z.shape[2:])

    def values_as_listed(self, x: Tensor) -> Tensor | None:
        """(E,) the values in the dtype of ``x``, in the input order of the edges."""
        value, in_order = self.listed, self.in_order
        if in_order is not None and (value is None or in_order.requires_grad):
            order = self.pattern.order.long()
            value = in_order.new_empty(in_order.shape).index_copy(0, order, in_order)
        return value if value is None or value.dtype == x.dtype else value.to(x.dtype)

    def map(self, change: TensorMap) -> EdgeBasis:
        pattern = self.pattern.map(change)
        if (listed := self._listed) is not None:
            return EdgeBasis.of_list(pattern, change(listed))
        return EdgeBasis(pattern, None if self.value is None else change(self.value))

    def _position(self) -> tuple[Tensor, Tensor, Tensor]:
        pattern = self.pattern
        return pattern.label.long(), pattern.source.long(), pattern.target.long()

    def __repr__(self) -> str:
        values = "ones" if self.value is None else str(self.value.dtype).removeprefix("torch.")
        return (
            f"EdgeBasis({self._head()}, edges={self.num_edges}, values={values}, "
            f"device={str(self.device)!r})"
        )


def edge_basis(edges: Graph, num_labels: int = 1, *, weight: Tensor | None = None) -> EdgeBasis:
    """The edges of a structure as explicit edges of K matrices.

    >>> import torch
    >>> from pyg_outerconv.graph import Graph
    >>> edges = Graph.read(torch.tensor([[0, 1], [1, 2]]))
    >>> edge_basis(edges, weight=torch.tensor([0.5, 2.0])).to_dense()[0]
    tensor([[0.0000, 0.5000, 0.0000],
            [0.0000, 0.0000, 2.0000],
            [0.0000, 0.0000, 0.0000]])

    Args:
        edges: E edges. If K > 1, their ``edge_type`` is the label of each.
        num_labels: K.
        weight: (E,) the values, in the place of the weights of ``edges``; may carry gradients.

    Raises:
        TypeError: ``num_labels`` is not an integer, or ``weight`` is not a tensor of numbers.
        ValueError: ``weight`` does not have one finite number for each edge.
    """
    if not isinstance(edges, Graph):
        check_type("edge_basis", "edges", edges, Graph)
    if type(num_labels) is not int and not is_integer(num_labels):
        raise RefusedType(
            "num_labels is the number of matrices K; values go by weight=",
            "an integer",
            num_labels if isinstance(num_labels, Tensor) else repr(num_labels),
        )
    if weight is not None:
        weight = numbers("weight", weight, edges.edge_index, None)
        check_edge_vector("weight", weight, edges.edge_index, floating=True)
        edges = edges.but(edge_weight=weight)
    weight = edges.edge_weight
    if weight is not None and edges.origin is None:
        weight = weight.clone()  # others may hold it
    return EdgeBasis.of_checked_list(pattern_of(edges, num_labels), weight)


def pattern_of(edges: Graph, num_labels: int = 1) -> Pattern:
    """The edges of a structure without weights; if K > 1, their ``edge_type`` is their label."""
    label = edges.edge_type if num_labels > 1 else None
    origin = edges.origin
    own = origin is not None  # a family made this list, and nobody else holds it
    origin = edges.edge_index.size(1) if origin is None else origin
    return Pattern.of_list(
        edges.edge_index, label, size=edges.size, num_labels=num_labels, origin=origin, own=own
    )


def no_edges(size: tuple[int, int], device: torch.device, num_labels: int = 0) -> EdgeBasis:
    """A basis of zero matrices; by default without labels."""
    none = torch.empty((2, 0), dtype=torch.long, device=device)
    return EdgeBasis(Pattern.of_list(none, none[0], size=size, num_labels=num_labels))


def check_values(value: Tensor, pattern: Pattern, heads: bool = False) -> None:
    """Refuse values of a wrong shape, dtype or device."""
    if not (isinstance(pattern, Pattern) and isinstance(value, Tensor)):
        check_type("a basis of edges", "pattern", pattern, Pattern)
        check_type("a basis of edges", "value", value, Tensor)
    if not heads and value.shape != (pattern.num_edges,):
        raise RefusedValue(
            "a basis needs one value for each edge",
            f"shape ({pattern.num_edges},)",
            tuple(value.shape),
        )
    if not value.is_floating_point():
        raise RefusedType("a basis holds floating point values", "torch.float32", value.dtype)
    if value.device != pattern.device:
        raise RefusedValue("values must be on the pattern's device", pattern.device, value.device)


def multiply(
    csr: CSR,
    edges: EdgeBasis,
    x: Tensor,
    order: Tensor | None = None,
    aggr: str = "sum",
) -> Tensor:
    """The product of a sparse (R, C) matrix and a dense x (C, ...): (R, ...).

    ``order`` (E,) permutes the values of the edges into the order of the matrix's entries.
    """
    value, by_column = edges.value, None
    if value is not None:
        is_linear = aggr in ("sum", "mean")  # the gradient of a maximum reads no transpose
        if is_linear and order is None and x.requires_grad and not value.requires_grad:
            by_column = _values_by_column(csr, value, x)
        value = value.to(x.dtype) if order is None else value.to(x.dtype).index_select(0, order)
        value = value.unsqueeze(1)
    wide = x if x.dim() == 2 else x.flatten(1)
    out = reduce_rows(csr, value, wide.unsqueeze(1), aggr, by_column).squeeze(1)
    return out if x.dim() == 2 else out.view(out.size(0), *x.shape[1:])


_by_column = Memo(each=4)


def _values_by_column(csr: CSR, value: Tensor, x: Tensor) -> Tensor | None:
    """Constant values (E,) in the order of the columns, (E, 1), for the gradient in x (C, ...).

    They are permuted once: at a million edges that takes as long as a product of 16 channels. None
    where no gradient is taken, or values are few or not those of the product.
    """
    if not (is_lean() and torch.is_grad_enabled()):  # asked first: a compiler guards on the sizes
        return None
    if value.numel() <= KEEP_UNSORTED or value.dtype != x.dtype:
        return None
    order = csr.columns[2]

    def permuted() -> Tensor:
        return value.index_select(0, order).unsqueeze(1)

    return _by_column.get("by column", permuted, value, order)  # type: ignore[no-any-return]
