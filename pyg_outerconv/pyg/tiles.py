"""Layers whose messages are not linear in x, summed tile by tile: GINEConv and FiLMConv.

There is no tensor of edges × channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.nn import Module, ModuleList
from torch_geometric import EdgeIndex
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, PairTensor, Size

from ..graph.checks import check_index, check_range
from ..kernels.edge_lists import by_rows, pointers
from ..kernels.primitive import is_lean, is_plain
from ..memo import Memo
from .layer import DropIn, Recipe, both
from .reductions import reduction

_sorted = Memo()

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

    ``message`` is f, which takes the operands s, t, u and w in this order, and has C channels.
    Returns (N, C), zero for targets without edges.
    """
    tensors = [tensor for group in operands for tensor in group]
    counts = [len(group) for group in operands]
    if not (is_lean() and is_plain(*tensors)):
        return _all_at_once(message, edge_index, num_targets, counts, tensors, channels)
    return _MessageSums.apply(message, edge_index, num_targets, counts, channels, *tensors)  # type: ignore[no-any-return]


def sorted_by_target(edge_index: Tensor, num_targets: int) -> Tensor:
    """The edges (2, E) in the order of their targets, so that rows of targets are read in turn."""
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
    rows = [
        tensor.index_select(0, edge_index[place]) if place < 2 else tensor
        for place, tensor in zip(_places(counts), tensors, strict=True)
    ]
    sent = message(*rows)
    return sent.new_zeros((num_targets, channels)).index_add(0, edge_index[1], sent)


