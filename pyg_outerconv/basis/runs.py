"""Edges of ones that a rule lists."""

from __future__ import annotations

import torch
from torch import Tensor

from .edges import EdgeBasis
from .pattern import Pattern, index_type


def unlabelled_edges(source: Tensor, target: Tensor, size: tuple[int, int]) -> EdgeBasis:
    """Edges (E,) of ones that are listed by target, then source; no label tells them apart."""
    dtype = index_type(size, 1, source.numel())
    source, target = source.to(dtype), target.to(dtype)
    label = torch.zeros_like(source)
    return EdgeBasis(Pattern.of_sorted(source, target, label, size=size, num_labels=1))


def sorted_pairs(index: Tensor, size: tuple[int, int]) -> EdgeBasis:
    """The pairs (2, E) of a source and a target, in any order, as edges of ones, each once."""
    rows = max(size[0], 1)
    key = torch.unique(index[1].long() * rows + index[0])
    return unlabelled_edges(key % rows, key // rows, size)
