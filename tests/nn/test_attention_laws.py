"""x"""

from dataclasses import dataclass

import pytest
import torch
from contractions import normal
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same
from scores import TRIED

from pyg_outerconv import OuterConv
from pyg_outerconv.attention import (
    NORMALISERS,
    ALiBi,
    KeyQuery,
    LearnedQueries,
    Rotary,
    Softmax,
    make_score,
)
from pyg_outerconv.basis.algebra import Stacked
from pyg_outerconv.families import (
    GCN,
    Add,
    Attention,
    Complete,
    Compose,
    ContentFamily,
    Directed,
    Explicit,
    Family,
    Grid,
    Hops,
    Identity,
    LinearAttention,
    Mean,
    MultiHead,
    Part,
    Relation,
    Reverse,
    Scale,
    Select,
    Stack,
    Sub,
    Union,
    edge_basis,
    parse_family,
)
from pyg_outerconv.graph import Cells, Graph, SparseFeatures, Structure
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import (
    assert_declared_laws,
    assert_learned_queries_invariant,
    assert_near,
    assert_permutation_equivariant,
    assert_stochastic,
)

P, D_EDGE = 4, 2
QUERIES = 3
seeds = st.integers(0, 2**31)
few = draws(4)


def graph(seed, targets=None, labels=1, told=False):
    """Edges at random with attributes, of a few nodes or none; and features."""
    generator = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(1, 7, (1,), generator=generator))
    count = int(torch.randint(0, 3 * nodes + 1, (1,), generator=generator))
    ends = [
        torch.randint(high, (count,), generator=generator) for high in (nodes, targets or nodes)
    ]
    attr = torch.randn(count, D_EDGE, generator=generator, dtype=torch.float64) if told else None
    kinds = torch.randint(labels, (count,), generator=generator) if labels > 1 else None
    size = (nodes, targets or nodes)
    x = torch.randn(nodes, P, generator=generator, dtype=torch.float64)
    return x, Graph.read(torch.stack(ends), edge_type=kinds, size=size, edge_attr=attr)


def layer(score, **options):
    score = make_score(score, 2, 4, P) if isinstance(score, str) else score
    conv = AttentionConv(P, 8, 2, score=score, **options).double()
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return conv


@pytest.mark.parametrize("score", TRIED)
@given(seed=seeds)
@few
def test_self_attention_is_permutation_equivariant(score, seed):
    x, edges = graph(seed, told="edge" in score)
    assert_permutation_equivariant(layer(score), x, edges)


@pytest.mark.parametrize("score", [text for text in TRIED if "edge" not in text])
@given(seed=seeds)
@few
def test_so_it_is_without_edges(score, seed):
    x, _ = graph(seed)
    assert_permutation_equivariant(layer(score, support="complete"), x)
    many = torch.stack([x, -x])
    assert_permutation_equivariant(layer(score, support="complete"), many)


@pytest.mark.parametrize("score", TRIED)
@given(seed=seeds)
@few
def test_learned_queries_are_permutation_invariant(score, seed):
    x, edges = graph(seed, targets=QUERIES, told="edge" in score)
    conv = layer(score, align=LearnedQueries(QUERIES, P))
    assert_learned_queries_invariant(conv, x, edges)
    if "edge" not in score:
        conv = layer(score, align=LearnedQueries(QUERIES, P), support="complete")
        assert_learned_queries_invariant(conv, x)


@pytest.mark.parametrize("normaliser", [n for n, kind in NORMALISERS.items() if kind.is_stochastic])
@given(seed=seeds, labels=st.sampled_from([1, 2]))
@few
def test_shares_of_stochastic_normalisers_add_up_to_one_or_nothing(normaliser, seed, labels):
    x, edges = graph(seed, labels=labels)
    conv = layer("key-query", normalise=normaliser, support=Relation(labels, None))
    beside = {} if labels == 1 else {"edge_type": edges.edge_type}
    _, basis = conv(x, edges.edge_index, return_attention_weights=True, **beside)
    assert_stochastic(basis)