class _Buffers:
    """Memory for the rows of a tile, used again by the next: fresh memory is slow."""

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def gathered(self, number: int, x: Tensor, index: Tensor) -> Tensor:
        """``x[index]`` in the buffer of that number; the first tile is the longest."""
        buffer = self._buffers.get(number)
        if buffer is None:
            buffer = self._buffers[number] = x.new_empty((index.numel(), *x.shape[1:]))
        return torch.index_select(x, 0, index, out=buffer[: index.numel()])

    def rows(
        self, edge_index: Tensor, tile: slice, counts: Sequence[int], tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        """The rows of operands that the edges of a tile read, and the shared tensors."""
        rows = []
        for number, (place, tensor) in enumerate(zip(_places(counts), tensors, strict=True)):
            if place < 2:
                tensor = self.gathered(number, tensor, edge_index[place, tile])
            rows.append(tensor[tile] if place == 2 else tensor)
        return rows


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
            grad_inputs = list(
                torch.autograd.grad(out, inputs, grad, create_graph=True, allow_unused=True)
            )
        else:
            grad_inputs = _gradients(message, edge_index, counts, channels, tensors, wanted, grad)
        gradients: list[Tensor | None] = [None] * len(tensors)
        for place, one in zip(wanted, grad_inputs, strict=True):
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
        grad_rows = buffers.gathered(-1, grad, edge_index[1, tile])
        parts = message.gradients(rows, grad_rows, wanted)
        for place, total, part in zip(wanted, out, parts, strict=True):
            if part is None:
                continue
            if places[place] < 2:
                total.index_add_(0, edge_index[places[place], tile], part)
            elif places[place] == 2:
                total[tile] = part
            else:
                total += part
    return out


# The layers ---------------------------------------------------------------------------------------


class SumInTiles(DropIn):
    """A layer that sums messages f(x_j, x_i, e_ji) tile by tile, with no contraction."""

    trick = "Messages are not linear in x: they are summed in tiles, the rest is torch's."

    reductions = ("sum", "mean")
    takes_pairs = True
    takes_batches = False

    def recipe(self) -> Recipe:
        return ModuleList(), {}

    def _reduce(
        self, message: Message, edge_index: Tensor, count: int, channels: int, operands: Operands
    ) -> Tensor:
        """The sums or means (N, C) of messages from sources to targets."""
        out = message_sums(message, edge_index, count, operands, channels)
        if reduction(self) == "sum":
            return out
        number = pointers(edge_index[1], count).diff().clamp_(min=1)
        return out / number.to(out.dtype).unsqueeze(1)

    def _turned(self, edge_index: Tensor) -> Tensor:
        """The edges with sources first."""
        check_index(edge_index)
        return edge_index.flip(0) if self.flow == "target_to_source" else edge_index


class GINEConv(SumInTiles, theirs.GINEConv):
    """Y = h((1 + ε) X + S), S_n = Σ_m relu(X_m + e_mn), with e Θ + b in the place of e if they
    have another width.

    The messages of E edges are never held: they are computed for a tile of edges at a time, and
    again in the backward pass.
    """

    least = 1_000_000

    def outside(self) -> list[str]:
        edge = "" if self.lin is None else "lin of "
        return [
            f"Y = nn((1 + eps) X + S), S_n = Σ_m relu(X_m + {edge}e_mn), in tiles of edges",
            *(f"nn.{name}" for name, _ in self.nn.named_parameters()),
        ]

    def skipped(self) -> list[Module]:
        return [*super().skipped(), *([] if self.lin is None else [self.lin])]

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, OptPairTensor],
        edge_index: Adj,
        edge_attr: OptTensor = None,
        size: Size = None,
    ) -> Tensor:
        assert edge_attr is not None  # else a reason says so
        source, target = both(x)
        shared = () if self.lin is None else (self.lin.weight, self.lin.bias)
        operands = Operands((source,), edge=(edge_attr,), shared=shared)
        count = _sizes(source, target, edge_index, size)[1]
        edges = self._turned(edge_index)
        out = self._reduce(ReluOfSum(), edges, count, source.size(1), operands)
        return self.nn(out if target is None else out + (1 + self.eps) * target)

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        source, target = both(x)
        edge_attr, size = beside.get("edge_attr"), beside.get("size")
        if edge_attr is None:
            yield "no edge attributes"
        elif edge_attr.dtype != source.dtype:
            yield f"edge attributes of type {edge_attr.dtype} for features of {source.dtype}"
        elif edge_attr.dim() != 2 or edge_attr.size(0) != edge_index.size(1):
            yield "attributes that are not a row for each edge"
        elif not self._fits(source.size(1), edge_attr.size(1)):
            yield "edge attributes of another width than the features"
        if size is not None and tuple(size) != _sizes(source, target, edge_index, size):
            yield "a size that is not that of the features"

    def _fits(self, channels: int, of_edges: int) -> bool:
        """Whether numbers of channels are those of messages; PyG refuses others."""
        if self.lin is None:
            return channels == of_edges
        return (of_edges, channels) == (self.lin.in_channels, self.lin.out_channels)


def _sizes(source: Tensor, target: OptTensor, edge_index: Tensor, size: Size) -> tuple[int, int]:
    """(M, N); without features and number of targets there are as many of them as sources."""
    if target is not None:
        return source.size(0), target.size(0)
    count = edge_index.sparse_size(1) if isinstance(edge_index, EdgeIndex) else None
    count = count if size is None else size[1]
    return source.size(0), source.size(0) if count is None else count


class ReluOfSum(Message):
    """relu(x + e), or relu(x + e Wᵀ + b), for rows x of sources and e of edges."""

    def __init__(self) -> None:
        super().__init__(lambda x, *edge: (x + _as_wide(*edge)).relu())

    def tile(self, rows: list[Tensor]) -> Tensor:
        """The messages, in the memory of x."""
        x, *edge = rows
        return x.add_(_as_wide(*edge)).relu_()

    def gradients(
        self, rows: list[Tensor], grad: Tensor, wanted: Sequence[int]
    ) -> Sequence[Optional[Tensor]]:
        """``grad`` where x + e is positive, and its products with W, e and ones."""
        x, *edge = rows
        summed = x.add_(_as_wide(*edge))
        write = torch.ops.aten.threshold_backward.grad_input
        of_sum: Tensor = write(grad, summed, 0.0, grad_input=summed)
        grad_inputs: list[Optional[Tensor]] = [of_sum, of_sum, None, None]
        if len(edge) == 3:
            attributes, weight, _ = edge
            if 1 in wanted:
                grad_inputs[1] = of_sum @ weight
            grad_inputs[2:] = of_sum.t() @ attributes, of_sum.sum(0)
        return [grad_inputs[place] for place in wanted]


