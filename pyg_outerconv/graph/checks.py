"""Checks of edge lists and their attributes, and of selections of labels and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedIndex, RefusedType, RefusedValue, refusal
from ..kernels.capture import refuse_captured
from ..kernels.index_checks import can_read, has_numbers
from ..signatures import LARGEST, is_integer

if TYPE_CHECKING:
    from .summary import Summary

FEW = 2**12
"""Up to so many indices are compared by torch; numpy takes half its time for many."""

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_positive(what: str, **counts: int) -> None:
    """Refuse counts that are not positive integers."""
    for name, count in counts.items():
        if not is_integer(count):
            raise RefusedType(f"{what} needs its {name}", "an integer", repr(count))
        if not 1 <= count < LARGEST:
            raise RefusedValue(
                f"{what} needs its {name}", ">= 1" if count < 1 else "below 2^63", count
            )


def check_dense(
    what: str, x: Any, channels: int | None = None, least: int = 1, beside: Tensor | None = None
) -> None:
    """Refuse what is no dense float tensor (*, channels), of ``least`` axes at least."""
    plain = isinstance(x, Tensor) and x.is_floating_point() and x.layout is torch.strided
    if not plain:
        got = getattr(x, "dtype", type(x).__name__)
        got = x.layout if isinstance(x, Tensor) and x.is_floating_point() else got
        raise RefusedType(what, "a dense tensor of floating point numbers", got)
    # Not `channels not in (None, …)`, which is never so of a size that a compiler has as a symbol.
    if x.dim() < least or (channels is not None and x.size(-1) != channels):
        wanted = ", ".join(("*", *["n"] * (least - 1), f"{'P' if channels is None else channels}"))
        raise RefusedValue(what, f"({wanted})", tuple(x.shape))
    if beside is not None and x.device != beside.device:
        raise RefusedValue(f"{what}, where its parameters are", beside.device, x.device)


def check_size(size: Any) -> None:
    """Refuse a size that is not a pair (M, N) of node counts, each an integer or None."""
    if size is None:
        return
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise RefusedValue("size must be the numbers of sources and targets", "(M, N)", size)
    for count in size:
        is_count = isinstance(count, int) or (  # Dynamo: only ints; a trace: tensors without axes
            hasattr(count, "__index__") and not getattr(count, "ndim", 0)
        )
        if count is not None and (not is_count or count < 0):
            raise RefusedValue("size must hold numbers of nodes", ">= 0 or None", count)


def agreed(
    what: str, num_nodes: tuple[int | None, int | None], size: tuple[int | None, int | None] | None
) -> tuple[int | None, int | None]:
    """The known (M, N), with missing entries taken from ``size``."""
    check_size(size)
    counts = size or (None, None)
    if any(None not in pair and pair[0] != pair[1] for pair in zip(num_nodes, counts, strict=True)):
        raise RefusedValue(f"size must fit {what}", num_nodes, tuple(counts))
    return (
        counts[0] if num_nodes[0] is None else num_nodes[0],
        counts[1] if num_nodes[1] is None else num_nodes[1],
    )


def check_batch(batch: Any, num_nodes: int) -> None:
    """Refuse a batch vector, if there is one, that is not (num_nodes,) nonnegative integers."""
    if batch is None:
        return
    if not isinstance(batch, Tensor) or batch.dtype not in INTEGERS:
        got = getattr(batch, "dtype", type(batch).__name__)
        raise RefusedType("batch must hold integers", "torch.int64", got)
    if batch.shape != (num_nodes,):
        raise RefusedValue("batch needs one graph for each node", (num_nodes,), tuple(batch.shape))
    if has_numbers(batch) and batch.numel() and int(batch.min()) < 0:
        raise RefusedValue("batch must not be negative", ">= 0", int(batch.min()))


def check_index(edge_index: Any) -> None:
    """Refuse an edge index that is not (2, E) integers."""
    if not isinstance(edge_index, Tensor):
        rule = "edge_index must be a tensor, an EdgeIndex or a sparse matrix"
        raise RefusedType(rule, "Tensor", type(edge_index).__name__)
    if edge_index.dtype not in INTEGERS:
        raise RefusedType("edge_index must hold integers", "torch.int64", edge_index.dtype)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise RefusedValue(
            "edge_index must hold a source and a target for each edge",
            "shape (2, E)",
            tuple(edge_index.shape),
        )


def check_edge_vector(
    name: str, vector: Tensor, index: Tensor, *, floating: bool, summary: Summary | None = None
) -> None:
    """Refuse edge weights or edge types of a wrong shape, device, dtype or range.

    ``summary`` is what was read of them, where they are on a device.
    """
    if not isinstance(vector, Tensor):
        raise RefusedType(f"{name} must be a tensor", "Tensor", type(vector).__name__)
    if vector.shape != (index.size(1),):
        raise RefusedValue(
            f"{name} needs one entry for each edge",
            f"shape ({index.size(1)},)",
            tuple(vector.shape),
        )
    if vector.device != index.device:
        raise RefusedValue(
            f"{name} must be on the device of edge_index", index.device, vector.device
        )
    if floating:
        if summary is None:
            is_finite = holds(torch.isfinite(vector.detach()).all())
        else:
            is_finite = summary.is_finite
        if not is_finite:
            raise RefusedValue(f"{name} must be finite", "numbers", "NaN or infinity")
        return
    if vector.dtype not in INTEGERS:
        raise RefusedType(f"{name} must hold integers", "torch.int64", vector.dtype)
    if summary is None and has_numbers(vector) and vector.numel():
        lowest = int(vector.min())
    else:
        lowest = 0 if summary is None else summary.lowest_type
    if lowest < 0:
        raise RefusedValue(f"{name} must not be negative", ">= 0", lowest)


def numbers(name: str, vector: Any, index: Tensor, dtype: torch.dtype | None) -> Any:
    """Convert numbers of edges, (E,) or (E, 1) of any real dtype, to (E,) floating point.

    Integers become torch's default without ``dtype``. What is no tensor is returned, for
    :func:`check_edge_vector` to refuse.
    """
    if not isinstance(vector, Tensor):
        return vector
    if vector.dtype == torch.bool or vector.is_complex():
        raise RefusedType(
            f"{name} must be numbers",
            "floating point or integers (to select edges: edge_index[:, mask])",
            vector.dtype,
        )
    if vector.shape == (index.size(1), 1):
        vector = vector.squeeze(1)
    if dtype is None and not vector.is_floating_point():
        dtype = torch.get_default_dtype()
    return vector if dtype is None else vector.to(dtype)


def check_attributes(edge_attr: Any, index: Tensor) -> None:
    """Refuse edge attributes that are not a tensor (E, *)."""
    if edge_attr is None:
        return
    if not isinstance(edge_attr, Tensor) or edge_attr.layout is not torch.strided:
        got = getattr(edge_attr, "layout", type(edge_attr).__name__)
        raise RefusedType("edge_attr must be a dense tensor", "Tensor", got)
    if edge_attr.dim() == 0 or edge_attr.size(0) != index.size(1):
        raise RefusedValue(
            "edge_attr needs one row for each edge",
            f"shape ({index.size(1)}, *)",
            tuple(edge_attr.shape),
        )


def check_one_set(bipartite: bool, size: tuple[int, int], what: str, instead: str) -> None:
    """Refuse a bipartite structure of ``size`` (M, N) for ``what``, which needs one set of nodes.

    ``instead`` is what to use for a pair. One with M = N is refused too: else one more node
    without edges, which makes M ≠ N, would change what the others get.
    """
    if bipartite:
        got = f"a pair of M = {size[0]} sources and N = {size[1]} targets"
        rule = f"{what} needs sources and targets that are the same nodes"
        raise RefusedValue(rule, f"one x, not a pair; for a pair {instead}", got)


def check_positions(pos: Any, size: tuple[int, int]) -> None:
    """Refuse positions that are not a pair of floating point tensors (M, D) and (N, D)."""
    if len(pos) != 2 or not all(isinstance(e, Tensor) and e.is_floating_point() for e in pos):
        got = [getattr(end, "dtype", type(end).__name__) for end in pos]
        raise RefusedType(
            "pos is a tensor, or a pair for sources and targets", "floating point", got
        )
    check_rows(pos, size)


def check_rows(pos: tuple[Tensor, Tensor], size: tuple[int, int]) -> None:
    """Refuse positions that are not (M, D) and (N, D)."""
    for name, end, count in zip(("source", "target"), pos, size, strict=True):
        if end.dim() != 2 or end.size(0) != count:
            raise RefusedValue(
                f"pos needs a row for each {name}", f"shape ({count}, D)", tuple(end.shape)
            )
    widths = {end.size(1) for end in pos}
    if len(widths) > 1:
        raise RefusedValue(
            "positions of sources and targets have equally many columns", "one D", widths
        )


def check_range(name: str, index: Tensor, count: int) -> None:
    """Refuse indices outside of [0, count); not checked where a tensor has no readable numbers."""
    if not has_numbers(index) or index.numel() == 0:
        return
    lowest, highest = int(index.min()), int(index.max())
    if lowest < 0 or highest >= count:
        got = lowest if lowest < 0 else highest
        raise RefusedValue(f"every {name} must lie in range", f"[0, {count})", got)


def holds(condition: Tensor) -> bool:
    """Whether a check of values succeeds, or cannot be made.

    Returns True unchecked under ``vmap``, where the result differs between items, and under
    torch.compile and torch.export, where a check of values would break the graph.
    """
    if not has_numbers(condition):
        return True
    inner = condition
    while torch._C._functorch.is_functorch_wrapped_tensor(inner):
        if torch._C._functorch.is_batchedtensor(inner):
            return True
        inner = torch._C._functorch.get_unwrapped(inner)
    return bool(condition)


def all_below(index: Tensor, count: int) -> bool:
    """Whether all indices, at least one, are in [0, ``count``)."""
    if index.numel() <= FEW:
        least, most = index.aminmax()
        return int(least) >= 0 and int(most) < count
    indices = index.numpy()  # without signs, a negative index is a large one
    unsigned = np.uint64 if indices.itemsize == 8 else f"u{indices.itemsize}"
    return bool(np.maximum.reduce(indices.view(unsigned), None) < count)


def infer_size(
    edge_index: Tensor,
    size: tuple[int | None, int | None] | None,
    bipartite: bool,
    summary: Summary | None = None,
) -> tuple[int, int]:
    """(M, N): ``size``, with missing entries inferred from the largest indices.

    ``summary`` is what was read of the indices, where they are on a device.
    """
    size = size or (None, None)
    if size[0] is not None and size[1] is not None:
        if can_read(edge_index):
            if size[0] == size[1] and edge_index.numel() and all_below(edge_index, size[0]):
                return size[0], size[0]
        elif not has_numbers(edge_index):  # fake tensors: nothing to check
            return size[0], size[1]
    else:
        refuse_captured(edge_index, "nodes that no argument tells")
    if not edge_index.numel():
        lowest, highest = 0, [-1, -1]
    elif summary is not None:
        lowest, highest = min(summary.lowest), list(summary.highest)
    elif size == (None, None) and not bipartite:
        least, most = edge_index.aminmax()
        lowest, highest = int(least), [int(most)] * 2
    else:
        least, most = edge_index.aminmax(dim=1)
        # By int(), for tolist() fails within torch.func before torch 2.11.
        lowest, highest = int(least.min()), [int(most[0]), int(most[1])]
    if lowest < 0:
        raise RefusedValue("edge_index must not be negative", ">= 0", lowest)
    if size == (None, None) and not bipartite:
        return max(highest) + 1, max(highest) + 1
    full = (
        highest[0] + 1 if size[0] is None else size[0],
        highest[1] + 1 if size[1] is None else size[1],
    )
    for name, end, count in zip(("source", "target"), highest, full, strict=True):
        if end >= count:
            raise RefusedValue(
                f"every {name} in edge_index must be one of the {name} nodes",
                f"an index below {count}",
                end,
            )
    return full


# Selections of labels and nodes ------------------------------------------------------------------

Labels = Union[int, slice, Sequence[int], Sequence[bool], Tensor]  # noqa: UP007
"""A selection of labels, in order: an index, a slice, a list or vector of indices, or a mask."""

Nodes = Union[Tensor, Sequence[int], Sequence[bool], None]  # noqa: UP007
"""A selection of nodes, in order: distinct indices, or a mask; None selects all."""


def chosen(name: str, selection: Any, count: int) -> Tensor:
    """(n,) int64 indices of a selection; a mask selects the indices where it is true.

    ``selection`` is a list, tuple, range or vector of integers, or ``count`` booleans.
    """
    if isinstance(selection, np.ndarray | np.generic):
        if selection.dtype.kind not in "biufc":
            raise RefusedType(_of_another_kind(name, selection.dtype))
        selection = torch.as_tensor(selection)
    if not isinstance(selection, Tensor):
        selection = _listed(name, selection)
    if selection.is_floating_point() or selection.is_complex():
        raise RefusedType(_of_another_kind(name, selection.dtype))
    if selection.dim() != 1:
        raise RefusedValue(f"{name} are a vector", "one dimension", tuple(selection.shape))
    if selection.dtype != torch.bool:
        return selection.long()
    if selection.numel() != count:
        raise RefusedValue(f"a mask of {name} has one entry for each", count, selection.numel())
    return selection.nonzero().view(-1)


def chosen_labels(labels: Labels, count: int) -> list[int]:
    """The numbers of selected labels, from 0 to ``count`` - 1; negative ones count from the end."""
    if isinstance(labels, slice):
        labels = range(count)[labels]
    elif isinstance(labels, Integral) and not isinstance(labels, bool):
        labels = (int(labels),)
    kept = chosen("selected labels", labels, count).tolist()
    for label in kept:
        if not -count <= label < count:
            raise RefusedIndex("a selected label must exist", f"[0, {count})", label)
    return [label % count for label in kept]


def check_nodes(name: str, nodes: Nodes, count: int, device: torch.device) -> Tensor | None:
    """(n,) distinct node indices below ``count``, from indices or a mask; None for None."""
    if nodes is None:
        return None
    nodes = chosen(name, nodes, count).to(device)
    if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < count:
        raise RefusedIndex(
            f"{name} must exist", f"[0, {count})", f"[{int(nodes.min())}, {int(nodes.max())}]"
        )
    if nodes.unique().numel() != nodes.numel():
        raise RefusedValue(f"{name} are distinct", "each index once", "a repeated index")
    return nodes


def _listed(name: str, selection: Any) -> Tensor:
    if not isinstance(selection, list | tuple | range):
        raise RefusedType(_of_another_kind(name, type(selection).__name__))
    switches = [isinstance(item, bool) for item in selection]
    if any(switches) and all(switches):
        return torch.tensor(selection)
    if any(switches) or not all(
        isinstance(item, Integral) or _is_index(item) for item in selection
    ):
        raise RefusedType(_of_another_kind(name, repr(selection)))
    integers = [int(item) for item in selection]
    if any(not -(2**63) <= number < 2**63 for number in integers):
        raise RefusedValue(f"{name} are indices", "integers that fit int64", integers)
    return torch.tensor(integers, dtype=torch.long)


def _is_index(item: Any) -> bool:
    """Whether an item of a list is a 0-dimensional integer tensor."""
    whole = isinstance(item, Tensor) and item.dim() == 0 and item.dtype != torch.bool
    return whole and not (item.is_floating_point() or item.is_complex())


def _of_another_kind(name: str, got: Any) -> str:
    return refusal(f"{name} are indices or a mask", "integers, or one boolean for each", got)
