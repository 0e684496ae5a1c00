"""Bases that layers share and keep: of equal families on one graph, and never another's."""

import weakref

import pytest
import torch
from cases import named
from torch._subclasses.fake_tensor import FakeTensorMode

from pyg_outerconv import Cells, OuterConv, clear_caches
from pyg_outerconv.basis.additive_attention import AdditiveAttentionBasis
from pyg_outerconv.basis.grid_shift import GridShift
from pyg_outerconv.families import GCN, Grid, Relation
from pyg_outerconv.graph import Graph
from pyg_outerconv.kernels.mode import mode
from pyg_outerconv.nn import gat_conv
from pyg_outerconv.nn.bases import bases, recent, shares_here
from pyg_outerconv.testing import assert_near

EDGES = 5000  # not a tiny graph, of which no basis is made


def graph(seed=0, nodes=9, edges=EDGES):
    pick = torch.Generator().manual_seed(seed)
    return torch.randint(nodes, (2, edges), generator=pick)


@pytest.fixture
def basis_calls(monkeypatch):
    """How often GCN has made a basis."""
    counted, make = [], GCN.basis_on
    monkeypatch.setattr(
        GCN, "basis_on", lambda self, *arguments: counted.append(self) or make(self, *arguments)
    )
    return counted


def test_layers_of_a_model_share_a_basis(basis_calls):
    first, second, third = OuterConv(4, 8, GCN()), OuterConv(8, 8, "gcn"), OuterConv(8, 2, "gcn")
    x, edge_index = torch.randn(9, 4), graph()
    for _ in range(3):
        third(second(first(x, edge_index), edge_index), edge_index).sum().backward()
    assert len(basis_calls) == 1
    third(torch.randn(9, 8), edge_index.clone())
    assert len(basis_calls) == 2


def test_cached_false_shares_nothing(basis_calls):
    x, edge_index = torch.randn(9, 4), graph()
    for _ in range(2):
        OuterConv(4, 4, GCN(), cached=False)(x, edge_index)
    assert len(basis_calls) == 2


def test_other_options_sizes_weights_and_types_are_other_bases():
    x, edge_index = torch.randn(9, 4, dtype=torch.float64), graph(edges=30)
    weight = torch.rand(30)
    conv = OuterConv(4, 4, GCN()).double()
    plain = conv(x, edge_index)
    weighted = conv(x, edge_index, weight)
    assert not torch.allclose(plain, weighted)
    assert_near(conv(x, edge_index), plain)
    bare = OuterConv(4, 4, GCN(add_self_loops=False)).double()
    bare.load_state_dict(conv.state_dict())
    assert not torch.allclose(bare(x, edge_index), plain)
    wider = torch.cat([x, x[:1]])
    assert conv(wider, edge_index).shape == (10, 4)
    assert conv.float()(x.float(), edge_index).dtype == torch.float32


@pytest.mark.parametrize("cached", [None, True])
def test_weights_that_learn_are_not_shared(cached, basis_calls):
    conv, x, edge_index = OuterConv(4, 4, GCN(), cached=cached), torch.randn(9, 4), graph()
    weight = torch.rand(EDGES, requires_grad=True)
    for _ in range(2):
        conv(x, edge_index, weight).sum().backward()
    assert len(basis_calls) == 2


def test_only_the_last_graphs_are_kept():
    conv, x = OuterConv(4, 4, GCN()), torch.randn(9, 4)
    graphs = [graph(seed) for seed in range(7)]
    for edge_index in graphs:
        conv(x, edge_index)
    assert len(recent) == 4
    del graphs, edge_index
    assert len(recent) == 0
    edge_index = graph()
    conv(x, edge_index)
    assert len(recent) == 1
    clear_caches()
    assert len(recent) == 0


def test_tracers_and_inference_share_nothing(monkeypatch):
    conv, edge_index = OuterConv(4, 4, Relation(1)), graph()
    with torch.inference_mode():
        conv(torch.randn(9, 4), graph())
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert not shares_here(edge_index, mode())
    assert len(recent) == 0
    monkeypatch.setattr(torch._C, "_is_tracing", lambda: True)
    assert not shares_here(edge_index, mode())


def test_layers_on_a_device_share_by_themselves():
    assert shares_here(torch.zeros(2, 3, dtype=torch.long, device="meta"), mode())


# With cached=True ---------------------------------------------------------------------------------

KEPT = ("gcn", "walk(2)", "chebyshev(3)", "relation(3)", "directed(gcn(add_self_loops=False))")


@pytest.mark.parametrize("family", [*KEPT, "stack(walk(1, direction=both), identity)"])
def test_a_cached_basis_is_shared_by_layers_with_an_equal_family(family):
    first, second = (OuterConv(p, 3, family, cached=True) for p in (4, 6))
    kinds = torch.randint(3, (20,)) if family == "relation(3)" else None
    edges, beside = graph(edges=20), named(None, None, kinds)
    basis = first.basis(torch.randn(9, 4), edges, **beside)
    assert second.basis(torch.randn(9, 6), edges, **beside) is basis
    for other, nodes in (
        (OuterConv(4, 3, family), 9),
        (first, 10),
        (OuterConv(4, 3, f"stack({family}, identity)", cached=True), 9),
    ):
        assert other.basis(torch.randn(nodes, 4), edges, **beside) is not basis


