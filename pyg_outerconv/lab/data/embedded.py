"""Graphs that come with the package, each in one npz of integers."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ...errors import refusal
from ...files import read_bytes
from .registry import DataUnavailable, Entry, shipped

PARTS = ("train", "val", "test")  # the part of a node is its place here, counted from 1; 0 for none


def read_embedded(known: Entry) -> Data:
    """The graph of an entry, as PyG's class makes it of the published files.

    The file holds ``x_counts`` (N,) and ``x_columns``, the non-zeros of binary features row by row,
    ``x_width`` P, ``edge_index`` (2, E), ``y`` (N,) and ``part`` (N,), in the integers that fit.

    Raises:
        DataUnavailable: the file is gone, or has not the checksum of the registry.
    """
    assert known.embedded is not None, f"{known.name} comes with the package"
    path = shipped(known.embedded["file"])
    content = _read(path, known.embedded["sha256"])
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        held = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
    data = Data(x=_features(held), edge_index=held["edge_index"], y=held["y"])
    for number, part in enumerate(PARTS, start=1):
        data[f"{part}_mask"] = held["part"] == number
    return data


def _read(path: Path, expected: str) -> bytes:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        rule = f"{path} must be as it comes with the package, by its sha256"
        raise DataUnavailable(refusal(rule, expected, f"{got}: install the package again"))
    return content


def _features(held: dict[str, Tensor]) -> Tensor:
    counts = held["x_counts"]
    x = torch.zeros(counts.numel(), int(held["x_width"]))
    rows = torch.arange(counts.numel()).repeat_interleave(counts)
    x[rows, held["x_columns"]] = 1
    return x
