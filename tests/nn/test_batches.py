"""A batch of graphs is convolved as its graphs are, one by one."""

import pytest
import torch
from cases import named
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Relation, parse_family
from pyg_outerconv.testing import assert_near, awkward_structures

FAMILIES = [
    "gcn",
    "walk(2)",
    "walk(2, aggr=max, direction=both)",
    "chebyshev(3)",
    "chebyshev(3, exact, source)",
    "chebyshev(3, bound, norm=None)",
    "relation(3)",
    "directed(gcn(add_self_loops=False))",
    "stack(chebyshev(2), identity, directed(walk(1)))",
]
of_each_family = pytest.mark.parametrize("family", [*map(parse_family, FAMILIES)], ids=FAMILIES)


def synthetic():
    """Graphs of every awkward kind, with features, weights and types."""
    graphs = []
    for edges in awkward_structures(torch.float32).values():
        if edges.bipartite or edges.size[0] == 0:
            continue
        graphs.append(
            Data(
                x=torch.randn(edges.size[0], 4),
                edge_index=edges.edge_index,
                edge_weight=torch.rand(edges.num_edges) + 0.1,
                edge_type=edges.edge_type,
            )
        )
    return graphs


def arguments(family, data):
    kinds = data.edge_type if isinstance(family, Relation) else None
    return named(data.edge_index, data.get("edge_weight"), kinds, (data.num_nodes,) * 2)


@pytest.mark.parametrize("batch_size", [1, 3, 20])
@of_each_family
def test_a_batch_gives_what_its_graphs_give(family, batch_size):
    graphs = synthetic()
    conv = OuterConv(4, 6, family)
    expected = torch.cat([conv(data.x, **arguments(family, data)) for data in graphs])
    stored, afresh = [], []
    transformed = [family(data.clone()) for data in graphs]
    for batch in DataLoader(transformed, batch_size):
        stored.append(conv(batch.x, family.basis_of(batch)))
    for batch in DataLoader(graphs, batch_size):
        afresh.append(conv(batch.x, **arguments(family, batch), batch=batch.batch))
    assert_near(torch.cat(stored), expected)
    assert_near(torch.cat(afresh), expected)


@of_each_family
def test_a_cached_layer_takes_mini_batches(family):
    graphs = synthetic()
    plain, cached = OuterConv(4, 6, family), OuterConv(4, 6, family, cached=True)
    cached.load_state_dict(plain.state_dict())
    for _ in range(2):
        for batch in DataLoader(graphs, 2, shuffle=True):
            inputs = dict(arguments(family, batch), x=batch.x, batch=batch.batch)
            assert_near(cached(**inputs), plain(**inputs))
