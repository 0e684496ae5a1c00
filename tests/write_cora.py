"""``python tests/write_cora.py ROOT`` writes datasets/cora.npz from the files below ROOT.

It prints the sha256 for datasets/registry.json, which is the same wherever zlib is the same.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid

from pyg_outerconv.lab.data.graph import PARTS

FILE = Path(__file__).resolve().parents[1] / "datasets" / "cora.npz"


def fitting(values: torch.Tensor) -> np.ndarray:
    """The values in the smallest unsigned integers that hold them."""
    array = values.numpy()
    return array.astype(np.min_scalar_type(int(array.max())))


def pack(data: Data) -> dict[str, np.ndarray]:
    """The arrays that ``data.dataset`` reads."""
    assert set(data.x.unique().tolist()) == {0.0, 1.0}, "the features are binary"
    part = torch.zeros_like(data.y)
    for number, name in enumerate(PARTS, start=1):
        part[data[f"{name}_mask"]] = number
    return {
        "x_counts": fitting((data.x != 0).sum(dim=1)),
        "x_columns": fitting(data.x.nonzero()[:, 1]),
        "x_width": np.array(data.x.size(1)),
        "edge_index": fitting(data.edge_index),
        "y": fitting(data.y),
        "part": fitting(part),
    }


if __name__ == "__main__":
    np.savez_compressed(FILE, **pack(Planetoid(f"{sys.argv[1]}/Planetoid", "Cora")[0]))
    content = FILE.read_bytes()
    print(f"{FILE}: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}")
