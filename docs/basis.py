"""Draw docs/basis.png: a graph of seven nodes beside the matrices A_k of a basis on it.

python docs/basis.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave

from pyg_outerconv.families import GCN, Identity, Relation, Stack, Walk
from pyg_outerconv.plot.canvas import lines

FRIENDS = torch.tensor([[0, 0, 1, 2, 3, 4, 4, 5], [1, 2, 2, 3, 4, 5, 6, 6]])
TITLES = ("A_0: the node itself", "A_1: neighbours, as in GCN", "A_2: walks of two steps")


def pixels(figure: Figure) -> np.ndarray:
    """(height, width, 4) a figure as an image."""
    figure.set_dpi(100)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def show_cells(axes: Axes, matrix: np.ndarray) -> None:
    """Draw lines between the cells of a matrix, its values in them, and a tick for each node."""
    lines(axes, matrix.shape, (1, 1), width=0.6)
    axes.set_xticks(range(matrix.shape[1]))
    axes.set_yticks(range(matrix.shape[0]))
    for row, column in np.argwhere(matrix):
        value, colour = matrix[row, column], "white" if matrix[row, column] > 0.6 else "black"
        said = f"{value:.2f}".removeprefix("0")
        axes.text(column, row, said, ha="center", va="center", fontsize=6, color=colour)


def padded(image: np.ndarray, height: int) -> np.ndarray:
    """An image between white rows."""
    above = (height - len(image)) // 2
    rows = (above, height - len(image) - above)
    return np.pad(image, (rows, (0, 0), (0, 0)), constant_values=255)


def main(arguments: list[str]) -> None:
    """Write the picture to a path, by default beside this script."""
    path = Path(arguments[0]) if arguments else Path(__file__).with_name("basis.png")
    edge_index = torch.cat([FRIENDS, FRIENDS.flip(0)], dim=1)
    graph = Relation(1, norm=None).basis(edge_index, size=(7, 7))
    basis = Stack(Identity(), GCN(), Walk(2, powers=(2,))).basis(edge_index, size=(7, 7))
    left = graph.plot("graph", titles=["the graph"])
    left.delaxes(left.axes[-1])  # its bar of colours; all edges are 1
    right = basis.plot("matrices", titles=TITLES)
    for axes, matrix in zip(right.axes, basis.to_dense().numpy(), strict=False):
        show_cells(axes, matrix)
    parts = [pixels(left), pixels(right)]
    height = max(map(len, parts))
    imsave(path, np.concatenate([padded(part, height) for part in parts], axis=1))


if __name__ == "__main__":
    main(sys.argv[1:])
