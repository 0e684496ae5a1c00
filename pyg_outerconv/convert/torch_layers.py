"""Which of torch's layers becomes which of ours, and back."""

from __future__ import annotations

from torch import nn

from ..errors import RefusedType, refusal
from ..nn.grid_conv import GridConv
from ..nn.grid_pool import GridPool
from .convolutions import CONVOLUTIONS, from_convolution, to_convolution
from .poolings import POOLINGS, from_pooling, to_pooling


def from_torch(module: nn.Module) -> GridConv | GridPool:
    """The layer of this package that equals one of torch's, with a copy of its weights.

    Args:
        module: ``Conv1d``, ``Conv2d``, ``Conv3d``, ``ConvTranspose``, ``MaxPool`` or ``AvgPool`` of
            1 to 3 axes, or ``LPPool`` with norm 1.

    Raises:
        TypeError: it is another layer.
        ValueError: it has an option that has no equal, or no weights yet.
    """
    if isinstance(module, tuple(CONVOLUTIONS)):
        layer: GridConv | GridPool = from_convolution(module)
    elif isinstance(module, tuple(POOLINGS)):
        layer = from_pooling(module)
    else:
        raise RefusedType(
            refusal(
                "a layer of torch becomes one on a grid",
                "a convolution or pooling of torch.nn",
                type(module).__name__,
            )
        )
    return layer.train(module.training)


def to_torch(layer: nn.Module) -> nn.Module:
    """The layer of torch that equals one of this package on images, with a copy of its weights.

    Args:
        layer: a :class:`GridConv` or :class:`GridPool`.

    Raises:
        TypeError: it is another layer.
        ValueError: torch has no such layer: more than 3 axes, any offsets, other paddings,
            reductions or forms of Θ; or it has no weights yet.
    """
    if isinstance(layer, GridConv):
        module = to_convolution(layer)
    elif isinstance(layer, GridPool):
        module = to_pooling(layer)
    else:
        raise RefusedType(
            refusal(
                "a layer on a grid becomes one of torch",
                "GridConv or GridPool",
                type(layer).__name__,
            )
        )
    return module.train(layer.training)
