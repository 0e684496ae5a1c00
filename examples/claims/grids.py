"""Convolutions of images are sums of shifts, and pooling has clusters (section 3.2, equation 5).

python examples/claims/grids.py
"""

import torch
from torch import nn

from pyg_outerconv import Grid, Pool
from pyg_outerconv.nn.convert import from_torch

LAYERS = {
    "Conv1d": (nn.Conv1d(3, 4, 5, padding=2), (9,)),
    "Conv2d": (nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), (9, 8)),
    "Conv3d": (nn.Conv3d(3, 4, 2), (4, 5, 6)),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2), (4, 5)),
    "MaxPool2d": (nn.MaxPool2d(2), (6, 8)),
    "AvgPool2d": (nn.AvgPool2d(3, stride=1), (6, 8)),
}


@torch.no_grad()
def main():
    """Compare torch's layers with the same weights over bases of shifts."""
    for name, (theirs, shape) in LAYERS.items():
        ours = from_torch(theirs)
        images = torch.randn(2, 3, *shape)
        gap = float((ours(images) - theirs(images)).abs().max())
        print(f"{name:<16} {len(ours.family.labels):>2} matrices, up to {gap:.0e}")
        assert gap < 1e-5
    shift = Grid(offsets=((2, 4),)).basis((8, 10)).to_dense()[0]
    assert torch.equal(shift.nonzero()[0], torch.tensor([0, 2 * 10 + 4]))  # m = n - d
    assert Pool((2, 2)).basis((6, 8)).num_bases == 4


if __name__ == "__main__":
    main()
