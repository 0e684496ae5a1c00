"""Sparse node features that are a tensor: what scripts, PyG and optimisers take for a dense X."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import resolve_name
from torch.utils._python_dispatch import _disable_current_modes, _len_torch_dispatch_stack
from torch.utils._pytree import tree_flatten, tree_map_only

from ..errors import RefusedType, RefusedValue
from ..kernels.csr import CSR
from ..kernels.edge_lists import transposed_rows
from .sparse_matrix import SparseMatrix, pattern_of, read_sparse

RULES: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What computes a function of torch, see ``sparse_rules``: called with it and its arguments, a rule
returns NotImplemented where the result would not be sparse."""

_INNER = ("rowptr", "col", "colptr", "row", "perm", "value")


class BecameDense(UserWarning):
    """A function has no sparse rule, so that it runs on a dense copy of sparse features.

    Given once for each function. Filter it as any warning:
    ``warnings.simplefilter("ignore", BecameDense)``.
    """


class SparseFeatures(Tensor):
    """X (M, P) of E stored entries that behaves as the dense tensor of the same numbers.

    It is a ``torch.Tensor`` of strided layout without a storage, so that PyG's loaders, transforms
    and layers take it for features. Functions with f(0) = 0, scaling by numbers, rows, columns and
    dense matrices, dropout, selection and concatenation of rows and columns, the transpose, sums,
    means, ``F.normalize``, products with dense matrices, and copies in other types and on other
    devices work on the stored entries alone (``sparse_rules`` has the table). Any other function
    runs on a dense copy and says so once (:class:`.BecameDense`); one that would write to such a
    copy is refused.

    Gradients flow to ``value`` where it requires them, that is to the stored entries only:
    ``x.requires_grad``, ``x.grad`` and ``torch.autograd.grad(y, x)`` are those of ``value``. Zeros
    that are not stored are zeros in products even where the other factor is infinite or NaN.

    Make it by :meth:`of`, or by the transform :class:`pyg_outerconv.ToSparseFeatures`. Layers of
    this package prepare a ``torch.sparse`` matrix themselves; these features are prepared once, and
    with other values (dropout) nothing is sorted or checked again.

    Args:
        csr: the pattern; columns of a row are sorted, and repeated entries are added up.
        value: (E,) floating point, in row order; may require gradients.

    Raises:
        ValueError: there is not one value for each entry, or they are on another device.
        TypeError: ``value`` is not floating point.
    """

    matrix: SparseMatrix
    is_copy: bool
    """Whether a dense tensor in its place would be a view of another, and share its memory."""
    is_argument: bool
    """Whether it stands for an argument of a function that is being compiled."""

    @staticmethod
    def __new__(cls, csr: CSR, value: Tensor) -> SparseFeatures:
        return features_of(SparseMatrix(csr, value).merged())

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
        matrix = read_sparse(x)
        return features_of(matrix.with_values(matrix.value.clone()).merged())

    # The entries ----------------------------------------------------------------------------------

    @property
    def csr(self) -> CSR:
        """The pattern of the entries."""
        return self.matrix.csr

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
        rows, columns = self.csr.shape
        return self.num_entries / max(1, rows * columns)

    def with_values(self, value: Tensor) -> SparseFeatures:
        """The same pattern with other values (E,), in row order."""
        return features_of(self.matrix.with_values(value))

    # Tensors that a compiler takes apart ----------------------------------------------------------

    rowptr = property(lambda x: x.csr.ptr, doc="(M + 1,) the row pointers.")
    col = property(lambda x: x.csr.index, doc="(E,) the column of each entry.")
    colptr = property(lambda x: x.csr.columns[0], doc="(P + 1,) the column pointers.")
    row = property(lambda x: x.csr.columns[1], doc="(E,) the row of each entry, by column.")
    perm = property(lambda x: x.csr.columns[2], doc="(E,) its position by row, by column.")

    def __tensor_flatten__(self) -> tuple[list[str], bool]:
        learns = self.value.requires_grad and torch.is_grad_enabled()
        if learns and isinstance(self.value, FunctionalTensor):  # the result of a compiled graph
            raise _no_gradients("results of a compiled function")
        csr = self.csr
        if type(csr.index) is Tensor and "columns" not in vars(csr):
            with _disable_current_modes():  # those in which a compiler traces
                columns = transposed_rows(csr.ptr, csr.index, csr.shape[1])
            vars(csr)["columns"] = columns
        return list(_INNER), self.is_copy

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], is_copy: bool, size: Any, stride: Any
    ) -> SparseFeatures:
        ptr, index, colptr, row, perm, value = [inner[name] for name in _INNER]
        csr = CSR.of(ptr, index, size[1], (colptr, row, perm))
        out = features_of(SparseMatrix(csr, value), is_copy=is_copy)
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
        is_attribute = getattr(func, "__name__", "") == "__get__"
        rule = RULES.get(func, of_shell if is_attribute else _on_dense)
        if rule is not of_shell and _len_torch_dispatch_stack():
            _check_arguments(func, args, kwargs)
        out = rule(func, *args, **kwargs)
        return _on_dense(func, *args, **kwargs) if out is NotImplemented else out

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Reached from within torch's own code alone, below autograd, which knows no values.
        kwargs = kwargs or {}
        if func in RULES:
            return RULES[func](func, *args, **kwargs)
        learns = any(x.value.requires_grad for x in sparse_in((args, kwargs)))
        if learns and torch.is_grad_enabled():
            raise RefusedType(
                f"{func} is called below autograd, and gradients would not reach sparse features",
                "x.to_dense(), or x.detach()",
                "values that require gradients",
            )
        if func._schema.is_mutable and any(isinstance(x, SparseFeatures) for x in args[:1]):
            raise refuse_write(str(func))
        return _on_dense(func, *args, **kwargs)

    def untyped_storage(self) -> NoStorage:
        """No bytes: the entries are in tensors of their own."""
        return NoStorage()

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
        rows, columns = self.csr.shape
        learns = ", requires_grad=True" if self.value.requires_grad else ""
        return (
            f"SparseFeatures({rows} x {columns}, entries={self.num_entries}, {self.value.dtype}, "
            f"device={str(self.value.device)!r}{learns})"
        )


