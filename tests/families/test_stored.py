"""What a transform stores is the basis of its graph, whatever a pipeline did to it since."""

import copy
import pickle
import random

import pytest
import torch
from cases import CASES, CELL_CASES, fits_cells
from torch_geometric import transforms as T
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.loader.utils import filter_data
from torch_geometric.utils import subgraph

from pyg_outerconv import testing
from pyg_outerconv.basis.edge_sets import differ_in_edges, edge_sets
from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Compose,
    Directed,
    Grid,
    Relation,
    SlidingWindow,
    Stack,
    Walk,
)
from pyg_outerconv.memo import Memo

# Cells of a graph are its positions, without bounds; targets are stored if they are its nodes.
STORED = CASES + [case for case in CELL_CASES if case.keeps_nodes and fits_cells(case, "unbounded")]


def graphs():
    """Three graphs: directed and weighted, without edges, and one of a single node with a loop."""
    first = Data(
        x=torch.randn(4, 3),
        edge_index=torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 3, 1]]),
        edge_weight=torch.rand(5) + 0.5,
        edge_type=torch.tensor([0, 1, 2, 0, 1]),
        pos=torch.tensor([[0, 0], [1, 0], [-1, 1], [3, 0]]),
    )
    second = Data(
        x=torch.randn(3, 3),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        edge_weight=torch.empty(0),
        edge_type=torch.empty(0, dtype=torch.long),
        pos=torch.tensor([[7, 7], [7, 8], [0, 0]]),
    )
    third = Data(
        x=torch.randn(1, 3),
        edge_index=torch.zeros(2, 1, dtype=torch.long),
        edge_weight=torch.ones(1),
        edge_type=torch.tensor([2]),
        pos=torch.tensor([[0, 1]]),
    )
    return [first, second, third]


def without_types(family, data_list):
    if "num_relations=3" not in repr(family):
        for data in data_list:
            del data.edge_type
    return data_list


@pytest.mark.parametrize("family", STORED, ids=str)
def test_batched_basis_is_that_of_its_graphs(family):
    testing.assert_batch_equals_graphs(family, without_types(family, graphs()))


@pytest.mark.parametrize("family", STORED, ids=str)
def test_what_is_read_back_is_the_basis_that_was_made(family, monkeypatch):
    """Of the same kinds, of as many labels, with the same edges and values; a rule stays one."""
    for plain in without_types(family, graphs()):
        data, fresh = family(plain), family.basis_on(family.structure_in(plain))
        with monkeypatch.context() as patch:
            structures = made_anew(patch, family)
            basis = family.basis_of(data)
        assert (basis.num_bases, basis.size) == (fresh.num_bases, fresh.size)
        assert differ_in_edges(basis, fresh)
        for one, other in zip(edge_sets(basis), edge_sets(fresh), strict=True):
            assert one.dtype == other.dtype
            for part in ("source", "target", "label"):
                assert torch.equal(getattr(one.pattern, part), getattr(other.pattern, part))
            assert torch.equal(one.values(), other.values())
        if edge_sets(fresh):
            assert not structures
        else:
            assert set(data.keys()) == set(plain.keys())


def test_only_plain_tensors_are_stored():
    data = Chebyshev(3)(graphs()[0])
    new = set(data.keys()) - set(graphs()[0].keys())
    assert new
    assert all(type(data[key]) is torch.Tensor for key in new)
    assert set(pickle.loads(pickle.dumps(data)).keys()) == set(data.keys())


def test_a_memo_knows_objects_and_keeps_nothing_of_those_whose_changes_cannot_be_seen():
    cache, first, second = Memo(), torch.ones(2), torch.ones(2)
    kept = cache.get("key", object, first, second)
    assert cache.get("key", object, first, second) is kept
    other = cache.get("key", object, first, second.clone())
    assert other is not kept
    assert cache.get("key", object, first, second.clone()) is not other  # at the same address, too
    del first
    with torch.inference_mode():
        uncounted = torch.ones(2)
    cache.get("key", object, uncounted)
    assert len(cache) == 0


FAMILIES = [
    GCN(),
    GCN(add_self_loops=False),
    Walk(2),
    Walk(2, direction="both", add_self_loops=True),
    Relation(2),
    Directed(GCN(add_self_loops=False)),
    Stack(Relation(2, None), Walk(1), GCN()),
    Walk(2, aggr="max"),
]


