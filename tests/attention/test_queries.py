"""Aligned queries stand where the sources are that they are taken from."""

import random

import pytest
import torch
from oracle import assert_same
from seen import HEADS, SEEN, P, Q, layer

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import (
    ALiBi,
    FeatureMapped,
    KeyQuery,
    LearnedQueries,
    RelativeBias,
    Rotary,
)
from pyg_outerconv.attention.queries import _narrowed, narrowed
from pyg_outerconv.families import (
    GCN,
    Blocks,
    Causal,
    Cluster,
    Complete,
    Identity,
    LinearAttention,
    Mean,
    Part,
    Relation,
    SlidingWindow,
    Stack,
)
from pyg_outerconv.graph import Cells
from pyg_outerconv.memo import EACH
from pyg_outerconv.nn import AttentionConv
from pyg_outerconv.testing import assert_near

NODES, D = 9, 4
SUPPORTS = [*SEEN, "union(sliding_window(1), causal)", "random_links(2)", "stack(causal, complete)"]
PARTS = [Part(1, -1), Part(3, 2), Part(start=4), Part(), Part(0, 3)]
TERMS = {
    "none": lambda: (),
    "alibi": lambda: (ALiBi(HEADS),),
    "relative": lambda: (RelativeBias(HEADS, 3),),
}


def features(*shape):
    return torch.randn(*shape, P, dtype=torch.float64).requires_grad_()


def rows_of(part, nodes=NODES):
    start = part.start + nodes if part.start < 0 else part.start
    return torch.arange(nodes)[start:] if part.count is None else start + torch.arange(part.count)


def aligned(conv, align):
    """A layer with the same modules, some of whose sources ask."""
    family = conv.family
    options = {"support": family.support, "score": family.score, "terms": family.terms}
    out = AttentionConv(P, Q, HEADS, normalise=family.normalise, align=align, **options).double()
    out.load_state_dict(conv.state_dict())
    return out


def assert_is_slice(conv, align, rows, x, *args, **beside):
    whole = conv(x, *args)[..., rows, :]
    actual = aligned(conv, align)(x, *args, **beside)
    assert_same(actual, whole, [x, *conv.family.score.parameters()])


@pytest.mark.parametrize("rotary", [False, True], ids=["", "rotary"])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("support", SUPPORTS)
def test_some_that_ask_are_a_slice_of_all_that_ask(support, terms, rotary):
    draw = random.Random(f"{support}{terms}{rotary}")
    score = KeyQuery(HEADS, D, P, rotary=Rotary(D) if rotary else None)
    conv = layer(score, support=support, terms=TERMS[terms]())
    for part in draw.sample(PARTS, 3):
        assert_is_slice(conv, part, rows_of(part), features(NODES))
    assert_is_slice(conv, Part(2, 5), rows_of(Part(2, 5)), features(2, NODES))
    # The same as edges, in any order, some of them more than once.
    chosen = torch.tensor([7, 2, 2, 0])
    alignment = torch.stack([chosen, torch.arange(4)])
    assert_is_slice(conv, Relation(1, None), chosen, features(NODES), alignment=alignment)


def test_a_decoders_last_token_sees_all_before():
    conv, x = layer("key-query", support="causal"), features(6)
    last = aligned(conv, Part(1, -1))
    assert last.basis(x).num_edges == 6
    assert last.basis(x).over is last.basis(x).over  # made once
    assert_near(last(x), conv(x)[-1:])
    assert_near(aligned(conv, Part(1, -1))(x, size=(6, 1)), conv(x)[-1:])


def test_places_of_queries_that_are_kept_have_a_bound():
    over = SlidingWindow(1).basis((NODES,))
    first = narrowed(over, range(NODES))
    assert narrowed(over, range(NODES)) is first
    for stop in range(2 * EACH):
        narrowed(over, range(stop))
    assert len(_narrowed[over]) == EACH
    again = narrowed(over, range(NODES))
    assert again is not first
    assert_near(again.to_dense(torch.float64), first.to_dense(torch.float64))


@pytest.mark.parametrize("normalise", ["l1", "identity"])
@pytest.mark.parametrize("support", ["causal", "causal(strict=True)", "complete"])
def test_so_does_attention_without_a_softmax(support, normalise):
    score = FeatureMapped(HEADS, D, P, "exp" if normalise == "l1" else "elu+1")
    conv = layer(score, normalise, support)
    for part in PARTS:
        assert_is_slice(conv, part, rows_of(part), features(NODES))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("feature_map", ["elu+1", "exp"])