@pytest.mark.parametrize("cached", [True, None])
def test_a_basis_is_of_the_batch_that_is_beside_its_edges(cached):
    conv = OuterConv(4, 3, "chebyshev(3, exact, source)", cached=cached)
    edges = torch.tensor([[0, 1, 2, 2, 4, 5, 5], [1, 0, 0, 2, 5, 4, 4]])
    x, halves = torch.randn(6, 4), torch.tensor([0, 0, 0, 0, 1, 1])
    thirds = torch.tensor([0, 0, 0, 1, 2, 2])
    plain, actual = [], []
    for batch in (None, halves, thirds, halves.clone(), None):
        actual.append(conv(x, edges, **named(None, None, None, None, batch)))
        plain.append(conv(x, edges.clone(), **named(None, None, None, None, batch)))
    assert_near(torch.stack(actual), torch.stack(plain))


# Of grids -----------------------------------------------------------------------------------------

MASK = torch.tensor([[True, True, False], [False, True, True]])


def on_grid(cached=True, **options):
    return OuterConv(4, 2, Grid((3, 3), padding=1, **options), cached=cached)


def test_kept_rules_are_known_by_value_and_keep_their_edges():
    first, second, x = *(on_grid() for _ in range(2)), torch.randn(6, 4)
    rule = first.basis(x, (2, 3))
    assert isinstance(rule, GridShift)
    rule_edges = rule.edges()
    assert second.basis(x, [2, 3]) is rule
    assert second.basis(x, (2, 3)).edges() is rule_edges
    whole = second.basis(x, Cells.of_shape((2, 3)))
    assert first.basis(x, Cells.of_shape((2, 3))) is whole
    assert first.basis(x, (3, 2)) is not rule
    assert first.basis(x.double(), (2, 3)) is not rule
    assert on_grid(dilation=1, dim=2).basis(x, (2, 3)) is not rule
    assert on_grid(cached=None).basis(x, (2, 3)) is not rule, "nothing is kept unless asked for"


def test_bases_of_masks_and_cells_are_kept_as_long_as_these():
    conv, x = on_grid(), torch.randn(4, 4)
    mask, cells = MASK.clone(), Cells(MASK.nonzero(), (2, 3))
    before = len(bases)
    cached_bases = conv.basis(x, mask), conv.basis(x, cells)
    assert len(bases) == before + 2
    assert conv.basis(x, mask) is cached_bases[0]
    assert conv.basis(x, cells) is cached_bases[1]
    assert conv.basis(x, mask.clone()) is not cached_bases[0]
    mask[0, 0], mask[0, 2] = False, True
    assert conv.basis(x, mask) is not cached_bases[0], "a mask that changed is another mask"
    del mask, cells, cached_bases
    assert len(bases) == before


# Of attention ---------------------------------------------------------------------------------

LOOPED = torch.tensor([[0, 1, 2, 3, 3, 0, 4], [1, 2, 3, 0, 1, 2, 4]])


def test_kept_edges_are_of_the_layers_options_and_of_what_they_hold_now():
    edges = LOOPED.clone()
    for options in ({}, {"add_self_loops": False}, {"flow": "target_to_source"}, {}):
        kept, anew = (
            gat_conv(3, 2, 2, cached=keeps, **options).double() for keeps in (True, False)
        )
        anew.load_state_dict(kept.state_dict())
        for nodes in (5, 7, 5):
            x = torch.randn(nodes, 3).double()
            assert_near(kept(x, edges), anew(x, edges.clone()))
            edges[0, 0] = (edges[0, 0] + 1) % 5


def test_what_is_kept_is_gone_with_its_edges():
    kept = gat_conv(3, 2, heads=2, cached=True).double()
    edges, x = LOOPED.clone(), torch.randn(5, 3).double()
    before = len(bases)
    kept(x, edges)
    assert len(bases) == before + 1
    reference = weakref.ref(x)
    del x
    assert reference() is None  # features are not kept
    del edges
    assert len(bases) == before


@pytest.mark.parametrize("make", [gat_conv, lambda p, q, heads: OuterConv(p, q, f"gat({heads})")])
def test_edges_of_a_graph_are_sorted_once(make, monkeypatch):
    sums, seen = AdditiveAttentionBasis.sums, []
    watched = lambda basis: seen.append(basis.over.pattern) or sums(basis)  # noqa: E731
    monkeypatch.setattr(AdditiveAttentionBasis, "sums", watched)
    conv, x = make(3, 4, heads=2).double(), torch.randn(5, 3).double()
    many = LOOPED.repeat(1, 2**12)  # a tiny graph is read anew
    for edges in (Graph.read(LOOPED.clone(), size=(5, 5)), many):
        seen.clear()
        assert_near(conv(x, edges), conv(x, edges))
        assert len(seen) == 2
        assert seen[0] is seen[1]
