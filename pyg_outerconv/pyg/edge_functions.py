"""Layers whose matrices are functions of edge attributes: GMM, NN, PDN and SplineConv."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple, Union

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parameter import UninitializedParameter, is_lazy
from torch_geometric import nn as theirs
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import spline_conv
from torch_geometric.nn.dense import Linear
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils.repeat import repeat

from ..basis import EdgeBasis, Pattern
from ..errors import RefusedValue
from ..families import Kernel
from ..graph.graph import Graph
from ..memo import Memo
from ..nn.edge_functions import BSpline, GaussianMixture
from .gcn import normalised
from .layer import DropIn, Recipe, as_weighted, both, is_finite
from .reductions import reduction
from .tie import Source, linear, same

_patterns = Memo()


class GMMConv(DropIn, theirs.GMMConv):
    """Y = Σ_k A_kᵀ X Θ_k + X Θ_root, A_k[m, n] = exp(−½ (e_mn − μ_k)ᵀ Σ_k⁻¹ (e_mn − μ_k)) / d_n.

    Θ_k are the column blocks of ``g``, and d the in-degrees (1 with ``aggr='add'``).

    Unlike PyG's, it takes ``root_weight=False``.
    """

    trick = "Gaussians of edge attributes are the values of K labels."

    reductions = ("sum", "mean")
    takes_pairs = True
    takes_any_attributes = False
    least = 150_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        if self.separate_gaussians:
            reasons.append("separate_gaussians=True has a matrix for each pair of channels")
        return reasons

    def recipe(self) -> Recipe:
        sources = self.g.size(0)
        return self.convolution(
            Kernel(GaussianMixture(self.dim, self.kernel_size)),
            Source("column blocks of g", _column_blocks),
            linear("root") if self.root_weight else None,
            channels=(sources, self.root.in_channels if self.root_weight else sources),
            beside={"functions.0.mu": same("mu"), "functions.0.sigma": same("sigma")},
        )

    def _of_inputs(self, x: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, *args, **beside)
        edge_attr = beside.get("edge_attr")
        if edge_attr is None or edge_attr.dtype != both(x)[0].dtype:
            yield "edge attributes of another type than the features"

    def convolve(self, conv: Any, **arguments: Any) -> Tensor:
        return as_weighted(conv(**arguments), self, "mu")


def _column_blocks(layer: Any) -> Tensor:
    """Θ (K, P, Q) from ``g`` (P, K·Q)."""
    return layer.g.unflatten(1, (layer.kernel_size, -1)).transpose(0, 1)


class NNConv(DropIn, theirs.NNConv):
    """Y = Σ_k A_kᵀ X Θ_k + X Θ_root, with A_k[m, n] = h_k(e_mn).

    The network of edge attributes is nn(e) = W h(e) + b. Column k of W, as a matrix P × Q, is Θ_k,
    and b the Θ of one more label of value 1. So no matrix P × Q is computed for an edge.
    """

    trick = "The last linear map of the network is Θ, its inputs are the values of edges."

    reductions = ("sum", "mean")
    takes_pairs = True
    takes_any_attributes = False
    least = 20_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        if last_linear(self.nn) is None:
            reasons.append(
                "nn is neither a linear map nor a torch.nn.Sequential that ends with one"
            )
        return reasons

    def outside(self) -> list[str]:
        name = last_linear(self.nn)
        before = [f"nn.{part}" for part in self.nn._modules if part != name] if name else []
        return [f"h, the values of A: {', '.join(before)}"] if before else []

    def recipe(self) -> Recipe:
        name = last_linear(self.nn)
        assert name is not None  # else it lacks a linear map
        path = f"nn.{name}" if name else "nn"
        last: Any = self.nn.get_submodule(name)
        constant, sources = last.bias is not None, self.in_channels_l
        text = f"columns of {path}.weight" + constant * f", {path}.bias"
        return self.convolution(
            Kernel(_before_last(self, constant), last.weight.size(1) + constant),
            Source(text, _columns(path), (path,)),
            linear("lin") if self.root_weight else None,
            channels=(sources, self.lin.in_channels if self.root_weight else sources),
        )

    def skipped(self) -> list[Module]:
        return [*super().skipped(), self.nn]


_LINEAR = (torch.nn.Linear, theirs.Linear)


def last_linear(nn: Module) -> Optional[str]:
    """The name of the linear map that a network ends with; '' if it is the network."""
    if type(nn) in _LINEAR:
        return ""
    if type(nn) is torch.nn.Sequential and len(nn) and type(nn[-1]) in _LINEAR:
        return list(nn._modules)[-1]
    return None


def _before_last(layer: Any, constant: bool) -> Callable[[Tensor], Tensor]:
    """The network of a layer without its last linear map, and a constant 1 for the bias."""

    def values(edge_attr: Tensor) -> Tensor:
        nn = layer.nn
        for part in list(nn)[:-1] if isinstance(nn, torch.nn.Sequential) else ():
            edge_attr = part(edge_attr)
        if not constant:
            return edge_attr
        return torch.cat([edge_attr, edge_attr.new_ones(edge_attr.size(0), 1)], dim=1)

    return values


def _columns(path: str) -> Callable[[Any], Tensor]:
    """Θ (K, P, Q) from the weight (P·Q, K) and the bias (P·Q) of a linear map."""

    def of(layer: Any) -> Tensor:
        last = layer.get_submodule(path)
        rows = last.weight.t()
        if last.bias is not None:
            rows = torch.cat([rows, last.bias.unsqueeze(0)])
        return rows.reshape(rows.size(0), layer.in_channels_l, layer.out_channels)

    return of


class PDNConv(DropIn, theirs.PDNConv):
    """Y = Aᵀ X Θ, A = D^-1/2 (W + I) D^-1/2, with weights W_mn = σ(MLP(e_mn)) of the edges."""

    reductions = ("sum", "mean")
    takes_any_attributes = False
    transforms_first = True
    least = 100_000
    linear_map = torch.nn.Linear

    def outside(self) -> list[str]:
        parts = ", ".join(f"mlp.{name}" for name, _ in self.mlp.named_parameters())
        return [f"the weights W_mn = σ(MLP(e_mn)) of the edges, of {parts}"]

    def recipe(self) -> Recipe:
        return self.convolution(normalised(self), linear("lin"))

    def convolve(
        self, conv: Any, x: Tensor, edge_index: Adj, edge_attr: OptTensor = None
    ) -> Tensor:
        weight = None if edge_attr is None else self.mlp(edge_attr).squeeze(-1)
        if weight is not None and not is_finite(weight):
            return self.theirs.forward(self, x, edge_index, edge_attr)  # type: ignore[no-any-return]
        out = conv(x, edge_index, weight)
        return as_weighted(out, x) if self.normalize and weight is None else out

    def _of_inputs(self, x: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, *args, **beside)
        if beside.get("edge_attr") is None and not self.normalize:
            yield "no edge attributes"


# Splines ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalSplines(Kernel):
    r"""The matrices of :class:`BSpline`, of which an edge has the S = (m + 1)^D that are not zero.

    .. math:: A_k[m, n] = N_k(u_{mn}) / d_n

    with d the in-degree, all edges counted; without ``mean`` it is 1.
    """

    mean: bool = True

    def basis_on(self, edges: Graph, dtype: Optional[torch.dtype] = None) -> EdgeBasis:
        """Every edge under the labels of its splines; the pattern is kept as long as attributes."""
        edge_attr = edges.edge_attr
        assert isinstance(self.fn, BSpline)
        if edge_attr is None:
            raise RefusedValue("splines are of attributes", "edge_attr (E, D)", "None")
        which, value = self.fn.nonzero(edge_attr)
        if self.mean:
            count = torch.bincount(edges.target, minlength=edges.size[1]).to(value.dtype)
            value = value * count.reciprocal_().index_select(0, edges.target).unsqueeze(1)

        def make() -> Pattern:
            return Pattern.build(
                edges.edge_index.repeat_interleave(which.size(1), dim=1),
                which.flatten(),
                size=edges.size,
                num_labels=self.num_bases,
                origin=edges.origins().repeat_interleave(which.size(1)),
            )

        key = (self.fn.kernel_size, self.fn.degree, self.fn.is_open_spline, edges.size)
        pattern: Pattern = _patterns.get(key, make, edges.edge_index, edge_attr)
        return pattern.with_values(pattern.sort_values(value.flatten()))


class SplineConv(DropIn, theirs.SplineConv):
    """Y = Σ_k A_kᵀ X Θ_k + X Θ_root, A_k[m, n] = N_k(e_mn) / d_n, N_k products of B-splines.

    K is the product of ``kernel_size``, and an edge has (degree + 1)^dim of these labels.

    It needs no pyg-lib, except where PyG's own ``forward`` runs: for explainers and hooks, sparse
    matrices, and options that :meth:`lacks` names.

    Raises:
        ValueError: when called, an attribute is outside [0, 1], or PyG's ``forward`` would run, and
            there is no pyg-lib.
    """

    trick = "B-splines of edge attributes are the values of K labels."

    reductions = ("sum", "mean")
    takes_pairs = True

    def __init__(
        self,
        in_channels: Union[int, Tuple[int, int]],  # noqa: UP006
        out_channels: int,
        dim: int,
        kernel_size: Union[int, List[int]],  # noqa: UP006
        is_open_spline: bool = True,
        degree: int = 1,
        aggr: str = "mean",
        root_weight: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ):
        # PyG's own constructor refuses to run without pyg-lib.
        MessagePassing.__init__(self, aggr=aggr, **kwargs)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.dim, self.degree, self.root_weight = dim, degree, root_weight
        sizes = torch.tensor(repeat(kernel_size, dim), dtype=torch.long)
        self.register_buffer("kernel_size", sizes)
        is_open = torch.tensor(repeat(is_open_spline, dim), dtype=torch.uint8)
        self.register_buffer("is_open_spline", is_open)
        self.K = int(sizes.prod())
        sources, targets = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        self.weight: Parameter
        if sources > 0:
            self.weight = Parameter(torch.empty(self.K, sources, out_channels))
        else:
            self.weight = UninitializedParameter()  # type: ignore[assignment]
            self._hook = self.register_forward_pre_hook(self.initialize_parameters)
        if root_weight:
            self.lin = Linear(targets, out_channels, bias=False, weight_initializer="uniform")
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        if self.degree not in (1, 2, 3) or int(self.kernel_size.min()) <= self.degree:
            reasons.append("splines have degree 1, 2 or 3 and more pieces than their degree")
        return reasons

    def recipe(self) -> Recipe:
        sources, sizes = self.weight.size(1), self.kernel_size.tolist()
        splines = BSpline(sizes, self.degree, self.is_open_spline.bool().tolist())
        return self.convolution(
            LocalSplines(splines, mean=reduction(self) == "mean"),
            same("weight"),
            linear("lin") if self.root_weight else None,
            channels=(sources, self.lin.in_channels if self.root_weight else sources),
            aggr="sum",  # the family divides by degrees: an edge has several labels
        )

    def _is_recorded(self) -> bool:
        return spline_conv.spline_basis is not None and super()._is_recorded()

    def _runs(self, arguments: Mapping[str, Any]) -> Any:
        if self.root_weight and is_lazy(self.lin.weight):
            self.lin.initialize_parameters(self.lin, (both(arguments["x"])[1],))
        conv = super()._runs(arguments)
        if conv is None and spline_conv.spline_basis is None:
            reasons = "; ".join(self.why_not(**arguments))
            raise RefusedValue("without pyg-lib SplineConv is a contraction alone", "one", reasons)
        return conv
