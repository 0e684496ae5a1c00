"""Layers over polynomials of one matrix: ChebConv, SGConv, SSGConv, TAGConv, MixHopConv, APPNP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor

from ..basis import CHEBYSHEV, EdgeBasis, Polynomial
from ..basis.edges import edge_basis
from ..families import Chebyshev, Diffusion, Family, Walk
from .gcn import kept_edges, listed, normalised_edges
from .layer import DropIn, Recipe, as_linear, is_finite
from .reductions import Propagation
from .tie import linear

_NORMS = {"sym": "sym", "rw": "source", None: None}


class ChebConv(DropIn, theirs.ChebConv):
    """Y = Σ_k T_k(L̂)ᵀ X Θ_k, k < K, with L̂ = 2L/λ − I and L the Laplacian.

    λ is ``lambda_max``, or twice the largest entry of L.
    """

    least = 20_000

    def recipe(self) -> Recipe:
        count = len(self.lins)
        family = Chebyshev(count, norm=_NORMS[self.normalization], as_pyg=True)
        return self.convolution(family, linear(*(f"lins.{k}" for k in range(count))))

    def outside(self) -> list[str]:
        is_along = self.flow == "source_to_target"
        return [] if is_along else ["L, whose degrees are those of the other ends with this flow"]

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        if not is_finite(beside.get("lambda_max")):
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


class OfOneMap(DropIn):
    """A layer whose one linear map follows the propagation, which it may keep of the first call."""

    cached_as: ClassVar[str]
    """The attribute that keeps it."""

    def family(self) -> Family:
        """The matrix that the features are multiplied with."""
        raise NotImplementedError

    def recipe(self) -> Recipe:
        if self.cached:
            return Propagation(self.family(), flow=self.flow), {}
        return self.convolution(self.family(), linear("lin"), bias="lin.bias")

    def outside(self) -> list[str]:
        return ["the linear map of what is cached"] if self.cached else []

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None
    ) -> Tensor:
        if not self.cached:
            return as_linear(conv(x, edge_index, edge_weight))
        propagated = getattr(self, self.cached_as)
        if propagated is None:
            propagated = conv(x, edge_index, edge_weight)
            setattr(self, self.cached_as, propagated)
        else:
            propagated = propagated.detach()
        return self.lin(propagated)  # type: ignore[no-any-return]


class SGConv(OfOneMap, theirs.SGConv):
    """Y = (Tᴷ)ᵀ X Θ with T the normalised adjacency matrix of GCN; ``cached`` keeps (Tᴷ)ᵀ X."""

    cached_as = "_cached_x"
    least = 128_000

    def family(self) -> Family:
        loops = self.add_self_loops
        return Walk(self.K, "sym", powers=(self.K,), add_self_loops=loops, as_pyg=True)


class SSGConv(OfOneMap, theirs.SSGConv):
    """Y = H Θ, H = (α I + (1 − α)/K Σ_k Tᵏ)ᵀ X, 1 ≤ k ≤ K, T as in GCN; ``cached`` keeps H."""

    cached_as = "_cached_h"
    least = 50_000

    def family(self) -> Family:
        weights = (self.alpha, *((1 - self.alpha) / self.K for _ in range(self.K)))
        return Diffusion(weights, norm="sym", add_self_loops=self.add_self_loops, as_pyg=True)


class TAGConv(DropIn, theirs.TAGConv):
    """Y = Σ_k (Tᵏ)ᵀ X Θ_k, 0 ≤ k ≤ K, with T = D^-1/2 W D^-1/2, or W without ``normalize``."""

    least = 80_000

    def recipe(self) -> Recipe:
        count = len(self.lins)
        family = Walk(count - 1, "sym" if self.normalize else None, as_pyg=True)
        return self.convolution(family, linear(*(f"lins.{k}" for k in range(count))))


class MixHopConv(DropIn, theirs.MixHopConv):
    """Y = (Tᵖ)ᵀ X Θ_p for each of ``powers`` p, side by side, with T as in GCN."""

    least = 80_000

    def unused(self) -> tuple[str, ...]:
        return tuple(f"lins.{p}." for p in range(len(self.lins)) if p not in self.powers)

    def recipe(self) -> Recipe:
        powers, loops = tuple(self.powers), self.add_self_loops
        return self.convolution(
            Walk(max(powers), "sym", powers=powers, add_self_loops=loops, as_pyg=True),
            linear(*(f"lins.{p}" for p in powers)),
            form="columns",
            out_channels=self.out_channels * len(powers),
        )

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
    """Y = (Σ_k α(1 − α)ᵏ Tᵏ + (1 − α)ᴷ Tᴷ)ᵀ X, k < K, with T as in GCN.

    While training, ``dropout`` draws other edges of T for each of the K steps.
    """

    least = 16_000

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
