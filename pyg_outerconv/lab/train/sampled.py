"""Training on samples of a graph, and exact evaluation layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from ...basis import Basis
from ...errors import RefusedValue
from ...families import Family
from ...families.heads_by_name import HeadsByName
from ...graph import Graph
from ...scale import Blocks, Carried, Clusters, Neighbors, RandomNodes, Sampler, Scratch, metis
from ...scale.chunks import MOST_EDGES, rows_of
from .by_layers import logits_by_layers
from .inputs import WHOLE, Batch, Inputs, Share
from .settings import Settings, fan_outs_of

if TYPE_CHECKING:
    from .model import Classifier


@dataclass(frozen=True)
class Sampled(Inputs):
    """A sample at every call in training, the whole graph layer by layer in evaluation.

    Attributes:
        x: (N, P) features, dense or CSR, in memory or mapped to a file.
        basis: of the whole graph.
        sampler: splits an epoch into samples.
        device: where batches are needed.
        most_edges: the bound on a chunk of targets in evaluation.
        scratch: allocates what is between the layers in evaluation; in memory by default.
    """

    x: Tensor
    basis: Basis
    sampler: Sampler
    device: str
    most_edges: int = MOST_EDGES
    scratch: Scratch | None = None

    def batches(
        self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE
    ) -> Iterator[Batch | None]:
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
        made = cast("Classifier", model)
        out = logits_by_layers(
            made, self.x, self.basis, scratch=self.scratch, most_edges=self.most_edges
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
    """The inputs that ``settings.batches`` names.

    Args:
        x: (N, P) features.
        family: of the layers.
        data: the graph.
        structure: what the layers are called with on the whole graph.
        settings: of the run.

    Raises:
        ValueError: the graph has no features, the engine is not installed, samples cannot carry
            the structure, or predictions are propagated.
    """
    if isinstance(family, HeadsByName):  # the support carries; scores are made in layers
        family = family.edges
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
    carried = Carried(family, edges, structure.to("cpu"))  # where samples are drawn
    sampler = sampler_of(carried, settings, partial(metis, carried))
    return Sampled(x, structure, sampler, settings.device)


def sampler_of(carried: Carried, settings: Settings, clusters: Callable[[int], Tensor]) -> Sampler:
    """The sampler that ``settings.batches`` names.

    Args:
        carried: what samples carry.
        settings: of the run.
        clusters: the cluster of each node (N,), for a number of clusters.
    """
    if settings.batches == "neighbor":
        return Neighbors(carried, fan_outs_of(settings.fan_outs), settings.batch_size)
    if settings.batches == "blocks":
        return Blocks(carried, settings.parts, settings.parts_per_batch)
    if settings.batches == "clusters":
        return Clusters(carried, clusters(settings.parts), settings.parts_per_batch)
    return RandomNodes(carried, settings.parts)