def test_laws_fail_where_they_do_not_hold():
    x = normal(6, P, grad=False)
    for support in ("causal", "sliding_window(1)"):
        with pytest.raises(AssertionError, match="largest difference"):
            assert_permutation_equivariant(layer("key-query", support=support), x)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_learned_queries_invariant(layer("key-query", support="complete"), x)
    conv = layer("key-query", normalise="sigmoid", support="complete")
    with pytest.raises(AssertionError, match="largest difference"):
        assert_stochastic(conv.basis(x))


UNORDERED = (
    *("hops(1)", "hops(2)", "complete", "complete(add_self_loops=False)"),
    *("union(hops, complete)", "stack(hops, complete)"),
)
ORDERED = (
    *("causal", "sliding_window(1)", "union(hops, causal)", "stack(causal, complete)"),
    *("random_links(2)", "global_tokens(1)", "blocks(2)", "strided(2)"),
)


@pytest.mark.parametrize("support", [*UNORDERED, *ORDERED])
@given(seed=seeds)
@few
def test_a_family_of_content_keeps_the_laws_that_it_declares(support, seed):
    torch.manual_seed(seed)
    score = make_score("key-query", 2, 3, 3).double()
    family = Attention(score, parse_family(support), Softmax())
    assert ("permutation-equivariant" in family.laws) == (support in UNORDERED)
    assert_declared_laws(family, seed)


@pytest.mark.parametrize(
    "align", [None, Identity(), GCN(), Mean(GCN()), Part(), LearnedQueries(2, 3)]
)
@given(seed=seeds)
@few
def test_so_it_does_with_an_alignment(align, seed):
    torch.manual_seed(seed)
    linear = LinearAttention(2, 3, in_channels=3, align=align)
    linear.score.double()
    score = make_score("key-query", 2, 3, 3).double()
    of_nodes = align is None or isinstance(align, Identity | GCN | Mean)
    assert not LinearAttention(2, 3, causal=True).symmetries
    for family in (linear, Attention(score, Complete(), Softmax(), align)):
        assert ("permutation-equivariant" in family.laws) == of_nodes
        if of_nodes:
            assert_declared_laws(family, seed)


@pytest.mark.parametrize("score", TRIED)
def test_scores_that_read_places_declare_no_symmetry(score):
    """Where nobody says positions, they are the numbers of nodes."""
    score_module = make_score(score, 2, 4, P)
    for terms in ((), (ALiBi(2),)):
        family = Attention(score_module, Complete(), Softmax(), terms=terms)
        assert ("permutation-equivariant" in family.laws) == (not terms)
    transposed = Attention(KeyQuery(2, 4, P, rotary=Rotary(4)), Complete(), Softmax())
    assert "permutation-equivariant" not in transposed.laws
    x = normal(6, P, grad=False)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_permutation_equivariant(layer(transposed.score, support="complete"), x)


EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 0], [1, 2, 3, 0, 2, 1, 1, 2]])
KINDS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


@pytest.mark.parametrize("heads", [3, 6])
def test_a_support_of_labels_gives_each_its_share_of_heads(heads):
    conv = AttentionConv(3, 6, heads, support=Relation(3, None), bias=False).double()
    x = normal(5, 3)
    basis = conv.basis(x, EDGES, edge_type=KINDS)
    assert (basis.num_labels, basis.num_bases) == (3, heads)
    theta = conv.theta_value().full()[:, 0]
    expected = torch.einsum("hmn,mp,hpq->nq", basis.to_dense(), x, theta)
    for conv.fuse in (True, False):
        assert_near(conv(x, EDGES, edge_type=KINDS), expected)


# Mixed heads --------------------------------------------------------------------------------------


def content(heads=2, channels=4, in_channels=3, support=None):
    score = KeyQuery(heads, channels, in_channels)
    return Attention(score, support or Relation(1, None), Softmax())


