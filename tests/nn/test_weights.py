"""Edge weights of any type and shape, as PyG's layers take them."""

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near

P, Q = 4, 6
FAMILIES = [
    GCN(),
    GCN("target", add_self_loops=False),
    Chebyshev(3),
    Chebyshev(2, norm=None),
    Walk(2),
    Walk(2, None),
    Walk(2, "sym", aggr="max"),
    Relation(1, None),
    Relation(1),
    Stack(GCN(), Identity(), Relation(1, None)),
]
TYPES = [torch.int64, torch.int32, torch.uint8, torch.float64, torch.float32, torch.float16]
of_each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def drawn(seed, nodes=7, edges=20):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, edges), generator=generator)
    weight = torch.randint(1, 5, (edges,), generator=generator)
    return torch.randn(nodes, P, generator=generator), index, weight


def results(conv, x, *edges, learns):
    out = conv(x, *edges)
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, torch.autograd.grad(out, [x, *conv.parameters(), *learns], direction)


@pytest.mark.parametrize("column", [False, True], ids=["(E,)", "(E, 1)"])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@of_each_family
def test_weights_of_any_type_are_numbers_in_the_type_of_x(family, dtype, x_dtype, column):
    x, index, weight = drawn(len(str(family)) + TYPES.index(dtype))
    x = x.to(x_dtype).requires_grad_()
    weight = weight.to(dtype) if not dtype.is_floating_point else (weight / 4).to(dtype)
    expected_weight = weight.to(x_dtype)
    learns = [], []
    if dtype.is_floating_point:
        learns = [weight.requires_grad_()], [expected_weight.requires_grad_()]
    given = weight.unsqueeze(1) if column else weight
    conv = OuterConv(P, Q, family).to(x_dtype)
    found, gradients = results(conv, x, index, given, learns=learns[0])
    expected, references = results(conv, x, index, expected_weight, learns=learns[1])
    assert found.dtype == x_dtype
    assert_near(found, expected)
    for gradient, reference in zip(gradients, references, strict=True):
        tolerance = 1e-3 if gradient.dtype == torch.float16 else 1e-6
        assert_near(gradient, reference.to(gradient.dtype), tolerance)


def test_integers_without_x_are_numbers_of_torchs_default_type():
    index, weight = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, -3])
    value = Relation(1, None).basis(index, weight).value
    assert value.dtype == torch.float32
    assert sorted(value.tolist()) == [-3.0, 2.0]
