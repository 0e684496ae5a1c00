"""Check that basis, features and Θ of a contraction fit."""

from __future__ import annotations

import torch
from torch import Tensor

from ..basis.base import Basis
from ..errors import RefusedType, RefusedValue, refusal
from ..graph.sparse_features import Features
from ..theta import Mixture, ThetaValue


def check_shapes(basis: Basis, x: Features, theta: ThetaValue) -> None:
    """Check shapes, devices and dtypes of the arguments of :func:`contract`.

    Raises:
        ValueError: shapes do not fit, indices are out of range, or devices differ.
        TypeError: dtypes differ, and autocast is off.
    """
    if len(theta.shape) != 4 or theta.shape[0] != basis.num_bases:
        raise RefusedValue(
            refusal(
                "theta needs a matrix for each label",
                f"({basis.num_bases}, G, P/G, Q/G)",
                tuple(theta.shape),
            )
        )
    if isinstance(theta, Mixture):
        _check_mixture(theta)
    num_sources, in_channels = basis.size[0], theta.shape[1] * theta.shape[2]
    if x is None or (isinstance(x, Tensor) and not x.is_floating_point()):
        if theta.shape[1] != 1:
            raise RefusedValue(
                refusal(
                    "without features the rows of theta are the embedding, "
                    "which needs full matrices",
                    "G = 1",
                    theta.shape[1],
                )
            )
        if x is None and num_sources != in_channels:
            raise RefusedValue(
                refusal(
                    "without features theta needs a row for each source",
                    f"{num_sources} in_channels",
                    in_channels,
                )
            )
        if x is not None and x.shape != (num_sources,):
            raise RefusedValue(
                refusal(
                    "x of indices needs one for each source", f"({num_sources},)", tuple(x.shape)
                )
            )
        if x is not None and x.numel() and not 0 <= int(x.min()) <= int(x.max()) < in_channels:
            raise RefusedValue(
                refusal(
                    "indices of x must be rows of theta",
                    f"[0, {in_channels})",
                    f"[{int(x.min())}, {int(x.max())}]",
                )
            )
    elif x.dim() < 2 or x.size(0) != num_sources or x.size(-1) != in_channels:
        raise RefusedValue(
            refusal(
                "x must have a row for each source and a column for each channel",
                f"({num_sources}, {in_channels})",
                tuple(x.shape),
            )
        )
    place = theta.device  # a meta tensor has no memory, and CPU kernels would read it all the same
    if basis.device != place or (x is not None and x.device != place):
        places = {str(part.device) for part in (basis, x, theta) if part is not None}
        raise RefusedValue(
            refusal("basis, x and theta must be on one device", "one device", sorted(places))
        )
    of_x = x if x is not None and x.is_floating_point() else theta
    if torch.is_autocast_enabled(of_x.device.type):
        return
    if of_x.dtype != theta.dtype:
        raise RefusedType(refusal("x must have the dtype of theta", theta.dtype, of_x.dtype))
    if basis.dtype not in (None, of_x.dtype):
        raise RefusedType(
            refusal(
                "the basis must have the dtype of x; basis.to(x.dtype) casts it",
                of_x.dtype,
                basis.dtype,
            )
        )


def _check_mixture(theta: Mixture) -> None:
    coefficient, matrices = theta.coefficient, theta.matrices
    if coefficient.dim() != 2 or coefficient.size(1) != matrices.size(0):
        raise RefusedValue(
            refusal(
                "a mixture needs a coefficient for each label and matrix",
                f"(K, {matrices.size(0)})",
                tuple(coefficient.shape),
            )
        )
    if coefficient.dtype != matrices.dtype:
        raise RefusedType(
            refusal(
                "coefficients must have the dtype of the matrices",
                matrices.dtype,
                coefficient.dtype,
            )
        )
