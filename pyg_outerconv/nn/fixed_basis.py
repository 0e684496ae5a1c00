"""A basis as a part of a module, which moves and casts with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..basis import Basis
from ..errors import RefusedType, refusal

if TYPE_CHECKING:
    from typing_extensions import Self


class FixedBasis(torch.nn.Module):
    """A basis that was made once, as a part of a module.

    ``.to()``, ``.cuda()``, ``.double()`` and the like move and cast it with the module's
    parameters, which a basis that is a mere attribute does not follow. No ``state_dict`` has it.

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
        basis: what is kept.

    Raises:
        TypeError: it is no basis.
    """

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        if not isinstance(basis, Basis):
            raise RefusedType(refusal("a FixedBasis keeps a basis", "Basis", type(basis).__name__))
        self.basis = basis

    def forward(self) -> Basis:
        """The basis, where the module is and of its type."""
        return self.basis

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # Where a tensor would be, and of which type: to_empty() loses values, which nothing brings
        # back here.
        basis = self.basis
        moved = fn(torch.empty(0, device=basis.device, dtype=basis.dtype))
        self.basis = basis.to(moved.device, moved.dtype)
        return self

    def extra_repr(self) -> str:
        """The basis."""
        return repr(self.basis)
