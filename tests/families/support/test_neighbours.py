"""Hops are powers of the adjacency matrix; nearest neighbours are those that sorting finds."""

import pytest
import torch
from torch_geometric.utils import add_self_loops, remove_self_loops

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Hops, Nearest
from pyg_outerconv.families.support import neighbours
from pyg_outerconv.graph import Cells
from pyg_outerconv.testing import assert_near, awkward_structures

STRUCTURES = awkward_structures()
SQUARE = [name for name in STRUCTURES if not STRUCTURES[name].bipartite]


def reached(edges, length, loops):
    """(M, N) booleans: whether a walk of one to ``length`` edges leads there."""
    step = torch.zeros(edges.size, dtype=torch.bool)
    step[edges.source, edges.target] = True
    reached, walks = step.clone(), step.double()
    for _ in range(length - 1):
        walks = (walks @ step.double()).clamp(max=1)
        reached |= walks > 0
    if loops is not None:
        reached.fill_diagonal_(loops)
    return reached


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("loops", [None, True, False])
@pytest.mark.parametrize("length", [2, 3, 6])
def test_each_pair_within_some_hops_comes_once(name, loops, length):
    edges = STRUCTURES[name]
    basis = Hops(length, add_self_loops=loops).basis(edges)
    mask = reached(edges, length, loops)
    assert torch.equal(basis.support()[0], mask)
    assert basis.num_edges == int(mask.sum())
    assert basis.dtype is None


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("loops", [None, True, False])
def test_one_hop_keeps_parallel_edges_and_settles_loops_as_pyg(name, loops):
    edges = STRUCTURES[name]
    index = edges.edge_index
    if loops is not None:
        index, _ = remove_self_loops(index)
    if loops:
        index, _ = add_self_loops(index, num_nodes=min(edges.size))
    basis = Hops(add_self_loops=loops).basis(edges)
    dense = torch.zeros(edges.size).index_put((index[0], index[1]), torch.ones(1), accumulate=True)
    assert torch.equal(basis.to_dense()[0], dense)


def test_edges_know_where_they_were_given():
    index = torch.tensor([[1, 0, 2, 0], [1, 1, 0, 1]])
    basis = Hops(add_self_loops=True).basis(index)
    origin = basis.pattern.origin
    own = origin >= 0
    assert torch.equal(basis.index[:, own].long(), index[:, origin[own].long()])
    assert sorted(origin.tolist()) == [-1, -1, -1, 1, 2, 3]
    assert bool((basis.index[0] == basis.index[1])[~own].all())


def truth(k, loop, sources, targets, source_graph, target_graph):
    """(M, N) booleans, target by target; one tensor for both ends is one set of nodes."""
    mask = torch.zeros(len(sources), len(targets), dtype=torch.bool)
    for n in range(len(targets)):
        near = [
            (float((sources[m] - targets[n]).square().sum()), m)
            for m in range(len(sources))
            if source_graph[m] == target_graph[n] and (loop or sources is not targets or m != n)
        ]
        mask[[m for _, m in sorted(near)[:k]], n] = True
    return mask


def drawn(seed, *shape):
    """Positions on a small grid of whole numbers, where many distances are equal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, shape, generator=generator).double()


@pytest.mark.parametrize("tile", [1, 7, 50, 1 << 18])
@pytest.mark.parametrize("loop", [True, False])
def test_neighbours_in_the_graphs_of_a_batch(monkeypatch, tile, loop):
    monkeypatch.setattr(neighbours, "TILE", tile)
    generator = torch.Generator().manual_seed(1)
    for count, k in ((0, 2), (1, 2), (2, 0), (9, 1), (25, 3), (25, 40)):
        pos, batch = drawn(count, count, 2), torch.randint(3, (count,), generator=generator)
        family = Nearest(k, add_self_loops=loop)
        for graphs in (batch, batch.sort().values, torch.zeros_like(batch)):
            mask = truth(k, loop, pos, pos, graphs, graphs)
            basis = family.basis(None, pos=pos, batch=graphs)
            assert torch.equal(basis.support()[0], mask)
            assert basis.num_edges == int(mask.sum())
        alone = family.basis(None, pos=pos)
        assert torch.equal(alone.support()[0], mask)


def test_sources_and_targets_with_positions_of_their_own():
    sources, targets = drawn(1, 11, 3), drawn(2, 6, 3)
    graphs = torch.arange(11) % 3, torch.arange(6) % 4
    for k in (1, 2, 5):
        basis = Nearest(k).basis(None, pos=(sources, targets), batch=graphs)
        assert torch.equal(basis.support()[0], truth(k, False, sources, targets, *graphs))
    conv = OuterConv(2, 3, Nearest(2), bias=False).double()
    x = torch.randn(11, 2).double(), torch.randn(6, 2).double()
    mask = truth(2, False, sources, targets, [0] * 11, [0] * 6).double()
    assert_near(conv(x, None, pos=(sources, targets)), mask.t() @ x[0] @ conv.theta()[0, 0])


def test_edges_beside_positions_are_not_looked_at():
    pos, edges = drawn(3, 8, 2), torch.tensor([[0, 1], [7, 0]])
    assert torch.equal(
        Nearest(3).basis(edges, pos=pos, size=(8, 8)).support(),
        Nearest(3).basis(None, pos=pos).support(),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_positions_of_other_types(dtype):
    pos = drawn(4, 12, 2)
    expected = Nearest(2).basis(None, pos=pos).support()
    assert torch.equal(Nearest(2).basis(None, pos=pos.to(dtype)).support(), expected)


def test_neighbours_carry_no_gradient_and_do_not_need_one():
    pos = drawn(5, 6, 2).requires_grad_()
    assert not Nearest(2).basis(None, pos=pos).learns


def test_cells_are_where_they_are():
    for cells in (Cells.of_shape((3, 4)), Cells(torch.tensor([[5, -3], [0, 0], [4, -3], [0, 2]]))):
        place = cells.listed().index.double()
        zeros = [0] * len(place)
        expected = truth(2, False, place, place, zeros, zeros)
        assert torch.equal(Nearest(2).basis(cells).support()[0], expected)
