"""What may look into a layer: explainers and PyG's hooks, and what they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import OptTensor

from ..basis import Basis
from ..contract import Features, ThetaValue
from ..errors import RefusedValue


class Watched:
    """The hooks of a ``MessagePassing`` layer whose fused step is a contraction."""

    explain: bool | None
    fuse: bool
    _edge_mask: Tensor | None
    _apply_sigmoid: bool
    message_and_aggregate: Callable[..., Tensor]
    _message_forward_pre_hooks: dict[int, Any]
    _message_forward_hooks: dict[int, Any]
    _aggregate_forward_pre_hooks: dict[int, Any]
    _aggregate_forward_hooks: dict[int, Any]
    _propagate_forward_pre_hooks: dict[int, Any]
    _propagate_forward_hooks: dict[int, Any]
    _message_and_aggregate_forward_pre_hooks: dict[int, Any]
    _message_and_aggregate_forward_hooks: dict[int, Any]

    def message(self, x_j: Tensor, edge_value: OptTensor) -> Tensor:
        """The definition, edge by edge: the value of the edge times what its source sends."""
        return x_j if edge_value is None else edge_value.view(-1, 1) * x_j

    def explain_message(self, inputs: Tensor, edge_origin: Tensor) -> Tensor:
        """Masks each message by the edge of the user's list that it stems from.

        A layer over powers or several edge sets sends several messages along one edge of the
        user's list; each is masked. Messages of edges that the family added are left alone.
        """
        return inputs * self.edge_mask(edge_origin).view(-1, 1)

    def edge_mask(self, edge_origin: Tensor) -> Tensor:
        """(E,) the mask of edges that stem from these edges of the user's list; 1 for -1.

        Raises:
            ValueError: there is no mask.
        """
        mask = self._edge_mask
        if mask is None:
            raise RefusedValue("there is no edge mask to explain with: set_masks was not called")
        if self._apply_sigmoid:
            mask = mask.sigmoid()
        return torch.cat([mask, mask.new_ones(1)])[edge_origin]

    def _is_asked_for_messages(self) -> bool:
        # Explainers and hooks want to see messages; PyG users switch fusing off by `fuse`.
        hooks = (
            self._message_forward_pre_hooks
            or self._message_forward_hooks
            or self._aggregate_forward_pre_hooks
            or self._aggregate_forward_hooks
            or self._propagate_forward_pre_hooks
            or self._propagate_forward_hooks
        )
        return bool(self.explain or hooks or not self.fuse)

    def _is_watched(self) -> bool:
        return bool(
            self._message_and_aggregate_forward_pre_hooks
            or self._message_and_aggregate_forward_hooks
        )

    def _watch_fused(self, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
        # The hooks that PyG's propagate would call around its fused step.
        arguments: dict[str, Any] = {"x": x, "theta": theta}
        for pre_hook in self._message_and_aggregate_forward_pre_hooks.values():
            changed = pre_hook(self, (basis, arguments))
            basis, arguments = (basis, arguments) if changed is None else changed
        out = self.message_and_aggregate(basis, **arguments)
        for hook in self._message_and_aggregate_forward_hooks.values():
            changed = hook(self, (basis, arguments), out)
            out = out if changed is None else changed
        return out
