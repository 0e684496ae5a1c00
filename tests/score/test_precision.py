"""Scores that subtract what is nearly equal, or that could leave the range of numbers."""

import pytest
import torch

from pyg_outerconv.basis.content import Content
from pyg_outerconv.basis.support.complete import Complete
from pyg_outerconv.score import Attention, make_normaliser, make_score


def scores(text, x, query, normalise="identity"):
    """(M, N) values of one head on all pairs."""
    family = Attention(make_score(text, 1), Complete(), make_normaliser(normalise))
    structure = family.read(None, size=(len(x), len(query))).with_content(Content(x, query))
    basis = family.basis_on(structure, x.dtype)
    return basis.to_dense().detach()[0] if not x.requires_grad else basis.to_dense()[0]


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_distances_are_exact_far_from_the_origin(offset):
    x = (torch.randn(20, 4).double() + offset).float()
    query = (torch.randn(30, 4).double() + offset).float()
    expected = -torch.cdist(x.double(), query.double()).square() / 2
    found = scores("gaussian-distance", x, query).double()
    assert float((found - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_near_sources_are_told_apart():
    """Of sources a thousandth apart, the nearest gets the most."""
    x = (torch.arange(10) * 1e-3 + 7.0).unsqueeze(1)
    found = scores("gaussian-distance(sigma=1e-4)", x, x[:5], "softmax")
    assert found.argmax(0).tolist() == list(range(5))
    assert float(found.diagonal().min()) > 0.999


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distances_of_short_types_are_of_exact_products(dtype):
    x, query = (torch.randn(20, 64) * 10).to(dtype), (torch.randn(5, 64) * 10).to(dtype)
    found = scores("gaussian-distance(sigma=10.0)", x, query)
    expected = -torch.cdist(x.double(), query.double()).square() / 200
    assert found.dtype == dtype
    error = (found.double() - expected).abs() / expected.abs()
    assert float(error.max()) < torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_cosines_are_of_any_size(dtype, size):
    x = (torch.randn(20, 8) * size).clamp(-6e4, 6e4).to(dtype)
    found = scores("cosine", x, x[:5])
    expected = torch.cosine_similarity(x.double().unsqueeze(1), x[:5].double(), dim=-1, eps=1e-30)
    assert float((found.double() - expected).abs().max()) < 8 * torch.finfo(dtype).eps


def test_a_zero_vector_is_at_right_angles_to_all():
    x = torch.randn(4, 3, dtype=torch.float64)
    x[1] = 0.0
    x.requires_grad_()
    found = scores("cosine", x, x)
    assert not found[1].any()
    assert not found[:, 1].any()
    (gradient,) = torch.autograd.grad(found.square().sum() + found.sum(), x, create_graph=True)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert torch.autograd.grad(gradient.square().sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("text", ["dot-product", "gaussian-distance", "bilinear"])
def test_scores_of_ten_thousands_do_not_overflow(text):
    x = torch.tensor([[100.0], [-100.0], [0.0]], requires_grad=True)
    found = scores(text, x, x, "softmax")
    assert found.isfinite().all()
    found.square().sum().backward()
    assert x.grad.isfinite().all()
