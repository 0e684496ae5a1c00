"""The layer under torch's own machinery: types, autocast, func transforms, compile, checkpoints."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap

from pyg_outerconv import OuterConv, nn
from pyg_outerconv.families import GCN, Chebyshev, Directed, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 0], [1, 2, 3, 0, 2, 1, 1, 2]])
KINDS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
FAMILIES = [
    GCN(),
    Walk(2),
    Chebyshev(3, "exact"),
    Relation(3),
    Directed(GCN(add_self_loops=False)),
    Stack(Walk(1, direction="both"), Identity()),
]
of_each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


class Case:
    """A layer in float64 and what it is called with."""

    def __init__(self, family, **options):
        self.conv = OuterConv(4, 6, family, **options).double()
        self.x = torch.randn(5, 4, dtype=torch.float64)
        self.weight = torch.rand(8, dtype=torch.float64) + 0.1
        self.kinds = KINDS if isinstance(family, Relation) else None
        self.basis = family.basis(EDGES, self.weight, self.kinds, size=(5, 5))
        self.parameters = {name: p.detach() for name, p in self.conv.named_parameters()}

    def __call__(self, x, weight=None):
        return self.conv(x, EDGES, self.weight if weight is None else weight, edge_type=self.kinds)

    def pure(self, parameters, x, weight):
        return functional_call(self.conv, parameters, (x, EDGES, weight), {"edge_type": self.kinds})


# Types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "family",
    [
        GCN(norm="target"),
        GCN(),
        Walk(1, norm="target"),
        Walk(1, norm="source", direction="backward"),
        Relation(1),
        Chebyshev(2, "bound", norm="source"),
    ],
    ids=str,
)
def test_short_types_count_a_thousand_neighbours(family, dtype):
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    conv = OuterConv(1, 1, family, bias=False)
    torch.nn.init.ones_(conv.theta.weight)
    x = torch.ones(1001, 1)
    short = copy.deepcopy(conv).to(dtype)(x.to(dtype), star)
    assert_near(short, conv(x, star).to(dtype))


# torch.func --------------------------------------------------------------------------------------


@of_each_family
def test_jacobians_are_the_quadri_tensor(family):
    case = Case(family)
    found = jacrev(case.pure, argnums=1)(case.parameters, case.x, case.weight)
    phi = nn.quadri_tensor(case.conv, EDGES, case.weight, edge_type=case.kinds, size=(5, 5))
    assert_near(found, phi.permute(1, 3, 0, 2))


@of_each_family
def test_the_hessian_in_the_weights_is_autograds(family):
    case = Case(family)

    def loss(weight):
        return case.pure(case.parameters, case.x, weight).square().sum()

    expected = torch.autograd.functional.hessian(loss, case.weight)
    assert_near(jacrev(jacrev(loss))(case.weight), expected)
    assert_near(vmap(grad(loss))(case.weight.repeat(2, 1))[1], grad(loss)(case.weight))


# Compile, checkpoint, distributed ----------------------------------------------------------------


class Model(torch.nn.Module):
    def __init__(self, family):
        super().__init__()
        self.first, self.second = OuterConv(4, 6, family), OuterConv(6, 3, family)

    def forward(self, x, basis):
        return self.second(self.first(x, basis).relu(), basis)


def gradients(model, x, basis):
    for parameter in model.parameters():
        parameter.grad = None
    out = model(x, basis)
    out.square().sum().backward()
    return [out.detach()] + [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.slow(cases=2)
@of_each_family
def test_compile_of_a_model_with_a_used_basis_is_one_graph(family):
    case, model = Case(family), Model(family).double()
    expected = gradients(model, case.x, case.basis)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for found, reference in zip(gradients(compiled, case.x, case.basis), expected, strict=True):
        assert_near(found, reference)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("family", [GCN(), Chebyshev(3)], ids=str)
def test_compile_of_a_model_with_a_fresh_basis_or_with_edges(family):
    case, model = Case(family), Model(family).double()
    compiled = torch.compile(model, backend="eager")
    assert_near(compiled(case.x, case.basis), model(case.x, case.basis))
    assert_near(compiled(case.x, EDGES), model(case.x, EDGES))
