"""The dense form of a layer: the quadri-tensor Φ, its two flattenings, and their picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from ..theta import full
from .call import Call
from .checks import COMPARISONS
from .outer_conv import OuterConv

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def full_matrices(theta: Tensor) -> Tensor:
    """(K, P, Q) of a (K, G, P/G, Q/G) tensor: the blocks on the diagonal, zeros elsewhere."""
    groups = theta.size(1)
    diagonal = torch.eye(groups, dtype=theta.dtype, device=theta.device)
    return torch.einsum("kgpq,gh->kgphq", theta, diagonal).flatten(3).flatten(1, 2)


@typed
def quadri_tensor(conv: OuterConv, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
    r"""Φ = Σ_k A_k ⊗ Θ_k of a layer, (M, N, P, Q): Y_nq = Σ_mp Φ_mnpq X_mp without bias.

    From the `"Convolution is outer product" <https://arxiv.org/abs/1905.01289>`_ paper, section 2.

    >>> import torch
    >>> from pyg_outerconv import OuterConv
    >>> quadri_tensor(OuterConv(3, 2, "gcn"), torch.tensor([[0, 1], [1, 2]]), size=(4, 4)).shape
    torch.Size([4, 4, 3, 2])

    Args:
        conv: the layer.
        edge_index, *args, **kwargs: the arguments of its ``forward`` after x; ``size`` if the edges
            do not determine it.

    Raises:
        ValueError: the layer compares inputs or labels, which is not linear; or it has a root
            weight and targets that are not the sources, whose features Φ does not multiply.
    """
    for name in ("aggr", "label_aggr"):
        if (aggr := getattr(conv, name)) in COMPARISONS:
            rule = (
                "the quadri-tensor exists where inputs and labels are added; what stands in "
                "its place is the dense basis with its support mask, as in "
                "testing.dense_contraction"
            )
            raise RefusedValue(rule, f"{name} 'sum' or 'mean'", repr(aggr))
    basis = conv._basis(Call.without_x(edge_index, *args, **kwargs))
    theta = full(conv.theta.parameter(torch.empty(0, dtype=basis.dtype, device=basis.device)))
    if conv.label_aggr == "mean":
        theta = theta / conv.family.num_bases
    theta = full_matrices(theta)
    phi = torch.einsum("kmn,kpq->mnpq", basis.to_dense(theta.dtype).to(theta.dtype), theta)
    if conv.root is None:
        return phi
    is_pair = getattr(edge_index, "bipartite", False) or basis.size[0] != basis.size[1]
    if is_pair or isinstance(conv.in_channels, tuple):
        rule = "a root weight is part of the quadri-tensor only where targets are the sources"
        got = f"M = {basis.size[0]}, N = {basis.size[1]}, in_channels={conv.in_channels}"
        raise RefusedValue(rule, "one set of nodes and one in_channels", got)
    eye = torch.eye(basis.size[0], dtype=phi.dtype, device=phi.device)
    return phi + torch.einsum("mn,pq->mnpq", eye, conv.root()[0, 0])


@typed
def phi_hat(conv: OuterConv, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Φ̂ = Σ_k A_k ⊠ Θ_k, Kronecker products, (M·P, N·Q): nodes outside, channels inside.

    Entry [m·P + p, n·Q + q] is Φ_mnpq; Φ̂ᵀ takes the rows of X, one after another, to those of Y.
    Section 2 of the paper; arguments and errors as of :func:`quadri_tensor`.
    """
    phi = quadri_tensor(conv, edge_index, *args, **kwargs)
    return phi.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)


@typed
def phi_check(conv: OuterConv, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Φ̌ = Σ_k Θ_k ⊠ A_k, Kronecker products, (P·M, Q·N): channels outside, nodes inside.

    Entry [p·M + m, q·N + n] is Φ_mnpq; Φ̌ᵀ takes the columns of X, one after another, to those of Y.
    Section 2 of the paper; arguments and errors as of :func:`quadri_tensor`.
    """
    phi = quadri_tensor(conv, edge_index, *args, **kwargs)
    return phi.permute(2, 0, 3, 1).flatten(2).flatten(0, 1)


@typed
def plot_phi(
    conv: OuterConv, edge_index: Any, *args: Any, path: str | Path | None = None, **kwargs: Any
) -> Figure:
    """A picture of both flattenings side by side (figure 2 of the paper); zeros are white.

    Args:
        conv, edge_index, *args, **kwargs: as of :func:`quadri_tensor`.
        path: a PNG or SVG file to write.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: matplotlib is not installed, the flattenings have too many entries for a
            picture, or the file cannot be written.
    """
    from ..plot import check_matplotlib

    check_matplotlib()
    from ..plot.canvas import check_format, save
    from ..plot.matrices import check_flattenings, draw_phi

    if path is not None:
        check_format(path)
    size = conv._basis(Call.without_x(edge_index, *args, **kwargs)).size
    channels = conv.theta.in_channels, conv.theta.out_channels
    check_flattenings(size, channels)
    figure = draw_phi(quadri_tensor(conv, edge_index, *args, **kwargs))
    if path is not None:
        save(figure, path)
    return figure
