"""Graphs larger than memory: layer-wise inference, samples that keep the weights of the basis."""

from .generate import generate
from .layerwise import Scratch, convolve
from .mapped import carried_by, clusters_of
from .samples import Blocks, Carried, Clusters, Neighbors, RandomNodes, Sample, Sampler, metis

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
