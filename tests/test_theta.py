"""Θ is what its equation says, whatever it is made of, and so are its linear combinations."""

import pytest
import torch

from pyg_outerconv.testing import assert_near
from pyg_outerconv.theta import (
    Theta,
    ThetaOfChannels,
    ThetaParts,
    add_product,
    as_heads,
    column_major,
)

K, P, Q, V = 4, 6, 8, 2


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def theta_of(kind):
    """Θ of a kind, its matrices (K, P, Q) by their equation, and its biases (K, Q) or None."""
    if kind == "matrices":
        inner = normal(K, 1, P, Q)
        return Theta(inner), inner[:, 0], None
    if kind == "blocks":
        inner = normal(K, 2, P // 2, Q // 2)
        return Theta(inner), torch.stack([torch.block_diag(*one) for one in inner]), None
    if kind == "mixture":
        inner, c = normal(3, 1, P, Q), normal(K, 3)
        return Theta(inner, c), torch.einsum("kb,bpq->kpq", c, inner[:, 0]), None
    if kind == "filters":
        inner, c = normal(2, 1, P, Q), normal(K, 2, Q)
        return Theta(inner, c), torch.einsum("kbq,bpq->kpq", c, inner[:, 0]), None
    if kind == "channels":
        weight, c = normal(P, Q), normal(3, Q)
        matrices = torch.zeros(3, Q, P, Q, dtype=torch.float64)
        for q in range(Q):
            matrices[:, q, :, q] = c[:, q, None] * weight[:, q]
        return ThetaOfChannels(weight, c), matrices.flatten(0, 1), None
    if kind == "identity":
        theta = Theta.identity(K, P, normal(1)).scaled(3.0)
        return theta, 3.0 * torch.eye(P).double().expand(K, P, P), None
    if kind == "parts":
        kinds = ("blocks", "concat", "matrices")
        thetas, matrices, _ = zip(*(theta_of(one) for one in kinds), strict=True)
        taken = zip(thetas, (2, 4, 1), strict=True)
        theta = ThetaParts(tuple(theta.labels(0, count) for theta, count in taken))
        return theta, torch.cat([matrices[0][:2], matrices[1], matrices[2][:1]]), None
    kind, _, beside = kind.partition("+")
    width = Q if kind == "sum" else V
    inner, bias, outer = normal(K, 1, P, width), normal(K, width), normal(K, width, Q)
    heads = None if kind == "outer" else kind
    theta = Theta(
        inner,
        outer=outer if kind == "outer" else None,
        bias=bias if beside else None,
        heads=heads,
        factor=0.5,
    )
    if kind == "sum":
        outer = torch.eye(Q).double().expand(K, Q, Q)
    if kind == "concat":
        outer = torch.eye(Q).double().view(K, V, Q)
    biases = 0.5 * torch.einsum("kv,kvq->kq", bias, outer)
    return theta, 0.5 * inner[:, 0] @ outer, biases if beside else None


KINDS = ["matrices", "blocks", "mixture", "filters", "channels", "identity", "parts"]
KINDS += [kind + bias for kind in ("sum", "concat", "outer") for bias in ("", "+bias")]


def assert_is(theta, matrices, biases=None):
    """It has these matrices, and these biases, in every way in which it is read."""
    count, groups, rows, columns = theta.shape
    assert matrices.shape == (count, groups * rows, groups * columns)
    full = theta.full()
    assert full.shape == theta.shape
    assert_near(torch.stack([torch.block_diag(*one) for one in full]), matrices)
    x, h = normal(5, 3, matrices.size(1)), normal(5 * count, 3, matrices.size(1))
    assert_near(theta.transform(x), torch.einsum("mcp,kpq->mkcq", x, matrices))
    products = torch.einsum("nkcp,kpq->ncq", h.unflatten(0, (5, count)), matrices)
    assert_near(theta.combine(h, 5), products)
    own = normal(matrices.size(2))
    assert_near(theta.combine(h, 5, own), products + own)
    bias = theta.full_bias()
    assert (bias is None) == (biases is None)
    if bias is not None:
        assert_near(bias[:, 0, 0], biases)
    if theta.heads is not None:  # values first, then what is made of their sums
        received = torch.einsum("mcp,hpv->mchv", x, theta.value)
        assert_near(theta.collect(received), torch.einsum("mcp,kpq->mcq", x, matrices))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_its_equation(kind):
    assert_is(*theta_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_full_matrices_are_heads_that_add_up(kind):
    theta, *tensors = theta_of(kind)
    theta_in_heads = as_heads(theta)
    assert (theta_in_heads is theta) is (kind != "matrices")
    assert theta_in_heads.heads == ("sum" if kind == "matrices" else theta.heads)
    assert_is(theta_in_heads, *tensors)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_a_product_is_added_to_each_item_of_a_batch(batch, own):
    out, factor, rows = normal(*batch, 5, Q), normal(*batch, 5, K), normal(K, Q)
    assert_near(add_product(out.clone(), factor, rows, own), out + factor @ rows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_linear_combination_of_labels_is_that_of_its_matrices(kind):
    """By its C (K, J) each: Σ_k C[k, j] Θ_k."""
    theta, *tensors = theta_of(kind)
    count = theta.shape[0]
    every, factor = torch.eye(count).double(), normal(count)
    fewer, more = normal(count, count - 1), normal(count, count + 2)
    label = torch.arange(count) % 2 * 2
    for combined, c in (
        (theta.labels(0, count), every),
        (theta.labels(1, 3), every[:, 1:3]),
        (theta.labels(count - 1, count), every[:, -1:]),
        (theta.scaled(-0.5), -0.5 * every),
        (theta.scaled(factor), factor.diag()),
        (theta.scaled(factor).labels(1, 3).scaled(2.0), 2.0 * factor.diag()[:, 1:3]),
        (theta.mixed(fewer), fewer),
        (theta.mixed(more), more),
        (theta.gathered(label, 3), torch.nn.functional.one_hot(label, 3).double()),
    ):
        assert_is(combined, *(None if t is None else torch.tensordot(c.t(), t, 1) for t in tensors))


def test_narrow_matrices_are_column_major_where_many_rows_meet_them():
    narrow, wide = torch.randn(50, 7), torch.randn(50, 17)
    many, few = torch.randn(2, 500, 50), torch.randn(999, 50)
    assert column_major(narrow, many).stride() == (1, 50)
    assert column_major(narrow, many).equal(narrow)
    assert column_major(narrow, few) is narrow
    assert column_major(wide, many) is wide


def test_the_layout_changes_no_derivative():
    x = torch.randn(1000, 5, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    gradients, expected = (
        torch.autograd.grad((x @ one).sin().sum(), [x, matrix])
        for one in (column_major(matrix, x), matrix)
    )
    for actual, reference in zip(gradients, expected, strict=True):
        assert_near(actual, reference)
    assert torch.autograd.gradgradcheck(
        lambda x, w: x @ column_major(w, x), (x, matrix), fast_mode=True
    )
