"""The matrices A_k of the families, on one small graph.

Seven nodes; seven edges lead both ways, two only one. Row m, column n is the edge m → n; white
is no edge. What GCN, Chebyshev, a diffusion or a mask of attention does with a graph is what these
matrices say.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from pyg_outerconv.families import (
    GCN,
    Causal,
    Chebyshev,
    Complete,
    Diffusion,
    Directed,
    GlobalTokens,
    HighPass,
    Hops,
    Identity,
    Relation,
    SlidingWindow,
    Stack,
    Strided,
    Union,
    Walk,
)

BOTH_WAYS = torch.tensor([[0, 0, 1, 2, 3, 4, 4], [1, 2, 2, 3, 4, 5, 6]])
ONE_WAY = torch.tensor([[5, 6], [6, 0]])
EDGES = torch.cat([BOTH_WAYS, BOTH_WAYS.flip(0), ONE_WAY], dim=1)

GRAPHS = {
    "Identity()": Identity(),
    "Relation(norm=None)": Relation(1, None),
    "Relation(norm='mean')": Relation(1, "mean"),
    "GCN()": GCN(),
    "HighPass()": HighPass(),
    "Walk(2), one step": Walk(2, powers=(1,)),
    "Walk(2), two steps": Walk(2, powers=(2,)),
    "Diffusion('ppr')": Diffusion("ppr"),
    "Diffusion('heat')": Diffusion("heat"),
    "Hops(2)": Hops(2),
}
MASKS = {
    "Complete()": Complete(),
    "Causal()": Causal(),
    "SlidingWindow(1)": SlidingWindow(1),
    "Strided(3)": Strided(3),
    "Union of a window and a token": Union(SlidingWindow(1), GlobalTokens(1)),
}
PICTURES = {
    "graph.svg": "The graph: two triangles of nodes with a path between them, and a way back from "
    "the second to the first; arrows where an edge leads one way only.",
    "families.svg": "Ten panels of 7 × 7 cells, a family each: the identity is a diagonal, "
    "GCN the edges and a diagonal, the high pass its negative and a strong diagonal, and two steps "
    "of a walk and diffusions fill the matrix.",
    "chebyshev.svg": "Four panels: Chebyshev polynomials of the rescaled Laplacian, the identity, "
    "the negative neighbours, and two that reach two and three edges far, with signs.",
    "directed.svg": "Two panels, the transpose of each other: the edges and the reversed edges.",
    "masks.svg": "Five panels, masks of attention over a sequence of seven: all pairs, a triangle, "
    "a band of three, every third diagonal, and a band with a full first row and column.",
}


def draw(folder: Path) -> None:
    """Draw the pictures into a folder."""
    Relation(1, None).basis(EDGES, size=(7, 7)).plot("graph", folder / "graph.svg", titles=["W"])
    _panels(Stack(*GRAPHS.values()), list(GRAPHS), folder / "families.svg")
    names = [f"T_{k}(L - I)" for k in range(4)]
    _panels(Chebyshev(4), names, folder / "chebyshev.svg")
    _panels(Directed(Relation(1, None)), ["W", "W transposed"], folder / "directed.svg")
    _panels(Stack(*MASKS.values()), list(MASKS), folder / "masks.svg")


def _panels(family: object, titles: list[str], path: Path) -> None:
    basis = family.basis(EDGES, size=(7, 7))
    basis.plot("matrices", path, titles=titles, max_panels=len(titles))


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
