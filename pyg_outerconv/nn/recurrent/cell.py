"""The base class of recurrent cells, and a cell run over time."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...basis import Basis
from ...errors import RefusedType, RefusedValue, refusal
from ...families import Family, Mean, parse_family
from ..checks import aggregation, check_channels
from ..outer_conv import OuterConv

State = TypeVar("State", Tensor, tuple[Tensor, Tensor])
"""The state of a cell: H, or (H, C)."""


class Shared(NamedTuple):
    """The arguments that all convolutions of a step share: a basis, or a structure and tensors."""

    edge_index: Any
    beside: dict[str, Any]


class RecurrentCell(torch.nn.Module, Generic[State]):
    """A cell whose gates are convolutions over one family, so that they share a basis.

    The basis of a step is made once for all gates, and :func:`unroll` makes it once for all steps.
    If its values depend on features, each convolution makes its own. The modules of a family are
    shared by all gates. Sources and targets are one set of nodes.

    Args:
        in_channels: P of the input of a step, or -1 to derive it from the first one.
        out_channels: Q of the state.
        family: the recipe for the basis, or text that names one.
        **options: of :class:`OuterConv`, for every convolution of the cell.

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
                raise RefusedType(refusal(f"nodes of a cell have one {name}", "an integer", value))
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
        r"""Resets all learnable parameters of the module."""
        for part in self.children():
            part.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        state: State | None = None,
        edge_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | None = None,
    ) -> State:
        r"""Runs one step.

        Args:
            x (torch.Tensor): The input of this step, :math:`(*, N, P)`.
            edge_index (torch.Tensor or Basis): The edges, another structure that the family reads,
                or a basis.
            state (torch.Tensor or tuple, optional): What the step before returned.
                (default: zeros)
            edge_weight, edge_type, batch, edge_attr, pos: See
                :class:`~pyg_outerconv.nn.OuterConv`.
        """
        shared = self.share(
            x,
            edge_index,
            edge_weight=edge_weight,
            edge_type=edge_type,
            batch=batch,
            edge_attr=edge_attr,
            pos=pos,
        )
        return self.step(x, shared, state)

    def share(self, x: Tensor, edge_index: Any, **beside: Any) -> Shared:
        """The basis for all convolutions of a step; the structure if values depend on features.

        Args:
            x: (*batch, N, P); only N, dtype and device are used.
            edge_index: see :meth:`forward`.
            **beside: ``edge_weight``, ``edge_type``, ``batch``, ``edge_attr`` and ``pos``.

        Raises:
            TypeError, ValueError: see :class:`OuterConv`.
        """
        self._check_input(x)
        if not isinstance(edge_index, Basis) and self.family.makes_use_of("x"):
            return Shared(edge_index, beside)
        basis: Basis = getattr(self, self.first).basis(x, edge_index, **beside)
        if isinstance(edge_index, Basis) and self.aggr == "mean":
            basis = basis.mean(x.dtype)
        return Shared(basis, {})

    @abstractmethod
    def step(self, x: Tensor, shared: Shared, state: State | None = None) -> State:
        """One step with the result of :meth:`share`."""

    def _convolve(self, conv: OuterConv, shared: Shared, *parts: Tensor) -> Tensor:
        """The gates before their activations, (*batch, N, G·Q), from the concatenated parts."""
        x = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        out: Tensor = conv(x, shared.edge_index, **shared.beside)
        if out.size(-2) != x.size(-2):
            raise RefusedValue(
                refusal(
                    "the nodes of a cell are sources and targets",
                    "M = N",
                    f"M = {x.size(-2)}, N = {out.size(-2)}",
                )
            )
        return out

    def _check_input(self, x: Any) -> None:
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.layout != torch.strided:
            raise RefusedType(
                refusal(
                    "a cell reads dense features of nodes",
                    "a tensor (*, N, P) of floating point type",
                    getattr(x, "dtype", type(x).__name__),
                )
            )
        if x.dim() < 2 or self.in_channels not in (-1, x.size(-1)):
            channels = "P" if self.in_channels < 0 else self.in_channels
            raise RefusedValue(
                refusal("a cell reads features of nodes", f"(*, N, {channels})", tuple(x.shape))
            )

    def _checked(self, x: Tensor, state: Tensor, name: str = "state") -> Tensor:
        """A part of the state after checks, (*batch, N, Q) with the batch and N of the input."""
        expected = (*x.shape[:-1], self.out_channels)
        if not isinstance(state, Tensor):
            raise RefusedType(
                refusal(f"the {name} of a cell has a row for each node", expected, state)
            )
        if tuple(state.shape) != expected:
            raise RefusedValue(
                refusal(
                    f"the {name} of a cell has a row for each node", expected, tuple(state.shape)
                )
            )
        return state

    def _zeros(self, x: Tensor) -> Tensor:
        return x.new_zeros((*x.shape[:-1], self.out_channels))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, {self.family})"


def unroll(
    cell: RecurrentCell[State],
    xs: Tensor,
    edge_index: Any,
    state: State | None = None,
    **beside: Any,
) -> tuple[Tensor, State]:
    """Run a cell over a sequence on edges that stay, whose basis is made once.

    Args:
        cell: a recurrent cell.
        xs: (T, *batch, N, P), the inputs of T >= 1 steps.
        edge_index: see :meth:`RecurrentCell.forward`.
        state: that before the first step, zeros if None.
        **beside: ``edge_weight``, ``edge_type``, ``batch``, ``edge_attr`` and ``pos``.

    Returns:
        H of every step, (T, *batch, N, Q), and the last state.

    Raises:
        TypeError, ValueError: see :class:`RecurrentCell`; and ``xs`` has no step.
    """
    if not isinstance(xs, Tensor) or xs.dim() < 3 or xs.size(0) == 0:
        raise RefusedValue(
            refusal(
                "a cell runs over a sequence of steps",
                "(T, *batch, N, P) with T >= 1",
                tuple(xs.shape) if isinstance(xs, Tensor) else type(xs).__name__,
            )
        )
    shared = cell.share(xs[0], edge_index, **beside)
    outputs = []
    for x in xs:
        state = cell.step(x, shared, state)
        outputs.append(state[0] if isinstance(state, tuple) else state)
    assert state is not None  # there was a step
    return torch.stack(outputs), state