def _as_wide(edge_attr: Tensor, weight: OptTensor = None, bias: OptTensor = None) -> Tensor:
    """Edge attributes as wide as the features."""
    return edge_attr if weight is None else F.linear(edge_attr, weight, bias)


_ACTIVATIONS = (
    torch.nn.CELU,
    torch.nn.ELU,
    torch.nn.GELU,
    torch.nn.Hardtanh,
    torch.nn.Identity,
    torch.nn.LeakyReLU,
    torch.nn.Mish,
    torch.nn.ReLU,
    torch.nn.ReLU6,
    torch.nn.SELU,
    torch.nn.SiLU,
    torch.nn.Sigmoid,
    torch.nn.Softplus,
    torch.nn.Tanh,
)
_FUNCTIONS = (
    torch.relu,
    torch.sigmoid,
    torch.tanh,
    F.elu,
    F.gelu,
    F.leaky_relu,
    F.relu,
    F.selu,
    F.silu,
    F.softplus,
)


class FiLMConv(SumInTiles, theirs.FiLMConv):
    """Y_n = Σ_r 1/|N_r(n)| Σ_m σ(γ_rn ⊙ X_m Θ_r + β_rn) + σ(γ_n ⊙ X_n Θ + β_n), (β, γ) = g(X_n).

    The messages of E edges are never held: they are computed for a tile of edges at a time, and
    again in the backward pass.
    """

    least = 5_000_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        is_supported = self.act is None or type(self.act) in _ACTIVATIONS or self.act in _FUNCTIONS
        return (
            reasons if is_supported else [*reasons, "act is not a known function of single numbers"]
        )

    def outside(self) -> list[str]:
        parts = [name for name, _ in self.named_parameters()]
        return [
            "Y = Σ_r S_r + act(γ ⊙ X Θ + β), S_r[n] = Σ_m act(γ_rn ⊙ X_m Θ_r + β_rn), by tiles",
            f"of {', '.join(parts)}",
        ]

    def skipped(self) -> list[Module]:
        return [*super().skipped(), *([self.act] if isinstance(self.act, Module) else [])]

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        if self.num_relations > 1 and beside.get("edge_type") is None:
            yield "no edge types"

    def convolve(
        self, conv: Any, x: Union[Tensor, PairTensor], edge_index: Adj, edge_type: OptTensor = None
    ) -> Tensor:
        several = self.num_relations > 1
        source, target = both(x)
        out = self._modulated(self.lin_skip(target), self.film_skip(target))
        message = Message(self._modulated)
        relations = self._relations(edge_index, edge_type if several else None, target.size(0))
        for lin, film, edges in zip(self.lins, self.films, relations, strict=True):
            operands = Operands((lin(source),), (film(target),))
            out = out + self._reduce(message, edges, target.size(0), self.out_channels, operands)
        return out

    def _relations(
        self, edge_index: Tensor, edge_type: OptTensor, num_targets: int
    ) -> list[Tensor]:
        """The edges of each relation, by target; kept as long as the edges and their types."""

        def make() -> list[Tensor]:
            edges = self._turned(edge_index)
            if edge_type is None:
                return [sorted_by_target(edges, num_targets)]
            each = [edges[:, edge_type == relation] for relation in range(self.num_relations)]
            return [sorted_by_target(one, num_targets) for one in each]

        key = (self.num_relations, num_targets, self.flow)
        return _sorted.get(key, make, edge_index, edge_type)  # type: ignore[no-any-return]

    def _modulated(self, x: Tensor, film: Tensor) -> Tensor:
        beta, gamma = film.chunk(2, dim=-1)
        out = torch.addcmul(beta, gamma, x)
        return out if self.act is None else self.act(out)
