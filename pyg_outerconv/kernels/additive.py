"""Additive scores of the entries of a sparse matrix, in one primitive."""

from __future__ import annotations

from torch import Tensor

from ..errors import RefusedValue, refusal, unknown
from .activation import ACTIVATIONS, Activation
from .additive_sums import score
from .call import pick, same_dtype, views
from .sparsity import Sparsity


def additive(
    sparsity: Sparsity,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    *,
    activation: str = "leaky_relu",
    negative_slope: float = 0.2,
) -> Tensor:
    """The score of each entry of a sparse matrix (R × C), by a layer of neurons.

    ``out[e, h] = sum_p weight[h, p] phi(a[row of e, h, p] + b[column of e, h, p])``. With a leaky
    ReLU these are the scores of GATv2 (Brody et al., *How Attentive are Graph Attention
    Networks?*, equation 7), with tanh those of Bahdanau et al., *Neural Machine Translation by
    Jointly Learning to Align and Translate*, appendix A.1.2; with exp they are products of e^a and
    e^b, which may overflow on their own. No tensor of entries × channels is held, in derivatives of
    any order either.

    Args:
        sparsity: the places of the E entries.
        a: (R, H, P).
        b: (C, H, P).
        weight: (H, P).
        activation: phi, 'leaky_relu', 'tanh' or 'exp'.
        negative_slope: the slope of 'leaky_relu' below zero.

    Returns:
        (E, H), in row order.

    Raises:
        ValueError: the shapes do not fit, the activation is unknown, or no backend can serve the
            call.
        TypeError: the operands have different dtypes.
    """
    if activation not in ACTIVATIONS:
        raise RefusedValue(unknown("activation of additive", activation, ACTIVATIONS))
    rows, cols = sparsity.shape
    fits = (
        a.dim() == b.dim() == 3
        and (a.size(0), b.size(0)) == (rows, cols)
        and a.shape[1:] == b.shape[1:] == weight.shape
    )
    if not fits:
        raise RefusedValue(
            refusal(
                "additive needs a row of a for every row, a row of b for every column, and weights "
                "for every head",
                f"({rows}, H, P), ({cols}, H, P) and (H, P)",
                f"{tuple(a.shape)}, {tuple(b.shape)} and {tuple(weight.shape)}",
            )
        )
    a, b, weight = same_dtype("additive", a, b, weight)  # type: ignore[assignment]
    view, transposed_view = views(sparsity)
    backend = pick("additive", view, cols, a).name
    phi = Activation(activation, float(negative_slope), 0)
    return score(view, transposed_view, a, b, weight.unsqueeze(0), None, phi, backend)
