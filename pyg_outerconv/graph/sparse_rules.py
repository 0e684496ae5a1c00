"""Which function of torch runs on the stored entries of sparse features, and how: the table below.

A rule is called with the function and its arguments. It returns NotImplemented where the result
would not be sparse, or where torch says what is wrong; the function then runs on dense copies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import RefusedIndex, RefusedValue
from ..kernels import spmm
from ..kernels.primitive import is_plain
from ..theta import autocast_pair
from .sparse_features import (
    RULES,
    Reserved,
    SparseFeatures,
    features_of,
    of_shell,
    of_values,
    refuse_write,
    replaced,
    sparse_in,
    writes,
)
from .sparse_matrix import SparseMatrix, stacked

# Functions of each number -------------------------------------------------------------------------


def pointwise(function: Any, *args: Any, **kwargs: Any) -> Any:
    """f of each number, f(0) = 0: of the stored values and the dense numbers that meet them."""
    features, is_written = sparse_in((args, kwargs)), writes(function, kwargs)
    x = features[0]
    fits = all(other.csr is x.csr for other in features) and kwargs.get("out") is None
    if not fits or (is_written and args[0] is not x) or not _keeps_zero(function, x, args, kwargs):
        return NotImplemented

    def entries(operand: Any) -> Any:
        if isinstance(operand, Tensor) and not isinstance(operand, SparseFeatures):
            return _at_entries(operand, x.matrix)
        return of_values(operand)

    value = _writable(x, function) if is_written else x.value
    rest = {name: entries(operand) for name, operand in kwargs.items()}
    out = function(*[value if one is x else entries(one) for one in args], **rest)
    return x if is_written else x.with_values(out)


def _keeps_zero(function: Any, x: SparseFeatures, args: Any, kwargs: Any) -> bool:
    """Whether the function and the gradients of its operands are zero where X has no entry."""
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    operands = [operand for operand in operands if not isinstance(operand, SparseFeatures)]
    if not operands:
        return _zero_stays(function, x.dtype, *replaced(args, lambda _: SparseFeatures), **kwargs)
    shape = torch.broadcast_shapes(*[operand.shape for operand in operands])
    learns = function not in _SCALES and any(operand.requires_grad for operand in operands)
    is_read = is_plain(*operands) and all(one.layout is torch.strided for one in operands)
    if learns or x.is_meta or not is_read or torch.broadcast_shapes(shape, x.shape) != x.shape:
        return False
    with torch.no_grad():
        zeros = x.value.new_zeros
        args, kwargs = replaced((args, kwargs), lambda _: zeros(shape))
        return _is_zero(function(*args, **kwargs))


@lru_cache(maxsize=1024, typed=True)
def _zero_stays(function: Any, dtype: torch.dtype, *args: Any, **kwargs: Any) -> bool:
    """The same for arguments that are numbers; the class stands for sparse features."""
    with _disable_current_modes(), torch.no_grad():
        zeros = [torch.zeros((), dtype=dtype) if one is SparseFeatures else one for one in args]
        return _is_zero(function(*zeros, **kwargs))


def _is_zero(out: Tensor) -> bool:
    return out.is_floating_point() and not out.count_nonzero()  # NaN counts as not zero


def _at_entries(operand: Tensor, x: SparseMatrix) -> Tensor:
    """(E,) the number of a dense operand that meets each entry; or the one that meets all."""
    if operand.numel() == 1:
        return operand.reshape(operand.shape[:1])
    height, width = (1,) * (2 - operand.dim()) + tuple(operand.shape)
    place = x.row_of_each().long() * width if height > 1 else x.csr.index
    place = place + x.csr.index if height > 1 and width > 1 else place
    return operand.reshape(-1).index_select(0, place)


def _writable(x: SparseFeatures, function: Any) -> Tensor:
    """The values, for a function that changes them in place; TypeError for a copy."""
    if x.is_copy:
        why = "a selection or transpose of sparse features is a copy"
        raise refuse_write(function.__name__, why)
    return x.value


def dropout(
    function: Any, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False, **more: Any
) -> Any:
    """Dropout of the stored values: it changes no zeros, so the law is that of a dense X."""
    if not 0.0 <= p <= 1.0:
        raise RefusedValue("dropout takes a probability", "[0, 1]", p)
    if not more.get("train", training) or p == 0.0:
        return x
    if not inplace:
        return x.with_values(dropped(x.value, p))
    _writable(x, function).mul_(_mask(x.value, p))
    return x


def dropped(value: Tensor, p: float) -> Tensor:
    """Dropout of a vector; on a CPU by uniform numbers, which torch draws four times as fast."""
    return value * _mask(value, p)


def _mask(value: Tensor, p: float) -> Tensor:
    """(E,) zero with probability p, else 1 / (1 − p)."""
    if value.device.type != "cpu" or p == 1.0:
        return F.dropout(torch.ones_like(value), p)
    stays = torch.rand(value.shape) >= p
    return stays.to(value.dtype) / (1.0 - p)


# Copies, gradients and memory ---------------------------------------------------------------------


def on_values(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The function of the values as a vector, with their pattern where it returns a vector."""
    x = args[0]
    kwargs.pop("memory_format", None)
    args, kwargs = of_values((args, kwargs))
    out = function(*args, **kwargs)
    if not isinstance(x, SparseFeatures) or not isinstance(out, Tensor):
        return out  # dense.to(sparse), x.requires_grad
    if out is x.value or not out.is_floating_point():
        return x if out is x.value else NotImplemented
    pattern = x.csr if out.device == x.device else x.csr.to(out.device)
    return features_of(SparseMatrix(pattern, out), is_copy=x.is_copy and function in _ALIASES)


