"""Sparse node features that are a tensor: what scripts, PyG and optimisers take for a dense X."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import _len_torch_dispatch_stack
from torch.utils._pytree import tree_flatten, tree_map_only

from ..errors import RefusedType, RefusedValue
from ..kernels import Sparsity
from ..kernels.sparsity import known_sparsity
from .sparse_functions.table import (
    OF_THE_SHELL,
    RULES,
    name_of,
    refuse_write,
    say_dense,
    writes,
)
from .sparse_matrix import SparseMatrix
from .sparse_patterns import (
    checked_rows,
    mark_canonical,
    pattern_of,
    place_of_each,
    settle,
)
from .torch_sparse import read_sparse

_INNER = ("rowptr", "col", "colptr", "row", "perm", "value")


class SparseFeatures(Tensor):
    """X (M, P) of E stored entries that behaves as the dense tensor of the same numbers.

    It is a ``torch.Tensor`` of strided layout without a storage, so that PyG's loaders, transforms
    and layers take it for features. Dropout, functions with f(0) = 0, scaling of rows, columns and
    entries, selection and concatenation of rows and columns, sums, and products with dense matrices
    work on the stored entries alone. Any other function runs on a dense copy and says so once
    (:class:`.BecameDense`); one that would write to such a copy is refused.

    Gradients flow to ``value`` where it requires them, that is to the stored entries only:
    ``x.requires_grad``, ``x.grad`` and ``torch.autograd.grad(y, x)`` are those of ``value``. Zeros
    that are not stored are zeros in products even where the other factor is infinite or NaN.

    Make it by :meth:`of`, or by the transform :class:`pyg_outerconv.ToSparseFeatures`. Layers of
    this package prepare a ``torch.sparse`` matrix themselves; these features are prepared once, and
    with other values (dropout) nothing is sorted or checked again.

    Args:
        sparsity: the pattern; entries of a row are sorted by column.
        value: (E,) floating point, in row order; may require gradients.

    Raises:
        ValueError: there is not one value for each entry, or they are on another device.
        TypeError: ``value`` is not floating point.
    """

    matrix: SparseMatrix
    is_copy: bool
    """Whether a dense tensor in its place would be a view of another, and share its memory."""
    is_unfilled: bool
    """Whether it was allocated for the result of a function with ``out=``."""
    is_argument: bool
    """Whether it stands for an argument of a function that is being compiled."""

    @staticmethod
    def __new__(cls, sparsity: Sparsity, value: Tensor) -> SparseFeatures:
        return features_of(SparseMatrix(sparsity, value))

    @staticmethod
    def of(x: Tensor) -> SparseFeatures:
        """Sparse features of the entries of a ``torch.sparse`` matrix, or the non-zeros of a dense.

        Repeated entries are summed. The pattern of a sparse tensor is sorted once per tensor
        object, until the tensor is changed in place. Gradients flow to the tensor.

        Raises:
            ValueError: the tensor is not a matrix, has dense dimensions or indices out of range; or
                it is sparse, requires gradients and its indices are unsorted or repeated, for which
                torch computes wrong gradients.
            TypeError: the tensor is not floating point, or has a block layout.
        """
        if isinstance(x, SparseFeatures):
            return x
        if x.layout is torch.strided:
            return features_of(_non_zeros(x))
        found = read_sparse(x)
        return features_of(found.with_values(found.value.clone()))

    # The entries ----------------------------------------------------------------------------------

    @property
    def sparsity(self) -> Sparsity:
        """The pattern of the entries."""
        return self.matrix.sparsity

    @property
    def value(self) -> Tensor:
        """(E,) the stored values, in row order."""
        return self.matrix.value

    @property
    def num_entries(self) -> int:
        """Number of entries E, stored zeros included."""
        return self.matrix.num_entries

    @property
    def density(self) -> float:
        """E / (M P): the share of numbers that are stored."""
        rows, columns = self.sparsity.shape
        return self.num_entries / max(1, rows * columns)

    def with_values(self, value: Tensor) -> SparseFeatures:
        """The same pattern with other values (E,), in row order."""
        return features_of(self.matrix.with_values(value))

    def times(self, weight: Tensor) -> Tensor:
        """X W for W (P, Q): (M, Q)."""
        return self.matrix.times(weight)

    def transform(self, theta: Tensor) -> Tensor:
        """X Θ_k for every label of Θ (K, G, P/G, Q/G): (M, K, Q), in one sparse product."""
        return self.matrix.transform(theta)

    # Tensors that a compiler takes apart ----------------------------------------------------------

    @property
    def rowptr(self) -> Tensor:
        """(M + 1,) the entries of row m are ``rowptr[m]:rowptr[m + 1]``."""
        return self.sparsity.rowptr

    @property
    def col(self) -> Tensor:
        """(E,) the column of each entry, in row order."""
        return self.sparsity.col

    @property
    def colptr(self) -> Tensor:
        """(P + 1,) as ``rowptr``, by column."""
        return self.sparsity.colptr

    @property
    def row(self) -> Tensor:
        """(E,) the row of each entry, in column order."""
        return self.sparsity.row

    @property
    def perm(self) -> Tensor:
        """(E,) the position, in row order, of each entry in column order."""
        return self.sparsity.perm

    def __tensor_flatten__(self) -> tuple[list[str], tuple[bool, bool]]:
        known = settle(self.sparsity), self.is_copy
        learns = self.value.requires_grad and torch.is_grad_enabled()
        if learns and isinstance(self.value, FunctionalTensor):  # the result of a compiled graph
            raise _no_gradients("results of a compiled function")
        return list(_INNER), known

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], context: tuple[bool, bool], size: Any, stride: Any
    ) -> SparseFeatures:
        *pattern, value = [inner[name] for name in _INNER]
        sparsity = mark_canonical(known_sparsity(*pattern), context[0])
        out = features_of(SparseMatrix(sparsity, value), is_copy=context[1])
        out.is_argument = isinstance(value, FakeTensor)
        return out

    # Functions of torch ---------------------------------------------------------------------------

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        rule, is_attribute = RULES.get(func), getattr(func, "__name__", "") == "__get__"
        if rule is None and (func in OF_THE_SHELL or is_attribute):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if _len_torch_dispatch_stack():
            _check_arguments(func, args, kwargs)
        if rule is not None:
            out = rule(*args, **kwargs)
            if out is not NotImplemented:
                return out
        return on_dense(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Reached from within torch's own code alone, below autograd, which knows no values.
        if func in _SAME:
            return _SAME[func](args[0])
        found = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, SparseFeatures)]
        if torch.is_grad_enabled() and any(x.value.requires_grad for x in found):
            raise RefusedType(
                f"{func} is called below autograd, and gradients would not reach sparse features",
                "x.to_dense(), or x.detach()",
                "values that require gradients",
            )
        if func._schema.is_mutable and any(isinstance(x, SparseFeatures) for x in args[:1]):
            raise refuse_write(str(func))
        return on_dense(func, args, kwargs or {})

    # Copies, and what is written to files ---------------------------------------------------------

    def __copy__(self) -> SparseFeatures:
        return features_of(self.matrix, is_copy=self.is_copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseFeatures:
        if id(self) not in memo:  # patterns never change, so copies share them
            value = copy.deepcopy(self.value, memo)
            memo[id(self)] = features_of(self.matrix.with_values(value))
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _read_back, (self.rowptr, self.col, self.size(1), self.value)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        rows, columns = self.sparsity.shape
        learns = ", requires_grad=True" if self.value.requires_grad else ""
        return (
            f"SparseFeatures({rows} x {columns}, entries={self.num_entries}, {self.value.dtype}, "
            f"device={str(self.value.device)!r}{learns})"
        )

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def features_of(matrix: SparseMatrix, *, is_copy: bool = False) -> SparseFeatures:
    """The tensor of these entries."""
    out: SparseFeatures = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
        SparseFeatures, matrix.sparsity.shape, dtype=matrix.dtype, device=matrix.device
    )
    out.matrix, out.is_copy = matrix, is_copy
    out.is_unfilled = out.is_argument = False
    return out


@overload
def as_matrix(x: Tensor | SparseMatrix | None) -> Tensor | SparseMatrix | None: ...
@overload
def as_matrix(x: Any) -> Any: ...
def as_matrix(x: Any) -> Any:
    """The entries of sparse features, for the core, which takes them for no tensor; else x."""
    if not isinstance(x, SparseFeatures):
        return x
    if torch.compiler.is_compiling():  # it knows the tensors that it took apart
        sparsity = known_sparsity(x.rowptr, x.col, x.colptr, x.row, x.perm)
        return SparseMatrix(sparsity, x.value)
    return x.matrix


def dense_of(x: SparseFeatures) -> Tensor:
    """X as a dense tensor (M, P), in memory of its own."""
    rows, columns = x.sparsity.shape
    flat = x.value.new_zeros(rows * columns).index_add(0, place_of_each(x.sparsity), x.value)
    return flat.view(rows, columns)


def on_dense(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """The function of dense copies of all sparse features among the arguments, with a warning.

    Raises:
        TypeError: the function would write to such a copy.
    """
    leaves = tree_flatten((args, kwargs))[0]
    found = [x for x in leaves if isinstance(x, SparseFeatures)]
    name = name_of(func)
    first = [x for x in tree_flatten(args[:1])[0] if isinstance(x, SparseFeatures)]
    outs = [x for x in tree_flatten(kwargs.get("out"))[0] if isinstance(x, SparseFeatures)]
    if outs or (first and writes(func, args, kwargs)):
        raise refuse_write(name)
    say_dense(name, found[0].sparsity.shape, found[0].value.dtype)
    known = {id(x): dense_of(x) for x in found}
    args, kwargs = tree_map_only(SparseFeatures, lambda x: known[id(x)], (args, kwargs))
    return func(*args, **kwargs)


def _check_arguments(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse arguments of a compiled graph whose values learn: it would not return gradients."""
    if func in _INERT or getattr(func, "__name__", "") in ("__get__", "__set__"):
        return
    for x in tree_flatten((args, kwargs))[0]:
        if isinstance(x, SparseFeatures) and x.is_argument and x.value.requires_grad:
            raise _no_gradients(f"arguments of {name_of(func)} in a compiled graph")


