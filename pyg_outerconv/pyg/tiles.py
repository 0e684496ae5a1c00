"""Sums of messages that are no matrix products, tile by tile: no tensor of edges × channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch_geometric import EdgeIndex

from ..graph.checks import check_range
from ..kernels.edge_lists import by_rows
from ..kernels.primitive import is_lean, is_plain

TILE = 2**17
"""Numbers of messages that are held at a time; with their rows and derivatives they fit a cache."""


class Message:
    """The messages (T, C) of T edges, from a tensor of T rows for each operand, and from weights.

    A subclass may compute a tile in the memory of the rows of sources and targets, which are
    copies, and its gradients by a formula.

    Args:
        function: of torch, without random numbers and without tensors of its own.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function

    def __call__(self, *rows: Tensor) -> Tensor:
        return self.function(*rows)

    def tile(self, rows: list[Tensor]) -> Tensor:
        """The messages, without derivatives."""
        return self(*rows)

    def gradients(
        self, rows: list[Tensor], grad: Tensor, wanted: Sequence[int]
    ) -> Sequence[Tensor | None]:
        """The gradients of the wanted operands."""
        rows = [row.detach() for row in rows]
        inputs = [rows[place].requires_grad_() for place in wanted]
        with torch.enable_grad():
            sent = self(*rows)
        return torch.autograd.grad(sent, inputs, grad, allow_unused=True)


class Operands(NamedTuple):
    """The tensors that messages are made of, by where their rows are found.

    Attributes:
        source: tensors (M, *), of which an edge reads the row of its source.
        target: tensors (N, *), of which it reads the row of its target.
        edge: tensors (E, *), of which it reads its own row.
        shared: tensors that all edges read as they are, such as weights.
    """

    source: tuple[Tensor, ...] = ()
    target: tuple[Tensor, ...] = ()
    edge: tuple[Tensor, ...] = ()
    shared: tuple[Tensor, ...] = ()


def message_sums(
    message: Message,
    edge_index: Tensor,
    num_targets: int,
    operands: Operands,
    channels: int,
) -> Tensor:
    r"""Sum messages at their targets.

    .. math:: Y_n = \sum_{e: m \to n} f(s_m, t_n, u_e, w)

    Messages are computed for a tile of edges at a time, and again in the backward pass, so that
    ``TILE`` numbers of them are held. A backward pass that is differentiated itself, forward mode,
    ``torch.func`` and compilers hold all messages.

    Args:
        message: f.
        edge_index: (2, E) sources and targets.
        num_targets: N.
        operands: s, t, u and w; f takes them in this order.
        channels: C, the number of channels of a message.

    Returns:
        (N, C), zero for targets without edges.
    """
    tensors = [tensor for group in operands for tensor in group]
    counts = [len(group) for group in operands]
    if not (is_lean() and is_plain(*tensors)):
        return _all_at_once(message, edge_index, num_targets, counts, tensors, channels)
    return _MessageSums.apply(message, edge_index, num_targets, counts, channels, *tensors)  # type: ignore[no-any-return]


def sorted_by_target(edge_index: Tensor, num_targets: int) -> Tensor:
    """The edges (2, E) in the order of their targets, so that rows of targets are read in turn.

    Raises:
        ValueError: a target is out of range.
    """
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()  # whose rows numpy cannot read
    source, target = edge_index
    check_range("target of a pattern", target, num_targets)
    _, source, order = by_rows(target, source, num_targets)
    return torch.stack([source, target.index_select(0, order)])


def _all_at_once(
    message: Message,
    edge_index: Tensor,
    num_targets: int,
    counts: Sequence[int],
    tensors: Sequence[Tensor],
    channels: int,
) -> Tensor:
    """The sums by operations of torch, which hold all messages."""
    every = slice(0, edge_index.size(1))
    sent = message(*_rows(edge_index, every, counts, tensors))
    return sent.new_zeros((num_targets, channels)).index_add(0, edge_index[1], sent)


