"""Convolutions of images are sums of shifts, and pooling has clusters (section 3.2, equation 5).

python examples/claims/grids.py
"""

import torch
from torch import nn

from pyg_outerconv import Grid, Pool, flatten_grid
from pyg_outerconv.nn.convert import from_torch

LAYERS = {
    "Conv1d": (nn.Conv1d(3, 4, 5, padding=2), (9,)),
    "Conv2d": (nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), (9, 8)),
    "Conv3d": (nn.Conv3d(3, 4, 2), (4, 5, 6)),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2), (4, 5)),
    "MaxPool2d": (nn.MaxPool2d(2), (6, 8)),
    "AvgPool2d": (nn.AvgPool2d(3, stride=1), (6, 8)),
}


def cells(*shape, first=0):
    """The coordinates of all cells of a grid, (cells, axes)."""
    return torch.cartesian_prod(*(torch.arange(first, first + count) for count in shape))


@torch.no_grad()
def main():
    """Sum over dense matrices with torch's weights, and compare their entries with the paper's."""
    for name, (theirs, shape) in LAYERS.items():
        ours = from_torch(theirs)  # on whole grids it calls torch's kernel; so the sum is by hand
        images = torch.randn(2, 3, *shape)
        a, x = ours.family.basis(shape).to_dense(), flatten_grid(images)
        seen = torch.einsum("kmn,bmp->kbnp", a, x)
        if name == "MaxPool2d":  # each label has one input, as no cell is missing
            y = seen.amax(0)
        elif name == "AvgPool2d":
            y = seen.mean(0)
        else:
            y = torch.einsum("kbnp,kpq->bnq", seen, ours.theta()[:, 0]) + ours.bias
        gap = float((y - flatten_grid(theirs(images))).abs().max())
        print(f"{name:<16} {len(a):>2} matrices, up to {gap:.0e}")
        assert gap < 1e-5

    m, shift = cells(8, 10), Grid(offsets=((2, 4),)).basis((8, 10)).to_dense()[0]
    assert torch.equal(shift, (m[:, None] == m - torch.tensor([2, 4])).all(-1).float())
    print("a shift by d: 1 where m = n - d, else 0")
    m, n = cells(6, 8, first=1), cells(3, 4, first=1)
    for k, place in zip(cells(2, 2), Pool((2, 2)).basis((6, 8)).to_dense(), strict=True):
        assert torch.equal(place, (m[:, None] == 2 * n - k).all(-1).float())
    print("pooling, equation 5: 1 where m = s n - k, cells counted from 1")


if __name__ == "__main__":
    main()
