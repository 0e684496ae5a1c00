"""What may look into a layer: explainers and PyG's hooks, and what they see."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor

from ..basis import Basis
from ..errors import RefusedType, RefusedValue, refusal
from ..graph import Features
from ..theta import ThetaValue

# What the steps of messages may ask for: what is sent, and where from and to.
OF_MESSAGES = {"x_j", "edge_value", "index", "ptr", "dim_size", "size", "size_i", "size_j"}
OF_MESSAGES |= {"edge_index", "edge_index_i", "edge_index_j"}


class MessageHooks:
    """The hooks of a ``MessagePassing`` layer whose fused step is a contraction.

    A subclass with a ``message``, ``aggregate`` or ``update`` of its own always runs by messages,
    which call it (:mod:`pyg_outerconv.nn.readable` says how often); one with a
    ``message_and_aggregate`` of its own has that called with the basis, x and Θ.

    Attributes:
        sends_own_messages: whether the class has such a step.
        has_own_fused_step: whether it has a ``message_and_aggregate`` of its own.
    """

    sends_own_messages: ClassVar[bool] = False
    has_own_fused_step: ClassVar[bool] = False

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        steps = {
            "message": MessageHooks.message,
            "aggregate": MessagePassing.aggregate,
            "update": MessagePassing.update,
        }
        own = [name for name, step in steps.items() if getattr(cls, name) is not step]
        cls.sends_own_messages = bool(own)
        for name in own:
            _check_step(cls, name, skip=1 if name == "message" else 2)
        if "message_and_aggregate" in vars(cls):
            _check_fused(cls)
            cls.has_own_fused_step = len(_with_fused_steps(cls)) > 1  # beside OuterConv's

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

    def _runs_by_messages(self) -> bool:
        # Explainers and hooks want to see messages; PyG users switch fusing off by `fuse`.
        hooks = (
            self._message_forward_pre_hooks
            or self._message_forward_hooks
            or self._aggregate_forward_pre_hooks
            or self._aggregate_forward_hooks
            or self._propagate_forward_pre_hooks
            or self._propagate_forward_hooks
        )
        return bool(self.explain or hooks or not self.fuse or self.sends_own_messages)

    def _calls_fused_step(self) -> bool:
        # Hooks want to see the fused step, and a step that was replaced wants to be called.
        return bool(
            self._message_and_aggregate_forward_pre_hooks
            or self._message_and_aggregate_forward_hooks
            or self.has_own_fused_step
            or "message_and_aggregate" in vars(self)
        )

    def _call_fused_step(self, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
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


def _with_fused_steps(cls: type) -> list[type]:
    """The classes of this package, or heirs of them, that state a fused step."""
    heirs = [base for base in cls.__mro__ if issubclass(base, MessageHooks)]
    return [base for base in heirs if "message_and_aggregate" in vars(base)]


def _check_step(cls: type, name: str, skip: int) -> None:
    """Refuse a step that asks for what messages do not have. Raises TypeError."""
    parameters = list(inspect.signature(getattr(cls, name)).parameters.values())[skip:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for one in parameters:
        needed = one.kind in named and one.default is inspect.Parameter.empty
        if needed and one.name not in OF_MESSAGES:
            raise RefusedType(
                refusal(
                    f"{cls.__name__}.{name} is called with what is sent along edges",
                    f"some of {', '.join(sorted(OF_MESSAGES))}",
                    one.name,
                )
            )


def _check_fused(cls: Any) -> None:
    """Refuse a fused step that takes other arguments than the layer gives. Raises TypeError."""
    try:
        inspect.signature(cls.message_and_aggregate).bind(None, None, x=None, theta=None)
    except TypeError as error:
        raise RefusedType(
            refusal(
                f"{cls.__name__}.message_and_aggregate is called with the basis, x and theta",
                "message_and_aggregate(self, edge_index, x, theta)",
                str(error),
            )
        ) from error
