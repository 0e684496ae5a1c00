"""Edge lists on a CPU by numpy and scipy: stable sorts by counting, counts, gathers, self-loops."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from .capture import refuse_captured
from .index_checks import can_read, has_numbers
from .tiles import repeated


def counting_sort(key: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sort integers (E,) below R stably, and find where the entries of each number begin.

    The positions of number r are ``order[ptr[r]:ptr[r + 1]]``, of ``ptr`` (R + 1,) and ``order``
    (E,), which are returned in the dtype of ``key``.
    """
    ptr, _, order = by_rows(key, key, count)
    return ptr, order


def by_rows(row: Tensor, column: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the entries (E,) of a sparse matrix of R rows by row, stably.

    On a CPU scipy counts the entries of each row and then moves each entry to its place, in 26 µs
    for 9.5k edges; a sort by comparison takes 430. Returns row pointers (R + 1,), columns (E,)
    sorted, and the position (E,) of each sorted entry in the input.
    """
    if can_read(row):
        return _counted(row, column, count)
    if torch.compiler.is_compiling() and row.is_cpu:
        return _counted_operator(row, column, count)  # type: ignore[no-any-return]
    rows, order = torch.sort(row, stable=True)
    order = order.to(row.dtype)
    return _pointers_of_sorted(rows, count), column.index_select(0, order), order


def _counted(row: Tensor, column: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`by_rows` on a CPU."""
    rows, entries = row.detach().numpy(), np.arange(row.numel(), dtype=_INTEGERS[row.dtype])
    if (rows[1:] >= rows[:-1]).all():  # sorted already, as by neighbour samplers
        return pointers(row, count), column.clone(), torch.from_numpy(entries)
    tools = scipy_tools()
    if tools is None:
        order = torch.from_numpy(rows.argsort(kind="stable")).to(row.dtype)
        return pointers(row, count), column.index_select(0, order), order
    ptr, columns, order = np.empty(count + 1, rows.dtype), *np.empty((2, rows.size), rows.dtype)
    tools.coo_tocsr(count, 0, rows.size, rows, column.numpy(), entries, ptr, columns, order)
    return torch.from_numpy(ptr), torch.from_numpy(columns), torch.from_numpy(order)


def _sizes_by_rows(row: Tensor, column: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    return row.new_empty(count + 1), torch.empty_like(column), torch.empty_like(row)


# To a compiler the sort is one node, which counts where its own sort would compare.
@torch.library.custom_op("pyg_outerconv::by_rows", mutates_args=())
def _counted_operator(row: Tensor, column: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    return _again(_counted, row, column, count)


_counted_operator.register_fake(_sizes_by_rows)

SORTED: list[tuple[tuple[object, ...], tuple[Tensor, Tensor], Any]] = []
"""What compiled graphs made last of two tensors: how, the tensors, and the result."""
MOST_SORTED = 6
"""So many results are kept, each of up to ``LONGEST`` entries."""
LONGEST = 2**22


def remembered(make: Callable[..., Any], first: Tensor, second: Tensor, *rest: Hashable) -> Any:
    """``make(first, second, *rest)``, or the last result for tensors of the same numbers.

    A compiled graph makes the tensors of its edges anew at each call, so that no identity tells
    that the graph is that of the call before. To compare numbers takes a tenth of a sort's time.
    The result shares no memory with the tensors, which the compiled graph may reuse.
    """
    key = (make, *rest, first.shape, second.shape, first.dtype, second.dtype)
    for same, (one, other), result in SORTED:
        if same == key and torch.equal(one, first) and torch.equal(other, second):
            return result
    kept = first.clone(), second.clone()
    result = make(*kept, *rest)
    if second.numel() <= LONGEST:
        SORTED.insert(0, (key, kept, result))
        del SORTED[MOST_SORTED:]
    return result


def _again(sort: Any, first: Tensor, second: Tensor, count: int) -> Any:
    """Copies of a remembered sort: results of an operator are the compiled graph's own."""
    return tuple([part.clone() for part in remembered(sort, first, second, count)])


def sort_edges(
    node: Tensor, other: Tensor, num_nodes: int, label: Tensor | None, num_labels: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Sort edges (E,) by one of their ends, of R nodes, then by one of K labels, stably.

    Returns pointers (R + 1,) where the edges of each node begin, the other ends (E,) sorted, the
    position (E,) of each sorted edge in the input, and where the edges of each pair of node and
    label begin, (R·K + 1,), or None if sorting did not need this.
    """
    if label is None or num_labels <= 1:
        ptr, other, order = by_rows(node, other, num_nodes)
        return ptr, other, order, ptr if num_labels == 1 else None
    if torch.compiler.is_compiling() and node.is_cpu:
        ptr, other, order = by_rows(node * num_labels + label, other, num_nodes * num_labels)
        return ptr[::num_labels].contiguous(), other, order, ptr
    if not can_read(node) or num_labels > 4 * node.numel():  # more labels than it pays to count
        key, order = torch.sort(node * num_labels + label, stable=True)
        order = order.to(node.dtype)
        ptr = _pointers_of_sorted(key // num_labels, num_nodes)
        return ptr, other.index_select(0, order), order, None
    if num_nodes * num_labels <= 4 * node.numel():
        ptr, other, order = by_rows(node * num_labels + label, other, num_nodes * num_labels)
        return ptr[::num_labels].contiguous(), other, order, ptr
    # Most pairs of node and label have no edge: sort by label first, then by node.
    _, other, by_label = by_rows(label, other, num_labels)
    ptr, other, order = by_rows(node.index_select(0, by_label), other, num_nodes)
    return ptr, other, by_label.index_select(0, order), None


def transposed_rows(ptr: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Transpose a CSR matrix of C columns, with repeats perhaps.

    Returns column pointers (C + 1,), the row (E,) of each entry in column order, and the position
    (E,) of each of these entries in row order.
    """
    if torch.compiler.is_compiling() and index.is_cpu:
        return _transposed_operator(ptr, index, count)  # type: ignore[no-any-return]
    return _transposed(ptr, index, count)


def _transposed(ptr: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    row = torch.arange(ptr.numel() - 1, dtype=index.dtype, device=index.device)
    return by_rows(index, spread(row, ptr, index.numel()), count)


@torch.library.custom_op("pyg_outerconv::transposed_rows", mutates_args=())
def _transposed_operator(ptr: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    return _again(_transposed, ptr, index, count)


@_transposed_operator.register_fake
def _sizes_of_transposed(ptr: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    return ptr.new_empty(count + 1), torch.empty_like(index), torch.empty_like(index)


def spread(numbers: Tensor, ptr: Tensor, num_entries: int) -> Tensor:
    """Repeat the number (R, *) of each row for its entries, (E, *), given pointers (R + 1,)."""
    if numbers.dim() == 1 and can_read(ptr):
        return torch.from_numpy(np.repeat(numbers.numpy(), np.diff(ptr.numpy())))
    if torch.compiler.is_compiling() and ptr.is_cpu:
        return _repeated(numbers, ptr, num_entries)  # type: ignore[no-any-return]
    return repeated(numbers, ptr, num_entries)


# A compiler would search for the row of each entry.
_repeated = torch.library.custom_op("pyg_outerconv::repeated", repeated, mutates_args=())
_repeated.register_fake(lambda x, ptr, count: x.new_empty((count, *x.shape[1:])))


def pointers(row: Tensor, count: int) -> Tensor:
    """Row pointers (R + 1,), given the row (E,) of each entry in any order."""
    if not (row.is_cpu and has_numbers(row)) or _len_torch_dispatch_stack():
        # bincount has an output shape that depends on data, which a device is waited for.
        return torch.cat([row.new_zeros(1), counts(row, count).cumsum(0).to(row.dtype)])
    ptr = row.new_zeros(count + 1)
    torch.cumsum(torch.bincount(row, minlength=count), 0, out=ptr[1:])
    return ptr


def _pointers_of_sorted(row: Tensor, count: int) -> Tensor:
    """:func:`pointers` of entries in row order."""
    if row.is_cpu or not has_numbers(row):
        return pointers(row, count)
    is_int = row.dtype is torch.int32
    return torch._convert_indices_from_coo_to_csr(row, count, out_int32=is_int)


def counts(row: Tensor, count: int) -> Tensor:
    """(R,) how often each row occurs; of integers, which add up to the same in any order."""
    return row.new_zeros(count).index_add(0, row, torch.ones_like(row))


def places_of(mask: Tensor, count: int) -> Tensor:
    """(``count``,) the positions where a mask holds, so many: to know that waits for no device."""
    place = torch.where(mask, mask.cumsum(0) - 1, count)
    order = torch.arange(mask.numel(), device=mask.device)
    return order.new_empty(count + 1).scatter_(0, place, order)[:count]


_INTEGERS = {torch.int32: np.int32, torch.int64: np.int64}


@cache
def scipy_tools() -> Any:
    """The compiled functions behind scipy's sparse matrices; None if scipy does not have them.

    Its matrix classes check their arguments, which takes four times as long as the work itself
    (120 µs for 9.5k edges). The name is not public: where it is missing numpy sorts, and a test
    says so.
    """
    name = "scipy.sparse._sparsetools"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


SHORT = 2**15
"""Up to so many numbers are copied and gathered by numpy, in one thread."""


def _inverse_counts(index: Any, count: int, dtype: torch.dtype, power: float) -> Any:
    """c_r^-p for the number c_r of times that r occurs, (R,); 0 if c_r is 0."""
    counts = np.bincount(index, minlength=count).astype(_FLOATS[dtype])
    if np.count_nonzero(counts) != counts.size:
        counts[counts == 0] = np.inf
    if power != 1.0:
        counts = np.sqrt(counts, out=counts) if power == 0.5 else counts**power
    return np.reciprocal(counts, out=counts)


def share_of_degrees(
    edge_index: Tensor,
    size: tuple[int, int],
    at_source: float,
    at_target: float,
    dtype: torch.dtype,
    of_targets: bool = False,
) -> Tensor:
    """(E,) weights d(m)^-p d(n)^-q of edges m → n, with d the numbers of edges of a node.

    Args:
        edge_index: (2, E) integers, for which :func:`.can_read` holds.
        size: (M, N).
        at_source, at_target: p and q, not both 0.
        dtype: the dtype of the weights; degrees are in float32 at least.
        of_targets: whether d(m), too, is the number of edges that reach the node, for M = N. Edges
            from a source that none reaches then get weight 0.
    """
    source, target = edge_index.numpy()
    wide = dtype if dtype == torch.float64 else torch.float32
    shares = inverse = None
    if at_target:
        inverse = _inverse_counts(target, size[1], wide, at_target)
        shares = _taken(inverse, target)
    if at_source:
        if inverse is None or not of_targets or at_source != at_target:
            counted = target if of_targets else source
            inverse = _inverse_counts(counted, size[0], wide, at_source)
        sent = _taken(inverse, source)
        shares = sent if shares is None else np.multiply(sent, shares, out=sent)
    value = torch.from_numpy(shares)
    return value if wide == dtype else value.to(dtype)


def _taken(numbers: Any, index: Any) -> Any:
    """The numbers at the places of an index; in all threads where there are many."""
    if index.size > SHORT:
        return torch.from_numpy(numbers).index_select(0, torch.from_numpy(index)).numpy()
    return numbers.take(index)


def first_of_best(x: Tensor, index: Tensor, rows: int, aggr: str) -> Tensor:
    """The place (R, *) of the first of the largest, or least, numbers (E, *) of each row.

    E for an empty row; NaN wins over every number. ``index``: (E,) int64, the row of each number;
    ``aggr``: 'max' or 'min'.
    """
    with torch.no_grad():
        ones = (1,) * (x.dim() - 1)
        to = index.view(-1, *ones).expand_as(x)
        best = x.new_zeros(rows, *x.shape[1:])
        best = best.scatter_reduce(0, to, x, f"a{aggr}", include_self=False)
        place = torch.arange(x.size(0), device=x.device).view(-1, *ones)
        place = torch.where((x == best.gather(0, to)) | x.isnan(), place, x.size(0))
        none = torch.full_like(best, x.size(0), dtype=place.dtype)
        return none.scatter_reduce(0, to, place, "amin")


_FLOATS = {torch.float32: np.float32, torch.float64: np.float64}


def with_missing_loops(edge_index: Tensor, count: int, missing: int | None = None) -> Tensor:
    """Append a self-loop at each of N nodes that has none, in ascending order: (2, E + L).

    ``missing``: L, if it is known.
    """
    if not can_read(edge_index):
        nodes = _nodes_without_loops(edge_index, count, missing)
        return torch.cat([edge_index, nodes.expand(2, -1)], dim=1)
    edges = edge_index.numpy()
    source, target = edges
    loops, is_loop = np.arange(count, dtype=edges.dtype), source == target
    if np.count_nonzero(is_loop):
        loops[source[is_loop]] = -1
        loops = loops[loops >= 0]
    out = np.empty((2, source.size + loops.size), edges.dtype)
    out[:, : source.size] = edges
    out[:, source.size :] = loops
    return torch.from_numpy(out)


def _nodes_without_loops(edge_index: Tensor, count: int, missing: int | None) -> Tensor:
    source, target = edge_index.unbind(0)
    nodes = torch.arange(count, dtype=source.dtype, device=source.device)
    if missing == count:
        return nodes
    is_loop = source == target
    # A trace must serve edges with self-loops too, and a fake tensor has no numbers to ask for.
    asks = missing is None and has_numbers(edge_index) and not torch.jit.is_tracing()
    if asks and not bool(is_loop.any()):
        return nodes
    lacks_loop = torch.ones(count + 1, dtype=torch.bool, device=source.device)
    # By 0: torch.jit takes no boolean there.
    lacks_loop = lacks_loop.index_fill_(0, torch.where(is_loop, source, count).long(), 0)[:-1]
    if missing is None:
        refuse_captured(edge_index, "nodes without a self-loop")
        return lacks_loop.nonzero().view(-1).to(source.dtype)
    return places_of(lacks_loop, missing).to(source.dtype)
