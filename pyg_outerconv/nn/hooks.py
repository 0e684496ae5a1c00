"""Explainers and PyG's hooks: when a layer runs by messages, and what these observers get."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import OptTensor

from ..basis import Basis
from ..errors import RefusedType, RefusedValue
from ..graph import Features
from ..theta import ThetaValue

# The arguments that message, aggregate and update of a subclass may have.
OF_MESSAGES = {"x_j", "edge_value", "index", "ptr", "dim_size", "size", "size_i", "size_j"}
OF_MESSAGES |= {"edge_index", "edge_index_i", "edge_index_j"}

Way = Literal["contraction", "fused step", "messages"]
"""How a layer runs: at once, by ``message_and_aggregate`` with its hooks, or message by message."""


class MessageHooks(MessagePassing):
    """A ``MessagePassing`` layer whose fused step is a contraction, with PyG's hooks.

    A subclass that overrides ``message``, ``aggregate`` or ``update`` always runs by messages; how
    often each is called is documented in :mod:`pyg_outerconv.nn.messages`. A subclass that
    overrides ``message_and_aggregate`` has it called with the basis, x and Θ.

    Attributes:
        sends_own_messages: whether the class overrides a step of messages.
        has_own_fused_step: whether the class overrides ``message_and_aggregate``.
    """

    sends_own_messages: ClassVar[bool] = False
    has_own_fused_step: ClassVar[bool] = False

    _edge_mask: Tensor | None

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
            cls.has_own_fused_step = len(_with_fused_steps(cls)) > 1  # OuterConv has one

    def message(self, x_j: Tensor, edge_value: OptTensor) -> Tensor:
        """The message of each edge: its value times the features of its source, (E, C)."""
        return x_j if edge_value is None else edge_value.view(-1, 1) * x_j

    def explain_message(self, inputs: Tensor, edge_origin: Tensor) -> Tensor:
        """Multiply each message by the mask of the edge in ``edge_index`` that it stems from.

        A layer over powers or several edge sets sends several messages along one edge of
        ``edge_index``; each is masked. Messages of edges added by the family are not.
        """
        return inputs * self.edge_mask(edge_origin).view(-1, 1)

    def edge_mask(self, edge_origin: Tensor) -> Tensor:
        """The mask of each edge of a basis, (E,); 1 for edges that the family added.

        Args:
            edge_origin: the column of ``edge_index`` that each edge stems from, -1 for none, (E,).

        Raises:
            ValueError: no mask was set.
        """
        mask = self._edge_mask
        if mask is None:
            raise RefusedValue("there is no edge mask to explain with: set_masks was not called")
        if self._apply_sigmoid:
            mask = mask.sigmoid()
        return torch.cat([mask, mask.new_ones(1)])[edge_origin]

    def _call_fused_step(self, basis: Basis, x: Features, theta: ThetaValue) -> Tensor:
        """Call ``message_and_aggregate`` with its hooks, as PyG's ``propagate`` does."""
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
    """The classes in the inheritance of ``cls`` that define ``message_and_aggregate``."""
    bases = [base for base in cls.__mro__ if issubclass(base, MessageHooks)]
    return [base for base in bases if "message_and_aggregate" in vars(base)]


def _check_step(cls: type, name: str, skip: int) -> None:
    """Raise TypeError if an overridden step requires an argument that messages do not have."""
    parameters = list(inspect.signature(getattr(cls, name)).parameters.values())[skip:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for one in parameters:
        needed = one.kind in named and one.default is inspect.Parameter.empty
        if needed and one.name not in OF_MESSAGES:
            raise RefusedType(
                f"{cls.__name__}.{name} is called with what is sent along edges",
                f"some of {', '.join(sorted(OF_MESSAGES))}",
                one.name,
            )


def _check_fused(cls: Any) -> None:
    """Raise TypeError if ``message_and_aggregate`` does not take the basis, x and theta."""
    try:
        inspect.signature(cls.message_and_aggregate).bind(None, None, x=None, theta=None)
    except TypeError as error:
        raise RefusedType(
            f"{cls.__name__}.message_and_aggregate is called with the basis, x and theta",
            "message_and_aggregate(self, edge_index, x, theta)",
            str(error).removeprefix("got "),
        ) from error
