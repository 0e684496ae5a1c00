"""GridUnpool: copy the features of each cluster to its cells."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.grid_shift import GridShift
from ..contract import ContractionPath, check_memory, check_order, contract, contraction_path
from ..errors import RefusedValue, refusal
from ..families import Pool
from ..graph.cell_checks import check_shape
from ..theta import Mixture
from .devices import check_given
from .grid_pool import Sizes
from .grid_rules import GridRules, as_cells, as_images, shape_of


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
