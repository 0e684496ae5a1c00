"""The labels that a search may see: those of training and validation nodes, split by split."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.utils import is_undirected

from ..data import Dataset
from ..train import Split, make_split

WITHHELD = -1


@dataclass(frozen=True)
class Unlabelled:
    """A dataset whose ``y`` is −1 at every node, as models are built on.

    Attributes:
        dataset: the graph and its features.
        num_classes: C, a fact of the dataset.
    """

    dataset: Dataset
    num_classes: int

    @property
    def has_features(self) -> bool:
        """Whether nodes have features."""
        x = self.dataset.data.get("x")
        return x is not None and x.numel() > 0

    @property
    def is_directed(self) -> bool:
        """Whether the edges and the reversed edges differ."""
        data = self.dataset.data
        return not is_undirected(data.edge_index, num_nodes=data.num_nodes)


@dataclass(frozen=True)
class Labels:
    """What a seed may see.

    Attributes:
        y: (N,) classes of the training and validation nodes, −1 at all others.
        split: training, validation and test nodes.
    """

    y: Tensor
    split: Split


def without_labels(dataset: Dataset) -> Unlabelled:
    """The dataset without labels."""
    data = copy.copy(dataset.data)
    data.y = torch.full_like(dataset.data.y, WITHHELD)
    return Unlabelled(replace(dataset, data=data), dataset.num_classes)


def visible_labels(dataset: Dataset, protocol: str, seeds: Sequence[int]) -> dict[int, Labels]:
    """The labels of each seed's training and validation nodes; all others are withheld.

    Raises:
        ValueError: the dataset is too small for the protocol.
    """
    found = {}
    for seed in seeds:
        split = make_split(dataset.data, protocol, seed)
        seen = (split.train | split.validation) & ~split.test
        found[seed] = Labels(torch.where(seen, dataset.data.y, WITHHELD), split)
    return found
