"""The quadri-tensor Φ: the dense oracle of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import RefusedValue, refusal
from .prepare import Inputs

if TYPE_CHECKING:
    from .outer_conv import OuterConv


def full_matrices(theta: Tensor) -> Tensor:
    """(K, P, Q) of a (K, G, P/G, Q/G) tensor: the blocks on the diagonal, zeros elsewhere."""
    groups = theta.size(1)
    diagonal = torch.eye(groups, dtype=theta.dtype, device=theta.device)
    return torch.einsum("kgpq,gh->kgphq", theta, diagonal).flatten(3).flatten(1, 2)


def quadri_tensor(conv: OuterConv, edge_index: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Φ (M, N, P, Q) of a layer on some edges; see :meth:`OuterConv.to_dense`.

    Raises:
        ValueError: the layer has a root weight and M ≠ N: targets then have features of their
            own, which Φ does not multiply.
    """
    basis = conv.basis(Inputs(None, None, None, None), edge_index, *args, **kwargs)
    theta = conv.theta()
    if conv.label_aggr == "mean":
        theta = theta / conv.family.num_bases
    theta = full_matrices(theta)
    phi = torch.einsum("kmn,kpq->mnpq", basis.to_dense(theta.dtype).to(theta.dtype), theta)
    if conv.root is None:
        return phi
    if basis.size[0] != basis.size[1] or isinstance(conv.in_channels, tuple):
        raise RefusedValue(
            refusal(
                "a root weight is part of the quadri-tensor only where targets are the sources",
                "M = N and one in_channels",
                basis.size,
            )
        )
    eye = torch.eye(basis.size[0], dtype=phi.dtype, device=phi.device)
    return phi + torch.einsum("mn,pq->mnpq", eye, conv.root()[0, 0])
