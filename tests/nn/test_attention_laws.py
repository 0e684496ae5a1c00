"""Theorem 1 of attention and the sums of its values, for every score, drawn by Hypothesis."""

import pytest
import torch
from contractions import normal
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from scores import TRIED

from pyg_outerconv.attention import (
    NORMALISERS,
    ALiBi,
    KeyQuery,
    LearnedQueries,
    Rotary,
    Softmax,
    make_score,
)
from pyg_outerconv.families import (
    GCN,
    Attention,
    Complete,
    Identity,
    LinearAttention,
    Mean,
    Part,
    Relation,
    parse_family,
)
from pyg_outerconv.graph import Graph
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import (
    assert_declared_laws,
    assert_learned_queries_invariant,
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
    made = make_score(score, 2, 4, P)
    for terms in ((), (ALiBi(2),)):
        family = Attention(made, Complete(), Softmax(), terms=terms)
        assert ("permutation-equivariant" in family.laws) == (not terms)
    transposed = Attention(KeyQuery(2, 4, P, rotary=Rotary(4)), Complete(), Softmax())
    assert "permutation-equivariant" not in transposed.laws
    x = normal(6, P, grad=False)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_permutation_equivariant(layer(transposed.score, support="complete"), x)