@pytest.mark.parametrize("theta", ["full", "columns", "value-output(channels=2)"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_labels_of_indices_and_of_content_in_one_layer(theta, batch):
    family = Stack(GCN(), content(), Identity())
    conv = OuterConv(3, 8, family, bias=False, theta=theta).double()
    x = normal(*batch, 5, 3)
    full = conv.theta()[:, 0]
    each = x.unsqueeze(0) if not batch else x
    rows = []
    for item in each:
        dense = conv.basis(item, EDGES).to_dense()
        assert dense.shape[0] == 4
        rows.append(torch.einsum("kmn,mp,kpq->nq", dense, item, full))
    expected = torch.stack(rows) if batch else rows[0]
    wanted = [x, *conv.parameters()]
    for fuse in (True, False):
        conv.fuse = fuse
        actual = conv(x, EDGES)
        assert_same(actual, expected, wanted, 1e-9)


def test_images_by_shifts_and_by_content_in_one_layer():
    family = Stack(Grid((3, 3), padding=1), content(support=Complete()))
    conv = OuterConv(3, 4, family, bias=False).double()
    x, cells = normal(2, 12, 3), Cells.of_shape((3, 4))
    path = conv.contraction_path(x, cells)
    assert path.chosen[0] == "convolution"
    full = conv.theta()[:, 0]
    expected = torch.stack(
        [torch.einsum("kmn,mp,kpq->nq", conv.basis(i, cells).to_dense(), i, full) for i in x]
    )
    actual = conv(x, cells)
    assert_same(actual, expected, [x, *conv.parameters()], 1e-9)


# The family around another, and its basis, of that of the other and of that on reversed edges.
WITHIN = {
    "add": (lambda f: Add(f, f), lambda one, back: one.scale(torch.tensor(2.0))),
    "compose": (lambda f: Compose(f, f), lambda one, back: one.compose(one)),
    "directed": (Directed, lambda one, back: Stacked((one, back))),
    "explicit": (Explicit, lambda one, back: one.edges()),
    "mean": (Mean, lambda one, back: one.mean()),
    "reverse": (Reverse, lambda one, back: back),
    "scale": (lambda f: Scale(f, 3.0), lambda one, back: one.scale(torch.tensor(3.0))),
    "select": (lambda f: Select(f, (1,)), lambda one, back: one.select([1])),
    "stack": (lambda f: Stack(f, f), lambda one, back: Stacked((one, one))),
    "sub": (lambda f: Sub(f, f), lambda one, back: one.scale(torch.tensor(0.0))),
}


@pytest.mark.parametrize("edges", [EDGES, EDGES.repeat(1, 400)], ids=["few", "many"])
@pytest.mark.parametrize("name", WITHIN)
def test_content_within_other_families(name, edges):
    around, expected = WITHIN[name]
    one, x = content(), normal(5, 3)
    conv = OuterConv(3, 4, around(one), bias=False).double()
    bases = [OuterConv(3, 4, one).double().basis(x, end) for end in (edges, edges.flip(0))]
    dense = expected(*bases).to_dense()
    assert_near(conv.basis(x, edges).to_dense(), dense)
    assert_near(conv(x, edges), torch.einsum("kmn,mp,kpq->nq", dense, x, conv.theta()[:, 0]))


@dataclass(frozen=True)
class PositiveProducts(ContentFamily):
    """Pairs of nodes whose features have a positive product."""

    equation = "A_0[m, n] = 1 where <x_m, x_n> > 0"
    reads, reads_beside, takes_nodes_alone = Structure, ("x",), True
    labels = ("positive",)

    def basis_on(self, structure, dtype=None, content=None):
        content, asked = self.content_of(structure, content)
        return edge_basis(Graph((content.source @ asked.T > 0).nonzero().T, structure.size))


@pytest.mark.parametrize(
    "support", [PositiveProducts(), Union(Hops(), PositiveProducts())], ids=str
)
@pytest.mark.parametrize("score", ["key-query", "additive"])
def test_supports_of_features_are_made_anew(score, support):
    conv = OuterConv(3, 4, MultiHead(2, score, support)).double()
    for x in (normal(5, 3), normal(5, 3)):
        seen = x @ x.T > 0
        if isinstance(support, Union):
            seen[tuple(EDGES)] = True
        assert torch.equal(conv.basis(x, EDGES).to_dense() > 0, seen.expand(2, 5, 5))
        dense = conv.basis(x, EDGES).to_dense()
        expected = torch.einsum("kmn,mp,kpq->nq", dense, x, conv.theta()[:, 0]) + conv.bias
        assert_near(conv(x, EDGES), expected)


@pytest.mark.parametrize("end", ["one", "source", "target"])
def test_a_family_of_features_that_knows_none_stored_sparse_gets_tensors(end):
    conv = OuterConv(3, 4, PositiveProducts()).double()
    x = normal(5, 3) * (normal(5, 3) > 0)
    thin = SparseFeatures.of(x.to_sparse_csr())
    features = {"one": thin, "source": (thin, x), "target": (x, thin)}[end]
    expected = conv.basis(x, None).to_dense()
    assert_near(conv.basis(features, None).to_dense(), expected)
    assert_near(conv(features, None), conv(x, None))


def test_a_family_that_hands_no_features_on_is_refused():
    @dataclass(frozen=True)
    class Plain(Family):
        family: Family
        labels = ("one", "two")

        def basis_on(self, structure, dtype=None):
            return self.family.basis_on(structure, dtype)

    with pytest.raises(ValueError, match="to families that take content, got no features"):
        OuterConv(3, 4, Plain(content()))(normal(5, 3).float(), EDGES)


# Reductions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("label_aggr", ["sum", "max", "min", "mean"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_reductions_see_heads_as_edges(aggr, label_aggr):
    options = {"aggr": aggr, "label_aggr": label_aggr, "bias": False}
    family = content()
    conv = OuterConv(3, 4, family, **options).double()
    x = normal(5, 3)
    plain = OuterConv(3, 4, Relation(2, None), **options).double()
    plain.theta = conv.theta
    edges = OuterConv(3, 4, family).double().basis(x, EDGES).edges()
    actual, expected = conv(x, EDGES), plain(x, edges)
    assert_same(actual, expected, [x, conv.theta.weight], 1e-9)


def test_a_bias_of_values_takes_part_where_labels_are_compared():
    conv = AttentionConv(
        3, 4, 2, combine="sum", value_bias=True, bias=False, label_aggr="max"
    ).double()
    torch.nn.init.normal_(conv.value_bias)
    x = normal(5, 3)
    dense = conv.basis(x, EDGES).to_dense()
    value = torch.einsum("mp,hpq->hmq", x, conv.theta()[:, 0]) + conv.value_bias.unsqueeze(1)
    each = torch.einsum("hmn,hmq->hnq", dense, value)
    reached = dense.detach().sum(1) > 0
    assert torch.equal(reached[0], reached[1])
    expected = each.amax(0).where(reached[0].unsqueeze(-1), 0.0)
    assert_near(conv(x, EDGES), expected)


# What holds whatever the content ------------------------------------------------------------------


def test_a_cached_layer_keeps_no_values_of_content():
    conv = OuterConv(3, 4, Stack(GCN(), content()), cached=True).double()
    first, second = normal(5, 3), normal(5, 3)
    fresh = OuterConv(3, 4, conv.family).double()
    fresh.load_state_dict(conv.state_dict())
    for x in (first, second, first):
        assert_near(conv(x, EDGES), fresh(x, EDGES))


def test_another_family_may_be_set_whatever_it_reads():
    conv = OuterConv(3, 4, GCN(), cached=True).double()
    x = normal(5, 3)
    conv(x, EDGES)
    conv.add_self_loops = False
    expected = OuterConv(3, 4, GCN(add_self_loops=False)).double()
    expected.load_state_dict(conv.state_dict())
    assert_near(conv(x, EDGES), expected(x, EDGES))
    family = content(1)  # of one label, too
    family.score.double()
    conv.family = family
    before = conv(x, EDGES)
    assert_near(before, conv(x, EDGES))
    with torch.no_grad():
        conv.family.score.key.weight.mul_(2)
    assert float((conv(x, EDGES) - before).detach().abs().max()) > 1e-6
