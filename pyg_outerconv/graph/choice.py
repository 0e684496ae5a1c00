"""Selections of labels and nodes by indices, slices or boolean masks."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedIndex, RefusedType, RefusedValue, refusal

Labels = Union[int, slice, Sequence[int], Sequence[bool], Tensor]  # noqa: UP007
"""A selection of labels, in order: an index, a slice, a list or vector of indices, or a mask."""

Nodes = Union[Tensor, Sequence[int], Sequence[bool], None]  # noqa: UP007
"""A selection of nodes, in order: distinct indices, or a mask; None selects all."""


def chosen(name: str, given: Any, count: int) -> Tensor:
    """(n,) int64 indices of a selection; a mask selects the indices where it is true.

    ``given`` is a list, tuple, range or vector of integers, or ``count`` booleans.
    """
    if isinstance(given, np.ndarray | np.generic):
        if given.dtype.kind not in "biufc":
            raise RefusedType(_of_another_kind(name, given.dtype))
        given = torch.as_tensor(given)
    if not isinstance(given, Tensor):
        given = _listed(name, given)
    if given.is_floating_point() or given.is_complex():
        raise RefusedType(_of_another_kind(name, given.dtype))
    if given.dim() != 1:
        raise RefusedValue(f"{name} are a vector", "one dimension", tuple(given.shape))
    if given.dtype != torch.bool:
        return given.long()
    if given.numel() != count:
        raise RefusedValue(f"a mask of {name} has one entry for each", count, given.numel())
    return given.nonzero().view(-1)


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


def _listed(name: str, given: Any) -> Tensor:
    if not isinstance(given, list | tuple | range):
        raise RefusedType(_of_another_kind(name, type(given).__name__))
    switches = [isinstance(item, bool) for item in given]
    if any(switches) and all(switches):
        return torch.tensor(given)
    if any(switches) or not all(isinstance(item, Integral) or _is_index(item) for item in given):
        raise RefusedType(_of_another_kind(name, repr(given)))
    numbers = [int(item) for item in given]
    if any(not -(2**63) <= number < 2**63 for number in numbers):
        raise RefusedValue(f"{name} are indices", "integers that fit int64", numbers)
    return torch.tensor(numbers, dtype=torch.long)


def _is_index(item: Any) -> bool:
    """Whether an item of a list is a 0-dimensional integer tensor."""
    whole = isinstance(item, Tensor) and item.dim() == 0 and item.dtype != torch.bool
    return whole and not (item.is_floating_point() or item.is_complex())


def _of_another_kind(name: str, got: Any) -> str:
    return refusal(f"{name} are indices or a mask", "integers, or one boolean for each", got)
