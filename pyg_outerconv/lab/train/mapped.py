"""Training on a graph in mapped files: what its options are, and the samples it gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from ...errors import RefusedValue
from ...families import Family, parse_family
from ...families.multi_head import HeadsByName
from ...scale import Carried, Scratch, carried_by, clusters_of
from ...scale.chunks import MOST_EDGES
from ...scale.mapped import MappedGraph
from ..data import Dataset
from .sampled import Sampled, sampler_of
from .settings import Settings

BLOCK, TOGETHER = 2000, 25
"""Nodes of a block and blocks of a sample, where a message proposes some."""


def check_mapped(dataset: Dataset, settings: Settings) -> None:
    """Refuse what would read all of a mapped graph, or copy its features.

    Raises:
        ValueError: an option does; naming what to say instead.
    """
    graph = dataset.mapped
    if graph is None:
        return
    parts = max(1, math.ceil(graph.num_nodes / BLOCK))
    blocks = f"--batches blocks --parts {parts} --parts-per-batch {min(parts, TOGETHER)}"
    for rule, fits, expected, got in (
        ("a graph in mapped files is trained on samples", settings.batches != "none",
         f"{blocks}, or --batches random-nodes or clusters", "--batches none"),
        ("PyG's NeighborLoader reads all edges into memory", settings.batches != "neighbor",
         f"{blocks}, or --batches random-nodes or clusters", "--batches neighbor"),
        ("predictions are propagated over a whole graph in memory", not settings.propagation,
         "no --propagation", settings.propagation),
        ("features in mapped files are not copied", settings.features != "sparse",
         "--feature-storage dense, or auto", "sparse"),
        ("features in mapped files are not copied", not settings.normalize_features,
         "rows that were normalised when they were written", "--normalize-features"),
        ("layers read mapped files on a CPU", settings.device.split(":")[0] == "cpu",
         "--device cpu", settings.device),
        ("samples have features", graph.x.size(1) > 0,
         f"an array x with columns in {graph.folder}", tuple(graph.x.shape)),
    ):  # fmt: skip
        if not fits:
            raise RefusedValue(rule, expected, got)


def prepare(dataset: Dataset, settings: Settings, log: Callable[[str], None]) -> None:
    """Make whatever is kept beside a mapped graph, if it is not there yet.

    Raises:
        ValueError: as :func:`.scale.carried_by` and :func:`.scale.clusters_of`.
    """
    if dataset.mapped is not None:
        _carried(dataset.mapped, parse_family(settings.family), log)
        if settings.batches == "clusters":
            clusters_of(dataset.mapped, settings.parts, log)


def mapped_inputs(graph: MappedGraph, family: Family, settings: Settings) -> Sampled:
    """The inputs that ``settings.batches`` names, over files.

    What lies between the layers in evaluation is in files of the graph's folder that have no name.

    Raises:
        ValueError: samples cannot carry the basis, or files cannot be written.
    """
    carried = _carried(graph, family)
    sampler = sampler_of(carried, settings, partial(clusters_of, graph))
    scratch = Scratch(graph.folder)
    return Sampled(graph.x, carried.basis, sampler, settings.device, MOST_EDGES, scratch)


def _carried(
    graph: MappedGraph, family: Family, log: Callable[[str], None] | None = None
) -> Carried:
    if isinstance(family, HeadsByName):  # the support carries; scores are made in layers
        family = family.edges
    return carried_by(graph, family, log)
