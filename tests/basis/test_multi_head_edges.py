"""Bases of heads and of attention: their dense form, their edges, and the algebra over both."""

import pytest
import torch
from attention_bases import (
    FORMS,
    SHARES,
    attention_basis,
    dense_product,
    dense_values,
    heads_of,
    parameter_of,
    pattern_of,
)
from cases import STRUCTURES
from contractions import normal

from pyg_outerconv.basis import Pattern
from pyg_outerconv.basis.multi_head_edges import MultiHeadEdges, by_head, by_label, item
from pyg_outerconv.contract import contract
from pyg_outerconv.testing import (
    assert_near,
    assert_same_gradients,
)

shares = pytest.mark.parametrize(("labels", "heads"), SHARES)
makes = pytest.mark.parametrize("make", [attention_basis, heads_of])


# What it is ---------------------------------------------------------------------------------------


@makes
@shares
@pytest.mark.parametrize("name", STRUCTURES)
def test_the_dense_form_is_that_of_every_head(name, labels, heads, make):
    basis, tensors = make(pattern_of(name, labels), heads)
    dense = dense_values(basis)
    assert (basis.num_bases, basis.size) == (heads, tuple(dense.shape[1:]))
    assert_near(basis.to_dense(), dense)
    there = torch.ones(basis.pattern.num_edges, heads // labels)
    assert torch.equal(basis.support(), dense_values(MultiHeadEdges(basis.pattern, there)) > 0)
    assert_same_gradients(basis.to_dense(), dense, tensors)


def test_every_edge_of_every_head_remembers_the_edge_that_it_stems_from():
    pattern = pattern_of("multi-edge", 1)
    edges = heads_of(pattern, 3)[0].edges()
    assert edges.num_bases == 3
    pairs = STRUCTURES["multi-edge"].edge_index[:, edges.pattern.origin.long()]
    assert torch.equal(pairs, edges.pattern.index.long())
    assert torch.equal(edges.pattern.origin.bincount(), torch.full((9,), 3))


@makes
def test_an_item_of_a_batch_is_a_basis_of_its_own(make):
    basis, _ = make(pattern_of("multi-edge", 3), 6, (2, 3))
    dense = dense_values(basis)
    for where in ((0, 0), (1, 2)):
        assert_near(item(basis, *where).to_dense(), dense[(slice(None), *where)])
    with pytest.raises(ValueError, match="differ between items of a batch"):
        basis.edges()
    with pytest.raises(ValueError, match="an index for each axis"):
        item(basis, 0)


def test_attention_computes_its_values_once_and_never_keeps_those_of_another_type():
    basis, _ = attention_basis(pattern_of("multi-edge", 1), 2)
    assert basis.heads() is basis.heads()
    assert basis.to(torch.float32).heads().dtype == torch.float32


def test_folding_of_heads_is_undone():
    for labels, heads, batch in (
        (1, 2, ()),
        (3, 6, ()),
        (3, 6, (2, 4)),
        (1, 2, (0,)),
        (3, 3, (2,)),
    ):
        x = torch.randn(5, *batch, heads, 2)
        folded = by_label(x, labels)
        assert folded.shape == (5 * labels, x[0, ..., 0].numel() // labels, 2)
        assert torch.equal(by_head(folded, labels, heads, batch), x)


# The algebra --------------------------------------------------------------------------------------


ALGEBRA = {
    "transposed": lambda a, d, b, f, c: (a.transpose(), d.transpose(1, 2)),
    "scaled": lambda a, d, b, f, c: (a.scale(f), d * f.view(-1, 1, 1)),
    "scaled and transposed": lambda a, d, b, f, c: (
        a.scale(f).T,
        (d * f.view(-1, 1, 1)).transpose(1, 2),
    ),
    "selected": lambda a, d, b, f, c: (a.select((4, 0, 4)), d[[4, 0, 4]]),
    "selected of a stack": lambda a, d, b, f, c: (
        a.stack(b).select((7, 1)),
        torch.cat([d, b.to_dense()])[[7, 1]],
    ),
    "mixed": lambda a, d, b, f, c: (a.mix(c), torch.einsum("jk,kmn->jmn", c, d)),
    "mixed to more": lambda a, d, b, f, c: (
        a.mix(c.t() @ c),
        torch.einsum("jk,kmn->jmn", c.t() @ c, d),
    ),
    "stacked": lambda a, d, b, f, c: (b.stack(a), torch.cat([b.to_dense(), d])),
    "before another": lambda a, d, b, f, c: (
        a.compose(b),
        torch.einsum("imn,jno->ijmo", d, b.to_dense()).flatten(0, 1),
    ),
    "after another": lambda a, d, b, f, c: (
        b.compose(a),
        torch.einsum("imn,jno->ijmo", b.to_dense(), d).flatten(0, 1),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ALGEBRA)
@makes
def test_the_algebra_moves_into_the_parameter(make, name, form):
    pattern, heads = pattern_of("multi-edge", 3), 6
    basis, tensors = make(pattern, heads)
    beside, factor, mixing = heads_of(pattern, 3)[0], normal(heads), normal(4, heads)
    changed, dense = ALGEBRA[name](basis, dense_values(basis), beside, factor, mixing)
    assert_near(changed.to_dense(), dense, 1e-9)
    theta, of_theta = parameter_of(form, changed.num_bases, 3, 2)
    x = normal(5, 3)
    actual, expected = contract(changed, x, theta), dense_product(dense, x, theta)
    assert_near(actual, expected, 1e-9)
    assert_same_gradients(actual, expected, [x, *tensors, *of_theta, factor, mixing], 1e-8)


def test_heads_of_no_label_are_of_no_edges():
    pattern = Pattern.build(torch.empty(2, 0).long(), size=(3, 2), num_labels=1)
    assert MultiHeadEdges(pattern, torch.empty(0, 2)).to_dense().shape == (2, 3, 2)