def features_of(matrix: SparseMatrix, *, is_copy: bool = False) -> SparseFeatures:
    """The tensor of these entries."""
    out: SparseFeatures = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
        SparseFeatures, matrix.csr.shape, dtype=matrix.dtype, device=matrix.device
    )
    out.matrix, out.is_copy = matrix, is_copy
    out.is_argument = False
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
        csr = CSR.of(x.rowptr, x.col, x.size(1), (x.colptr, x.row, x.perm))
        return SparseMatrix(csr, x.value)
    return x.matrix


def sparse_in(tree: Any) -> list[SparseFeatures]:
    """All sparse features in arguments."""
    return [x for x in tree_flatten(tree)[0] if isinstance(x, SparseFeatures)]


def replaced(tree: Any, by: Callable[[SparseFeatures], Any]) -> Any:
    """Arguments with something in the place of each of their sparse features."""
    return tree_map_only(SparseFeatures, by, tree)


def of_values(tree: Any) -> Any:
    """Arguments with the values in the place of each of their sparse features."""
    return replaced(tree, lambda x: x.value)


# Functions without a rule -------------------------------------------------------------------------

_said: set[str] = set()


def of_shell(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A function of size, type or place, which torch answers without numbers."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _on_dense(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function of dense copies of all sparse features among the arguments, with a warning."""
    name = resolve_name(func) or getattr(func, "__name__", repr(func))
    if sparse_in(kwargs.get("out")) or (sparse_in(args[:1]) and writes(func, kwargs)):
        raise refuse_write(name)
    if isinstance(kwargs.get("out"), Reserved):
        kwargs = {**kwargs, "out": None}
    copies = {id(x): x.matrix.dense() for x in sparse_in((args, kwargs))}
    if name not in _said:
        _said.add(name)
        first = next(iter(copies.values()))
        rows, columns = first.shape
        warnings.warn(
            f"{name} has no rule for sparse features and runs on a dense copy of "
            f"{rows} x {columns} ({first.nbytes / 2**20:.3g} MiB)",
            BecameDense,
            stacklevel=3,
        )
    args, kwargs = replaced((args, kwargs), lambda x: copies[id(x)])
    return func(*args, **kwargs)


def refuse_write(name: str, why: str = "it would write to a copy") -> RefusedType:
    """The exception for a function that changes sparse features in place and cannot."""
    return RefusedType(
        f"{name} does not change sparse features in place, for {why}",
        "the function that returns a new tensor, or x.to_dense() first",
        "SparseFeatures",
    )


_AUGMENTED = "add|sub|mul|div|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift"
_IN_PLACE = re.compile(rf"__i({_AUGMENTED})__|__(setitem|set|delete)__|.*[^_]_")


def writes(func: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Whether a function would change its first argument in place."""
    name = getattr(func, "__name__", "")
    return bool(_IN_PLACE.fullmatch(name) or kwargs.get("inplace"))


class Reserved(Tensor):
    """A result that PyG's loaders allocate in a worker process, and pass as ``out=``.

    It holds no numbers: how many entries a result has is not known before, so that its tensors are
    shared when it is sent.
    """

    def resize_(self, *size: Any) -> Reserved:  # type: ignore[override]
        """Itself."""
        return self

    view = resize_  # type: ignore[assignment]


class NoStorage(torch.UntypedStorage):
    """The storage of sparse features: of no bytes, whatever is allocated like it."""

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> Any:
        return Tensor._make_subclass(Reserved, torch.empty(0))


# Under a compiler ---------------------------------------------------------------------------------


def _check_arguments(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse arguments of a compiled graph whose values learn: it would not return gradients."""
    if func in _INERT or getattr(func, "__name__", "") in ("__get__", "__set__"):
        return
    for x in sparse_in((args, kwargs)):
        if x.is_argument and x.value.requires_grad:
            raise _no_gradients(f"arguments of {resolve_name(func)} in a compiled graph")


def _no_gradients(where: str) -> RefusedValue:
    return RefusedValue(
        f"values of sparse features that are {where} get no gradients",
        "values without gradients, x.with_values(value) inside, or a layer of this package",
        "values that require gradients",
    )


# What a compiler itself calls on arguments, and what no gradient passes.
_INERT = {torch.detach, Tensor.detach, Tensor.requires_grad_}


# Made of other tensors ----------------------------------------------------------------------------


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
    return SparseFeatures(CSR(ptr, column, num_columns), value)


torch.serialization.add_safe_globals([SparseFeatures, _read_back])
