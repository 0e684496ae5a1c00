"""Multiply value and output projections, and factor their product again."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn import Parameter

from ..equations import row
from ..errors import RefusedValue
from ..signatures import typed
from ..theta import Theta
from .attention_conv import AttentionConv
from .theta import make_theta


@row(
    "Values",
    "Θ_h = V_h O_h, multiplied out and back",
    "Andreoli, section 4.2: a redundancy",
    option="`nn.fold_output(conv)`, `nn.factor_output(conv, rank)`",
)
@typed
def fold_output(conv: AttentionConv, fold_bias: bool = False) -> AttentionConv:
    """A copy of a layer with the products Θ_h = V_h O_h as its parameter.

    An output projection is redundant where values are projected (section 4.2 of the paper). The
    value bias b_h becomes b_h O_h.

    Args:
        conv: the layer.
        fold_bias: whether the value bias becomes part of the output bias. Outputs without edges get
            it too, so set it only if there are none.

    Raises:
        ValueError: the layer has no values, its scores read them, or ``fold_bias`` is set and the
            columns A_h[:, n] do not sum to one.
    """
    theta, bias = _full(conv)
    bias = None if bias is None else bias.view(theta.size(0), -1)
    if fold_bias and bias is not None:
        _check_rows(conv)
    layer = _with_theta(conv, "full", {"weight": theta})
    if bias is None or not fold_bias:
        layer.value_bias = _like(bias, conv.value_bias)
        return layer
    whole = bias.mean(0) if conv.combine == "mean" else bias.sum(0)
    whole = whole if conv.bias is None else conv.bias + whole
    layer.value_bias, layer.bias = None, Parameter(whole.detach())
    return layer


@typed
def factor_output(conv: AttentionConv, rank: int) -> AttentionConv:
    """A copy of a layer with Θ_h = V_h O_h of ``rank`` value channels; undoes :func:`fold_output`.

    Raises:
        ValueError: some Θ_h, with its value bias as one more row, has a higher rank; or see
            :func:`fold_output`.
        TypeError: the rank is not an integer.
    """
    theta, bias = _full(conv)
    # The bias is one more input channel that is 1, with the same output projection.
    rows = theta if bias is None else torch.cat([theta, bias.squeeze(1)], dim=1)
    wide = rows.detach().double()
    tolerance = max(rows.shape[1:]) * torch.finfo(rows.dtype).eps
    ranks = torch.linalg.matrix_rank(wide, rtol=tolerance)
    least = max(int(ranks.max()), 1)
    if rank < least:
        rule = "a product of values and output projections has their rank at most"
        expected = f"rank >= {least}, as ranks of the heads are {ranks.tolist()}"
        raise RefusedValue(rule, expected, rank)
    left, right = (factor.to(rows.dtype) for factor in _factors(wide, rank))
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


def _full(conv: AttentionConv) -> tuple[Tensor, Tensor | None]:
    """V_h O_h (H, P, Q), and b_h O_h (H, 1, 1, Q) or None. Raises ValueError if not foldable."""
    if conv.theta.in_channels < 0:
        raise RefusedValue("a layer is folded with its parameters", "values", "none yet")
    score = conv.family.score
    if score.uses_theta:
        rule = "values change when outputs are folded into them, and so would scores of values"
        raise RefusedValue(rule, "a score of features", score.name)
    if conv.edge_dim is not None:
        raise RefusedValue(
            "edge features are added to values as they are", "edge_dim=None", conv.edge_dim
        )
    if conv.added_sources is not None:
        rule = "values of added sources stay as they are"
        raise RefusedValue(rule, "no added sources", conv.added_sources)
    theta = conv.theta_value()
    if not isinstance(theta, Theta) or theta.heads is None:
        raise RefusedValue("an output projection is folded into values", "values", conv.theta.name)
    return theta.full().squeeze(1), theta.full_bias()


def _check_rows(conv: AttentionConv) -> None:
    """Raise ValueError if shares do not sum to one, so that a bias cannot be moved past them."""
    normalise = conv.family.normalise
    for holds, got in (
        (normalise.is_stochastic, f"the normaliser {normalise.name!r}"),
        (normalise.dropout == 0, f"dropout={normalise.dropout} in training"),
    ):
        if not holds:
            rule = "a value bias is an output bias only where columns of the basis sum to one"
            expected = "a stochastic normaliser without dropout, or fold_bias=False"
            raise RefusedValue(rule, expected, got)


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
