"""FixedBasis: a basis as a submodule, which moves and casts with its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..basis import Basis
from ..errors import RefusedValue
from ..signatures import typed
from .basis_state import check_savable, names_of, state_of, with_state

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
