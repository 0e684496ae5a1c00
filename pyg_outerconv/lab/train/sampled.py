"""Training on samples of a graph, in memory or in mapped files; evaluation layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from ... import scale
from ...basis import Basis
from ...errors import RefusedValue
from ...families import Family, parse_family
from ...families.multi_head import HeadsByName
from ...graph import Graph
from ...scale.layerwise import MOST_EDGES, rows_of
from ...scale.mapped import MappedGraph
from ..data import Dataset
from ..settings import Settings, fan_outs_of
from .classifiers import logits_by_layers
from .inputs import WHOLE, Batch, Batches, Inputs, Share


@dataclass(frozen=True)
class Sampled(Inputs):
    """A sample at every call in training, the whole graph layer by layer in evaluation."""

    x: Tensor
    basis: Basis
    sampler: scale.Sampler
    device: str
    most_edges: int = MOST_EDGES
    scratch: scale.Scratch | None = None

    def batches(self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE) -> Batches:
        plan = self.sampler.plan(nodes, seed, epoch)
        numbers = share.numbers(len(plan))
        drawn = [number for number in numbers if number is not None]
        trains = torch.zeros(self.basis.size[1], dtype=torch.bool)
        trains[nodes.cpu()] = True
        samples = zip(drawn, self.sampler.draw(plan, drawn, seed, epoch), strict=True)
        for number, sample in samples:
            rows = trains[sample.nodes[: sample.num_seeds]].nonzero().view(-1)
            yield Batch(
                rows_of(self.x, sample.nodes.to(self.x.device), torch.float32).to(self.device),
                sample.basis.to(self.device),
                rows.to(self.device),
                sample.nodes[rows].to(self.device),
                number,
            )
        for _ in numbers[len(drawn) :]:
            yield None

    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        out = logits_by_layers(
            model, self.x, self.basis, scratch=self.scratch, most_edges=self.most_edges
        )
        return out if nodes is None else out[nodes.to(out.device)].to(self.device)

    def try_out(self, model: Module) -> None:
        first = torch.zeros(1, dtype=torch.long)
        batch = next(self.batches(first, 0, 0))
        assert batch is not None  # a sample has the node
        model(batch.x, batch.structure)


def sampled(
    x: Tensor | None, family: Family, data: Data, structure: Any, settings: Settings
) -> Sampled:
    """The inputs that ``settings.batches`` names."""
    if isinstance(family, HeadsByName):  # the support carries; scores are made in layers
        family = family.support
    edges = family.structure_in(data)
    if x is None or not isinstance(edges, Graph) or not isinstance(structure, Basis):
        raise RefusedValue(
            "samples have features, and carry a basis of edges",
            "a graph with features, a family of edges or heads alone; or --batches none",
            f"{settings.dataset} with {settings.family}",
        )
    if settings.propagation:
        raise RefusedValue(
            "predictions are propagated over the whole graph",
            "--batches none",
            f"--batches {settings.batches}",
        )
    carried = scale.Carried(family, edges, structure.to("cpu"))  # where samples are drawn
    sampler = sampler_of(carried, settings, partial(scale.metis, carried))
    return Sampled(x, structure, sampler, settings.device)


def sampler_of(
    carried: scale.Carried, settings: Settings, clusters: Callable[[int], Tensor]
) -> scale.Sampler:
    """The sampler that ``settings.batches`` names."""
    if settings.batches == "neighbor":
        return scale.Neighbors(carried, fan_outs_of(settings.fan_outs), settings.batch_size)
    if settings.batches == "blocks":
        return scale.Blocks(carried, settings.parts, settings.parts_per_batch)
    if settings.batches == "clusters":
        return scale.Clusters(carried, clusters(settings.parts), settings.parts_per_batch)
    return scale.RandomNodes(carried, settings.parts)


# Graphs in mapped files ---------------------------------------------------------------------------


BLOCK, TOGETHER = 2000, 25
"""Nodes of a block and blocks of a sample, where a message proposes some."""


def check_mapped(dataset: Dataset, settings: Settings) -> None:
    """Refuse what would read all of a mapped graph, or copy its features."""
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
    """Make whatever is kept beside a mapped graph, if it is not there yet."""
    if dataset.mapped is not None:
        _carried(dataset.mapped, parse_family(settings.family), log)
        if settings.batches == "clusters":
            scale.clusters_of(dataset.mapped, settings.parts, log)


def mapped_inputs(graph: MappedGraph, family: Family, settings: Settings) -> Sampled:
    """The inputs that ``settings.batches`` names, over files.

    What lies between the layers in evaluation is in files of the graph's folder that have no name.
    """
    carried = _carried(graph, family)
    sampler = sampler_of(carried, settings, partial(scale.clusters_of, graph))
    scratch = scale.Scratch(graph.folder)
    return Sampled(graph.x, carried.basis, sampler, settings.device, MOST_EDGES, scratch)


def _carried(
    graph: MappedGraph, family: Family, log: Callable[[str], None] | None = None
) -> scale.Carried:
    if isinstance(family, HeadsByName):  # the support carries; scores are made in layers
        family = family.support
    return scale.carried_by(graph, family, log)
