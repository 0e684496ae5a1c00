"""What a call takes beside x: what a family reads, a batch, and pairs of sets of nodes."""

from itertools import product

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, Sequential

from pyg_outerconv import AttentionConv, Cells, OuterConv
from pyg_outerconv.attention import ALiBi, GATv2, KeyQuery, Softmax
from pyg_outerconv.basis import to_scipy
from pyg_outerconv.families import (
    GCN,
    Attention,
    Causal,
    Cluster,
    Complete,
    Grid,
    Hops,
    Identity,
    Kernel,
    LinearAttention,
    Relation,
    Stack,
    Union,
    parse_family,
)
from pyg_outerconv.graph import Graph, NodeSet, from_hetero, from_scipy
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 1]])
BESIDE = {
    "edge_weight": torch.rand(6) + 0.1,
    "edge_type": torch.tensor([0, 1, 1, 0, 1, 0]),
    "edge_attr": torch.rand(6, 2),
    "pos": torch.rand(5, 2),
}
W, T, A, S = BESIDE
BATCH = torch.tensor([0, 0, 0, 0, 0])


def attention(support, score=None, terms=()):
    return Attention(score or KeyQuery(2, 3), support, Softmax(), None, terms)


READS = [
    ("identity", ()),
    ("gcn", (W,)),
    ("walk(2)", (W,)),
    ("chebyshev(2)", (W,)),
    ("diffusion(length=2)", (W,)),
    ("relation(2)", (W, T)),
    ("relation(1)", (W,)),
    ("directed(gcn)", (W,)),
    ("directed(relation(2))", (W, T)),
    ("mean(relation(2, norm=None))", (W, T)),
    ("explicit(identity)", ()),
    ("stack(identity, complete)", ()),
    ("stack(gcn, relation(2))", (W, T)),
    ("stack(identity, nearest(2))", (S,)),
    ("compose(identity, gcn)", (W,)),
    ("compose(hops, nearest(1))", (S,)),
    (Kernel(torch.nn.Linear(2, 2), 2), (W, A)),
    (Kernel(torch.nn.Linear(2, 2), 2, on="pos"), (W, S)),
    ("hops", ()),
    ("causal", ()),
    ("sliding_window(1)", ()),
    ("union(hops, nearest(1))", (S,)),
    (attention(Hops()), ()),
    (attention(Complete(), terms=(ALiBi(2),)), (S,)),
    (attention(Hops(), GATv2(2, 4, edge_dim=2)), (A,)),
    (attention(Union(Relation(2), Hops())), (W, T)),
    (LinearAttention(2, 3), ()),
    (Stack(LinearAttention(2, 3), GCN()), (W,)),
]
of_each = pytest.mark.parametrize(
    ("family", "reads"),
    [(parse_family(family), reads) for family, reads in READS],
    ids=[str(family) for family, _ in READS],
)


def needed(family, reads):
    """What the family does not do without."""
    kept = {name: BESIDE[name] for name in reads if name in (A, S)}
    if T in reads:
        kept[T] = BESIDE[T]
    return kept


@of_each
def test_exactly_what_some_part_reads_is_taken(family, reads):
    conv, x = OuterConv(4, 4, family), torch.randn(5, 4)
    conv(x, EDGES, **needed(family, reads))
    for name, fuse in product(BESIDE, (True, False)):
        conv.fuse = fuse and not family.makes_use_of("x")
        beside = {**dict.fromkeys(BESIDE), **needed(family, reads), name: BESIDE[name]}
        if name in reads:
            assert conv(x, EDGES, **beside).isfinite().all()
        elif name == T and isinstance(family, Relation):
            with pytest.raises(ValueError, match="below num_relations"):
                conv(x, EDGES, **beside)
        else:
            with pytest.raises(ValueError, match=f"does not read {name}: expected none, or "):
                conv(x, EDGES, **beside)
            with pytest.raises(ValueError, match=f"does not read {name}"):
                family.basis(EDGES, size=(5, 5), **beside)


@of_each
def test_a_batch_of_one_graph_is_true_of_every_family(family, reads):
    conv, x = OuterConv(4, 4, family), torch.randn(5, 4)
    beside = needed(family, reads)
    expected = conv(x, EDGES, **beside)
    assert_near(conv(x, EDGES, batch=BATCH, **beside), expected)
    with pytest.raises((ValueError, TypeError), match="batch"):
        conv(x, EDGES, batch=BATCH[:4], **beside)


def test_the_batch_of_cells_is_their_grids():
    x, mask = torch.randn(4, 3), torch.tensor([[True, True], [True, True]])
    conv, batch = OuterConv(3, 2, Grid((3, 3), padding=1, growth="submanifold")), [0, 0, 1, 1]
    batch = torch.tensor(batch)
    expected = conv(x, Cells(mask.nonzero(), (2, 2), batch))
    for cells in (mask, Cells(mask.nonzero(), (2, 2)), Cells(mask.nonzero(), (2, 2), batch)):
        assert_near(conv(x, cells, batch=batch), expected)
    whole = OuterConv(3, 2, Grid((3, 3), padding=1))
    assert_near(whole(x, (2, 2), batch=torch.zeros(4).long()), whole(x, (2, 2)))
    with pytest.raises(ValueError, match="these cells already have a batch"):
        conv(x, Cells(mask.nonzero(), (2, 2), batch), batch=batch.flip(0))


def test_assignments_say_more_than_a_batch():
    conv, x, of = OuterConv(3, 2, Cluster()), torch.randn(4, 3), torch.tensor([0, 2, 1, 2])
    for batch in (torch.zeros(4).long(), (torch.zeros(4).long(), torch.zeros(3).long())):
        assert_near(conv(x, of, batch=batch), conv(x, of))
    with pytest.raises(ValueError, match="batch needs one graph for each node"):
        conv(x, of, batch=torch.zeros(3).long())


