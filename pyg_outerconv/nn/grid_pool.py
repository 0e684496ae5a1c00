"""GridPool reduces clusters of cells, and GridUnpool copies clusters to their cells."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.grid_shift import GridShift
from ..contract import ContractionPath, contraction_path
from ..contract.plan import check_memory, check_order, solve
from ..contract.problem import Problem
from ..errors import RefusedValue
from ..families import Pool
from ..graph.cells import check_shape
from ..graph.checks import check_dense
from ..memo import Memo
from ..signatures import typed
from ..theta import Theta, ThetaValue, scaled
from .call import check_given
from .checks import COMPARISONS, aggregation
from .grid_images import GRIDS, as_cells, as_images, shape_of, shifts_of

Sizes = int | tuple[int, ...]


class _Clusters(torch.nn.Module):
    """A layer without parameters over the clusters of a grid."""

    def __init__(self, family: Pool, order: str | None, max_memory: int | None) -> None:
        super().__init__()
        check_order(order)
        check_memory(max_memory)
        self.family = family
        _ = family.taps  # cached now, because a compiler could not compute it
        self.order, self.max_memory = order, max_memory
        self._rules = Memo(GRIDS)

    @abstractmethod
    def _parameter(self, basis: Basis, x: Tensor) -> tuple[ThetaValue, str]:
        """Θ for nodes (*, M, C), and the reduction over sources and over labels."""

    def _contract(self, basis: Basis, x: Tensor) -> Tensor:
        """Nodes (*, M, C) to (*, N, C)."""
        theta, aggr = self._parameter(basis, x)
        problem = Problem(basis, x.movedim(-2, 0), theta, aggr, aggr)
        return solve(problem, self.order, self.max_memory).movedim(0, -2)

    def _path(self, basis: Basis, x: Tensor, verbose: bool) -> ContractionPath:
        theta, aggr = self._parameter(basis, x)
        nodes, options = x.movedim(-2, 0), {"aggr": aggr, "label_aggr": aggr}
        return contraction_path(
            basis,
            nodes,
            theta,
            self.order,
            max_memory=self.max_memory,
            verbose=verbose,
            **options,
        )

    def extra_repr(self) -> str:
        """The family."""
        return str(self.family)


class GridPool(_Clusters):
    r"""Pooling of images, sequences and volumes: equation 5 of the `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_ paper, with a label for each cell of a cluster.

    .. math::
        \mathbf{y}_n = \bigoplus_k \, (\mathbf{A}_k^{\top} \mathbf{X})_n

    On images it equals :class:`torch.nn.MaxPool2d`, :class:`~torch.nn.AvgPool2d` and the like, and
    uses their kernels where these are faster. It also takes any number of axes, and grids with
    missing cells. Of several largest cells the first gets the gradient, as in torch; if you pass
    a basis, the one with the lowest label does.

    Args:
        kernel_size, stride, padding, dilation, ceil_mode, dim: see
            :class:`~pyg_outerconv.families.Pool`.
        aggr: reduction over the cells of a cluster: ``'max'``, ``'min'``, ``'sum'`` or ``'mean'``.
            Missing cells are ignored by the first two, and zeros in the others.
        count_include_pad: whether a mean divides by the size of the cluster with padding and
            missing cells, or by the number of existing cells. Cells beyond the padding in
            ``ceil_mode`` are never counted.
        order, max_memory: see :class:`OuterConv`.

    Shapes:
        - **input:** images :math:`(*, C, M_1, \ldots, M_D)`; or node features :math:`(*, M, C)`
          and their cells
        - **output:** images :math:`(*, C, N_1, \ldots, N_D)`; or node features :math:`(*, N, C)`
          of the cells ``layer.family.outputs(cells)``

    Raises:
        ValueError: an option is unknown or out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """

    @typed
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        aggr: str = "max",
        count_include_pad: bool = True,
        dim: int | None = None,
        order: str | None = None,
        max_memory: int | None = None,
    ) -> None:
        aggr = aggregation("aggr", aggr)
        family = Pool(kernel_size, stride, padding, dilation, ceil_mode, dim)
        super().__init__(family, order, max_memory)
        self.aggr, self.count_include_pad = aggr, count_include_pad

    def forward(self, x: Tensor, cells: Any = None) -> Tensor:
        """Runs the layer.

        Args:
            x: images, or features of nodes at ``cells``.
            cells: the :class:`Cells` of nodes, a mask of them, or the shape of the grid; or the
                basis of their clusters.
        """
        if cells is not None:
            return self._reduce(self._basis(cells, x), x)
        rule = self.rule(x)
        return as_images(self._reduce(rule, as_cells(x, len(rule.axes))), rule.output_shape)

    def contraction_path(
        self, x: Tensor, cells: Any = None, *, verbose: bool = False
    ) -> ContractionPath:
        """The contraction order for these arguments, and the cost of every order."""
        if cells is not None:
            return self._path(self._basis(cells, x), x, verbose)
        rule = self.rule(x)
        return self._path(rule, as_cells(x, len(rule.axes)), verbose)

    def rule(self, images: Tensor) -> GridShift:
        """The clusters of the grid of images (*, C, *shape).

        Raises:
            TypeError: the images are not a floating point tensor.
            ValueError: they have too few dimensions, or the grid is too small for a cluster.
        """
        shape = shape_of(images, len(self.family.windows))
        key = self.family, shape, images.device
        return self._rules.get(key, lambda: _from_the_first(shifts_of(*key)))  # type: ignore[no-any-return]

    def _basis(self, cells: Any, x: Tensor) -> Basis:
        check_dense("nodes are pooled by their features", x, least=2)
        check_given(cells, x.device)
        if isinstance(cells, Basis):
            return cells
        basis = self.family.basis(cells, device=x.device)
        if self.aggr not in COMPARISONS:
            return basis
        if isinstance(basis, GridShift):
            return _from_the_first(basis)
        return basis.select(slice(None, None, -1))

    def _reduce(self, basis: Basis, x: Tensor) -> Tensor:
        """Nodes (*, M, C) to clusters (*, N, C)."""
        out, divisor = self._contract(basis, x), self._divisor(basis)
        return out if divisor is None else out / divisor.to(out.dtype).unsqueeze(-1)

    def _parameter(self, basis: Basis, x: Tensor) -> tuple[ThetaValue, str]:
        """Θ_k = I, or I / K for a mean over K cells; and the reduction."""
        theta: ThetaValue = Theta.identity(basis.num_bases, x.size(-1), x)
        if self.aggr == "mean" and not self._divides(basis):
            theta = scaled(theta, 1.0 / basis.num_bases)
        # A label has at most one cell of a cluster, so all reductions over inputs are equal.
        return theta, self.aggr if self.aggr in COMPARISONS else "sum"

    def _divides(self, basis: Basis) -> bool:
        """Whether it is a mean over clusters of several sizes."""
        if self.aggr != "mean" or not self.count_include_pad:
            return self.aggr == "mean"
        return isinstance(basis, GridShift) and self.family.ceil_mode

    def _divisor(self, basis: Basis) -> Tensor | None:
        """The numbers of cells of clusters (N,), if they differ; else None."""
        if not self._divides(basis):
            return None
        if not isinstance(basis, GridShift):
            target = basis.edges().index[1]
            return torch.bincount(target, minlength=basis.size[1]).clamp_(min=1)
        counts = torch.ones(1, dtype=torch.long, device=basis.device)
        for axis, window in zip(basis.axes, self.family.windows, strict=True):
            outputs = torch.arange(axis.num_outputs, device=basis.device)
            offsets = -torch.tensor(axis.shifts, device=basis.device)
            place = axis.stride * outputs.unsqueeze(1) + offsets  # (N_d, k)
            added = window.behind if self.count_include_pad else 0
            counted = (place >= -added) & (place < axis.num_inputs + added)
            counts = (counts.unsqueeze(1) * counted.sum(1)).flatten()
        return counts.clamp_(min=1)

    def extra_repr(self) -> str:
        """The family and the reduction."""
        return f"{self.family}, aggr={self.aggr!r}"


def _from_the_first(rule: GridShift) -> GridShift:
    """The rule with label 0 at the first cell; the family counts from the last cell."""
    return replace(rule, taps=rule.taps[::-1])


class GridUnpool(_Clusters):
    r"""Unpooling: the transpose of the sum over clusters.

    .. math::
        \mathbf{Y} = \sum_k \mathbf{A}_k \mathbf{X}

    Every cell receives the sum of the features of its clusters. On images whose clusters do not
    overlap it equals ``F.interpolate(mode='nearest')``.

    Args:
        kernel_size, stride, padding, dilation, dim: options of the pooling; see
            :class:`~pyg_outerconv.families.Pool`.
        order, max_memory: see :class:`OuterConv`.

    Shapes:
        - **input:** images :math:`(*, C, N_1, \ldots, N_D)`; or node features :math:`(*, N, C)` of
          clusters
        - **output:** images :math:`(*, C, M_1, \ldots, M_D)`; or node features :math:`(*, M, C)`

    Raises:
        ValueError: an option is out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """

    @typed
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        dim: int | None = None,
        order: str | None = None,
        max_memory: int | None = None,
    ) -> None:
        super().__init__(Pool(kernel_size, stride, padding, dilation, dim=dim), order, max_memory)

    def forward(
        self, x: Tensor, cells: Any = None, output_size: tuple[int, ...] | None = None
    ) -> Tensor:
        """Runs the layer.

        Args:
            x: images, or features of the clusters of ``cells``.
            cells: the :class:`Cells` of the output, a mask of them, or the shape of their grid; or
                the basis of their clusters.
            output_size: for images, the shape of the output, where several shapes have as many
                clusters; the smallest if None.
        """
        if cells is not None and output_size is not None:
            raise RefusedValue(
                "an output has the size of its cells", "cells or output_size", "both"
            )
        if cells is not None:
            return self._contract(self._basis(cells, x), x)
        rule = self.rule(x, output_size)
        return as_images(self._contract(rule, as_cells(x, len(rule.axes))), rule.output_shape)

    def contraction_path(
        self,
        x: Tensor,
        cells: Any = None,
        output_size: tuple[int, ...] | None = None,
        *,
        verbose: bool = False,
    ) -> ContractionPath:
        """The contraction order for these arguments, and the cost of every order."""
        if cells is not None:
            return self._path(self._basis(cells, x), x, verbose)
        rule = self.rule(x, output_size)
        return self._path(rule, as_cells(x, len(rule.axes)), verbose)

    def rule(self, images: Tensor, output_size: tuple[int, ...] | None = None) -> GridShift:
        """The transposed clusters of the grid of images (*, C, *shape).

        Raises:
            TypeError: the images are not a floating point tensor.
            ValueError: they have too few dimensions, or no such output has as many clusters.
        """
        windows, shape = self.family.windows, shape_of(images, len(self.family.windows))
        wanted = (
            tuple(w.num_inputs(count) for w, count in zip(windows, shape, strict=True))
            if output_size is None
            else check_shape(output_size)
        )
        key = self.family, wanted, images.device
        rule: GridShift = self._rules.get(key, lambda: shifts_of(*key).transpose())
        if rule.input_shape != shape:
            wrong = "the output's clusters must be the cells of the input"
            raise RefusedValue(wrong, shape, rule.input_shape)
        return rule

    def _basis(self, cells: Any, x: Tensor) -> Basis:
        check_dense("clusters are unpooled by their features", x, least=2)
        check_given(cells, x.device)
        basis = cells if isinstance(cells, Basis) else self.family.basis(cells, device=x.device)
        return basis.transpose()

    def _parameter(self, basis: Basis, x: Tensor) -> tuple[ThetaValue, str]:
        return Theta.identity(basis.num_bases, x.size(-1), x), "sum"
