"""Recurrent cells whose gates are convolutions over any family."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from ..basis import Basis
from ..equations import row
from ..errors import RefusedType, RefusedValue
from ..families import Family, Mean, parse_family
from ..signatures import typed
from .checks import aggregation, check_channels
from .outer_conv import OuterConv

State = TypeVar("State", Tensor, tuple[Tensor, Tensor])
"""The state of a cell: H, or (H, C)."""


__all__ = ["ConvGRUCell", "ConvLSTMCell", "RecurrentCell", "unroll"]


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
        if x.dim() < 2 or (self.in_channels >= 0 and x.size(-1) != self.in_channels):
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


# Gated cells -------------------------------------------------------------------------------------


@row(
    "Ready-made layers",
    "Li et al., *DCRNN* (1707.01926), section 2.3",
    "`torch.nn.GRUCell` on `Identity`, with `reset_after=True`",
)
class ConvGRUCell(RecurrentCell[Tensor]):
    r"""The gated recurrent unit with convolutions :math:`\mathbf{\Theta} \star \mathbf{X} = \sum_k
    \mathbf{A}_k^{\top} \mathbf{X} \mathbf{\Theta}_k`.

    .. math::
        \mathbf{R} &= \sigma(\mathbf{\Theta}_r \star [\mathbf{X}, \mathbf{H}] + \mathbf{b}_r)

        \mathbf{U} &= \sigma(\mathbf{\Theta}_u \star [\mathbf{X}, \mathbf{H}] + \mathbf{b}_u)

        \mathbf{C} &= \tanh(\mathbf{\Theta}_c \star [\mathbf{X}, \mathbf{R} \odot \mathbf{H}]
        + \mathbf{b}_c)

        \mathbf{H}' &= \mathbf{U} \odot \mathbf{H} + (1 - \mathbf{U}) \odot \mathbf{C}

    With ``Walk(L, norm='target', direction='both')`` it is the cell of the `"Diffusion
    Convolutional Recurrent Neural Network" <https://arxiv.org/abs/1707.01926>`_ paper (section
    2.3). R and U are one convolution, C is another.

    ``reset_after=True`` resets the convolution of H instead of H, as :class:`torch.nn.GRUCell`,
    which it equals with ``Identity()``:

    .. math::
        \mathbf{C} = \tanh(\mathbf{\Theta}_c \star \mathbf{X} + \mathbf{b}_c
        + \mathbf{R} \odot (\mathbf{\Theta}'_c \star \mathbf{H} + \mathbf{b}'_c))

    R, U and C then are one convolution of X and one of H, each with a bias.

    Args:
        in_channels: P of each input, or -1 to derive it from the first input.
        out_channels: Q of the state.
        family: the family of the basis of all gates, or its text.
        reset_after: whether the state is reset after the convolution.
        **options: options of :class:`OuterConv`.

    Attributes:
        gates, candidate: the convolutions of [X, H] for (R, U), and of [X, R ⊙ H] for C.
        input, hidden: with ``reset_after``, those of X and of H for (R, U, C).

    Shapes:
        - **input:** :math:`(*, N, P)`, the structure, state :math:`(*, N, Q)` *(optional)*
        - **output:** state :math:`(*, N, Q)`

    Raises:
        TypeError, ValueError: see :class:`OuterConv`; and the state has another shape, or M ≠ N.
    """

    @typed
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        family: Family | str,
        reset_after: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, family, **options)
        self.reset_after = reset_after
        self.first = "input" if reset_after else "gates"
        if reset_after:
            self.input = self._gates(in_channels, 3)
            self.hidden = self._gates(out_channels, 3)
        else:
            self.gates = self._gates(self._joint_channels, 2)
            self.candidate = self._gates(self._joint_channels, 1)

    def step(self, x: Tensor, arguments: dict[str, Any], state: Tensor | None = None) -> Tensor:
        h = self._zeros(x) if state is None else self._checked(x, state)
        if self.reset_after:
            sizes = [2 * self.out_channels, self.out_channels]
            gates_x, c_x = self._convolve(self.input, arguments, x).split(sizes, dim=-1)
            gates_h, c_h = self._convolve(self.hidden, arguments, h).split(sizes, dim=-1)
            r, u = (gates_x + gates_h).sigmoid().chunk(2, dim=-1)
            c = (c_x + r * c_h).tanh()
        else:
            r, u = self._convolve(self.gates, arguments, x, h).sigmoid().chunk(2, dim=-1)
            c = self._convolve(self.candidate, arguments, x, r * h).tanh()
        return c + u * (h - c)


@row(
    "Ready-made layers",
    "Shi et al., *ConvLSTM* (1506.04214), equation 3",
    "`torch.nn.LSTMCell` on `Identity`",
)
class ConvLSTMCell(RecurrentCell[tuple[Tensor, Tensor]]):
    r"""Long short-term memory with convolutions :math:`\mathbf{\Theta} \star \mathbf{X} = \sum_k
    \mathbf{A}_k^{\top} \mathbf{X} \mathbf{\Theta}_k`, equation 3 of the `"Convolutional LSTM
    Network" <https://arxiv.org/abs/1506.04214>`_ paper.

    .. math::
        \mathbf{I} &= \sigma(\mathbf{\Theta}_i \star [\mathbf{X}, \mathbf{H}]
        + \mathbf{w}_i \odot \mathbf{C} + \mathbf{b}_i)

        \mathbf{F} &= \sigma(\mathbf{\Theta}_f \star [\mathbf{X}, \mathbf{H}]
        + \mathbf{w}_f \odot \mathbf{C} + \mathbf{b}_f)

        \mathbf{C}' &= \mathbf{F} \odot \mathbf{C} + \mathbf{I} \odot
        \tanh(\mathbf{\Theta}_c \star [\mathbf{X}, \mathbf{H}] + \mathbf{b}_c)

        \mathbf{O} &= \sigma(\mathbf{\Theta}_o \star [\mathbf{X}, \mathbf{H}]
        + \mathbf{w}_o \odot \mathbf{C}' + \mathbf{b}_o)

        \mathbf{H}' &= \mathbf{O} \odot \tanh(\mathbf{C}')

    With ``Grid(window, padding=...)`` on the cells of images it is the cell of that paper,
    with ``Identity()`` it equals :class:`torch.nn.LSTMCell`. All gates, in the order I, F, C, O,
    are one convolution.

    Args:
        in_channels: P of each input, or -1 to derive it from the first input.
        out_channels: Q of the state.
        family: the family of the basis of all gates, or its text.
        peephole: whether I, F and O read the memory by weights :math:`\mathbf{w}`, zeros at first;
            torch's cell has none.
        num_nodes: N, for peepholes with weights of each node and channel, as in the paper; None for
            weights of each channel.
        **options: options of :class:`OuterConv`.

    Attributes:
        gates: the convolution of [X, H], for (I, F, C, O).
        peephole: (3, Q) or (3, N, Q) for (I, F, O), or None.

    Shapes:
        - **input:** :math:`(*, N, P)`, the structure, state :math:`(\mathbf{H}, \mathbf{C})`, each
          :math:`(*, N, Q)` *(optional)*
        - **output:** state :math:`(\mathbf{H}', \mathbf{C}')`

    Raises:
        TypeError, ValueError: see :class:`OuterConv`; and the state has another shape, or M ≠ N; or
            ``num_nodes`` comes without peepholes.
    """

    first = "gates"

    @typed
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        family: Family | str,
        peephole: bool = False,
        num_nodes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, family, **options)
        self.gates = self._gates(self._joint_channels, 4)
        if num_nodes is not None:
            check_channels("num_nodes", num_nodes, 0)
            if not peephole:
                raise RefusedValue("num_nodes is the size of peepholes", "peephole=True", "False")
        self.num_nodes = num_nodes
        nodes = () if num_nodes is None else (num_nodes,)
        shape = (3, *nodes, out_channels)
        self.peephole = Parameter(torch.zeros(shape)) if peephole else None

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters; peepholes become zero."""
        super().reset_parameters()
        if self.peephole is not None:
            torch.nn.init.zeros_(self.peephole)

    def step(
        self, x: Tensor, arguments: dict[str, Any], state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = (self._zeros(x), self._zeros(x)) if state is None else self._pair(x, state)
        if self.num_nodes is not None and x.size(-2) != self.num_nodes:
            raise RefusedValue("peepholes of nodes are bound to these", self.num_nodes, x.size(-2))
        i, f, new, o = self._convolve(self.gates, arguments, x, h).chunk(4, dim=-1)
        if self.peephole is not None:
            i, f = i + self.peephole[0] * c, f + self.peephole[1] * c
        c = f.sigmoid() * c + i.sigmoid() * new.tanh()
        if self.peephole is not None:
            o = o + self.peephole[2] * c
        return o.sigmoid() * c.tanh(), c

    def _pair(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        if not isinstance(state, tuple | list) or len(state) != 2:
            raise RefusedType("the state of this cell is a pair", "(h, c)", type(state).__name__)
        return self._checked(x, state[0], "output"), self._checked(x, state[1], "memory")
