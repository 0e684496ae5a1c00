"""The term of each label equals the dense form, and so does the output without a label."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from cases import PAIRS, arguments_of, edges_for, over
from torch import Tensor

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack
from pyg_outerconv.nn import gat_conv, label_terms, linear_attention
from pyg_outerconv.testing import assert_near, dense_contraction

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 4], [1, 2, 3, 0, 2, 1, 1, 4]])
TYPES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
BESIDE = {"edge_type": TYPES, "size": (6, 6)}
REDUCTIONS = ("sum", "mean", "max", "min")


def filled(conv: OuterConv) -> OuterConv:
    conv = conv.double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return conv


def largest_of(tensor: Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


@over(PAIRS)
def test_the_terms_of_every_family_are_the_dense_ones(family, name):  # type: ignore[no-untyped-def]
    edges = edges_for(family, name)
    conv = filled(OuterConv(3, 2, family))
    sources = drawn(edges.size[0], 3)
    x = (sources, None) if edges.bipartite else sources
    index, beside = arguments_of(edges)
    terms, out = label_terms(conv, x, index, **beside), conv(x, index, **beside)
    dense = terms.basis.to_dense(torch.double)
    wanted = torch.einsum("kmn,mp,kpq->knq", dense, sources, conv.theta()[:, 0]).detach()
    largest = max(
        [float(part.detach().abs().max()) for part in (wanted, out) if part.numel()] + [0]
    )
    for k in range(family.num_bases):
        assert_near(terms.term(k), wanted[k], at_least=largest)
        rest = wanted.sum(0) - wanted[k] + conv.bias
        assert_near(terms.without(k, out), rest, at_least=largest)


@pytest.mark.parametrize(
    "theta", ["full", "basis-decomposed:2", "low-rank:1", "shared", "identity"]
)
def test_forms_of_theta(theta: str) -> None:
    conv = filled(OuterConv(4, 4, "walk(2)", theta=theta, root_weight=True))
    x = drawn(6, 4)
    terms = label_terms(conv, x, EDGES)
    full = terms.theta.full()
    assert full.size(1) == 1 or theta == "identity"
    dense = terms.basis.to_dense(torch.double)
    eye = torch.eye(4, dtype=torch.double)
    for k in range(3):
        matrix = eye if theta == "identity" else full[k, 0]
        assert_near(terms.term(k), dense[k].T @ x @ matrix)
    total = terms.term(0) + terms.term(1) + terms.term(2)
    assert conv.root is not None
    assert_near(total + conv.bias + x @ conv.root()[0, 0], conv(x, EDGES))


@pytest.mark.parametrize(("aggr", "label_aggr"), list(product(REDUCTIONS, REDUCTIONS)))
def test_without_a_label_its_matrix_has_no_edge(aggr: str, label_aggr: str) -> None:
    family = Stack(Relation(3, None), Identity())
    conv = filled(OuterConv(4, 5, family, aggr=aggr, label_aggr=label_aggr, root_weight=True))
    x = drawn(6, 4)
    out, terms = conv(x, EDGES, **BESIDE), label_terms(conv, x, EDGES, **BESIDE)
    theta, share = conv.theta(), 0.25 if label_aggr == "mean" else 1.0
    reduced = conv.label_reduce
    assert conv.root is not None
    beside = conv.bias + x @ conv.root()[0, 0]
    for k in range(4):
        others = [j for j in range(4) if j != k]
        one = dense_contraction(terms.basis.select([k]), x, share * theta[[k]], conv.reduce)
        assert_near(terms.term(k), one)
        kept = terms.basis.select(others)
        rest = dense_contraction(kept, x, share * theta[others], conv.reduce, reduced)
        assert_near(terms.without(k, out), rest + beside, at_least=largest_of(out))


@pytest.mark.parametrize("label_aggr", ["sum", "max"])
def test_one_label_alone_leaves_bias_and_root(label_aggr: str) -> None:
    conv = filled(OuterConv(4, 5, GCN(), label_aggr=label_aggr, root_weight=True))
    x = drawn(6, 4)
    left = label_terms(conv, x, EDGES, size=(6, 6)).without(0, conv(x, EDGES, size=(6, 6)))
    assert conv.root is not None
    assert_near(left, conv.bias + x @ conv.root()[0, 0])


ATTENTION = {
    "concat": lambda: AttentionConv(4, 6, 3, value_bias=True),
    "sum": lambda: AttentionConv(4, 6, 3, combine="sum", value_bias=True),
    "mean": lambda: AttentionConv(4, 6, 3, combine="mean"),
    "projected": lambda: AttentionConv(4, 6, 3, combine="sum", value_channels=2, value_bias=True),
    "gat": lambda: gat_conv(4, 2, heads=3),
    "gat, mean": lambda: gat_conv(4, 6, heads=3, concat=False),
    "max": lambda: AttentionConv(4, 6, 3, theta="full", label_aggr="max"),
    "complete": lambda: AttentionConv(4, 6, 3, support="complete"),
    "linear": lambda: linear_attention(4, 6, heads=3),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_heads_keep_their_shares_when_one_is_removed(name: str) -> None:
    conv = filled(ATTENTION[name]()).eval()
    x = drawn(6, 4)
    index = None if name in ("complete", "linear") else EDGES
    out, terms = conv(x, index), label_terms(conv, x, index)
    dense, theta = terms.basis.to_dense(torch.double), terms.theta
    full, of_bias = theta.full()[:, 0], getattr(theta, "full_bias", lambda: None)()
    wanted = torch.einsum("kmn,mp,kpq->knq", dense, x, full)
    if of_bias is not None:
        wanted = wanted + torch.einsum("kmn,kq->knq", dense, of_bias[:, 0, 0])
    bias = 0.0 if conv.bias is None else conv.bias
    for k in range(3):
        assert_near(terms.term(k), wanted[k])
        rest = wanted[[j for j in range(3) if j != k]]
        rest = rest.amax(0) if name == "max" else rest.sum(0)
        if name == "max":  # targets without an edge have no head to compare
            rest = torch.where((dense != 0).any(1).any(0).unsqueeze(-1), rest, 0.0)
        assert_near(terms.without(k, out), rest + bias, at_least=largest_of(out))


def test_inputs_in_batches_and_none_at_all() -> None:
    conv = filled(OuterConv(4, 5, Chebyshev(2)))
    x = drawn(3, 6, 4)
    terms = label_terms(conv, x, EDGES)
    assert_near(terms.term(0) + terms.term(1) + conv.bias, conv(x, EDGES))
    bare = filled(OuterConv(6, 5, Relation(3)))
    terms = label_terms(bare, None, EDGES, **BESIDE)
    for k in range(3):
        dense = terms.basis.to_dense(torch.double)[k]
        assert_near(terms.term(k), dense.T @ bare.theta()[k, 0])
