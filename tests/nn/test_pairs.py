"""A pair of sets of nodes is a pair however many nodes there are; ``fuzz`` has the formulas."""

import pytest
import torch
from torch_geometric.data import HeteroData

from pyg_outerconv import AttentionConv, OuterConv, parse_family
from pyg_outerconv.basis import to_scipy
from pyg_outerconv.graph import Graph, from_hetero, from_scipy
from pyg_outerconv.testing import assert_near

P, Q = 3, 2


ON_PAIRS = [
    "gcn(add_self_loops=False)",
    "gcn(norm=both, add_self_loops=False)",
    "gcn(norm=target, add_self_loops=False)",
    "walk(0)",
    "walk(1)",
    "walk(1, norm=target, powers=(1,))",
    "walk(1, norm=sym)",
    "walk(3, norm=sym, powers=(1, 0))",
    "walk(1, norm=None, aggr=max, powers=(1,))",
    "walk(2, norm=target, aggr=mean, powers=(0, 1))",
    "relation(1)",
    "relation(1, norm=None)",
    "identity",
    "explicit(walk(1, norm=sym))",
    "stack(relation(1, norm=None), walk(1))",
    "stack(gcn(add_self_loops=False), identity, walk(1))",
]
NEED_ONE_SET = [
    "gcn",
    "walk(2)",
    "walk(1, add_self_loops=True)",
    "walk(1, direction=backward)",
    "walk(1, direction=both)",
    "walk(3, powers=(2,))",
    "walk(2, norm=None, aggr=max)",
    "chebyshev(2)",
    "diffusion(length=1)",
    "directed(gcn(add_self_loops=False))",
    "hops(2)",
    "complete(add_self_loops=False)",
    "compose(relation(1), relation(1))",
    "mean(gcn)",
    "stack(relation(1), gcn)",
]


def draw(seed):
    """Edges without parallels between few nodes, and two numbers of nodes, equal every other time.

    Some nodes are isolated; an isolated source may come after the others.
    """
    generator = torch.Generator().manual_seed(seed)
    high = int(torch.randint(2, 6, (1,), generator=generator))
    places = torch.randperm(high * high, generator=generator)[: high * high // 2]
    index = torch.stack([places // high, places % high])
    weight = torch.rand(index.size(1), generator=generator, dtype=torch.float64) + 0.1
    if seed % 2:
        return index, weight, (high, high)
    extra = torch.randint(0, 3, (2,), generator=generator).tolist()
    return index, weight, (high + 1 + extra[0] + extra[1], high + extra[1])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", ON_PAIRS)
def test_an_isolated_node_changes_no_other_output(family, seed):
    index, weight, size = draw(seed)
    conv = OuterConv(P, Q, family).double()
    beside = {"edge_weight": weight} if conv.family.makes_use_of("edge_weight") else {}
    x = torch.randn(max(size) + 3, P, dtype=torch.float64)  # whose node n target n may see
    results = []
    for sources in range(max(size), max(size) + 3):
        for targets in range(size[1], max(size) + 3):
            out = conv((x[:sources], torch.randn(targets, 1).double()), index, **beside)
            assert out.size(0) == targets
            results.append(out[: size[1]])
    for result in results[1:]:
        assert_near(result, results[0])


@pytest.mark.parametrize("size", [(4, 4), (5, 4), (4, 5)], ids=str)
@pytest.mark.parametrize("family", NEED_ONE_SET)
def test_a_pair_is_refused_whatever_its_sizes(family, size):
    index = torch.tensor([[0, 3, 2], [1, 0, 3]])
    rule = (
        r"same nodes: expected one x, not a pair; for a pair .*, "
        rf"got a pair of M = {size[0]} sources and N = {size[1]} targets"
    )
    conv, ends = OuterConv(P, Q, family), (torch.randn(size[0], P), torch.randn(size[1], P))
    for call in (
        lambda: conv(ends, index),
        lambda: conv((ends[0], None), index, size=size),
        lambda: conv.family.basis(index, size=size, bipartite=True),
        lambda: conv((ends[0], None), Graph.read(index, size=size, bipartite=True)),
    ):
        with pytest.raises(ValueError, match=rule):
            call()
    if size[0] == size[1]:
        same = ends[0]
        assert_near(conv((same, same), index), conv(same, index))
        assert conv.family.basis(index, size=size).size == size


@pytest.mark.parametrize("cached", [False, True])
def test_a_kept_basis_of_one_set_is_not_that_of_a_pair(cached):
    index = torch.tensor([[0, 0, 1], [0, 1, 1]])
    conv = OuterConv(P, Q, "gcn(add_self_loops=False)", cached=cached)
    x, far = torch.randn(2, P), torch.randn(2, P)
    fresh = OuterConv(P, Q, "gcn(add_self_loops=False)")
    fresh.load_state_dict(conv.state_dict())
    for ends in (x, (x, far), x, (x, x), (x, far)):
        assert_near(conv(ends, index), fresh(ends, index.clone()))
    assert not torch.allclose(conv(x, index), conv((x, far), index))


def test_who_says_that_there_are_two_sets_of_nodes():
    index, data = torch.tensor([[0, 0, 1], [0, 1, 1]]), HeteroData()
    for name in "ab":
        data[name].num_nodes = 2
    data["a", "to", "b"].edge_index = data["a", "to", "a"].edge_index = index
    matrix = to_scipy(parse_family("relation(1, norm=None)").basis(index))[0]
    said = {
        "nobody": Graph.read(index, size=(2, 2)),
        "size": Graph.read(index, size=(2, 3)),
        "bipartite": Graph.read(index, bipartite=True),
        "sizes of both rows": Graph.read(torch.tensor([[0, 4], [1, 2]]), bipartite=True),
        "types": from_hetero(data, ("a", "to", "b"))[0],
        "one type": from_hetero(data, ("a", "to", "a"))[0],
        "all types": from_hetero(data)[0],
        "rows and columns": from_scipy(matrix, bipartite=True),
        "a matrix": from_scipy(matrix),
        "transposed": Graph.read(index, bipartite=True).reversed(),
    }
    one_set = {name for name, edges in said.items() if not edges.bipartite}
    assert one_set == {"nobody", "one type", "all types", "a matrix"}
    assert said["sizes of both rows"].size == (5, 3)
    with pytest.raises(ValueError, match="as many sources as targets: expected M = N"):
        Graph.read(index, size=(2, 3), bipartite=False)


def test_targets_without_positions_of_their_own_are_still_no_sources():
    x, far, pos = torch.randn(4, P), torch.randn(4, P), torch.randn(4, 2)
    basis = OuterConv(P, Q, "nearest(1)").basis((x, far), None, pos=pos).to_dense()
    assert_near(basis[0], torch.eye(4))  # the nearest is at the same place
    assert not OuterConv(P, Q, "nearest(1)").basis(x, None, pos=pos).to_dense()[0].diag().any()


def test_attention_over_a_pair_of_as_many_leaves_no_edge_out():
    x, far = torch.randn(4, P), torch.randn(4, P)
    conv = AttentionConv(P, Q, support="complete(add_self_loops=False)", score="dot-product")
    with pytest.raises(ValueError, match=r"leaving out self-loops .* for a pair Complete\(\)"):
        conv((x, far), None)
    assert conv((x, x), None).shape == (4, Q)
