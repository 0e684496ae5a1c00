"""The tensors of a basis by name, for a state_dict, and the same kind of basis with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..basis import Basis, EdgeBasis, Pattern
from ..errors import RefusedValue

_ENDS = ("source", "target", "label")
_PARTS = (*_ENDS, "value")


def check_savable(basis: Basis) -> None:
    """Refuse a basis that holds more than sets of edges and floating-point numbers.

    Raises:
        ValueError: it does.
    """
    for leaf in _leaves(basis)[0]:
        if isinstance(leaf, Tensor) and not leaf.is_floating_point():
            raise RefusedValue(
                "a basis in a state_dict is made of edges and numbers",
                "basis.edges()",
                type(basis).__name__,
            )


def names_of(basis: Basis) -> list[str]:
    """The names of the tensors in :func:`state_of`."""
    names = []
    for number, leaf in enumerate(_leaves(basis)[0]):
        if isinstance(leaf, EdgeBasis):
            ends = _ENDS if leaf.dtype is None else _PARTS
            names += [f"{number}.{end}" for end in ends]
        elif isinstance(leaf, Tensor):
            names.append(f"{number}")
    return names


def state_of(basis: Basis) -> dict[str, Tensor]:
    """The tensors by name: of each set of edges its sources, targets, labels and values."""
    found: dict[str, Tensor] = {}
    for number, leaf in enumerate(_leaves(basis)[0]):
        if isinstance(leaf, EdgeBasis):
            pattern = leaf.pattern
            found |= {f"{number}.{end}": getattr(pattern, end).contiguous() for end in _ENDS}
            if leaf.value is not None:
                found[f"{number}.value"] = leaf.value
        elif isinstance(leaf, Tensor):
            found[f"{number}"] = leaf
    return found


def with_state(basis: Basis, state: Mapping[str, Tensor]) -> Basis:
    """A basis of the same kind and size with the tensors of ``state``, which may have other edges.

    Raises:
        ValueError: tensors differ in shape, or indices and labels are out of range.
    """
    leaves, spec = _leaves(basis)
    made: dict[int, Any] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, EdgeBasis):
            made[id(leaf)] = _edges(leaf, {end: state.get(f"{number}.{end}") for end in _PARTS})
        elif isinstance(leaf, Tensor):
            made[id(leaf)] = _like(leaf, state[f"{number}"], leaf.shape)
    return tree_unflatten([made.get(id(leaf), leaf) for leaf in leaves], spec)  # type: ignore[no-any-return]


def _leaves(basis: Basis) -> tuple[list[Any], Any]:
    """The sets of edges and the tensors of the rest."""
    return tree_flatten(basis, is_leaf=lambda part: isinstance(part, EdgeBasis))


def _edges(old: EdgeBasis, parts: Mapping[str, Tensor | None]) -> EdgeBasis:
    """A set of edges of the same size and labels as ``old``."""
    ends = [parts[name] for name in _ENDS]
    count = ends[0].numel() if isinstance(ends[0], Tensor) else 0
    bounds = (*old.size, old.num_bases)
    for name, end, bound in zip(_ENDS, ends, bounds, strict=True):
        rule = f"the {name} of each edge is one of the basis"
        if not isinstance(end, Tensor) or end.shape != (count,) or end.is_floating_point():
            raise RefusedValue(rule, f"integers ({count},)", end)
        if count and (int(end.min()) < 0 or int(end.max()) >= bound):
            raise RefusedValue(rule, f"0 to {bound - 1}", f"{int(end.min())} to {int(end.max())}")
    source, target, label = (end.long().to(old.device) for end in ends if end is not None)
    pattern = Pattern.of_list(
        torch.stack([source, target]), label, size=old.size, num_labels=old.num_bases, own=True
    )
    if old.value is None:
        return EdgeBasis(pattern)
    value = parts["value"]
    assert value is not None
    return EdgeBasis(pattern, pattern.sort_values(_like(old.value, value, (count,))))


def _like(old: Tensor, new: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A copy of a tensor in the dtype and place of the old one."""
    if tuple(new.shape) != tuple(shape) or not new.is_floating_point():
        raise RefusedValue("numbers of a basis fit it", f"floating point {tuple(shape)}", new)
    return new.detach().to(old.device, old.dtype, copy=True)
