"""What the tests of reductions share."""

from itertools import product

import pytest
import torch
from cases import STRUCTURES
from contractions import normal

from pyg_outerconv.basis import EdgeBasis, Pattern
from pyg_outerconv.theta import Theta

REDUCTIONS = ("sum", "mean", "max", "min")
PAIRS_OF_REDUCTIONS = list(product(REDUCTIONS, ("sum", "max", "min")))
COMPARED = [pair for pair in PAIRS_OF_REDUCTIONS if pair[1] != "sum"]


both = pytest.mark.parametrize(("aggr", "label_aggr"), COMPARED)


def edges_of(name, num_labels=3):
    """Edges of some labels with values of both signs."""
    found = STRUCTURES[name]
    pattern = Pattern.build(
        found.edge_index, found.edge_type, size=found.size, num_labels=num_labels
    )
    return EdgeBasis(pattern, normal(pattern.num_edges))


def identity(num_labels, channels, dtype=torch.float64):
    return Theta.identity(num_labels, channels, torch.empty(0, dtype=dtype))


def has_edges(basis):
    """Whether which edges a basis has is known without making powers or products."""
    return not any(name in repr(basis) for name in ("Polynomial", "Composed"))
