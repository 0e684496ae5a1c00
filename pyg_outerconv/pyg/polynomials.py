"""Layers over polynomials of one matrix: ChebConv, SGConv, SSGConv, TAGConv, MixHopConv, APPNP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor

from ..basis import CHEBYSHEV, EdgeBasis, Polynomial
from ..basis.edges import edge_basis
from ..families import Chebyshev, Diffusion, Walk
from ..nn import OuterConv
from .gcn import kept_edges, listed, normalised_edges
from .layer import DropIn, Recipe, as_linear, is_finite
from .propagation import Propagation
from .reductions import check_reduction
from .tie import Source, linear, same

_NORMS = {"sym": "sym", "rw": "source", None: None}


def of_lins(layer: Any, powers: Any) -> dict[str, Source]:
    """Θ_k from the linear maps of some powers, and the bias where there is one."""
    sources = {"theta.weight": linear(*(f"lins.{power}" for power in powers))}
    return {**sources, "bias": same("bias")} if layer.bias is not None else sources


class ChebConv(DropIn, theirs.ChebConv):
    r"""Y = Σ_k T_k(L̂)ᵀ X Θ_k, k < K, with L̂ = 2L/λ − I and L the Laplacian.

    λ is ``lambda_max``, or twice the largest entry of L. From the `"Convolutional Neural Networks
    on Graphs with Fast Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_ paper,
    equations 4 and 5.
    """

    least = 20_000

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def recipe(self) -> Recipe:
        count = len(self.lins)
        conv = OuterConv(
            self.lins[0].in_channels,
            self.out_channels,
            Chebyshev(count, norm=_NORMS[self.normalization], as_pyg=True),
            bias=self.bias is not None,
            flow=self.flow,
        )
        return conv, of_lins(self, range(count))

    def _of_inputs(
        self, x: Any, edge_index: Any, edge_weight: OptTensor = None, **beside: Any
    ) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, edge_weight)
        largest = beside.get("lambda_max")
        if isinstance(largest, Tensor) and not is_finite(largest):
            yield "a lambda_max that is not finite"

    def convolve(
        self,
        conv: Any,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: OptTensor = None,
        batch: OptTensor = None,
        lambda_max: OptTensor = None,
    ) -> Tensor:
        if lambda_max is None and self.flow == "source_to_target":
            return conv(x, edge_index, edge_weight)
        num_nodes = x.size(-2)
        edge_index, value = self.__norm__(
            edge_index, num_nodes, edge_weight, self.normalization, lambda_max, x.dtype, batch
        )
        rescaled = edge_basis(listed(self, edge_index, value, num_nodes))
        return conv(x, Polynomial(rescaled, CHEBYSHEV, len(self.lins)))


class SGConv(DropIn, theirs.SGConv):
    r"""Y = (Tᴷ)ᵀ X Θ with T the normalised adjacency matrix of GCN; ``cached`` keeps (Tᴷ)ᵀ X.

    From the `"Simplifying Graph Convolutional Networks" <https://arxiv.org/abs/1902.07153>`_
    paper, equation 8.
    """

    _cached_x: Tensor | None
    least = 128_000

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def recipe(self) -> Recipe:
        family = Walk(
            self.K, "sym", powers=(self.K,), add_self_loops=self.add_self_loops, as_pyg=True
        )
        return _of_one_lin(self, family)

    def outside(self) -> list[str]:
        return ["the linear map of what is cached"] if self.cached else []

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if not self.cached:
            return as_linear(conv(x, edge_index, edge_weight))
        return _of_cached(self, "_cached_x", conv, x, edge_index, edge_weight)


class SSGConv(DropIn, theirs.SSGConv):
    r"""Y = (α I + (1 − α)/K Σ_k Tᵏ)ᵀ X Θ, 1 ≤ k ≤ K, T as in GCN; ``cached`` keeps the factor of Θ.

    From the `"Simple Spectral Graph Convolution"
    <https://openreview.net/forum?id=CYO5T-YjWZV>`_ paper.
    """

    _cached_h: Tensor | None
    least = 50_000

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def recipe(self) -> Recipe:
        weights = (self.alpha, *((1 - self.alpha) / self.K for _ in range(self.K)))
        family = Diffusion(weights, norm="sym", add_self_loops=self.add_self_loops, as_pyg=True)
        return _of_one_lin(self, family)

    def outside(self) -> list[str]:
        return ["the linear map of what is cached"] if self.cached else []

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if not self.cached:
            return as_linear(conv(x, edge_index, edge_weight))
        return _of_cached(self, "_cached_h", conv, x, edge_index, edge_weight)


def _of_cached(layer: Any, name: str, conv: Any, *given: Any) -> Tensor:
    """The linear map of what the first call propagated, which the layer keeps under ``name``."""
    kept = getattr(layer, name)
    if kept is None:
        kept = conv(*given)
        setattr(layer, name, kept)
    else:
        kept = kept.detach()
    return layer.lin(kept)  # type: ignore[no-any-return]


def _of_one_lin(layer: Any, family: Walk | Diffusion) -> Recipe:
    """The convolution with the one linear map of a layer; without it where its input is cached."""
    if layer.cached:
        return Propagation(family, flow=layer.flow), {}
    bias = layer.lin.bias is not None
    conv = OuterConv(layer.lin.in_channels, layer.out_channels, family, bias=bias, flow=layer.flow)
    sources = {"theta.weight": linear("lin")}
    return conv, {**sources, "bias": same("lin.bias")} if bias else sources


class TAGConv(DropIn, theirs.TAGConv):
    r"""Y = Σ_k (Tᵏ)ᵀ X Θ_k, 0 ≤ k ≤ K, with T = D^-1/2 W D^-1/2, or W without ``normalize``.

    From the `"Topology Adaptive Graph Convolutional Networks"
    <https://arxiv.org/abs/1710.10370>`_ paper.
    """

    least = 80_000

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def recipe(self) -> Recipe:
        conv = OuterConv(
            self.lins[0].in_channels,
            self.out_channels,
            Walk(len(self.lins) - 1, "sym" if self.normalize else None, as_pyg=True),
            bias=self.bias is not None,
            flow=self.flow,
        )
        return conv, of_lins(self, range(len(self.lins)))

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        return conv(x, edge_index, edge_weight)


class MixHopConv(DropIn, theirs.MixHopConv):
    r"""Y = (Tᵖ)ᵀ X Θ_p for each of ``powers`` p, side by side, with T as in GCN.

    From the `"MixHop: Higher-Order Graph Convolutional Architectures via Sparsified Neighborhood
    Mixing" <https://arxiv.org/abs/1905.00067>`_ paper, equation 2.
    """

    least = 80_000

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def unused(self) -> tuple[str, ...]:
        return tuple(f"lins.{p}." for p in range(len(self.lins)) if p not in self.powers)

    def recipe(self) -> Recipe:
        powers = tuple(self.powers)
        loops = self.add_self_loops
        conv = OuterConv(
            self.lins[powers[0]].in_channels,
            self.out_channels * len(powers),
            Walk(max(powers), "sym", powers=powers, add_self_loops=loops, as_pyg=True),
            bias=self.bias is not None,
            theta="columns",
            flow=self.flow,
        )
        return conv, of_lins(self, powers)

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if x.dim() > 2:
            return conv(x, edge_index, edge_weight)
        walks = conv.basis(x, edge_index, edge_weight).propagate(x)  # (N, powers, P)
        parts = [self.lins[p](h) for p, h in zip(self.powers, walks.unbind(1), strict=True)]
        out = torch.cat(parts, dim=-1)
        return out if self.bias is None else out + self.bias


class APPNP(DropIn, theirs.APPNP):
    r"""Y = (Σ_k α(1 − α)ᵏ Tᵏ + (1 − α)ᴷ Tᴷ)ᵀ X, k < K, with T as in GCN.

    While training, ``dropout`` draws other edges of T for each of the K steps. From the `"Predict
    then Propagate: Graph Neural Networks meet Personalized PageRank"
    <https://arxiv.org/abs/1810.05997>`_ paper, equation 4.
    """

    least = 16_000

    def lacks(self) -> list[str]:
        return check_reduction(self, "sum")

    def recipe(self) -> Recipe:
        stays = 1 - self.alpha
        weights = (*(self.alpha * stays**k for k in range(self.K)), stays**self.K)
        norm = "sym" if self.normalize else None
        loops = self.add_self_loops and self.normalize
        family = Diffusion(weights, norm=norm, add_self_loops=loops, as_pyg=True)
        return Propagation(family, flow=self.flow), {}

    def outside(self) -> list[str]:
        return ["dropout of the edges of each step"] if self.dropout > 0 else []

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if self.dropout > 0 and self.training:
            return self._of_drawn_edges(conv, x, edge_index, edge_weight)
        edge_index, edge_weight = kept_edges(self, conv, x, edge_index, edge_weight)
        return conv(x, edge_index, edge_weight)

    def _of_drawn_edges(
        self, conv: Propagation, x: Tensor, edge_index: Tensor, edge_weight: OptTensor
    ) -> Tensor:
        """X ← (1 − α) T_kᵀ X + α X₀ for K steps, T_k with fewer and fewer edges."""
        edge_index, edge_weight = normalised_edges(self, x, edge_index, edge_weight)
        assert edge_weight is not None
        step, out = edge_basis(listed(self, edge_index, edge_weight, x.size(-2))), x
        for _ in range(self.K):
            edge_weight = F.dropout(edge_weight, p=self.dropout)
            drawn = EdgeBasis.of_list(step.pattern, edge_weight)
            out = conv(out, drawn) * (1 - self.alpha) + self.alpha * x
        return out
