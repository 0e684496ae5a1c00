"""Layers on images, sequences and volumes: convolution, pooling, and its transpose."""

from __future__ import annotations

import math
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
from ..errors import RefusedType, RefusedValue
from ..families import Grid, Pool
from ..families.windows import Windows
from ..graph.cells import Cells, check_shape
from ..graph.checks import check_dense
from ..memo import Memo
from ..signatures import typed
from ..theta import Theta, ThetaValue, scaled
from .call import Call, check_devices, check_given
from .checks import COMPARISONS, aggregation
from .outer_conv import OuterConv
from .theta import GroupedTheta

# Images as nodes ---------------------------------------------------------------------------------


GRIDS = 8  # grids of which a layer caches the shifts


def shifts_of(family: Windows, shape: tuple[int, ...], device: torch.device) -> GridShift:
    """The shifts of a family on a grid of a shape."""
    return family.rule(Cells.of_shape(shape, device))


def shape_of(images: Any, num_axes: int, channels: int = -1) -> tuple[int, ...]:
    """The shape of images (*, C, *shape) with C = ``channels``, or any C for -1."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = getattr(images, "dtype", type(images).__name__)
        raise RefusedType("images are features", "a tensor of floating point type", got)
    if images.dim() <= num_axes:
        rule = "images have channels and axes"
        expected = f"(C, *shape) of {num_axes} axes, and a batch before it"
        raise RefusedValue(rule, expected, tuple(images.shape))
    if channels >= 0 and images.size(-1 - num_axes) != channels:
        axes = ", ".join(f"M_{axis + 1}" for axis in range(num_axes))
        rule = "images have the channels of the layer before their axes"
        raise RefusedValue(rule, f"(*, {channels}, {axes})", tuple(images.shape))
    return tuple(images.shape[images.dim() - num_axes :])


def as_cells(images: Tensor, num_axes: int) -> Tensor:
    """Images (*, C, *shape) as nodes (*, M, C); a view if the images are contiguous."""
    return images.flatten(-num_axes).transpose(-1, -2)


def as_images(nodes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Nodes (*, N, C) as images (*, C, *shape), a view."""
    return nodes.transpose(-1, -2).unflatten(-1, shape)


# Convolutions ------------------------------------------------------------------------------------


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
        kernel_size, stride, padding, dilation, padding_mode: see :class:`.Grid`.
        transposed, output_padding, offsets, growth, dim: see :class:`.Grid`.
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
        # The name is torch's, not `window`, so that calls of torch's layers carry over.
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


# Pooling -----------------------------------------------------------------------------------------


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
            shifts = torch.tensor(axis.shifts, device=basis.device)
            place = axis.stride * outputs.unsqueeze(1) - shifts  # (N_d, k)
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