def drawn(seed):
    """A graph with weights, types and features, some with as many nodes as edges."""
    rng = random.Random(seed)
    nodes = rng.choice([1, 4, 9, 14])
    edges = nodes if rng.random() < 0.4 else rng.choice([0, 1, 2 * nodes, nodes + 3])
    index = torch.randint(0, nodes, (2, edges))
    if rng.random() < 0.5:
        index = torch.cat([index, index.flip(0)], dim=1)
    count = index.size(1)
    data = Data(x=torch.randn(nodes, 2), edge_index=index, edge_type=torch.randint(0, 2, (count,)))
    if rng.random() < 0.6:
        data.edge_weight = torch.rand(count) + 0.1
    return data


def weighted(seed):
    data = drawn(seed)
    data.edge_weight = torch.rand(data.num_edges) + 0.1
    return data


def families_for(data):
    return [one for one in FAMILIES if data.get("edge_type") is not None or "Rel" not in str(one)]


def fresh(family, data):
    """The basis of what a graph holds, but for what was stored on it."""
    keys = ("x", "edge_index", "adj_t", "edge_weight", "edge_type", "batch", "pos", "num_nodes")
    plain = Data(**{key: data[key] for key in keys if data.get(key) is not None})
    plain.num_nodes = data.num_nodes
    return family.basis_of(plain).to_dense(torch.float32)


def agrees(data, families):
    for family in families:
        expected = fresh(family, data)
        actual = family.basis_of(data).to_dense(torch.float32).to(expected.dtype)
        testing.assert_near(actual, expected, 1e-5, at_least=1.0)


# What pipelines do ------------------------------------------------------------------------------


def split(data, rng):
    if data.num_nodes < 3 or data.num_edges < 8:
        return data
    undirected = data.is_undirected() and data.get("edge_weight") is None
    splits = T.RandomLinkSplit(
        num_val=0.1, num_test=0.3, is_undirected=undirected, add_negative_train_samples=False
    )(data)
    return rng.choice(splits)


def sample(data, rng):
    """What NeighborLoader makes of a sample: nodes in another order, and some of the edges."""
    node = torch.randperm(data.num_nodes)[: rng.randint(1, data.num_nodes)]
    _, _, mask = subgraph(
        node, data.edge_index, num_nodes=data.num_nodes, relabel_nodes=False, return_edge_mask=True
    )
    place = torch.full((data.num_nodes,), -1)
    place[node] = torch.arange(node.numel())
    edge = mask.nonzero().flatten()
    edge = edge[torch.randperm(edge.numel())] if rng.random() < 0.5 else edge
    row, col = place[data.edge_index[:, edge]]
    out = filter_data(data, node, row, col, edge)
    out.n_id, out.e_id = node, edge
    return out


def sample_without_edge_ids(data, rng):
    if data.get("edge_weight") is not None or data.get("edge_type") is not None:
        return data
    node = torch.randperm(data.num_nodes)
    place = torch.empty_like(node)
    place[node] = torch.arange(node.numel())
    row, col = place[data.edge_index]
    return filter_data(data, node, row, col, None)


def permute(data, rng):
    return data.subgraph(torch.randperm(data.num_nodes))


def nodes_of(data, rng):
    return data.subgraph(torch.rand(data.num_nodes) < 0.7)


def edges_of(data, rng):
    return data.edge_subgraph(torch.rand(data.num_edges) < 0.7)


def random_nodes(data, rng):
    return rng.choice(list(RandomNodeLoader(data, num_parts=2)))


def replace(data, rng):
    data = copy.copy(data)
    what = rng.choice(["edge_index", "edge_weight", "edge_type", "num_nodes", "flip"])
    if what == "num_nodes":
        data.x, data.num_nodes = None, data.num_nodes + 2
    elif what == "flip":
        data.edge_index = data.edge_index.flip(0)
    elif what == "edge_weight":
        data.edge_weight = torch.rand(data.num_edges) + 0.5
    elif what == "edge_type":
        data.edge_type = torch.randint(0, 2, (data.num_edges,))
    else:
        data.edge_index = torch.randint(0, data.num_nodes, (2, data.num_edges))
    return data


def write(data, rng):
    data = copy.deepcopy(data)
    if data.num_edges:
        data.edge_index[0, rng.randrange(data.num_edges)] = rng.randrange(data.num_nodes)
    return data


