"""Positions: what indices add to features, to queries and keys, and to scores."""

from .added import AddedPositions
from .alibi import ALiBi
from .graph_positions import GraphPositions
from .learned import LearnedPositions
from .places import places_within, positions_of, relative_positions
from .relative import RelativeBias
from .rotary import Rotary
from .sinusoidal import SinusoidalPositions, sinusoidal
from .term import IndexTerm

__all__ = [
    "ALiBi",
    "AddedPositions",
    "GraphPositions",
    "IndexTerm",
    "LearnedPositions",
    "RelativeBias",
    "Rotary",
    "SinusoidalPositions",
    "places_within",
    "positions_of",
    "relative_positions",
    "sinusoidal",
]
