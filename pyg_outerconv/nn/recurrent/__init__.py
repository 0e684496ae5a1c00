"""Recurrent cells whose gates are convolutions over any family."""

from .cell import RecurrentCell, unroll
from .gated_cells import ConvGRUCell, ConvLSTMCell

__all__ = ["ConvGRUCell", "ConvLSTMCell", "RecurrentCell", "unroll"]
