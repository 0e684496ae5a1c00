"""The base class of recurrent cells, and a cell run over time."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ...basis import Basis
from ...errors import RefusedType, RefusedValue
from ...families import Family, Mean, parse_family
from ...signatures import typed
from ..checks import aggregation, check_channels
from ..outer_conv import OuterConv

State = TypeVar("State", Tensor, tuple[Tensor, Tensor])
"""The state of a cell: H, or (H, C)."""


class RecurrentCell(torch.nn.Module, Generic[State]):
    """A cell whose gates are convolutions over one family on one set of nodes.

    All gates of a step share one basis, and :func:`unroll` makes it once for all steps. If its
    values depend on features, each convolution makes its own. All gates share the modules of a
    family.

    Args:
        in_channels: P of the input of a step, or -1 to derive it from the first input.
        out_channels: Q of the state.
        family: the family of the basis, or its text.
        **options: options of :class:`OuterConv`, for every convolution of the cell.

    Raises:
        TypeError, ValueError: see :class:`OuterConv`.
    """

    first: str
    """The attribute with the convolution that makes the basis for all gates."""

    def __init__(
        self, in_channels: int, out_channels: int, family: Family | str, **options: Any
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("in_channels", in_channels, -1),
            ("out_channels", out_channels, 0),
        ):
            if isinstance(value, tuple):
                raise RefusedType(f"nodes of a cell have one {name}", "an integer", value)
            check_channels(name, value, least)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.family = parse_family(family) if isinstance(family, str) else family
        self.aggr = aggregation("aggr", options.pop("aggr", "sum"))
        self._options = options

    def _gates(self, in_channels: int, count: int) -> OuterConv:
        """One convolution for ``count`` gates, with their channels concatenated."""
        # aggr='mean' becomes part of the family, so that the shared basis is divided once.
        is_mean = self.aggr == "mean" and isinstance(self.family, Family)
        family, aggr = (Mean(self.family), "sum") if is_mean else (self.family, self.aggr)
        return OuterConv(in_channels, count * self.out_channels, family, aggr=aggr, **self._options)

    @property
    def _joint_channels(self) -> int:
        """P + Q, or -1 while P is unknown."""
        return -1 if self.in_channels < 0 else self.in_channels + self.out_channels

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        for part in self.children():
            part.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        state: State | None = None,
        edge_weight: Tensor | None = None,
        **beside: Any,
    ) -> State:
        """Runs one step.

        Args:
            x: the input of this step, (*batch, N, P).
            edge_index: the edges, another structure that the family reads, or a basis.
            state: the state after the step before; zeros if None.
            edge_weight, **beside: the edge weights, and ``edge_type``, ``batch``, ``edge_attr``,
                ``pos``; see :class:`OuterConv`.
        """
        arguments = self.arguments(x, edge_index, edge_weight=edge_weight, **beside)
        return self.step(x, arguments, state)

    def arguments(self, x: Tensor, edge_index: Any, **beside: Any) -> dict[str, Any]:
        """The arguments beside x of all convolutions of a step: a basis in place of the structure.

        If values of the basis depend on features, the structure stays.

        Args:
            x: (*batch, N, P), of which N, dtype and device are read.
            edge_index: see :meth:`forward`.
            **beside: ``edge_weight``, ``edge_type``, ``batch``, ``edge_attr`` and ``pos``.

        Raises:
            TypeError, ValueError: see :class:`OuterConv`.
        """
        self._check_input(x)
        if not isinstance(edge_index, Basis) and self.family.makes_use_of("x"):
            return {"edge_index": edge_index, **beside}
        basis: Basis = getattr(self, self.first).basis(x, edge_index, **beside)
        if isinstance(edge_index, Basis) and self.aggr == "mean":
            basis = basis.mean(x.dtype)
        return {"edge_index": basis}

    @abstractmethod
    def step(self, x: Tensor, arguments: dict[str, Any], state: State | None = None) -> State:
        """One step with the result of :meth:`arguments`."""

    def _convolve(self, conv: OuterConv, arguments: dict[str, Any], *parts: Tensor) -> Tensor:
        """The gates before their activations, (*batch, N, G·Q), from the concatenated parts."""
        x = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        out: Tensor = conv(x, **arguments)
        if out.size(-2) != x.size(-2):
            rule = "the nodes of a cell are sources and targets"
            raise RefusedValue(rule, "M = N", f"M = {x.size(-2)}, N = {out.size(-2)}")
        return out

    def _check_input(self, x: Any) -> None:
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.layout != torch.strided:
            rule, expected = "a cell reads dense features of nodes", "a floating point (*, N, P)"
            raise RefusedType(rule, expected, getattr(x, "dtype", type(x).__name__))
        if x.dim() < 2 or self.in_channels not in (-1, x.size(-1)):
            channels = "P" if self.in_channels < 0 else self.in_channels
            raise RefusedValue(
                "a cell reads features of nodes", f"(*, N, {channels})", tuple(x.shape)
            )

    def _checked(self, x: Tensor, state: Tensor, name: str = "state") -> Tensor:
        """A part of the state after checks, (*batch, N, Q) with the batch and N of the input."""
        rule = f"the {name} of a cell has a row for each node"
        expected = (*x.shape[:-1], self.out_channels)
        if not isinstance(state, Tensor) or state.layout is not torch.strided:
            raise RefusedType(rule, expected, getattr(state, "layout", state))
        if tuple(state.shape) != expected:
            raise RefusedValue(rule, expected, tuple(state.shape))
        return state

    def _zeros(self, x: Tensor) -> Tensor:
        return x.new_zeros((*x.shape[:-1], self.out_channels))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, {self.family})"


@typed
def unroll(
    cell: RecurrentCell[State],
    xs: Tensor,
    edge_index: Any,
    state: State | None = None,
    **beside: Any,
) -> tuple[Tensor, State]:
    """Run a cell over a sequence on the same edges, whose basis is made once.

    Args:
        cell: a recurrent cell.
        xs: (T, *batch, N, P), the inputs of T >= 1 steps.
        edge_index: see :meth:`RecurrentCell.forward`.
        state: the state before the first step; zeros if None.
        **beside: ``edge_weight``, ``edge_type``, ``batch``, ``edge_attr`` and ``pos``.

    Returns:
        H of every step, (T, *batch, N, Q), and the last state.

    Raises:
        TypeError, ValueError: see :class:`RecurrentCell`; and ``xs`` has no step.
    """
    if not isinstance(xs, Tensor) or xs.dim() < 3 or xs.size(0) == 0:
        got = tuple(xs.shape) if isinstance(xs, Tensor) else type(xs).__name__
        rule = "a cell runs over a sequence of steps"
        raise RefusedValue(rule, "(T, *batch, N, P) with T >= 1", got)
    arguments = cell.arguments(xs[0], edge_index, **beside)
    outputs = []
    for x in xs:
        state = cell.step(x, arguments, state)
        outputs.append(state[0] if isinstance(state, tuple) else state)
    assert state is not None  # there was a step
    return torch.stack(outputs), state
