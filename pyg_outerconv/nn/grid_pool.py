"""GridPool reduces clusters of cells, and GridUnpool copies clusters to their cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.grid_shift import GridShift
from ..contract import ContractionPath, contract, contraction_path
from ..contract.choose import check_memory, check_order
from ..errors import RefusedType, RefusedValue, refusal
from ..families import Pool
from ..graph.cells import check_shape
from ..theta import Mixture, ThetaValue, scaled
from .checks import COMPARISONS, aggregation
from .grid_rules import GridRules, as_cells, as_images, shape_of
from .inputs import check_given

Sizes = int | tuple[int, ...]


class GridPool(torch.nn.Module):
    r"""Pooling of images, sequences and volumes: equation 5 of the `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_ paper, with one label for each place of a cluster

    .. math::
        \mathbf{y}_n = \bigoplus_k \, (\mathbf{A}_k^{\top} \mathbf{X})_n

    On images it equals :class:`torch.nn.MaxPool2d`, :class:`~torch.nn.AvgPool2d` and their kin, and
    runs by their kernels where these are faster; but for any number of axes, and cells that are
    only partly there.

    Of equal largest cells the first of a cluster takes the gradient, as torch has it: labels are
    taken from the first cell on here, whereas those of the family count from the last. Of a basis
    that is given the lowest label does.

    Args:
        kernel_size, stride, padding, dilation, ceil_mode, dim: See
            :class:`~pyg_outerconv.families.Pool`.
        aggr (str, optional): The reduction over the cells of a cluster: :obj:`"max"`,
            :obj:`"min"`, :obj:`"sum"` or :obj:`"mean"`. Cells that are not there take no part in
            the first two, and are zeros of the others. (default: :obj:`"max"`)
        count_include_pad (bool, optional): Whether a mean divides by the size of the cluster,
            padding and missing cells included, or by the number of its cells that are there. What
            goes beyond the padding in :obj:`ceil_mode` is never counted. (default: :obj:`True`)
        order, max_memory: See :class:`~pyg_outerconv.nn.OuterConv`.

    Shapes:
        - **input:** images :math:`(*, C, M_1, \ldots, M_D)`; or node features :math:`(*, M, C)`
          and the cells that they are at
        - **output:** images :math:`(*, C, N_1, \ldots, N_D)`; or node features :math:`(*, N, C)`
          of the cells that ``layer.family.outputs(cells)`` lists

    Raises:
        ValueError: an option is unknown or out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """

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
        super().__init__()
        if not isinstance(count_include_pad, bool):
            raise RefusedType(
                refusal("count_include_pad is a switch", "True or False", repr(count_include_pad))
            )
        self.aggr = aggregation("aggr", aggr)
        check_order(order)
        check_memory(max_memory)
        self.family = Pool(kernel_size, stride, padding, dilation, ceil_mode, dim)
        _ = self.family.taps  # cached now, because a compiler could not compute it
        self.count_include_pad = count_include_pad
        self.order, self.max_memory = order, max_memory
        self._rules = GridRules()

    def forward(self, x: Tensor, cells: Any = None) -> Tensor:
        r"""Runs the layer.

        Args:
            x (torch.Tensor): Images, or node features if ``cells`` says where they are.
            cells (Cells or torch.Tensor or tuple or Basis, optional): The cells that nodes are at,
                a mask of them, or the shape of the grid; or the basis of their clusters.
        """
        if cells is not None:
            return self._reduce(self._basis(cells, x), x)
        rule = self.rule(x)
        return as_images(self._reduce(rule, as_cells(x, len(rule.axes))), rule.output_shape)

    def contraction_path(
        self, x: Tensor, cells: Any = None, *, verbose: bool = False
    ) -> ContractionPath:
        """The contraction order for these arguments, and the cost of every order."""
        basis = self.rule(x) if cells is None else self._basis(cells, x)
        nodes = as_cells(x, len(self.family.windows)) if cells is None else x
        theta, options = self._parameter(basis, nodes, self._divisor(basis))
        rows = nodes.movedim(-2, 0)
        return contraction_path(basis, rows, theta, self.order, verbose=verbose, **options)

    def _basis(self, cells: Any, x: Tensor) -> Basis:
        check_given(cells, x.device)
        if isinstance(cells, Basis):
            return cells
        basis = self.family.basis(cells, device=x.device)
        if self.aggr not in COMPARISONS:
            return basis
        if isinstance(basis, GridShift):
            return _from_the_first(basis)
        return basis.select(slice(None, None, -1))

    def rule(self, images: Tensor) -> GridShift:
        """The clusters of the grid that images (*, C, *shape) are on.

        Raises:
            TypeError: the images are no features.
            ValueError: they have too few dimensions, or the grid is too small for a cluster.
        """
        shape = shape_of(images, len(self.family.windows))
        return self._rules.get(self.family, shape, images.device, change=_from_the_first)

    def _reduce(self, basis: Basis, x: Tensor) -> Tensor:
        """Reduce nodes (*, M, C) to clusters (*, N, C)."""
        divisor = self._divisor(basis)
        theta, options = self._parameter(basis, x, divisor)
        out = contract(basis, x.movedim(-2, 0), theta, self.order, **options).movedim(0, -2)
        return out if divisor is None else out / divisor.to(out.dtype).unsqueeze(-1)

    def _parameter(
        self, basis: Basis, x: Tensor, divisor: Tensor | None
    ) -> tuple[ThetaValue, dict[str, Any]]:
        """Θ_k = I, or I / K for a mean without divisors, and the options of :func:`contract`."""
        theta: ThetaValue = Mixture.identity(basis.num_bases, x.size(-1), x)
        if self.aggr == "mean" and divisor is None:
            theta = scaled(theta, 1.0 / basis.num_bases)
        # A label has at most one cell of a cluster, so all reductions over inputs are equal.
        alike = self.aggr if self.aggr in COMPARISONS else "sum"
        return theta, {"aggr": alike, "label_aggr": alike, "max_memory": self.max_memory}

    def _divisor(self, basis: Basis) -> Tensor | None:
        """The divisors of the sums over clusters, (N,); None if it is 1, or K in a mean."""
        if self.aggr != "mean":
            return None
        windows = self.family.windows
        if not isinstance(basis, GridShift):
            if self.count_include_pad:
                return None
            target = basis.edges().index[1]
            return torch.bincount(target, minlength=basis.size[1]).clamp_(min=1)
        if self.count_include_pad and not self.family.ceil_mode:
            return None
        counts = torch.ones(1, dtype=torch.long, device=basis.device)
        for axis, window in zip(basis.axes, windows, strict=True):
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
    return replace(rule, taps=rule.taps[::-1], kept={})


class GridUnpool(torch.nn.Module):
    r"""Unpooling: the transpose of the sum over clusters

    .. math::
        \mathbf{Y} = \sum_k \mathbf{A}_k \mathbf{X}

    Every cell of a cluster receives the features of the cluster, and where clusters overlap, their
    sum. On images with clusters side by side it equals ``F.interpolate(mode='nearest')``.

    Args:
        kernel_size, stride, padding, dilation, dim: Options of the pooling whose transpose it is;
            see :class:`~pyg_outerconv.families.Pool`.
        order, max_memory: See :class:`~pyg_outerconv.nn.OuterConv`.

    Shapes:
        - **input:** images :math:`(*, C, N_1, \ldots, N_D)`; or node features :math:`(*, N, C)` of
          clusters
        - **output:** images :math:`(*, C, M_1, \ldots, M_D)`; or node features :math:`(*, M, C)`

    Raises:
        ValueError: an option is out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """

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
        super().__init__()
        check_order(order)
        check_memory(max_memory)
        self.family = Pool(kernel_size, stride, padding, dilation, dim=dim)
        _ = self.family.taps  # cached now, because a compiler could not compute it
        self.order, self.max_memory = order, max_memory
        self._rules = GridRules()

    def forward(
        self, x: Tensor, cells: Any = None, output_size: tuple[int, ...] | None = None
    ) -> Tensor:
        r"""Runs the layer.

        Args:
            x (torch.Tensor): Images, or node features if ``cells`` says where their clusters are.
            cells (Cells or torch.Tensor or tuple or Basis, optional): The cells of the output that
                were clustered, a mask of them, or their grid's shape; or the basis of the clusters.
            output_size (tuple, optional): For images, the grid of the output, where several have
                clusters of the input's size. (default: the smallest)
        """
        if cells is not None and output_size is not None:
            raise RefusedValue(
                refusal("an output has the size of its cells", "cells or output_size", "both")
            )
        if cells is not None:
            return self._spread(self._basis(cells, x), x)
        rule = self.rule(x, output_size)
        return as_images(self._spread(rule, as_cells(x, len(rule.axes))), rule.output_shape)

    def contraction_path(
        self,
        x: Tensor,
        cells: Any = None,
        output_size: tuple[int, ...] | None = None,
        *,
        verbose: bool = False,
    ) -> ContractionPath:
        """The contraction order for these arguments, and the cost of every order."""
        basis = self.rule(x, output_size) if cells is None else self._basis(cells, x)
        nodes = as_cells(x, len(self.family.windows)) if cells is None else x
        theta = Mixture.identity(basis.num_bases, nodes.size(-1), nodes)
        rows, most = nodes.movedim(-2, 0), self.max_memory
        return contraction_path(basis, rows, theta, self.order, max_memory=most, verbose=verbose)

    def _basis(self, cells: Any, x: Tensor) -> Basis:
        check_given(cells, x.device)
        basis = cells if isinstance(cells, Basis) else self.family.basis(cells, device=x.device)
        return basis.transpose()

    def rule(self, images: Tensor, output_size: tuple[int, ...] | None = None) -> GridShift:
        """The transposed clusters of the grid that images (*, C, *shape) are on.

        Raises:
            TypeError: the images are no features.
            ValueError: they have too few dimensions, or no such output has clusters of their size.
        """
        windows, shape = self.family.windows, shape_of(images, len(self.family.windows))
        wanted = (
            tuple(w.num_inputs(count) for w, count in zip(windows, shape, strict=True))
            if output_size is None
            else check_shape(output_size)
        )
        rule = self._rules.get(self.family, wanted, images.device, transposed=True)
        if rule.input_shape != shape:
            raise RefusedValue(
                refusal(
                    "the output's clusters must be the cells of the input", shape, rule.input_shape
                )
            )
        return rule

    def _spread(self, basis: Basis, x: Tensor) -> Tensor:
        theta = Mixture.identity(basis.num_bases, x.size(-1), x)
        nodes = x.movedim(-2, 0)
        out = contract(basis, nodes, theta, self.order, max_memory=self.max_memory)
        return out.movedim(0, -2)

    def extra_repr(self) -> str:
        """The family."""
        return str(self.family)
