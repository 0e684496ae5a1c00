"""MatrixMarket: entry (m, n) of a matrix is the edge m → n, and rows of features are nodes.

Nodes are called as the format numbers them, from 1.
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, issparse

from ....errors import RefusedValue
from .files import content_of
from .parts import Edges, Features, Labels, arrow, as_text, finite, refuse

_HEADER = re.compile(rb"%%matrixmarket\s+matrix\s+(\w+)\s+(\w+)\s+(\w+)", re.IGNORECASE)


def edges(path: Path, weight: str | None, edge_type: str | None) -> Edges:
    """Edges of a square sparse matrix; its values are weights unless it is a pattern."""
    for name in (weight, edge_type):
        if name is not None:
            raise refuse(str(path), "a matrix has no columns with names", "none named", repr(name))
    matrix, header = _read(path)
    if not issparse(matrix) or matrix.shape[0] != matrix.shape[1]:
        rule = "edges are a sparse matrix with a row and a column for each node"
        raise refuse(str(path), rule, "coordinates, N × N", f"{_kind(matrix)} {matrix.shape}")
    matrix = coo_array(matrix)
    pa = arrow()
    ends = tuple(as_text(pa.array(np.asarray(end, np.int64) + 1)) for end in matrix.coords)

    def where(row: int) -> str:
        if row < 0:
            return str(path)
        return f"{path}, entry ({', '.join(str(end[row] + 1) for end in matrix.coords)})"

    weights = None
    if header[1].lower() != b"pattern":
        weights = finite(_real(path, matrix.data), where, "an edge weight is a number")
    return Edges((ends[0], ends[1]), where, weights, first=1, num_nodes=matrix.shape[0])


def features(path: Path) -> Features:
    """A matrix, sparse or dense, with a row for each node."""
    matrix, _ = _read(path)
    x = matrix.toarray() if issparse(matrix) else matrix

    def where(row: int) -> str:
        return f"{path}, row {row + 1}"

    return Features(None, finite(_real(path, x), where, "features are numbers"), where)


def labels(path: Path) -> Labels:
    """A matrix of integers with one column."""
    matrix, _ = _read(path)
    y = matrix.toarray() if issparse(matrix) else np.asarray(matrix)
    if y.ndim != 2 or y.shape[1] != 1:
        raise refuse(str(path), "labels are one column", "(N, 1)", y.shape)
    return Labels(None, as_text(arrow().array(y[:, 0])), lambda row: f"{path}, row {row + 1}")


def _read(path: Path) -> tuple[Any, tuple[bytes, ...]]:
    from scipy.io import mmread

    content = content_of(path)
    header = _HEADER.match(content)
    if header is None:
        first = content.partition(b"\n")[0][:60].decode(errors="replace")
        rule = "MatrixMarket begins with its header"
        raise refuse(f"{path}, line 1", rule, "%%MatrixMarket matrix …", repr(first))
    _require_size(path, content)
    try:
        matrix = mmread(BytesIO(content))
    except Exception as error:  # the reader and its stream fail in many ways
        reason = " ".join(str(error).split()) or type(error).__name__
        line = re.match(r"Line (\d+): (.*)", reason)
        place, reason = (f"{path}, line {line[1]}", line[2]) if line else (str(path), reason)
        raise refuse(place, "a MatrixMarket file is whole", "rows of its header", reason) from error
    return matrix, header.groups()


def _require_size(path: Path, content: bytes) -> None:
    """Refuse a matrix without rows or columns: scipy's reader divides by their number."""
    for number, line in enumerate(BytesIO(content), 1):
        if line.strip() and not line.lstrip().startswith(b"%"):
            if b"0" in line.split()[:2]:
                got = line.strip()[:60].decode(errors="replace")
                raise refuse(f"{path}, line {number}", "a matrix has rows and columns", ">= 1", got)
            return


def _real(path: Path, values: Any) -> Any:
    if np.iscomplexobj(values):
        raise RefusedValue(f"{path} holds numbers", "real or integer", "complex")
    return np.asarray(values, np.float64)


def _kind(matrix: Any) -> str:
    return "a sparse matrix" if issparse(matrix) else "an array"