def test_causal_linear_attention_counts_from_where_queries_stand(feature_map, strict):
    options = {"feature_map": feature_map, "causal": True, "strict": strict, "in_channels": P}
    nodes = 50
    for part in (Part(1, -1), Part(7, 40), Part(start=20)):
        family = LinearAttention(HEADS, D, align=part, **options)
        conv = OuterConv(P, Q, family).double()
        whole = OuterConv(P, Q, LinearAttention(HEADS, D, **options)).double()
        whole.load_state_dict(conv.state_dict())
        x = features(nodes)
        actual, wanted = conv(x, None), whole(x, None)[rows_of(part, nodes)]
        assert_same(actual, wanted, [x])
        conv.fuse = False
        assert_near(conv(x, None), wanted)
        graph = torch.arange(nodes) % 3
        own = graph[rows_of(part, nodes)]
        wanted = whole(x, None, batch=graph)[rows_of(part, nodes)]
        conv.fuse = True
        assert_near(conv(x, None, batch=(graph, own)), wanted)
        conv.fuse = False
        assert_near(conv(x, None, batch=(graph, own)), wanted)
    chosen = torch.tensor([[3, 1], [0, 1]])
    conv = AttentionConv(P, Q, HEADS, Causal(), align=Relation(1, None)).double()
    assert conv(features(5), alignment=chosen).shape == (2, Q)


@pytest.mark.parametrize(
    "support", ["causal", "complete", "slidingwindow(window=1)", "blocks(window=2)"]
)
def test_graphs_of_queries_are_those_of_their_sources(support):
    conv, x = layer(KeyQuery(HEADS, D, P, rotary=Rotary(D)), support=support), features(NODES)
    graph = torch.tensor([0, 1, 0, 0, 1, 2, 1, 2, 0])
    part = Part(4, 3)
    wanted = conv(x, batch=graph)[rows_of(part)]
    few = aligned(conv, part)
    assert_near(few(x, batch=(graph, graph[rows_of(part)])), wanted)
    if support != "complete":
        with pytest.raises(ValueError, match="of the graph of the source"):
            few(x, batch=(graph, torch.zeros(4, dtype=torch.long)))


def test_cells_that_ask_stand_in_their_grid():
    cells = Cells.of_shape((3, 4))
    term = RelativeBias(HEADS, (2, 2))
    for support in (SlidingWindow(1), Blocks(2), Causal(), Complete()):
        conv, x = layer("key-query", support=support, terms=(term,)), features(12)
        assert_is_slice(conv, Part(4, 5), rows_of(Part(4, 5), 12), x, cells)


def test_positions_that_are_given_go_first():
    conv = layer("key-query", support="causal", terms=(ALiBi(HEADS),))
    x, pos = features(NODES), torch.rand(NODES, 1).double()
    part = Part(4, 3)
    few = aligned(conv, part)
    rows = rows_of(part)
    assert_near(few(x, pos=(pos, pos[rows])), conv(x, pos=pos)[rows])
    elsewhere = few(x, pos=(pos, pos[rows] + 1.0))
    assert not torch.allclose(elsewhere, conv(x, pos=pos)[rows])


@pytest.mark.parametrize("support", ["complete", "causal"])
def test_positions_of_sources_are_those_of_queries_that_are_sources(support):
    conv = layer("key-query", support=support, terms=(ALiBi(HEADS),))
    x, pos, part = features(NODES), torch.rand(NODES, 1).double().requires_grad_(), Part(4, 3)
    few, rows = aligned(conv, part), rows_of(part)
    actual, wanted = few(x, pos=pos), conv(x, pos=pos)[rows]
    assert_same(actual, wanted, [x, pos])
    assert_near(few(x, few.basis(x).over, pos=pos), wanted)


