"""Samples carry the basis of the whole graph, and depend on seed and epoch alone."""

import pytest
import torch
from cases import CASES, random_graph
from torch_geometric import typing as pyg

from pyg_outerconv.basis.edge_sets import edge_sets
from pyg_outerconv.families import GCN, Chebyshev, Directed, Identity, Stack, Walk
from pyg_outerconv.graph import Graph
from pyg_outerconv.nn import OuterConv
from pyg_outerconv.scale import Carried, Clusters, Neighbors, RandomNodes, metis

SAMPLER = pyg.WITH_PYG_LIB or pyg.WITH_TORCH_SPARSE
NODES = 24


def carried(family):
    structure = random_graph(family, NODES, 90)
    return Carried(family, structure, family.basis_on(structure, torch.float64))


def carries(family):
    try:
        carried(family)
    except ValueError:
        return False
    return True


CARRIED = [f for f in CASES if issubclass(Graph, f.reads) and carries(f)]


def drawn(sampler, seeds=None, seed=0, epoch=0):
    seeds = torch.arange(NODES) if seeds is None else seeds
    plan = sampler.plan(seeds, seed, epoch)
    return list(sampler.draw(plan, list(range(len(plan))), seed, epoch))


def between(basis, nodes):
    """The matrices between some nodes, of each set of edges by itself."""
    return [part.to_dense()[:, nodes][:, :, nodes] for part in edge_sets(basis)]


def test_most_families_are_carried():
    assert len(CARRIED) > 25
    assert {"GCN", "Walk", "Chebyshev", "Relation", "Stack", "Directed", "Diffusion"} <= {
        type(family).__name__ for family in CARRIED
    }


@pytest.mark.parametrize("family", CARRIED, ids=str)
def test_values_are_those_of_the_whole_graph(family):
    carried_graph = carried(family)
    for sampler in (
        RandomNodes(carried_graph, 3),
        Clusters(carried_graph, torch.arange(NODES) % 5, 2),
    ):
        samples = drawn(sampler)
        assert len(samples) == 3
        assert torch.equal(torch.cat([s.nodes for s in samples]).sort().values, torch.arange(NODES))
        for sample in samples:
            assert sample.basis.size == (sample.nodes.numel(),) * 2
            assert sample.basis.num_bases == carried_graph.basis.num_bases
            wanted = between(carried_graph.basis, sample.nodes)
            actual = [part.to_dense() for part in edge_sets(sample.basis)]
            assert len(actual) == len(wanted)
            for one, other in zip(actual, wanted, strict=True):
                assert one.dtype == other.dtype
                torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("family", CARRIED, ids=str)
def test_one_part_is_the_graph(family):
    carried_graph = carried(family)
    (sample,) = drawn(RandomNodes(carried_graph, 1))
    x = torch.randn(NODES, 3, dtype=torch.float64)
    conv = OuterConv(3, 2, family).double()
    wanted = conv(x, carried_graph.basis)[sample.nodes]
    torch.testing.assert_close(conv(x[sample.nodes], sample.basis), wanted, rtol=1e-10, atol=1e-12)


def test_seed_and_epoch_decide():
    carried_graph = carried(GCN())
    for sampler in (
        RandomNodes(carried_graph, 4),
        Clusters(carried_graph, metis(carried_graph, 4), 2),
    ):
        plans = [sampler.plan(torch.arange(NODES), *state) for state in ((0, 0), (0, 1), (1, 0))]
        again = sampler.plan(torch.arange(NODES), 0, 0)
        assert all(map(torch.equal, plans[0], again))
        assert not all(map(torch.equal, plans[0], plans[1]))
        assert not all(map(torch.equal, plans[0], plans[2]))


def test_parts_without_seeds_are_left_out():
    carried_graph = carried(GCN())
    samples = drawn(RandomNodes(carried_graph, 6), torch.tensor([3, 4]))
    assert 1 <= len(samples) <= 2
    assert {3, 4} <= set(torch.cat([sample.nodes for sample in samples]).tolist())


def test_metis_cuts_few_edges():
    family, half = GCN(), NODES // 2
    draw = torch.Generator().manual_seed(0)
    near = torch.randint(half, (2, 80), generator=draw)
    index = torch.cat([near, near + half, torch.tensor([[0], [half]])], dim=1)
    order = torch.randperm(NODES, generator=draw)
    structure = Graph.read(order[index], size=(NODES, NODES))
    cluster = metis(Carried(family, structure), 2)
    assert torch.equal(cluster, metis(Carried(family, structure), 2))
    sides = cluster[order].view(2, half)
    assert (sides == sides[:, :1]).all()
    assert sides[0, 0] != sides[1, 0]


@pytest.mark.skipif(not SAMPLER, reason="neither pyg-lib nor torch-sparse is installed")
@pytest.mark.parametrize(
    "family", [GCN(), Stack(GCN(), Identity()), Directed(GCN()), Walk(2), Chebyshev(3)], ids=str
)
def test_whole_neighbourhoods_give_the_outputs_of_the_graph(family):
    carried_graph = carried(family)
    sampler, x = Neighbors(carried_graph, [-1, -1], 5), torch.randn(NODES, 3, dtype=torch.float64)
    conv = OuterConv(3, 2, family).double()
    wanted = conv(x, carried_graph.basis)
    for sample in drawn(sampler):
        ours = conv(x[sample.nodes], sample.basis)[: sample.num_seeds]
        there = wanted[sample.nodes[: sample.num_seeds]]
        torch.testing.assert_close(ours, there, rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(not SAMPLER, reason="neither pyg-lib nor torch-sparse is installed")
def test_sampled_neighbourhoods_depend_on_their_number():
    sampler = Neighbors(carried(GCN()), [2, 2], 5)
    plan = sampler.plan(torch.arange(NODES), 0, 3)
    torch.manual_seed(5)
    whole = list(sampler.draw(plan, [0, 1, 2, 3, 4], 0, 3))
    after = torch.get_rng_state()
    torch.manual_seed(5)
    assert torch.equal(after, torch.get_rng_state())
    for number in (3, 1):
        (one,) = sampler.draw(plan, [number], 0, 3)
        assert torch.equal(one.nodes, whole[number].nodes)
        assert torch.equal(one.basis.to_dense(), whole[number].basis.to_dense())


@pytest.mark.skipif(SAMPLER, reason="an engine is installed")
def test_a_missing_engine_is_named():
    with pytest.raises(ValueError, match="torch-sparse"):
        Neighbors(carried(GCN()), [2], 5)


def test_what_cannot_be_carried_is_refused():
    rules = next(f for f in CASES if type(f).__name__ == "SlidingWindow")
    with pytest.raises(ValueError, match="Explicit"):
        carried(rules)
    with pytest.raises(ValueError, match="1 to 24"):
        RandomNodes(carried(GCN()), 25)
    with pytest.raises(ValueError, match="1 to 24"):
        metis(carried(GCN()), 0)
