"""ToSparseFeatures: node features that are mostly zeros, stored sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from ..errors import RefusedType, RefusedValue
from ..graph import SparseFeatures
from ..signatures import fits

MAX_DENSITY = 0.1


@functional_transform("to_sparse_features")
class ToSparseFeatures(BaseTransform):
    r"""Stores node features that are mostly zeros as :class:`~pyg_outerconv.graph.SparseFeatures`
    (functional name: :obj:`to_sparse_features`).

    Layers, dropout, loaders and other transforms take them as they take dense features, at the
    cost of what is not zero. In heterogeneous data each type of nodes is decided by itself.

    Args:
        max_density (float, optional): The largest share of non-zeros with which features become
            sparse; denser ones stay as they are. (default: :obj:`0.1`. With this
            share of non-zeros, a product with 16 or 64 output channels and its gradient took 0.8
            to 0.9 of the time of the dense one, and 0.15 to 0.25 if there was dropout; with a
            share of 0.2 and no dropout it took 1.3 times as long. X was 2708 x 1433 in float32,
            on one core)
        attrs (List[str], optional): The names of the features. (default: :obj:`["x"]`)

    Raises:
        ValueError: :obj:`max_density` is not in :math:`[0, 1]`.
        TypeError: It is no number, or the names are no strings.
    """

    def __init__(
        self, max_density: float = MAX_DENSITY, attrs: Sequence[str] | None = None
    ) -> None:
        if isinstance(max_density, bool) or not isinstance(max_density, int | float):
            raise RefusedType("max_density is a share of non-zeros", "a number", max_density)
        if not 0.0 <= max_density <= 1.0:
            raise RefusedValue("max_density is a share of non-zeros", "[0, 1]", max_density)
        if not fits(attrs, Sequence[str] | None):
            raise RefusedType("attrs are names of features", "a list of strings", attrs)
        names = ["x"] if attrs is None else list(attrs)
        self.max_density, self.attrs = max_density, names

    def forward(self, data: Any) -> Any:
        """The data, with its sparse features stored as such."""
        if not isinstance(data, BaseData):
            raise RefusedType("a transform changes a graph of PyG's", "Data", type(data).__name__)
        for store in data.node_stores:
            for key, value in store.items(*self.attrs):
                if self._becomes_sparse(value):
                    store[key] = SparseFeatures.of(value)
        return data

    def _becomes_sparse(self, value: Any) -> bool:
        if not isinstance(value, Tensor) or isinstance(value, SparseFeatures):
            return False
        if value.dim() != 2 or not value.is_floating_point() or not value.numel():
            return False
        if value.layout is not torch.strided:
            return True
        return int(torch.count_nonzero(value)) <= self.max_density * value.numel()

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(max_density={self.max_density})"
