"""Graphs larger than memory: layer-wise inference, samples that keep the weights of the basis."""

from .carried import Carried
from .generate import generate
from .layerwise import convolve
from .mapped_basis import carried_by, clusters_of
from .samples import Blocks, Clusters, Neighbors, RandomNodes, Sample, Sampler, metis
from .scratch import Scratch

__all__ = [
    "Blocks",
    "Carried",
    "Clusters",
    "Neighbors",
    "RandomNodes",
    "Sample",
    "Sampler",
    "Scratch",
    "carried_by",
    "clusters_of",
    "convolve",
    "generate",
    "metis",
]
