"""What users choose labels and nodes by: indices, in any of their usual forms, or a mask."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Union

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedIndex, RefusedType, RefusedValue, refusal

Labels = Union[int, slice, Sequence[int], Sequence[bool], Tensor]  # noqa: UP007
"""Which labels, in which order: one, a slice, a list or a vector of them, or a mask."""

Nodes = Union[Tensor, Sequence[int], Sequence[bool], None]  # noqa: UP007
"""Which nodes, in which order: distinct indices, or a mask; None means all."""


def chosen(name: str, given: Any, count: int) -> Tensor:
    """(n,) int64 indices, as given; of a mask, the places where it is true.

    Args:
        name: what is chosen, for messages.
        given: a list, tuple or range of integers, or a vector of them; or a mask, a list or a
            vector of ``count`` booleans.
        count: how many there are to choose from. Whether indices are below is not looked at.

    Raises:
        TypeError: it is none of these.
        ValueError: it has more than one dimension, or a mask has another length.
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
        raise RefusedValue(refusal(f"{name} are a list", "one dimension", tuple(given.shape)))
    if given.dtype != torch.bool:
        return given.long()
    if given.numel() != count:
        raise RefusedValue(refusal(f"a mask of {name} has an entry for each", count, given.numel()))
    return given.nonzero().view(-1)


def check_nodes(name: str, nodes: Nodes, count: int, device: torch.device) -> Tensor | None:
    """(n,) distinct indices below ``count``, of indices or a mask.

    Raises:
        TypeError, ValueError: see :func:`chosen`; or an index comes twice.
        IndexError: an index is out of range.
    """
    if nodes is None:
        return None
    nodes = chosen(name, nodes, count).to(device)
    if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < count:
        raise RefusedIndex(
            refusal(
                f"{name} must exist", f"[0, {count})", f"[{int(nodes.min())}, {int(nodes.max())}]"
            )
        )
    if nodes.unique().numel() != nodes.numel():
        raise RefusedValue(
            refusal(f"{name} are distinct", "each index once", "an index that comes twice")
        )
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
        raise RefusedValue(refusal(f"{name} are indices", "whole numbers that int64 has", numbers))
    return torch.tensor(numbers, dtype=torch.long)


def _is_index(item: Any) -> bool:
    """Whether an item of a list is a tensor that holds one integer."""
    whole = isinstance(item, Tensor) and item.dim() == 0 and item.dtype != torch.bool
    return whole and not (item.is_floating_point() or item.is_complex())


def _of_another_kind(name: str, got: Any) -> str:
    return refusal(f"{name} are indices or a mask", "integers, or a boolean for each", got)
