"""Recurrent cells whose gates are convolutions over any family."""

from .cell import RecurrentCell, Shared, State
from .conv_gru_cell import ConvGRUCell
from .conv_lstm_cell import ConvLSTMCell
from .unroll import unroll

__all__ = ["ConvGRUCell", "ConvLSTMCell", "RecurrentCell", "Shared", "State", "unroll"]
