"""Graphs larger than memory: layer-wise inference, samples that keep the weights of the basis."""

from .carried import Carried
from .layerwise import convolve
from .samples import Clusters, Neighbors, RandomNodes, Sample, Sampler, metis
from .scratch import Scratch

__all__ = [
    "Carried",
    "Clusters",
    "Neighbors",
    "RandomNodes",
    "Sample",
    "Sampler",
    "Scratch",
    "convolve",
    "metis",
]
