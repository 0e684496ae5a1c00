"""Hops are powers of the adjacency matrix, loops as PyG settles them."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import add_self_loops, remove_self_loops

from pyg_outerconv.families import Hops
from pyg_outerconv.testing import awkward_structures

STRUCTURES = awkward_structures()
SQUARE = [name for name in STRUCTURES if not STRUCTURES[name].bipartite]


def reached(edges, length, loops):
    """(M, N) booleans: whether a walk of one to ``length`` edges leads there."""
    step = torch.zeros(edges.size, dtype=torch.bool)
    step[edges.source, edges.target] = True
    found, walks = step.clone(), step.double()
    for _ in range(length - 1):
        walks = (walks @ step.double()).clamp(max=1)
        found |= walks > 0
    if loops is not None:
        found.fill_diagonal_(loops)
    return found


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


@draws(30)
@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 9), length=st.integers(2, 5))
def test_hops_of_drawn_graphs(seed, nodes, length):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, 2 * nodes), generator=generator)
    family = Hops(length)
    edges = family.read(index, size=(nodes, nodes))
    assert torch.equal(family.basis(edges).support()[0], reached(edges, length, None))


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