def _rows(
    edge_index: Tensor, tile: slice, counts: Sequence[int], tensors: Sequence[Tensor]
) -> list[Tensor]:
    """The rows of operands that the edges of a tile read, and the shared tensors."""
    return [
        tensor.index_select(0, edge_index[place, tile])
        if place < 2
        else tensor[tile]
        if place == 2
        else tensor
        for place, tensor in zip(_places(counts), tensors, strict=True)
    ]


class _Buffers:
    """Memory for the rows of a tile, used again by the next: fresh memory is slow."""

    def __init__(self) -> None:
        self._held: dict[int, Tensor] = {}

    def gathered(self, number: int, x: Tensor, index: Tensor) -> Tensor:
        """``x[index]`` in the buffer of that number; the first tile is the longest."""
        buffer = self._held.get(number)
        if buffer is None:
            buffer = self._held[number] = x.new_empty((index.numel(), *x.shape[1:]))
        return torch.index_select(x, 0, index, out=buffer[: index.numel()])

    def rows(
        self, edge_index: Tensor, tile: slice, counts: Sequence[int], tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        """:func:`_rows`, without derivatives."""
        found = []
        for number, (place, tensor) in enumerate(zip(_places(counts), tensors, strict=True)):
            if place < 2:
                tensor = self.gathered(number, tensor, edge_index[place, tile])
            found.append(tensor[tile] if place == 2 else tensor)
        return found


def _places(counts: Sequence[int]) -> list[int]:
    """The number of the group of each operand."""
    return [place for place, count in enumerate(counts) for _ in range(count)]


def _tiles(num_edges: int, channels: int) -> list[slice]:
    step = max(1, TILE // max(1, channels))
    return [slice(start, start + step) for start in range(0, num_edges, step)]


class _MessageSums(Function):
    """:func:`message_sums` in tiles; the gradient of a tile is that of torch."""

    @staticmethod
    def forward(
        ctx: Any,
        message: Message,
        edge_index: Tensor,
        num_targets: int,
        counts: list[int],
        channels: int,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(edge_index, *tensors)
        ctx.rest = message, num_targets, counts, channels
        out = torch.zeros((num_targets, channels), dtype=tensors[0].dtype, device=edge_index.device)
        buffers = _Buffers()
        for tile in _tiles(edge_index.size(1), channels):
            sent = message.tile(buffers.rows(edge_index, tile, counts, tensors))
            out.index_add_(0, edge_index[1, tile], sent.to(out.dtype))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        edge_index, *tensors = ctx.saved_tensors
        message, num_targets, counts, channels = ctx.rest
        wanted = [place for place, needed in enumerate(ctx.needs_input_grad[5:]) if needed]
        if torch.is_grad_enabled():  # it is differentiated itself
            out = _all_at_once(message, edge_index, num_targets, counts, tensors, channels)
            inputs = [tensors[place] for place in wanted]
            found = list(
                torch.autograd.grad(out, inputs, grad, create_graph=True, allow_unused=True)
            )
        else:
            found = _gradients(message, edge_index, counts, channels, tensors, wanted, grad)
        gradients: list[Tensor | None] = [None] * len(tensors)
        for place, one in zip(wanted, found, strict=True):
            gradients[place] = one
        return None, None, None, None, None, *gradients


def _gradients(
    message: Message,
    edge_index: Tensor,
    counts: Sequence[int],
    channels: int,
    tensors: Sequence[Tensor],
    wanted: Sequence[int],
    grad: Tensor,
) -> list[Tensor]:
    """The gradients of the wanted operands, tile by tile."""
    places = _places(counts)
    out = [torch.zeros_like(tensors[place]) for place in wanted]
    buffers = _Buffers()
    for tile in _tiles(edge_index.size(1), channels):
        rows = buffers.rows(edge_index, tile, counts, tensors)
        given = buffers.gathered(-1, grad, edge_index[1, tile])
        found = message.gradients(rows, given, wanted)
        for place, total, part in zip(wanted, out, found, strict=True):
            if part is None:
                continue
            if places[place] < 2:
                total.index_add_(0, edge_index[places[place], tile], part)
            elif places[place] == 2:
                total[tile] = part
            else:
                total += part
    return out