@pytest.mark.parametrize("align", [Part(4, 3), LearnedQueries(4, P)], ids=repr)
def test_positions_of_other_numbers_of_nodes_are_refused_by_name(align):
    terms, x, pos = (ALiBi(HEADS),), features(NODES), torch.rand(NODES, 1).double()
    conv = AttentionConv(P, Q, HEADS, support="complete", align=align, terms=terms).double()
    for positions in (
        (pos, pos[:3]),
        (pos, torch.rand(5, 1).double()),
        (pos[:3], pos[:4]),
        pos[:3],
    ):
        with pytest.raises(ValueError, match="pos (needs|has) a row"):
            conv(x, pos=positions)
    assert conv(x, pos=(pos, pos[:4])).isfinite().all()
    if isinstance(align, LearnedQueries):
        with pytest.raises(ValueError, match=r"have no positions: .*pos=\(of sources"):
            conv(x, pos=pos)


def test_places_come_with_a_support_that_is_given():
    conv, x = layer("key-query", support="causal", terms=(ALiBi(HEADS),)), features(NODES)
    part = Part(4, 3)
    few = aligned(conv, part)
    assert_near(few(x, few.basis(x).over), conv(x)[rows_of(part)])


@pytest.mark.parametrize("align", [GCN(), Identity(), Stack(Identity(), GCN())], ids=str)
def test_queries_of_the_nodes_themselves_stand_where_these_do(align):
    """Whatever they are made of."""
    edges = torch.randint(NODES, (2, 20))
    x = features(NODES)
    for terms in ((), (ALiBi(HEADS),)):
        conv = aligned(layer("key-query", support="causal", terms=terms), align)
        before = conv(x, edges)[:5]
        assert before.isfinite().all()
        table = torch.zeros(HEADS, NODES, NODES)
        table = conv.basis(x, edges).to_dense() if align.num_bases == 1 else table
        assert not table.tril(-1).any()


UNPLACED = [
    (Mean(Cluster()), {"alignment": torch.arange(NODES) // 3}),
    (Cluster(), {"alignment": torch.rand(NODES, NODES).double()}),  # as many as there are nodes
    (Relation(1, None), {"alignment": torch.tensor([[0, 1, 2], [0, 0, 1]])}),
    (LearnedQueries(3, P), {}),
]


@pytest.mark.parametrize(("align", "beside"), UNPLACED, ids=["means", "soft", "two", "learned"])
def test_queries_without_a_place_are_refused_where_it_matters(align, beside):
    x = features(NODES)

    def run(support, more=None, **options):
        conv = AttentionConv(P, Q, HEADS, support=support, align=align, **options).double()
        return conv(x, **beside, **(more or {}))

    count = run("complete").size(0)
    for support in ("causal", "slidingwindow(window=1)", "globaltokens(1)"):
        with pytest.raises(ValueError, match=r"depends on the order of nodes.*such as Part"):
            run(support)
    terms = (ALiBi(HEADS),)
    transposed = KeyQuery(HEADS, D, P, rotary=Rotary(D))
    pos = torch.rand(NODES, 1).double(), torch.rand(count, 1).double()
    for options in ({"terms": terms}, {"score": transposed}):
        with pytest.raises(
            ValueError, match=r"the queries of .* have no positions.*pos=\(of sources"
        ):
            run("complete", **options)
        assert run("complete", {"pos": pos}, **options).isfinite().all()


@pytest.mark.parametrize(
    "score", ["key-query", "bilinear", "additive", "gatv2", "feature-map", "gatv2(own=True)"]
)
def test_queries_may_be_of_another_width(score):
    fits = AttentionConv((P, P + 2), Q, HEADS, "complete", LearnedQueries(3, P + 2), score).double()
    assert fits(features(5)).shape == (3, Q)


@pytest.mark.parametrize("align", [Part(3), Identity(), LearnedQueries(3, P)], ids=repr)
def test_features_of_targets_that_nobody_would_read_are_refused(align):
    x, targets = features(NODES), features(3)
    for causal in (False, True):
        if causal and isinstance(align, LearnedQueries):
            continue
        conv = AttentionConv(P, Q, HEADS, Causal() if causal else Complete(), align=align).double()
        linear = LinearAttention(HEADS, D, causal=causal, in_channels=P, align=align)
        for one in (conv, OuterConv(P, Q, linear).double()):
            with pytest.raises(ValueError, match=r"not from the targets.*x alone"):
                one((x, targets), None)
            assert one((x, None), None, size=(NODES, 3)).shape == (3, Q)
    rooted = AttentionConv(P, Q, HEADS, Complete(), align=align, root_weight=True).double()
    assert rooted((x, targets), None).shape == (3, Q)  # the root weight reads them
