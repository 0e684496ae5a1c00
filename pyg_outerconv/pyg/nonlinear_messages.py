"""Layers whose messages are not linear in the features, summed in tiles: GINEConv, FiLMConv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric import EdgeIndex
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, PairTensor, Size

from ..graph.checks import check_index
from ..kernels.edge_lists import pointers
from ..memo import Memo
from .layer import DropIn, Recipe, both
from .reductions import reduction
from .tiles import Message, Operands, message_sums, sorted_by_target

_sorted = Memo()


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
        """The edges with sources first.

        Raises:
            ValueError, TypeError: these are not edges.
        """
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
        found: list[Optional[Tensor]] = [of_sum, of_sum, None, None]
        if len(edge) == 3:
            attributes, weight, _ = edge
            if 1 in wanted:
                found[1] = of_sum @ weight
            found[2:] = of_sum.t() @ attributes, of_sum.sum(0)
        return [found[place] for place in wanted]


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
        found = super().lacks()
        known = self.act is None or type(self.act) in _ACTIVATIONS or self.act in _FUNCTIONS
        return found if known else [*found, "act is not a known function of single numbers"]

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
