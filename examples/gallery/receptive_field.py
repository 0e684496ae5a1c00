"""What one output sees, after one, two and three layers: on a grid, and on a graph.

The inputs that reach an output are the support of the powers of the basis. On a grid 3 × 3 kernels
grow a square; on a graph neighbours of neighbours fill it within three steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch_geometric.datasets import KarateClub

from pyg_outerconv import Grid
from pyg_outerconv.families import GCN

REACHES = (1, 2, 3)
PICTURES = {
    **{
        f"grid-{reach}.svg": f"A grid of 9 × 11 cells: the cells that cell (4, 5) sees through "
        f"{reach} layers of 3 × 3 kernels are a square of {2 * reach + 1} cells on a side."
        for reach in REACHES
    },
    **{
        f"club-{reach}.svg": f"The karate club: the members that member 16 hears of through "
        f"{reach} layers along the edges."
        for reach in REACHES
    },
}


def draw(folder: Path) -> None:
    """Draw the pictures into a folder."""
    grid = Grid((3, 3), padding=1).basis((9, 11))
    club = GCN().basis(KarateClub()[0].edge_index, size=(34, 34))
    for reach in REACHES:
        grid.plot("receptive-field", folder / f"grid-{reach}.svg", cell=(4, 5), reach=reach)
        club.plot("receptive-field", folder / f"club-{reach}.svg", cell=16, reach=reach)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
