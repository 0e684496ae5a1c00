"""GridPool and GridUnpool: clusters of cells reduced to one, and spread out again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..basis import Basis, Pool
from ..basis.grid.shift import GridShift
from ..contract import Mixture, ThetaValue, check_memory, check_order, contract, scaled
from ..errors import RefusedValue, refusal
from .checks import aggregation
from .grid_rules import GridRules, as_cells, as_images, shape_of
from .reductions import COMPARISONS

Sizes = int | tuple[int, ...]


class GridPool(torch.nn.Module):
    r"""Pooling of images, sequences and volumes: equation 5 of the `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_ paper, with one label for each place of a cluster

    .. math::
        \mathbf{y}_n = \bigoplus_k \, (\mathbf{A}_k^{\top} \mathbf{X})_n

    On images it equals :class:`torch.nn.MaxPool2d`, :class:`~torch.nn.AvgPool2d` and their kin, and
    runs by their kernels where these are faster; but for any number of axes, and cells that are
    only partly there.

    Args:
        kernel_size, stride, padding, dilation, ceil_mode, dim: See
            :class:`~pyg_outerconv.basis.Pool`.
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
        self.aggr = aggregation("aggr", aggr)
        check_order(order)
        check_memory(max_memory)
        self.family = Pool(kernel_size, stride, padding, dilation, ceil_mode, dim)
        _ = self.family.taps  # made once, and before a compiler looks, which could not
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
            basis = cells if isinstance(cells, Basis) else self.family.basis(cells)
            return self._reduce(basis, x)
        rule = self.rule(x)
        return as_images(self._reduce(rule, as_cells(x, len(rule.axes))), rule.output_shape)

    def rule(self, images: Tensor) -> GridShift:
        """The clusters of the grid that images (*, C, *shape) are on.

        Raises:
            TypeError: the images are no features.
            ValueError: they have too few dimensions, or the grid is too small for a cluster.
        """
        shape = shape_of(images, len(self.family.windows))
        return self._rules.get(self.family, shape, images.device)

    def _reduce(self, basis: Basis, x: Tensor) -> Tensor:
        """(*, N, C) of nodes (*, M, C)."""
        theta: ThetaValue = Mixture.identity(basis.num_bases, x.size(-1), x)
        divisor = self._divisor(basis) if self.aggr == "mean" else None
        if self.aggr == "mean" and divisor is None:
            theta = scaled(theta, 1.0 / basis.num_bases)
        # A label has one cell of a cluster at most, of which all reductions are the same.
        alike = self.aggr if self.aggr in COMPARISONS else "sum"
        out = contract(
            basis,
            x.movedim(-2, 0),
            theta,
            self.order,
            reduce=alike,
            label_reduce=alike,
            max_memory=self.max_memory,
        ).movedim(0, -2)
        return out if divisor is None else out / divisor.to(out.dtype).unsqueeze(-1)

    def _divisor(self, basis: Basis) -> Tensor | None:
        """(N,) what the sum over each cluster is divided by, None where that is K everywhere."""
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


class GridUnpool(torch.nn.Module):
    r"""Unpooling: the transpose of the sum over clusters

    .. math::
        \mathbf{Y} = \sum_k \mathbf{A}_k \mathbf{X}

    Every cell of a cluster receives the features of the cluster, and where clusters overlap, their
    sum. On images with clusters side by side it equals ``F.interpolate(mode='nearest')``.

    Args:
        kernel_size, stride, padding, dilation, dim: Of the pooling that it turns; see
            :class:`~pyg_outerconv.basis.Pool`.
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
        _ = self.family.taps  # see GridPool
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
            output_size (tuple, optional): The grid of the output, where several have clusters of
                the input's size. (default: the smallest)
        """
        if cells is not None:
            basis = cells if isinstance(cells, Basis) else self.family.basis(cells)
            return self._spread(basis.transpose(), x)
        rule = self.rule(x, output_size)
        return as_images(self._spread(rule, as_cells(x, len(rule.axes))), rule.output_shape)

    def rule(self, images: Tensor, output_size: tuple[int, ...] | None = None) -> GridShift:
        """The transposed clusters of the grid that images (*, C, *shape) are on.

        Raises:
            TypeError: the images are no features.
            ValueError: they have too few dimensions, or no such output has clusters of their size.
        """
        windows, shape = self.family.windows, shape_of(images, len(self.family.windows))
        wanted = output_size or tuple(
            window.num_inputs(count) for window, count in zip(windows, shape, strict=True)
        )
        rule = self._rules.get(self.family, tuple(wanted), images.device, turned=True)
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
