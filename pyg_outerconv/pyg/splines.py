"""SplineConv: matrices that are products of B-splines of edge attributes, without pyg-lib."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple, Union

import torch
from torch.nn import Parameter
from torch.nn.parameter import UninitializedParameter, is_lazy
from torch_geometric import nn as theirs
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv import spline_conv
from torch_geometric.nn.dense import Linear
from torch_geometric.utils.repeat import repeat

from ..basis import EdgeBasis, Pattern
from ..errors import RefusedValue
from ..families import Kernel
from ..graph.graph import Graph
from ..memo import Memo
from ..nn.edge_functions import BSpline
from .layer import DropIn, Recipe, both
from .reductions import reduction
from .tie import linear, same

_patterns = Memo()


@dataclass(frozen=True)
class LocalSplines(Kernel):
    r"""The matrices of :class:`BSpline`, of which an edge has the S = (m + 1)^D that are not zero.

    .. math:: A_k[m, n] = N_k(u_{mn}) / d_n

    Args:
        fn (BSpline): the functions.
        mean (bool): whether d is the in-degree, all edges counted; else it is 1.
    """

    mean: bool = True

    def basis_on(self, edges: Graph, dtype: Optional[torch.dtype] = None) -> EdgeBasis:
        """Every edge under the labels of its splines; the pattern is kept as long as attributes."""
        given = edges.edge_attr
        assert isinstance(self.fn, BSpline)
        if given is None:
            raise RefusedValue("splines are of attributes", "edge_attr (E, D)", "None")
        which, value = self.fn.nonzero(given)
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
        pattern: Pattern = _patterns.get(key, make, edges.edge_index, given)
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
        found = super().lacks()
        if self.degree not in (1, 2, 3) or int(self.kernel_size.min()) <= self.degree:
            found.append("splines have degree 1, 2 or 3 and more pieces than their degree")
        return found

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

    def _runs(self, given: Mapping[str, Any]) -> Any:
        if self.root_weight and is_lazy(self.lin.weight):
            self.lin.initialize_parameters(self.lin, (both(given["x"])[1],))
        conv = super()._runs(given)
        if conv is None and spline_conv.spline_basis is None:
            reasons = "; ".join(self.why_not(**given))
            raise RefusedValue("without pyg-lib SplineConv is a contraction alone", "one", reasons)
        return conv