def sparse(data, rng):
    if data.get("edge_weight") is not None or data.get("edge_type") is not None:
        return data
    return T.ToSparseTensor(layout=rng.choice([torch.sparse_coo, torch.sparse_csr]))(data)


def typed(data):
    """The graph with a type for each edge, where edges came or went without one."""
    if data.get("edge_type") is not None:
        data.edge_type = torch.arange(data.num_edges) % 2
    if data.get("edge_weight") is not None and data.edge_weight.numel() != data.num_edges:
        data.edge_weight = None
    return data


STEPS = {
    "split": split,
    "sample": sample,
    "sample without edge ids": sample_without_edge_ids,
    "permute": permute,
    "nodes": nodes_of,
    "edges": edges_of,
    "random nodes": random_nodes,
    "replace": replace,
    "write": write,
    "sort": lambda data, rng: data.sort(sort_by_row=rng.random() < 0.5),
    "coalesce": lambda data, rng: data if data.num_edges == 0 else typed(data.coalesce()),
    "undirected": lambda data, rng: typed(T.ToUndirected()(data)),
    "loops": lambda data, rng: typed(T.AddSelfLoops(attr="edge_weight")(data)),
    "isolated": lambda data, rng: T.RemoveIsolatedNodes()(data),
    "pickle": lambda data, rng: pickle.loads(pickle.dumps(data)),
    "double": lambda data, rng: data.apply(lambda t: t.double() if t.is_floating_point() else t),
    "clone": lambda data, rng: data.clone(),
    "sparse": sparse,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("seed", range(6))
def test_a_step_of_a_pipeline_leaves_no_stale_basis(step, seed):
    rng, data = random.Random(seed), drawn(100 + seed)
    if "without" in step or step == "sparse":
        del data.edge_type, data.edge_weight
    families = families_for(data)
    data = STEPS[step](T.Compose(families)(data), rng)
    agrees(data, families)


@pytest.mark.parametrize("seed", range(40))
def test_pipelines_leave_no_stale_basis(seed):
    rng, data = random.Random(seed), drawn(seed)
    families = rng.sample(families_for(data), 3)
    data = T.Compose(families)(data)
    for _ in range(rng.randint(1, 3)):
        if not data.num_nodes or data.get("edge_index") is None:
            break
        data = STEPS[rng.choice(list(STEPS))](data, rng)
    agrees(data, families)


@pytest.mark.parametrize("seed", range(10))
def test_batches_of_what_was_changed_and_what_was_not(seed):
    rng = random.Random(seed)
    families = rng.sample(families_for(drawn(0)), 3)
    graphs = [T.Compose(families)(weighted(seed + 50 * at)) for at in range(4)]
    (batch,) = DataLoader(graphs, batch_size=4)
    agrees(batch, families)
    for graph in batch.to_data_list():
        agrees(graph, families)
    changed = [write(graph, rng) if rng.random() < 0.5 else graph for graph in graphs]
    agrees(Batch.from_data_list(changed), families)
    batch.edge_weight = batch.edge_weight.flip(0)
    agrees(batch, families)


def made_anew(monkeypatch, family):
    """The list that grows with each basis that the family makes of edges."""
    structures, basis_on = [], type(family).basis_on

    def noted(self, structure, *dtype):
        if not structure.is_bare:
            structures.append(structure)
        return basis_on(self, structure, *dtype)

    monkeypatch.setattr(type(family), "basis_on", noted)
    return structures


@pytest.mark.parametrize("family", FAMILIES[:6], ids=str)
def test_what_was_stored_serves_where_edges_are_the_same(family, monkeypatch):
    plain = [drawn(seed) for seed in (1, 3, 7, 9)]
    for graph in plain:
        graph.edge_weight = None
    graphs = [family(graph) for graph in plain]
    batch = Batch.from_data_list(graphs)
    structures = made_anew(monkeypatch, family)
    for data in (batch, *batch.to_data_list(), pickle.loads(pickle.dumps(batch)), batch.clone()):
        family.basis_of(data)
    wide = graphs[0].clone().apply(lambda t: t.double() if t.is_floating_point() else t)
    assert family.basis_of(wide).edges().dtype in (torch.float64, None)
    order = torch.randperm(graphs[1].num_edges)
    graphs[1].edge_index = graphs[1].edge_index[:, order]
    graphs[1].edge_type = graphs[1].edge_type[order]
    family.basis_of(graphs[1])
    assert not structures
    graphs[1].num_nodes = graphs[1].num_nodes + 1
    graphs[1].x = None
    family.basis_of(graphs[1])
    assert structures


class Weighed(Walk):
    """A family that breaks what is asked of it: more than its edges depends on edges."""

    def basis_on(self, structure, dtype=None):
        """Walks, by a number of edges."""
        return super().basis_on(structure, dtype).scale(1.0 + structure.num_edges)


class Bounded(Walk):
    """A family whose walks are as long as the graph has edges."""

    def basis_on(self, structure, dtype=None):
        """Powers, the last again where there are too few."""
        walks = super().basis_on(structure, dtype)
        return walks.select([min(k, structure.num_edges) for k in range(walks.num_bases)])


@pytest.mark.parametrize("family", [Weighed(2), Bounded(3)], ids=lambda one: type(one).__name__)
def test_what_depends_on_edges_in_more_than_its_edges_is_made_anew(family):
    plain = [Data(x=torch.ones(4, 1), edge_index=torch.randint(0, 4, (2, e))) for e in (0, 2, 5)]
    graphs = [family(data) for data in plain]
    for data in (*graphs, Batch.from_data_list(graphs), Batch.from_data_list(graphs[1:])):
        agrees(data, [family])


def test_weights_that_learn_are_given_their_gradients():
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    data.edge_weight = torch.rand(3) + 0.5
    early = GCN()(data)
    early.edge_weight = data.edge_weight.clone().requires_grad_()
    late = Data(**data.to_dict())
    late.edge_weight = data.edge_weight.clone().requires_grad_()
    late = GCN()(late)
    assert [key for key, value in late.to_dict().items() if value.requires_grad] == ["edge_weight"]
    for graph in (early, late):
        values = GCN().basis_of(graph).edges().values()
        (gradient,) = torch.autograd.grad(values.square().sum(), graph.edge_weight)
        assert bool(gradient.abs().sum() > 0)


def test_a_mark_of_another_form_is_none(monkeypatch):
    """As earlier versions wrote it, with four numbers for each graph."""
    data = Walk(2)(drawn(3))
    (key,) = [key for key in data.to_dict() if key.endswith("mark")]
    for other in (data[key][:, :4], data[key].flatten(), data[key][:0], "text", None):
        changed = data.clone()
        changed[key] = other
        structures = made_anew(monkeypatch, Walk(2))
        agrees(changed, [Walk(2)])
        assert structures


def test_equal_parts_are_stored_once():
    data = drawn(7)
    once = set(Walk(2)(data).keys()) - set(data.keys())
    assert len(set(Compose(Walk(2), Walk(2))(data).keys()) - set(data.keys())) == len(once)
    basis = Compose(Walk(2), Walk(2)).basis_of(Compose(Walk(2), Walk(2))(data))
    assert basis.first.operator is basis.second.operator


def test_a_batch_may_be_of_another_kind_than_its_graphs():
    """A window is a rule of one sequence, and edges of several."""
    family = Stack(SlidingWindow(1), GCN())
    graphs = [family(drawn(seed)) for seed in (3, 7)]
    agrees(Batch.from_data_list(graphs), [family])
    for data in (*graphs, *Batch.from_data_list(graphs).to_data_list()):
        agrees(data, [family])


def test_eigenvalues_that_were_given_for_each_graph_are_those_of_what_was_stored():
    families = [Chebyshev(3, (1.5,)), Directed(Chebyshev(2, (1.5,)))]
    graphs = [T.Compose(families)(weighted(seed)) for seed in (3, 7)]
    batch = Batch.from_data_list(graphs)
    for family in families:
        blocks = [family.basis_of(data).to_dense() for data in graphs]
        dense = family.basis_of(batch).to_dense()
        for k in range(family.num_bases):
            testing.assert_near(dense[k], torch.block_diag(*[block[k] for block in blocks]))


def test_positions_and_attributes_that_are_read_count():
    cells = Data(x=torch.randn(4, 2), pos=torch.tensor([[0, 0], [0, 1], [1, 0], [5, 5]]))
    family = Grid((3, 3))
    stored = family(cells)
    stored.pos = stored.pos.flip(0)
    testing.assert_near(
        family.basis_of(stored).to_dense(torch.float32), fresh(family, stored), at_least=1.0
    )
