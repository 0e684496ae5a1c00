"""Attention that was learned: whom the members of a karate club listen to.

A graph attention network of two layers learns the four groups of Zachary's karate club from one
labelled member of each. The matrix of a head is then a basis like any other: it can be drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.datasets import KarateClub

from pyg_outerconv.nn.attention import gat_conv

PICTURES = {
    "learned.svg": "The 34 members of the karate club in colours of their four groups; every "
    "edge is an arrow, and a few are wide and dark, where the share of attention is large.",
    "heads.svg": "Two panels of 34 × 34 cells: the shares that two heads of the first layer have, "
    "each column summing to one.",
}


def train() -> tuple[torch.nn.ModuleList, object]:
    """The two layers after 100 steps, and the graph."""
    torch.manual_seed(0)
    data = KarateClub()[0]
    first, last = gat_conv(34, 8, heads=2), gat_conv(16, 4)
    layers = torch.nn.ModuleList([first, last])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.02, weight_decay=5e-4)
    for _ in range(100):
        hidden = F.elu(first(data.x, data.edge_index))
        out = last(hidden, data.edge_index)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layers, data


def draw(folder: Path) -> None:
    """Draw the pictures into a folder."""
    (first, last), data = train()
    with torch.no_grad():
        heads = first.basis(data.x, data.edge_index)
        heads.plot("matrices", folder / "heads.svg", titles=["head 0", "head 1"])
        shares = last.basis(F.elu(first(data.x, data.edge_index)), data.edge_index)
    classes = data.y.numpy()
    shares.plot("graph", folder / "learned.svg", classes=classes, titles=["the last layer"])


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