def gradient(function: Any, x: SparseFeatures, *grad: Any) -> Any:
    """``x.grad``: the gradient of the values, on the same pattern."""
    if any(one.csr is not x.csr for one in sparse_in(grad)):
        return NotImplemented
    return on_values(function, x, *grad)


def hook(function: Any, x: SparseFeatures, call: Callable[[Any], Any]) -> Any:
    """A hook is called with the gradient on the same pattern."""
    return x.value.register_hook(lambda grad: of_values(call(x.with_values(grad))))


def gradients(
    function: Any, outputs: Any, inputs: Any, grad_outputs: Any = None, **kwargs: Any
) -> Any:
    """``torch.autograd.grad``: gradients of sparse features have their patterns."""
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    grads = function(*of_values((outputs, inputs, grad_outputs)), **kwargs)

    def like(x: Tensor, grad: Tensor | None) -> Tensor | None:
        return grad if grad is None or not isinstance(x, SparseFeatures) else x.with_values(grad)

    return tuple([like(x, grad) for x, grad in zip(inputs, grads, strict=True)])


def share(function: Any, x: SparseFeatures) -> SparseFeatures:
    """Values and pattern in memory that processes share."""
    for part in (x.value, x.rowptr, x.col):
        part.share_memory_()
    return x


def of_shape(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A new dense tensor, for which only the shape, the type and the place of X matter."""
    if isinstance(args[0], SparseFeatures) and function.__name__.endswith("_as"):
        return NotImplemented
    if function is Tensor.new and isinstance(args[1], Reserved):
        return args[1]
    places = replaced(args, lambda x: x.value.detach().new_zeros(()).expand(x.csr.shape))
    return function(*places, **kwargs)


def to_dense(
    function: Any, x: SparseFeatures, dtype: torch.dtype | None = None, **kwargs: Any
) -> Any:
    """X (M, P), dense, without a warning; gradients flow to the stored entries."""
    return x.matrix.dense().to(x.dtype if dtype is None else dtype)


# Rows and columns ---------------------------------------------------------------------------------


def getitem(function: Any, x: Any, item: Any) -> Any:
    """x[rows], x[rows, columns]; a single row is a dense vector."""
    parts = list(item) if isinstance(item, tuple) else [item]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    for place in dots[:1]:
        parts[place : place + 1] = [slice(None)] * (3 - len(parts))
    parts += [slice(None)] * (2 - len(parts))
    alone = len(dots) < 2 and len(parts) == 2 and any(isinstance(part, slice) for part in parts)
    if not alone or not isinstance(x, SparseFeatures):  # x[[0, 1], [2, 3]] are two numbers
        return NotImplemented
    rows = _select(x, 0, parts[0])
    if isinstance(rows, SparseFeatures):
        return _select(rows, 1, parts[1])
    return rows if rows is NotImplemented else rows[parts[1]]


def _select(x: SparseFeatures, dim: int, part: Any) -> Any:
    """The rows, or columns, of a slice, an integer, integers or booleans."""
    count = x.csr.shape[dim]
    if isinstance(part, slice):
        start, stop, step = part.indices(count)
        if (start, stop, step) == (0, count, 1):
            return features_of(x.matrix, is_copy=x.is_copy)
        if step == 1:
            return _neighbours(x, dim, start, max(start, stop))
        part = torch.arange(count)[part]
    if isinstance(part, list | np.ndarray | range):
        part = torch.as_tensor(np.asarray(part, dtype=None if len(part) else np.int64))
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        return select(None, x, dim, int(part))
    if type(part) is not Tensor or part.is_floating_point() or part.dim() > 1 or not is_plain(part):
        return NotImplemented
    if part.dim() == 0:
        return select(None, x, dim, int(part))
    if part.dtype not in (torch.bool, torch.uint8):
        return index_select(None, x, dim, torch.where(part < 0, part + count, part).long())
    if part.shape != (count,):
        rule = "a mask of rows or columns has a boolean for each"
        raise RefusedIndex(rule, f"shape ({count},)", tuple(part.shape))
    return index_select(None, x, dim, part.nonzero())


def _neighbours(x: SparseFeatures, dim: int, start: int, stop: int) -> Any:
    """Rows that are a view, with the same values; or columns."""
    count = x.csr.shape[dim]
    if not 0 <= start <= stop <= count:
        rule = "rows and columns of sparse features lie in range"
        raise RefusedIndex(rule, f"within [0, {count})", f"[{start}, {stop})")
    if not is_plain(x.csr.ptr):
        return NotImplemented
    if dim % 2:
        return features_of(x.matrix.t().part(start, stop).t(), is_copy=True)
    return features_of(x.matrix.part(start, stop), is_copy=x.is_copy)


def narrow(function: Any, x: SparseFeatures, dim: int, start: Any, length: int) -> Any:
    """Neighbouring rows or columns."""
    first = int(start) if int(start) >= 0 else int(start) + x.size(dim)
    return _neighbours(x, dim, first, first + length)


def select(function: Any, x: SparseFeatures, dim: int, index: int) -> Any:
    """One row or column, a dense vector."""
    part = narrow(function, x, dim, index, 1)
    return part if part is NotImplemented else part.matrix.dense().flatten()


def split(function: Any, x: Any, sizes: Any, dim: int = 0) -> Any:
    """Parts of so many rows or columns, or of these numbers of them."""
    count = x.size(dim)
    if isinstance(sizes, int) and sizes > 0:
        sizes = [min(sizes, count - first) for first in range(0, max(count, 1), sizes)]
    if isinstance(sizes, int) or sum(sizes) != count:
        return NotImplemented
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [_neighbours(x, dim, *ends[i : i + 2]) for i in range(len(sizes))]
    return NotImplemented if any(part is NotImplemented for part in parts) else tuple(parts)


def index_select(function: Any, x: Any, dim: int, index: Tensor, *, out: Any = None) -> Any:
    """Rows or columns by their numbers, a copy as in a dense tensor."""
    is_ours = isinstance(x, SparseFeatures) and (out is None or isinstance(out, Reserved))
    if not is_ours or not -2 <= dim < 2 or index.is_meta or not is_plain(x.rowptr, index):
        return NotImplemented
    index = index.flatten().to(x.device)
    return features_of(x.matrix.t().rows(index).t() if dim % 2 else x.matrix.rows(index))


def transpose(function: Any, x: SparseFeatures) -> SparseFeatures:
    """Xᵀ (P, M), a copy of the values in order of columns."""
    return features_of(x.matrix.t(), is_copy=True)


def cat(function: Any, tensors: Any, dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
    """Sparse features below or beside each other; among dense matrices the result is dense."""
    dim, is_ours = kwargs.get("axis", dim), out is None or isinstance(out, Reserved)
    if not is_ours or not all(isinstance(x, SparseFeatures) for x in tensors) or not -2 <= dim < 2:
        return NotImplemented
    sizes = {x.csr.shape[1 - dim % 2] for x in tensors}
    if len(sizes) > 1 or not is_plain(*[x.rowptr for x in tensors]):
        return NotImplemented
    if dim % 2:
        return features_of(stacked([x.matrix.t() for x in tensors]).t())
    return features_of(stacked([x.matrix for x in tensors]))


# Sums and products --------------------------------------------------------------------------------


def total(
    function: Any, x: SparseFeatures, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    """Sums or means of all numbers, of rows or of columns."""
    dtype = kwargs.pop("dtype", None) or x.dtype
    fits = dim is None or (isinstance(dim, int) and -2 <= dim < 2)
    if kwargs or not fits or not dtype.is_floating_point:
        return NotImplemented
    value, count = x.value.to(dtype), x.numel() if dim is None else x.size(dim)
    if dim is None:
        out = value.sum().reshape((1, 1) if keepdim else ())
    else:
        out = spmm(x.csr if dim % 2 else x.csr.T, value, value.new_ones(count, 1))
        out = out.reshape((-1, 1) if dim % 2 else (1, -1)) if keepdim else out.squeeze(1)
    return out / count if function.__name__ == "mean" else out


def extreme(function: Any, x: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    """The least or largest number of all, zeros included."""
    if args or kwargs or not x.numel():
        return NotImplemented
    return function(torch.cat([x.value, x.value.new_zeros(int(x.num_entries < x.numel()))]))


def normalize(
    function: Any, x: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None
) -> Any:
    """``F.normalize``: rows or columns divided by their p-norms; p > 0, finite."""
    if not 0 < p < float("inf") or dim not in (-2, -1, 0, 1) or out is not None:
        return NotImplemented
    power = total(torch.sum, x.with_values(x.value.abs() ** p), dim, keepdim=True)
    there = power > 0  # elsewhere the root has no derivative
    norm = torch.where(there, power, 1.0) ** (1 / p) * there
    return pointwise(torch.div, x, norm.clamp_min(eps))


def _is_matrix(x: Any, *dims: int) -> bool:
    """Whether it is a dense matrix or vector of numbers; an ``EdgeIndex`` holds integers."""
    if not isinstance(x, Tensor) or isinstance(x, SparseFeatures):
        return False
    return x.layout is torch.strided and x.is_floating_point() and x.dim() in dims


def _times(x: SparseFeatures, other: Tensor, *, transpose: bool = False) -> Tensor:
    """X W, or Xᵀ W; in autocast's dtype where autocast is on."""
    value, other = autocast_pair(x.value, other)
    out = spmm(x.csr.T if transpose else x.csr, value, other.reshape(other.size(0), -1))
    return out.squeeze(1) if other.dim() == 1 else out


def linear(function: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    """X Wᵀ + b."""
    if not isinstance(x, SparseFeatures) or not _is_matrix(weight, 1, 2):
        return NotImplemented
    out = _times(x, weight.t())
    return out if bias is None else out + bias.to(out.dtype)


def matmul(function: Any, x: Any, other: Any = None, *, out: Any = None, **kwargs: Any) -> Any:
    """X W for W (P, Q) or (P,), or D X for D (L, M) or (M,)."""
    other = kwargs.get("mat2", kwargs.get("vec", other))
    if function is Tensor.__rmatmul__:
        x, other = other, x
    if out is None and isinstance(x, SparseFeatures) and _is_matrix(other, 1, 2):
        return _times(x, other)
    if out is None and isinstance(other, SparseFeatures) and _is_matrix(x, 1, 2):
        return _times(other, x.t(), transpose=True).t()
    return NotImplemented


def add_rows(function: Any, out: Any, dim: int, index: Tensor, x: Any, *, alpha: float = 1) -> Any:
    """``out[index[m]] += alpha · x[m]``, as PyG's aggregations do.

    ``scatter_add_`` is the same where one number is expanded over the columns of a row.
    """
    fits = isinstance(x, SparseFeatures) and _is_matrix(out, 2) and dim in (0, -2)
    if index.dim() == 2 and index.size(1) and (index.size(1) == 1 or index.stride(1) == 0):
        fits, index = fits and index.shape == x.shape, index[:, 0]
    if not fits or index.shape != x.shape[:1] or out.size(1) != x.size(1):
        return NotImplemented
    if not out.is_contiguous():
        return NotImplemented
    row = index.long().index_select(0, x.matrix.row_of_each())
    out.view(-1).index_add_(0, row * out.size(1) + x.col, x.value, alpha=alpha)
    return out


# The table ----------------------------------------------------------------------------------------


def functions(names: str) -> list[Callable[..., Any]]:
    """The functions of these names in torch, in ``torch.nn.functional`` and of tensors.

    ``.grad`` stands for what reads, sets and deletes an attribute, ``mul*`` for ``mul_`` as well.
    """
    # PyG puts functions of its own in place of some of torch's.
    homes = (torch, F, torch.special, torch._C._VariableFunctions, Tensor)
    named = []
    for name in names.split():
        if name.startswith("."):
            attribute = getattr(Tensor, name[1:])
            named += [attribute.__get__, attribute.__set__, attribute.__delete__]
        for spelled in (name.rstrip("*"), name.replace("*", "_")):
            named += [getattr(home, spelled) for home in homes if hasattr(home, spelled)]
    return named


_SCALES = set(functions("mul* multiply* __mul__ __rmul__ __imul__ div* divide* true_divide*"))
_SCALES |= set(functions("__truediv__ __itruediv__ __div__ __idiv__"))
_ALIASES = {torch.detach, Tensor.detach, Tensor.data.__get__}  # type: ignore[attr-defined]
_aten = torch.ops.aten

_TABLE: dict[Callable[..., Any], str] = {
    pointwise: """
        abs* absolute* __abs__ add* __add__ __radd__ __iadd__ arcsin* arcsinh* arctan* arctanh*
        asin* asinh* atan* atanh* ceil* celu* clamp* clamp_max* clamp_min* clip* deg2rad* elu*
        erf* erfinv* expm1* fix* float_power* floor* frac* gelu hardshrink hardswish hardtanh*
        leaky_relu* log1p* mish nan_to_num* neg* negative* __neg__ pow* __pow__ __ipow__ rad2deg*
        relu* relu6 round* selu* sgn* sign* silu sin* sinh* softshrink softsign sqrt* square* sub*
        subtract* __sub__ __rsub__ __isub__ tan* tanh* tanhshrink threshold* trunc* zero_
    """,
    on_values: """
        to cpu cuda float double half bfloat16 type type_as pin_memory clone detach contiguous
        positive requires_grad_ retain_grad backward is_shared is_pinned
        .requires_grad .grad_fn .is_leaf .retains_grad ._version .output_nr
    """,
    of_shape: """
        new new_empty new_full new_ones new_tensor new_zeros empty_like full_like ones_like
        zeros_like rand_like randn_like expand_as view_as reshape_as
    """,
    of_shell: """
        __format__ __len__ _is_view data_ptr dim element_size get_device is_complex is_conj
        is_contiguous is_floating_point is_inference is_neg is_same_size is_signed ndimension
        nelement numel result_type size storage_offset stride
    """,
    gradient: ".grad",
    hook: "register_hook",
    share: "share_memory_",
    to_dense: "to_dense",
    getitem: "__getitem__",
    index_select: "index_select",
    narrow: "narrow",
    select: "select",
    split: "split split_with_sizes",
    transpose: "t adjoint .T .mT .H .mH",
    cat: "cat concat concatenate",
    total: "sum mean",
    extreme: "min max amin amax",
    normalize: "normalize",
    linear: "linear",
    matmul: "mm matmul mv __matmul__ __rmatmul__",
    add_rows: "index_add_ scatter_add_",
}
for _rule, _names in _TABLE.items():
    RULES.update(dict.fromkeys(functions(_names), _rule))
RULES.update(dict.fromkeys(_SCALES, pointwise))
RULES.update(dict.fromkeys((F.dropout, torch.dropout), dropout))
RULES.update(dict.fromkeys((*_ALIASES, torch.autograd.backward), on_values))
RULES[torch.autograd.grad] = gradients
for _operator in (_aten.detach.default, _aten.alias.default, _aten.clone.default):
    RULES[_operator] = on_values
