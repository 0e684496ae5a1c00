"""A module with a family and a score of a user's own, and tests that leave nothing of it behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyg_outerconv.attention import SCORES
from pyg_outerconv.families import FAMILIES
from pyg_outerconv.lab import own_code

CODE = '''
from __future__ import annotations

from dataclasses import dataclass

import torch

from pyg_outerconv.attention import Score
from pyg_outerconv.families import Family, edge_basis


@dataclass(frozen=True)
class IntoHubs(Family):
    """Edges into nodes with many of them.

    Args:
        threshold (int, optional): how many. (default: ``3``)
    """

    equation = "A_0[m, n] = 1 where n has more than `threshold` edges"
    labels = ("edges into hubs",)
    reads_beside = ()

    threshold: int = 3

    def basis_on(self, structure, dtype=None):
        count = structure.target.bincount(minlength=structure.size[1])
        return edge_basis(structure.select(count[structure.target] > self.threshold))


class Distance(Score):
    """Minus the distance."""

    name = "minus-distance"

    def __init__(self, heads, channels=None, in_channels=-1):
        super().__init__(heads)
        self.scale = torch.nn.Parameter(torch.ones(heads))

    def forward(self, source, query, support):
        keys, queries = source[support.pattern.source], query[support.pattern.target]
        return -torch.linalg.vector_norm(keys - queries, dim=-1, keepdim=True) * self.scale
'''


def forget() -> None:
    """Be a new process, which has imported nothing."""
    own_code._imported.clear()
    sys.modules.pop("mine_hubs", None)
    FAMILIES.pop("intohubs", None)
    SCORES.pop("minus-distance", None)


@contextmanager
def nothing_stays() -> Iterator[None]:
    """A block after which families, scores and modules named ``mine_…`` are as they were."""
    imported, modules = dict(own_code._imported), set(sys.modules)
    tables = [(table, dict(table)) for table in (FAMILIES, SCORES)]  # type: ignore[call-overload]
    own_code._imported.clear()
    try:
        yield
    finally:
        for table, before in ((own_code._imported, imported), *tables):
            table.clear()
            table.update(before)
        for name in set(sys.modules) - modules:
            if name.startswith("mine_"):
                del sys.modules[name]