@pytest.mark.parametrize("size", [(5, 5), (5, 3)], ids=str)
def test_the_batches_of_a_pair_are_a_pair_or_those_of_targets(size):
    index = torch.tensor([[0, 4, 2], [1, 0, 2]])
    x, far = torch.randn(size[0], 3), torch.randn(size[1], 3)
    near, there = torch.zeros(size[0]).long(), torch.zeros(size[1]).long()
    for family in (GCN(add_self_loops=False), Identity(), Hops(), attention(Hops())):
        conv = OuterConv(3, 4, family)
        expected = conv((x, far), index)
        for batch in (there, (near, there)):
            assert_near(conv((x, far), index, batch=batch), expected)
    seen = OuterConv(3, 2, Complete()).basis((x, far), index, batch=(near, there + 1))
    assert not seen.to_dense().any()
    with pytest.raises(ValueError, match="one batch vector for both ends"):
        OuterConv(3, 2, Complete())((x, far), index, batch=there)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.parametrize("family", [Identity(), Hops(), Stack(Identity(), Causal())], ids=str)
def test_values_of_a_matrix_are_left_alone_by_families_without_weights(family, layout):
    conv, x = OuterConv(3, 2, family), torch.randn(5, 3)
    for values in (torch.ones(6), torch.rand(6)):
        matrix = torch.sparse_coo_tensor(EDGES.flip(0), values, (5, 5)).coalesce()
        matrix = matrix if layout == "coo" else getattr(matrix, f"to_sparse_{layout}")()
        assert_near(conv(x, matrix), conv(x, EDGES))


def test_a_structure_holds_what_it_holds():
    edges = Graph.read(EDGES, size=(5, 5), **BESIDE)
    x = torch.randn(5, 3)
    for family, reads in ((Identity(), ()), (GCN(), (W,)), (Relation(2), (W, T))):
        conv = OuterConv(3, 2, family)
        assert_near(conv(x, edges), conv(x, EDGES, **{name: BESIDE[name] for name in reads}))
        for name in reads:
            with pytest.raises(ValueError, match=f"expected none, got {name}"):
                conv(x, edges, **{name: BESIDE[name]})
        with pytest.raises(ValueError, match="size must fit the Graph"):
            conv(torch.randn(6, 3), edges)
        assert_near(conv(x, edges, batch=BATCH), conv(x, edges))
    with pytest.raises(ValueError, match="this Graph already has a batch"):
        GCN().basis(Graph.read(EDGES, batch=BATCH), batch=BATCH.clone())


def test_counted_nodes_take_what_they_do_not_know():
    family, here = Causal(), torch.device("cpu")
    nodes, halves = NodeSet((4, None), here), torch.tensor([0, 0, 1, 1])
    expected = family.basis(None, size=(4, 4), batch=halves).to_dense()
    assert_near(family.basis(nodes, batch=halves).to_dense(), expected)
    node_set = family.read(None, size=(4, 4), batch=halves)
    assert_near(family.basis(node_set, size=(4, None)).to_dense(), expected)
    with pytest.raises(ValueError, match="nodes that have batch"):
        family.basis(node_set, batch=halves.flip(0))
    with pytest.raises(ValueError, match="size must fit the NodeSet"):
        family.basis(node_set, size=(5, 5))


def test_wrappers_pass_none_for_what_there_is_not():
    x = torch.randn(5, 3)
    for family in (Identity(), GCN(), Hops()):
        conv = OuterConv(3, 3, family)
        kind = ("a", "to", "a")
        out = HeteroConv({kind: conv})(
            {"a": x}, {kind: EDGES}, edge_weight_dict={kind: None}, edge_type_dict={kind: None}
        )
        assert_near(out["a"], conv(x, EDGES))
        model = Sequential("x, edge_index, w", [(conv, "x, edge_index, w -> x")])
        assert_near(model(x, EDGES, None), conv(x, EDGES))


def test_attention_reads_edge_weights_only_where_its_alignment_does():
    x, weight = torch.randn(5, 3), torch.rand(EDGES.size(1))
    conv = AttentionConv(3, 4, 2, align=GCN())
    expected = conv(x, EDGES, alignment=Graph.read(EDGES, weight, size=(5, 5)))
    assert_near(conv(x, EDGES, weight), expected)
    assert float((conv(x, EDGES) - expected).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("layer", [OuterConv(3, 4, Relation(2)), AttentionConv(3, 4, 2)])
def test_all_but_x_edges_and_weights_goes_by_name(layer):
    for call in (layer, layer.basis, layer.contraction_path):
        with pytest.raises(TypeError, match="positional"):
            call(torch.randn(5, 3), EDGES, None, BESIDE[T])


@pytest.mark.parametrize("support", [Hops(), Complete(), Causal()], ids=str)
def test_a_given_support_takes_the_batch_that_it_was_made_of(support):
    terms = (ALiBi(2),)
    conv, x = AttentionConv(3, 4, 2, support=support, terms=terms), torch.randn(5, 3)
    edges, batch = torch.tensor([[0, 1, 4, 4], [1, 0, 3, 2]]), torch.tensor([0, 0, 1, 1, 1])
    support_basis = support.basis(edges, size=(5, 5), batch=batch)
    expected, learned = conv(x, edges, batch=batch, return_attention_weights=True)
    assert_near(conv(x, support_basis, batch=batch), expected)
    assert_near(conv(x, learned, batch=batch), expected)


P, Q = 3, 2


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
