"""Graphs larger than memory: layer-wise inference, samples that keep the weights of the basis."""

from .layerwise import convolve
from .scratch import Scratch

__all__ = ["Scratch", "convolve"]
