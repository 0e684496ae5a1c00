"""R-GCN: a parameter for each type of edge, in full or as a mix of few bases."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.nn import RGCNConv

from ....families import Relation
from ....nn import OuterConv
from ...data import data_root
from ...train.peers import begin_as
from ..case import (
    FLOOR,
    FORWARD,
    OURS,
    PYG,
    PYG_COMPILED,
    TRAINING,
    Contender,
    Context,
    Setup,
    case,
)
from ..graphs import random_graph, uniform_types, zipf_types
from ..roofline import relation_rows
from ..sides import Sides
from ..targets import faster, smaller

FB15K_NODES, FB15K_EDGES, FB15K_RELATIONS = 14_541, 272_115, 237
MOST_UNROLLED = 8


def fb15k_237(context: Context) -> tuple[Tensor, Tensor, int, int, str]:
    """Edges, types, nodes and labels of FB15k-237 with reverses, and where they are from.

    The training triples if PyG's raw files are below the root, else a random graph of the same
    counts, with relations of very unequal size.
    """
    raw = data_root(context.root) / "FB15k_237" / "raw"
    files = [raw / f"{part}.txt" for part in ("train", "valid", "test")]
    if context.share == 1 and all(file.is_file() for file in files):
        index, types, nodes = _read_triples(files)
        relations, origin = FB15K_RELATIONS, "real, training triples"
    else:
        generator = context.generator()
        nodes = context.size(FB15K_NODES, at_least=16)
        relations = context.size(FB15K_RELATIONS, at_least=3)
        index = random_graph(nodes, context.size(FB15K_EDGES), generator)
        types = zipf_types(index.size(1), relations, generator)
        origin = "random, with the counts of FB15k-237"
    both = torch.cat([index, index.flip(0)], dim=1)
    return both, torch.cat([types, types + relations]), nodes, 2 * relations, origin


def _read_triples(files: list[Path]) -> tuple[Tensor, Tensor, int]:
    """Nodes and relations numbered as they first come, over all files; the first file's edges."""
    nodes: dict[str, int] = {}
    relations: dict[str, int] = {}
    triples: list[tuple[int, int, int]] = []
    for number, file in enumerate(files):
        for line in file.read_text(encoding="utf-8").splitlines():
            head, kind, tail = line.split("\t")
            triple = (
                nodes.setdefault(head, len(nodes)),
                relations.setdefault(kind, len(relations)),
                nodes.setdefault(tail, len(nodes)),
            )
            if number == 0:
                triples.append(triple)
    columns = torch.tensor(triples).t()
    return columns[[0, 2]].contiguous(), columns[1].contiguous(), len(nodes)


@case(
    "rgcn-40",
    "relation",
    "R-GCN layer, 40 labels on a random graph, summed within labels",
    targets=(faster(PYG, 2.5, floor=FLOOR),),
    labels=40,
)
@case(
    "rgcn-8",
    "relation",
    "R-GCN layer, 8 labels on a random graph, summed within labels",
    targets=(faster(PYG, 1.3, floor=FLOOR),),
    labels=8,
)
def on_random_graph(context: Context, labels: int, nodes: int = 100_000) -> Setup:
    """Labels drawn uniformly."""
    generator = context.generator()
    nodes = context.size(nodes, at_least=8)
    edge_index = random_graph(nodes, 12 * nodes, generator)
    types = uniform_types(edge_index.size(1), labels, generator)
    return _layers(context, (edge_index, types, nodes, labels, "random"))


@case(
    "rgcn-fb15k-bases",
    "relation",
    "R-GCN layer on FB15k-237 with reverses (474 labels), mixed of 30 bases",
    targets=(faster(PYG, 10),),
    memory=(OURS, PYG),
    bases=30,
)
@case(
    "rgcn-fb15k",
    "relation",
    "R-GCN layer on FB15k-237 with reverses (474 labels), or a graph of its counts",
    targets=(faster(PYG, 5, floor=FLOOR), smaller(PYG, 3)),
    memory=(OURS, PYG),
)
def on_fb15k(context: Context, bases: int | None = None) -> Setup:
    """Real triples where they are, else a graph of the same counts."""
    return _layers(context, fb15k_237(context), bases)


def _layers(
    context: Context,
    graph: tuple[Tensor, Tensor, int, int, str],
    bases: int | None = None,
    channels: int = 64,
) -> Setup:
    edge_index, types, nodes, labels, origin = graph
    generator = context.generator()
    x, direction = (context.randn(nodes, channels, generator=generator) for _ in range(2))
    sides = Sides(context, x, direction, edge_index.to(context.device))
    types, family = types.to(context.device), Relation(labels, None)
    form = "full" if bases is None else f"basis-decomposed(num_bases={bases})"
    conv = sides.placed(OuterConv(channels, channels, family, theta=form, root_weight=True))
    theirs = sides.placed(RGCNConv(channels, channels, labels, num_bases=bases, aggr="add"))
    begin_as(theirs, conv)
    basis = sides.basis(family, edge_type=types)
    sides.layer(OURS, conv, basis)
    sides.layer(PYG, theirs, sides.edge_index, types)
    if labels > MOST_UNROLLED:
        reason = f"torch.compile would unroll RGCNConv's loop over {labels} labels"
        sides.absent[PYG_COMPILED] = reason
    else:
        sides.compiled(theirs, sides.x, sides.edge_index, types, of=theirs.parameters())
    rows = relation_rows(basis)
    if bases is None:
        sides.contenders.append(_products_alone(context, rows, nodes, labels, channels))
    count = sum(parameter.numel() for parameter in conv.parameters())
    dense_rows = nodes + (rows if bases is None else min(rows, nodes * bases))
    work = sides.work(count, sides.edges, dense_rows, valued=False)
    sizes = {"labels": labels, "channels": channels, "rows of products": rows}
    return sides.setup({**sizes, "graph": origin}, work)


def _products_alone(
    context: Context, rows: int, nodes: int, labels: int, channels: int
) -> Contender:
    """What nobody can leave out: the rows times Θ_k, the nodes times the root's, and backward.

    Each label gets an equal share of the rows, in one batched product.
    """
    each = max(1, rows // labels)
    device, dtype = context.device, context.dtype
    tall = torch.ones(labels, each, channels, device=device, dtype=dtype)
    wide = torch.ones(labels, channels, channels, device=device, dtype=dtype)
    x = torch.ones(nodes, channels, device=device, dtype=dtype)
    root = torch.ones(channels, channels, device=device, dtype=dtype)

    def forward() -> tuple[Tensor, Tensor]:
        return tall @ wide, x @ root

    def training() -> tuple[tuple[Tensor, Tensor], Tensor, Tensor, Tensor, Tensor]:
        transposed = tall.transpose(1, 2)
        return forward(), tall @ wide.transpose(1, 2), transposed @ tall, x @ root.t(), x.t() @ x

    return Contender(FLOOR, {FORWARD: forward, TRAINING: training})
