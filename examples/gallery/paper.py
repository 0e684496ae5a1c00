"""Pictures of the paper: a shift as a matrix, the two flattenings, pooling.

A convolution of a grid has a matrix for each shift of the kernel, and the whole layer is one matrix
in two ways: Φ̂, whose blocks are nodes, and Φ̌, whose blocks are channels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from pyg_outerconv import Grid, OuterConv, Pool
from pyg_outerconv.nn import plot_phi

PICTURES = {
    "shift.svg": "A square matrix of 80 rows in blocks of 10, with ones on one broken diagonal: "
    "the shift by 2 rows and 4 columns of a grid of 8 × 10 cells (figure 3 of the paper).",
    "flattenings.svg": "Two banded matrices of one layer on six cells, side by side: one has "
    "6 × 6 blocks of 2 × 3 channels, the other 2 × 3 blocks of 6 × 6 cells (the paper's figure 2).",
    "pooling.svg": "Four panels of a grid of 6 × 8 cells pooled in clusters of 2 × 2: under each "
    "label every cluster has the colour of one of its four cells (equation 5 of the paper).",
}


def draw(folder: Path) -> None:
    """Draw the pictures into a folder."""
    shift = Grid(offsets=((2, 4),)).basis((8, 10))  # A_d[m, n] = 1 where m = n - d
    shift.plot("matrices", folder / "shift.svg")

    torch.manual_seed(0)
    conv = OuterConv(2, 3, Grid((3,), padding=1), bias=False)  # three taps, 2 → 3 channels
    plot_phi(conv, (6,), path=folder / "flattenings.svg")

    pool = Pool((2, 2))
    pool.basis((6, 8)).plot("shift", folder / "pooling.svg", titles=pool.labels)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
