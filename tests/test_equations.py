"""The page of equations names every option there is."""

from pathlib import Path

import pytest

import pyg_outerconv.nn.attention
import pyg_outerconv.position
from pyg_outerconv.basis import FAMILIES
from pyg_outerconv.score import NORMALISERS, SCORES

PAGE = (Path(__file__).resolve().parents[1] / "EQUATIONS.md").read_text()
SUPPORTS = [kind.__name__ for kind in FAMILIES.values() if ".support." in kind.__module__]
HELPERS = {"FeedForward", "Skip", "GraphAttention", "TransformerConv"}
READY = [name for name in pyg_outerconv.nn.attention.__all__ if name not in HELPERS]
POSITIONS = [
    name
    for name in pyg_outerconv.position.__all__
    if name not in {"AddedPositions", "IndexTerm"} and (name[0].isupper() or name == "sinusoidal")
]


@pytest.mark.parametrize("name", [*SCORES, *NORMALISERS, *SUPPORTS, *READY])
def test_an_option_has_its_equation(name):
    assert f"`{name}`" in PAGE or f"`{name}(" in PAGE


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_have_their_equation(name):
    assert name in PAGE
