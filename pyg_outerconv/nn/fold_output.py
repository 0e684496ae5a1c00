"""Multiply value and output projections, and factor their product again."""

from __future__ import annotations

import copy
from numbers import Integral
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from ..equations import row
from ..errors import RefusedType, RefusedValue, refusal
from ..theta import ValueOutput
from .theta_forms import make_theta

if TYPE_CHECKING:
    from .attention_conv import AttentionConv


@row(
    "Values",
    "Θ_h = V_h O_h, multiplied out and back",
    "Andreoli, section 4.2: a redundancy",
    option="`fold_output()`, `factor(rank)`",
)
class FoldOutput:
    """Methods that fold the output projection of a layer into its values, and undo it."""

    def fold_output(self, fold_bias: bool = False) -> AttentionConv:
        r"""The same layer with :math:`\mathbf{\Theta}_h = \mathbf{V}_h \mathbf{O}_h` multiplied
        out, of copied parameters: a projection of the output is redundant where values are
        projected (section 4.2 of the paper).

        A value bias :math:`\mathbf{b}_h` becomes :math:`\mathbf{b}_h \mathbf{O}_h`, still a value
        bias, which is exact whatever rows of the basis add up to.

        Args:
            fold_bias (bool, optional): If set to :obj:`True`, it becomes part of the output bias
                instead. That is exact for outputs that an input reaches, whose shares add up to
                one; outputs without edges would get it too, so set it only if there are none.
                (default: :obj:`False`)

        Raises:
            ValueError: there are no values to fold, scores are made of them, or a bias is to be
                folded and rows do not sum to one.
        """
        return folded(cast("AttentionConv", self), fold_bias)

    def factor(self, rank: int) -> AttentionConv:
        r"""The same layer with :math:`\mathbf{\Theta}_h = \mathbf{V}_h \mathbf{O}_h` of
        :obj:`rank` value channels, of copied parameters: what :meth:`fold_output` undoes.

        Raises:
            ValueError: some :math:`\mathbf{\Theta}_h` (its value bias being one more row) has a
                higher rank, which the message names; or as :meth:`fold_output`.
            TypeError: the rank is no integer.
        """
        return factored(cast("AttentionConv", self), rank)


def folded(conv: AttentionConv, fold_bias: bool) -> AttentionConv:
    """The layer with Θ_h = V_h O_h multiplied out, for :meth:`FoldOutput.fold_output`."""
    values = _values(conv)
    theta, bias = values.full().squeeze(1), values.full_bias()
    bias = None if bias is None else bias.view(theta.size(0), -1)
    if fold_bias and bias is not None:
        _check_rows(conv)
    layer = _with_theta(conv, "full", {"weight": theta})
    if bias is None or not fold_bias:
        layer.value_bias = _like(bias, conv.value_bias)
        return layer
    whole = bias.mean(0) if conv.combine == "mean" else bias.sum(0)
    layer.value_bias = None
    layer.bias = Parameter(whole.detach() if conv.bias is None else (conv.bias + whole).detach())
    return layer


def factored(conv: AttentionConv, rank: int) -> AttentionConv:
    """The layer with Θ_h factored into V_h O_h of a rank, for :meth:`FoldOutput.factor`."""
    if not isinstance(rank, Integral):
        raise RefusedType(refusal("a rank is a number", "an integer", repr(rank)))
    values = _values(conv)
    theta, bias = values.full().squeeze(1), values.full_bias()
    # The bias is one more input channel that is 1, with the same output projection.
    rows = theta if bias is None else torch.cat([theta, bias.squeeze(1)], dim=1)
    wide = rows.detach().double()
    tolerance = max(rows.shape[1:]) * torch.finfo(rows.dtype).eps
    ranks = torch.linalg.matrix_rank(wide, rtol=tolerance)
    most = int(ranks.max())
    if rank < max(most, 1):
        raise RefusedValue(
            refusal(
                "a product of values and output projections has their rank at most",
                f"rank >= {max(most, 1)}, as ranks of the heads are {ranks.tolist()}",
                rank,
            )
        )
    left, right = _factors(wide, rank)
    left, right = left.to(rows.dtype), right.to(rows.dtype)
    size = theta.size(1)
    parts = {"value": left[:, :size], "output": right}
    layer = _with_theta(conv, f"value-output(channels={rank})", parts)
    layer.value_bias = None if bias is None else _like(left[:, size], conv.value_bias)
    return layer


def _factors(wide: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(H, P, r) and (H, r, Q) whose product is (H, P, Q), the singular values shared evenly."""
    u, s, v = torch.linalg.svd(wide, full_matrices=False)
    u, s, v = u[..., :rank], s[..., :rank].sqrt(), v[..., :rank, :]
    left, right = u * s.unsqueeze(-2), s.unsqueeze(-1) * v
    missing = rank - s.size(-1)  # a rank above P or Q is filled with zeros
    left = torch.nn.functional.pad(left, (0, missing))
    return left, torch.nn.functional.pad(right, (0, 0, 0, missing))


def _values(conv: AttentionConv) -> ValueOutput:
    """Θ as values and outputs. Raises ValueError if it cannot be folded."""
    if conv.theta.in_channels < 0:
        raise RefusedValue(refusal("a layer is folded with its parameters", "values", "none yet"))
    score = conv.family.score
    if score.uses_theta:
        raise RefusedValue(
            refusal(
                "values change when outputs are folded into them, and so would scores of values",
                "a score of features",
                score.name,
            )
        )
    if conv.edge_dim is not None:
        raise RefusedValue(
            refusal("edge features are added to values as they are", "edge_dim=None", conv.edge_dim)
        )
    found = conv.theta_value()
    if not isinstance(found, ValueOutput):
        raise RefusedValue(
            refusal("an output projection is folded into values", "values", conv.theta.name)
        )
    return found


def _check_rows(conv: AttentionConv) -> None:
    """Raise ValueError if shares do not sum to one, so that a bias cannot be moved past them."""
    normalise = conv.family.normalise
    for holds, got in (
        (normalise.is_stochastic, f"the normaliser {normalise.name!r}"),
        (normalise.dropout == 0, f"dropout={normalise.dropout} in training"),
    ):
        if not holds:
            raise RefusedValue(
                refusal(
                    "a value bias is an output bias only where rows of the basis sum to one",
                    "a stochastic normaliser without dropout, or fold_bias=False",
                    got,
                )
            )


def _with_theta(conv: AttentionConv, spec: str, parts: dict[str, Tensor]) -> AttentionConv:
    """A copy of the layer with another form of Θ and the given parameters."""
    layer, old = copy.deepcopy(conv), conv.theta
    form = make_theta(spec, old.num_labels, old.in_channels, old.out_channels)
    learns = any(parameter.requires_grad for parameter in old.parameters())
    for name, value in parts.items():
        setattr(form, name, Parameter(value.detach().clone(), requires_grad=learns))
    layer.theta = form.train(conv.training)
    layer.combine = "sum" if conv.combine == "concat" else conv.combine
    return layer


def _like(value: Tensor | None, old: Parameter | None) -> Parameter | None:
    if value is None or old is None:
        return None
    return Parameter(value.detach().clone(), requires_grad=old.requires_grad)
