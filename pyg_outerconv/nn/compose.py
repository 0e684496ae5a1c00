"""Two convolutions as one: bases multiply, parameters multiply (Proposition 2 of the paper)."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Parameter

from ..basis import Basis
from ..basis.products import factors
from ..errors import RefusedType, RefusedValue
from ..families import Compose, Family, Identity, Mean, Stack
from ..families.options import functions_of
from ..kernels.capture import is_capturing
from ..signatures import typed
from ..theta import add_product
from .call import Call
from .dense import full_matrices
from .grids import GridConv
from .outer_conv import OuterConv

_column_sums: WeakKeyDictionary[Basis, dict[Any, Tensor]] = WeakKeyDictionary()
"""Cached sums B_jᵀ 1 for the last factors of each basis."""


class ComposedConv(OuterConv):
    r"""A convolution over a product of bases, as :func:`~pyg_outerconv.nn.compose` makes it.

    .. math::
        \mathbf{Y} = \sum_{k} \mathbf{C}_{k}^{\top} \mathbf{X} \mathbf{\Theta}_{k}
        + \sum_s \sum_j (\mathbf{B}^{(s)\top}_{j} \mathbf{1}) \mathbf{c}^{(s)}_{j}
        + \mathbf{1} \mathbf{b}^{\top}

    where :math:`\mathbf{B}^{(s)}` is the product of the last :math:`s` factors of
    :math:`\mathbf{C}`, and :math:`\mathbf{c}^{(s)}` (K, Q) the bias that was added before these
    factors, times the matrices of the layers after it. The sums
    :math:`\mathbf{B}^{(s)\top}_{j} \mathbf{1}` are cached with the basis, unless it requires
    gradients.

    Sources and targets are one set of nodes, so the layer takes a single x.

    Args:
        in_channels, out_channels, family, **kwargs: as of :class:`OuterConv`.

    Raises:
        TypeError, ValueError: see :class:`OuterConv`; and ``x`` is a pair, or a given basis is no
            product.
    """

    @typed
    def __init__(
        self, in_channels: int, out_channels: int, family: Family | str, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, out_channels, family, **kwargs)
        self.constants = torch.nn.ParameterDict()

    def add_constant(self, num_factors: int, constant: Parameter) -> None:
        """Add an inner bias c (K, Q), propagated by the last s factors.

        Args:
            num_factors: s.
            constant: c, with a row for each label of the product of these factors.
        """
        self.constants[str(num_factors)] = constant

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module; inner biases become zero."""
        super().reset_parameters()
        for constant in getattr(self, "constants", {}).values():
            torch.nn.init.zeros_(constant)

    def forward(self, x: Any, edge_index: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        r"""Runs the layer; see :class:`OuterConv`."""
        if not Call(x, flow=self.flow).is_single:
            raise RefusedValue(
                "a composition reads nodes that are sources and targets", "one x", "a pair"
            )
        basis = self.basis(x, edge_index, *args, **kwargs)
        out = super().forward(x, basis)
        own = self._way() == "contraction"
        for number, constant in constants_of(self).items():
            sums = self._passed_on(basis, number, constant.dtype)
            out = add_product(out, sums, constant, own)
        return out

    def _passed_on(self, basis: Basis, number: int, dtype: torch.dtype) -> Tensor:
        """The sums B_jᵀ 1 for the last factors of a basis, (N, K)."""
        if basis.learns or torch.compiler.is_compiling() or is_capturing():
            return self._sums(basis, number, dtype)
        kept = _column_sums.setdefault(basis, {})
        if (number, dtype) not in kept:
            with torch.inference_mode(False), torch.no_grad():  # usable in training later
                kept[number, dtype] = self._sums(basis, number, dtype)
        return kept[number, dtype]

    def _sums(self, basis: Basis, number: int, dtype: torch.dtype) -> Tensor:
        num_factors, parts = len(self.family.factors()), factors(basis)
        if len(parts) != num_factors:
            raise RefusedValue(
                "inner biases pass through the last factors of a product", num_factors, basis
            )
        sums = torch.ones(parts[-number].size[0], 1, dtype=dtype, device=basis.device)
        for part in parts[-number:]:
            # The labels of a later factor are the inner index.
            sums = part.propagate(sums).transpose(1, 2).flatten(1)
        return sums


def constants_of(conv: OuterConv) -> dict[int, Tensor]:
    """The inner biases of a layer, by the number of factors that propagate them."""
    if not isinstance(conv, ComposedConv):
        return {}
    return {int(number): constant for number, constant in conv.constants.items()}


def compose(first: OuterConv, second: OuterConv) -> ComposedConv:
    r"""One layer equal to ``second(first(x, …), …)`` on the same edges.

    For families of grids, the second layer is on the output grid of the first.

    .. math::
        \mathbf{Y} = \sum_{ij} (\mathbf{A}_i \mathbf{B}_j)^{\top} \mathbf{X}
        (\mathbf{\Theta}_i \mathbf{\Theta}'_j)
        + \sum_j (\mathbf{B}_j^{\top} \mathbf{1}) (\mathbf{b}^{\top} \mathbf{\Theta}'_j)
        + \mathbf{1} \mathbf{b}'^{\top}

    The bias b of the first layer is propagated by the second, as a feature that is 1 at each node.
    Parameters are copies: one full matrix for each pair of labels. A root weight becomes a label of
    the identity. The bases are not multiplied; the contraction applies one after the other.

    Args:
        first (OuterConv): the layer that reads x.
        second (OuterConv): the layer that reads the output of the first.

    Raises:
        TypeError: one of them is not an OuterConv.
        ValueError: a layer reduces with max or min, or its parameters have no shapes yet; flows
            differ; channels do not fit; or the targets of the first are not the sources of the
            second.
    """
    for conv in (first, second):
        if not isinstance(conv, OuterConv):
            raise RefusedType("layers are composed that are linear sums", "OuterConv", conv)
    reasons = why_not_composed(first, second)
    if reasons:
        raise RefusedValue(f"these layers have no composition: {'; '.join(reasons)}")
    family: Family = Compose(_family(first), _family(second))
    if functions_of(family):  # their parameters are copied too
        family = copy.deepcopy(family)
    bounds = [conv.max_memory for conv in (first, second) if conv.max_memory is not None]
    layer = ComposedConv(
        first.theta.in_channels,
        second.out_channels,
        family,
        bias=second.bias is not None,
        cached=first.cached and second.cached,
        max_memory=min(bounds, default=None),
        flow=first.flow,
    )
    like = next((p for conv in (first, second) for p in conv.parameters()), torch.empty(0))
    layer.to(like.device, like.dtype).train(first.training)
    with torch.no_grad():
        _fill(layer, first, second, like)
    return layer


def why_not_composed(first: OuterConv, second: OuterConv) -> list[str]:
    """The reasons why two layers cannot be composed; empty if they can."""
    reasons = []
    for name, conv in (("first", first), ("second", second)):
        if isinstance(conv, GridConv):
            reasons.append(
                f"the {name} is a {type(conv).__name__}, which takes images: "
                "what composes is OuterConv(P, Q, Grid(...)) on nodes"
            )
        elif type(conv) not in (OuterConv, ComposedConv):
            reasons.append(f"the {name} is a {type(conv).__name__}, which may do more than it says")
        for option in ("aggr", "label_aggr"):
            if (value := getattr(conv, option)) not in ("sum", "mean"):
                reasons.append(f"the {name} has {option}={value!r}, which is not linear")
        if conv.theta.in_channels < 0:
            reasons.append(f"the {name} has no parameters before its first input")
        if conv.root is not None and isinstance(conv.in_channels, tuple):
            reasons.append(f"the {name} has a root weight for targets that are not its sources")
    if first.flow != second.flow:
        reasons.append(f"messages flow {first.flow} in the first, {second.flow} in the second")
    family = first.family
    if not family.keeps_nodes and type(family).outputs is Family.outputs:
        reasons.append(f"{family} does not say what its targets are, which the second reads")
    middle = (first.out_channels, second.theta.in_channels)
    if middle[0] != middle[1] and -1 not in middle:
        reasons.append(
            f"the first has {middle[0]} out_channels, the second {middle[1]} in_channels"
        )
    return reasons


def _family(conv: OuterConv) -> Family:
    """The family, divided for ``aggr='mean'``, and stacked on the identity for a root weight."""
    family = Mean(conv.family) if conv.aggr == "mean" else conv.family
    return family if conv.root is None else Stack(family, Identity())


def _matrices(conv: OuterConv, like: Tensor) -> Tensor:
    """Θ for the family of :func:`_family`, divided by K for ``label_aggr='mean'``: (K, P, Q)."""
    matrices = full_matrices(conv.theta()).to(like)
    if conv.label_aggr == "mean":
        matrices = matrices / conv.theta.num_labels
    return matrices if conv.root is None else torch.cat([matrices, conv.root()[0].to(like)])


def _fill(layer: ComposedConv, first: OuterConv, second: OuterConv, like: Tensor) -> None:
    """Set the parameters of the composition from those of both layers."""
    ours, theirs = _matrices(first, like), _matrices(second, like)
    weight: Any = layer.theta.weight
    weight.copy_(torch.einsum("ipr,jrq->ijpq", ours, theirs).flatten(0, 1))
    if layer.bias is not None and second.bias is not None:
        layer.bias.copy_(second.bias)
    after = len(_family(second).factors())
    for number, constant in constants_of(second).items():
        layer.add_constant(number, Parameter(constant.to(like, copy=True)))
    inner = {number + after: constant for number, constant in constants_of(first).items()}
    if first.bias is not None:
        inner[after] = first.bias.unsqueeze(0)
    for number, constant in inner.items():
        passed = torch.einsum("ir,jrq->ijq", constant.to(like), theirs).flatten(0, 1)
        layer.add_constant(number, Parameter(passed))
