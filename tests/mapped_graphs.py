"""A small graph, in mapped files and as a saved Data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from pyg_outerconv.scale.mapped import PARTS, ArrayWriter

NODES, EDGES, FEATURES, CLASSES = 300, 1500, 5, 3


def arrays(nodes: int = NODES, edges: int = EDGES) -> dict[str, torch.Tensor]:
    """Edges in rows of targets, most of them near; features that tell classes apart."""
    draw = torch.Generator().manual_seed(7)
    target = torch.randint(nodes, (edges,), generator=draw).sort().values
    source = (target + torch.randint(-9, 10, (edges,), generator=draw)) % nodes
    y = torch.arange(nodes) * CLASSES // nodes
    x = torch.randn(nodes, FEATURES, generator=draw)
    x[:, 0] += y
    y[::11] = -1
    split = torch.randint(1, 4, (nodes,), generator=draw)
    split[(y < 0) | (torch.rand(nodes, generator=draw) < 0.2)] = 0
    ptr = torch.zeros(nodes + 1, dtype=torch.long)
    ptr[1:] = target.bincount(minlength=nodes).cumsum(0)
    return {"ptr": ptr, "source": source.int(), "x": x, "y": y, "split": split.to(torch.uint8)}


def write(folder: Path, facts: dict[str, Any] | None = None, **changes: torch.Tensor) -> Path:
    """The graph in mapped files, with other arrays in the place of some."""
    writer = ArrayWriter(folder)
    for name, part in (arrays() | changes).items():
        kind = str(part.dtype).removeprefix("torch.")
        writer.create(name, kind, *part.shape)[:] = part.numpy()
    writer.finish({"num_classes": CLASSES} if facts is None else facts)
    return folder


def save(path: Path) -> Path:
    """The graph as a ``Data``."""
    fields = arrays()
    target = torch.arange(NODES).repeat_interleave(fields["ptr"].diff())
    masks = {
        f"{key}_mask": fields["split"] == PARTS.index(part)
        for key, part in (("train", "train"), ("val", "validation"), ("test", "test"))
    }
    index = torch.stack([fields["source"].long(), target])
    torch.save(Data(edge_index=index, x=fields["x"], y=fields["y"], **masks), path)
    return path
