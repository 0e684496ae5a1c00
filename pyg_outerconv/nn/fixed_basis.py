"""A basis in a module, which moves with it and stands in its state_dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..basis import Basis, EdgeBasis, Pattern
from ..errors import RefusedValue
from ..signatures import typed

if TYPE_CHECKING:
    from typing_extensions import Self


class FixedBasis(torch.nn.Module):
    """A basis that is made once and stored as a submodule.

    ``.to()``, ``.cuda()``, ``.double()`` and the like move and cast it with the parameters of the
    module, unlike a basis that is a plain attribute. Like a buffer of torch, it is part of the
    ``state_dict`` if it is persistent: a checkpoint then has the edges of the basis, and loading
    it replaces the edges of the module, even if their number differs.

    >>> import torch
    >>> from pyg_outerconv import OuterConv
    >>> class Net(torch.nn.Module):
    ...     def __init__(self, edge_index, num_nodes):
    ...         super().__init__()
    ...         self.conv = OuterConv(16, 8, "gcn")
    ...         self.basis = FixedBasis(self.conv.family.basis(edge_index, size=(num_nodes,) * 2))
    ...
    ...     def forward(self, x):
    ...         return self.conv(x, self.basis())
    >>> net = Net(torch.tensor([[0, 1], [1, 2]]), num_nodes=3).double()
    >>> net(torch.randn(3, 16, dtype=torch.float64)).dtype
    torch.float64

    Args:
        basis: the basis.
        persistent: whether the edges and numbers of the basis are part of the ``state_dict``.

    Raises:
        TypeError: ``basis`` is not a Basis.
        ValueError: a persistent basis holds more than edges and numbers.
    """

    @typed
    def __init__(self, basis: Basis, persistent: bool = False) -> None:
        super().__init__()
        if persistent:
            check_savable(basis)
        self.basis, self.persistent = basis, persistent

    def forward(self) -> Basis:
        """The basis, on the device and in the dtype of the module."""
        return self.basis

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # Apply fn to an empty tensor to learn device and dtype: to_empty() would lose the values of
        # the basis, which no state_dict restores.
        basis = self.basis
        moved = fn(torch.empty(0, device=basis.device, dtype=basis.dtype))
        self.basis = basis.to(moved.device, moved.dtype)
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, part in state_of(self.basis).items() if self.persistent else ():
            destination[f"{prefix}basis.{name}"] = part if keep_vars else part.detach()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        names = names_of(self.basis) if self.persistent else []
        keys = {f"{prefix}basis.{name}": name for name in names}
        own = {name: state_dict[key] for key, name in keys.items() if key in state_dict}
        rest = {key: part for key, part in state_dict.items() if key not in keys}
        super()._load_from_state_dict(
            rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if len(own) < len(keys):
            missing_keys.extend(key for key, name in keys.items() if name not in own)
        elif keys:
            try:
                self.basis = with_state(self.basis, own)
            except RefusedValue as error:  # load_state_dict raises what it collects here
                error_msgs.append(f"{prefix}basis: {error}")

    def extra_repr(self) -> str:
        """The basis."""
        return repr(self.basis)


# The tensors of a basis by name ------------------------------------------------------------------


_ENDS = ("source", "target", "label")
_PARTS = (*_ENDS, "value")


def check_savable(basis: Basis) -> None:
    """Refuse a basis that holds more than sets of edges and floating-point numbers."""
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
    state: dict[str, Tensor] = {}
    for number, leaf in enumerate(_leaves(basis)[0]):
        if isinstance(leaf, EdgeBasis):
            pattern = leaf.pattern
            state |= {f"{number}.{end}": getattr(pattern, end).contiguous() for end in _ENDS}
            if leaf.value is not None:
                state[f"{number}.value"] = leaf.value
        elif isinstance(leaf, Tensor):
            state[f"{number}"] = leaf
    return state


def with_state(basis: Basis, state: Mapping[str, Tensor]) -> Basis:
    """A basis of the same kind and size with the tensors of ``state``, perhaps of other edges."""
    leaves, spec = _leaves(basis)
    new_leaves: dict[int, Any] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, EdgeBasis):
            new_leaves[id(leaf)] = _edges(
                leaf, {end: state.get(f"{number}.{end}") for end in _PARTS}
            )
        elif isinstance(leaf, Tensor):
            new_leaves[id(leaf)] = _like(leaf, state[f"{number}"], leaf.shape)
    return tree_unflatten([new_leaves.get(id(leaf), leaf) for leaf in leaves], spec)  # type: ignore[no-any-return]


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
