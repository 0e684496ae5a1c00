"""GridConv: OuterConv over the shifts of a grid, which takes images as torch's convolutions do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.grid_shift import GridShift
from ..contract import ContractionPath
from ..contract.plan import solve
from ..contract.problem import Problem
from ..errors import RefusedValue
from ..families import Grid
from ..memo import Memo
from ..signatures import typed
from .call import Call, check_devices
from .grid_images import GRIDS, as_cells, as_images, shape_of, shifts_of
from .outer_conv import OuterConv
from .theta import GroupedTheta


class GridConv(OuterConv):
    r"""The convolution of images, sequences and volumes, of section 3.2 of the `"Convolution is
    outer product" <https://arxiv.org/abs/1905.01289>`_ paper

    .. math::
        \mathbf{Y} = \sum_d \mathbf{A}_d^{\top} \mathbf{X} \mathbf{\Theta}_d

    with a shift :math:`\mathbf{A}_d` of the grid for each cell of the kernel. On images it equals
    :class:`torch.nn.Conv1d`, :class:`~torch.nn.Conv2d`, :class:`~torch.nn.Conv3d` and their
    transposed forms, with the same initial weights under the same seed (on the CPU), and uses their
    kernels where these are faster. It also takes any number of axes, any set of offsets, and grids
    with missing cells.

    Args:
        in_channels: P of each input, or -1 to derive it from the first input.
        out_channels: Q of each output.
        kernel_size, stride, padding, dilation, padding_mode, transposed, output_padding, offsets,
            growth, dim: see :class:`~pyg_outerconv.families.Grid`.
        groups: number of blocks of channels; there are no parameters between blocks.
        bias: whether the layer adds a bias.
        **kwargs: options of :class:`OuterConv`.

    ``theta.weight`` has the memory layout of torch's weights, so that no call copies it: it is not
    contiguous, and is flattened by ``reshape``, not by ``view``.

    Shapes:
        - **input:** images :math:`(*, P, M_1, \ldots, M_D)`; or node features :math:`(*, M, P)`
          and their cells
        - **output:** images :math:`(*, Q, N_1, \ldots, N_D)`; or node features :math:`(*, N, Q)`

    Raises:
        ValueError: an option is out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """

    family: Grid
    _rules: Memo

    @typed
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str | tuple[str, ...] = "zeros",
        transposed: bool = False,
        output_padding: int | tuple[int, ...] = 0,
        offsets: tuple[tuple[int, ...], ...] | None = None,
        growth: str = "submanifold",
        dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        family = Grid(
            kernel_size,
            stride,
            padding,
            dilation,
            padding_mode,
            transposed,
            output_padding,
            offsets,
            growth,
            dim,
        )
        if groups != 1 and "theta" in kwargs:
            raise RefusedValue("groups are a form of theta", "one of them", "both")
        kwargs.setdefault("theta", f"grouped(groups={groups})")
        # torch's layers draw their parameters once.
        with torch.random.fork_rng(devices=[]):
            super().__init__(in_channels, out_channels, family, bias, **kwargs)
        self.groups = groups
        self._rules = Memo(GRIDS)
        self._lay_out()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters, as torch's layers do."""
        form = self.theta
        if not isinstance(form, GroupedTheta) or form.in_channels < 0:
            super().reset_parameters()
            return
        super(OuterConv, self).reset_parameters()
        weight = form.weight  # (K, G, P/G, Q/G)
        drawn = weight.new_empty(torch_weight(weight, self.family.transposed).shape)
        torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5))
        with torch.no_grad():
            weight.copy_(our_weight(drawn, weight.size(1), self.family.transposed))
        if self.bias is not None:
            bound = 1 / math.sqrt(max(drawn.size(1) * drawn.size(2), 1))
            torch.nn.init.uniform_(self.bias, -bound, bound)
        if self.root is not None:
            self.root.reset_parameters()

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        **beside: Any,
    ) -> Tensor:
        """Runs the layer.

        Args:
            x: images, or features of nodes at ``edge_index``.
            edge_index: the :class:`Cells` of nodes, a mask of them, or the shape of the grid; or a
                basis.
            edge_weight, **beside: see :class:`OuterConv`.
        """
        if self.theta.in_channels < 0 and isinstance(x, Tensor):
            _ = self.basis(x, edge_index, edge_weight, **beside)  # raises before the layer changes
            self._take_channels(x, edge_index is None)
        if edge_index is not None:
            return super().forward(x, edge_index, edge_weight, **beside)
        if any(part is not None for part in (edge_weight, *beside.values())):
            raise RefusedValue(
                "images are a whole grid", "nothing beside them", "edges, size or batch"
            )
        rule = self.rule(x)
        cells = as_cells(x, len(rule.axes))
        if not self._is_plain():
            return as_images(super().forward(cells, rule), rule.output_shape)
        nodes, theta = cells.movedim(-2, 0), self.theta.parameter()
        bias: Tensor | None = self.bias
        if bias is not None and torch.is_autocast_enabled(x.device.type):
            bias = bias.to(torch.get_autocast_dtype(x.device.type))  # as torch's convolutions do
        out = solve(Problem(rule, nodes, theta, bias=bias), self.order, self.max_memory)
        return as_images(out.movedim(0, -2), rule.output_shape)

    def rule(self, images: Tensor) -> GridShift:
        """The shifts of the grid of images (*, P, *shape).

        Raises:
            TypeError: the images are not a floating point tensor.
            ValueError: they have too few dimensions, other channels than the layer, or a grid that
                is too small for the kernel.
        """
        shape = shape_of(images, len(self.family.windows), self.theta.in_channels)
        check_devices(self, Call(images))
        key = self.family, shape, images.device
        return self._rules.get(key, lambda: shifts_of(*key))  # type: ignore[no-any-return]

    def contraction_path(
        self, x: Any, edge_index: Any = None, *args: Any, **options: Any
    ) -> ContractionPath:
        """The contraction order for images or nodes, and the cost of every order."""
        if edge_index is not None:
            return super().contraction_path(x, edge_index, *args, **options)
        rule = self.rule(x)
        return super().contraction_path(as_cells(x, len(rule.axes)), rule, **options)

    def basis(self, x: Any, edge_index: Any = None, *args: Any, **beside: Any) -> Basis:
        """The basis that :meth:`forward` uses."""
        if edge_index is None and isinstance(x, Tensor):
            return self.rule(x)
        return super().basis(x, edge_index, *args, **beside)

    def _take_channels(self, x: Tensor, is_image: bool) -> None:
        """Allocate lazy parameters for the channels of the first input."""
        at = -1 - self.family.num_axes if is_image else -1
        if x.dim() >= -at:
            self.theta.materialize(x.size(at))
            self._lay_out()
            self.reset_parameters()

    def _lay_out(self) -> None:
        """Store Θ in the memory layout of torch's weights, which are then a view of it.

        The parameter stays the same object, because an optimiser may hold it.
        """
        if isinstance(self.theta, GroupedTheta) and self.theta.in_channels >= 0:
            weight, transposed = self.theta.weight.detach(), self.family.transposed
            kernel = torch_weight(weight, transposed).contiguous()
            self.theta.weight.data = our_weight(kernel, weight.size(1), transposed)

    def _is_plain(self) -> bool:
        """Whether there are no observers, and nothing but the bias is added."""
        return (
            self.aggr == self.label_aggr == "sum"
            and self.root is None
            and self._way() == "contraction"
            and type(self).message_and_aggregate is OuterConv.message_and_aggregate
        )


def torch_weight(weight: Tensor, transposed: bool) -> Tensor:
    """Θ (K, G, P/G, Q/G) as torch's layers hold it: (Q, P/G, K), or transposed (P, Q/G, K)."""
    return weight.permute((1, 2, 3, 0) if transposed else (1, 3, 2, 0)).flatten(0, 1)


def our_weight(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """The inverse of :func:`torch_weight`: Θ (K, G, P/G, Q/G)."""
    blocks = weight.unflatten(0, (groups, -1))
    return blocks.permute((3, 0, 1, 2) if transposed else (3, 0, 2, 1))
