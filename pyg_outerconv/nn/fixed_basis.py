"""FixedBasis: a basis as a submodule, which moves and casts with its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..basis import Basis
from ..errors import RefusedType

if TYPE_CHECKING:
    from typing_extensions import Self


class FixedBasis(torch.nn.Module):
    """A basis that is made once and stored as a submodule.

    ``.to()``, ``.cuda()``, ``.double()`` and the like move and cast it with the parameters of the
    module, unlike a basis that is a plain attribute. It is not part of the ``state_dict``.

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

    Raises:
        TypeError: ``basis`` is not a Basis.
    """

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        if not isinstance(basis, Basis):
            raise RefusedType("a FixedBasis keeps a basis", "Basis", type(basis).__name__)
        self.basis = basis

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

    def extra_repr(self) -> str:
        """The basis."""
        return repr(self.basis)