def _no_gradients(where: str) -> RefusedValue:
    return RefusedValue(
        f"values of sparse features that are {where} get no gradients",
        "values without gradients, x.with_values(value) inside, or a layer of this package",
        "values that require gradients",
    )


def _non_zeros(x: Tensor) -> SparseMatrix:
    """The entries of a dense matrix that are not zero; gradients flow to these."""
    if x.dim() != 2:
        raise RefusedValue("sparse features must be a matrix", "shape (M, P)", tuple(x.shape))
    if not x.is_floating_point():
        raise RefusedType("sparse features must be floating point", "torch.float32", x.dtype)
    flat = x.reshape(-1)
    place = flat.detach().nonzero().squeeze(1)
    return SparseMatrix(pattern_of(place, (x.size(0), x.size(1))), flat.index_select(0, place))


def _read_back(ptr: Tensor, column: Tensor, num_columns: int, value: Tensor) -> SparseFeatures:
    return features_of(SparseMatrix(checked_rows(ptr, column, num_columns), value))


def _shared(x: SparseFeatures) -> SparseFeatures:
    return features_of(x.matrix.with_values(x.value.detach()), is_copy=x.is_copy)


def _cloned(x: SparseFeatures) -> SparseFeatures:
    return features_of(x.matrix.with_values(x.value.clone()))


_SAME = {
    torch.ops.aten.detach.default: _shared,
    torch.ops.aten.alias.default: _shared,
    torch.ops.aten.clone.default: _cloned,
}

# What a compiler itself calls on arguments, and what no gradient passes.
_INERT = {torch.detach, Tensor.detach, Tensor.requires_grad_, Tensor.untyped_storage}

torch.serialization.add_safe_globals([SparseFeatures, _read_back])
