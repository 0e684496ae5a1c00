"""The layer under torch's own machinery: types, autocast, func transforms, compile, checkpoints."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap
from torch.utils.checkpoint import checkpoint

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@of_each_family
def test_every_floating_point_type(family, dtype):
    case = Case(family)
    x = case.x.to(dtype).requires_grad_()
    conv = copy.deepcopy(case.conv).to(dtype)
    out = conv(x, EDGES, case.weight.to(dtype), edge_type=case.kinds)
    assert out.dtype == dtype
    reference = case(case.x)
    assert_near(out, reference.to(dtype))
    out.float().square().sum().backward()
    expected = torch.autograd.grad(reference.square().sum(), case.conv.theta.weight)[0]
    assert conv.theta.weight.grad.dtype == dtype
    assert_near(conv.theta.weight.grad, expected.to(dtype), at_least=1.0)
    # Without weights the basis takes the type of x.
    plain = conv(x, EDGES, None, edge_type=case.kinds)
    ones = torch.ones(8, dtype=torch.float64)
    assert_near(plain, case(case.x, ones).to(dtype))


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


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16], ids=str)
@of_each_family
def test_autocast_is_near_float32(family, source):
    case = Case(family, bias=False)
    conv, weight = case.conv.float(), case.weight.float()
    x = case.x.to(source).float()
    expected = conv(x, EDGES, weight, edge_type=case.kinds)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(x.to(source), EDGES, weight, edge_type=case.kinds)
        loss = out.square().sum()
    assert_near(out.float(), expected, 2e-2)
    loss.backward()
    reference = torch.autograd.grad(expected.square().sum(), conv.theta.weight)[0]
    assert conv.theta.weight.grad.dtype == torch.float32
    assert_near(conv.theta.weight.grad, reference, 4e-2)


# torch.func --------------------------------------------------------------------------------------


@of_each_family
def test_vmap_over_inputs_parameters_and_weights(family):
    case = Case(family)
    for dims in ((None, 0, None), (0, None, None), (None, None, 0), (0, 0, 0)):
        parameters, x, weight = case.parameters, case.x, case.weight
        factors = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
        many = (
            {n: torch.stack([f * p for f in factors]) for n, p in parameters.items()}
            if dims[0] == 0
            else parameters,
            torch.stack([f * x for f in factors]) if dims[1] == 0 else x,
            torch.stack([f.sqrt() * weight for f in factors]) if dims[2] == 0 else weight,
        )
        out = vmap(case.pure, in_dims=dims)(*many)
        for i in range(3):
            one = (
                {n: p[i] for n, p in many[0].items()} if dims[0] == 0 else parameters,
                many[1][i] if dims[1] == 0 else x,
                many[2][i] if dims[2] == 0 else weight,
            )
            assert_near(out[i], case.pure(*one))


@of_each_family
def test_func_grad_is_autograd(family):
    case = Case(family)

    def loss(*inputs):
        return case.pure(*inputs).square().sum()

    in_parameters, in_x, in_weight = grad(loss, argnums=(0, 1, 2))(
        case.parameters, case.x, case.weight
    )
    x, weight = case.x.clone().requires_grad_(), case.weight.clone().requires_grad_()
    names, values = zip(*case.conv.named_parameters(), strict=True)
    expected = torch.autograd.grad(case(x, weight).square().sum(), [x, weight, *values])
    assert_near(in_x, expected[0])
    assert_near(in_weight, expected[1])
    for name, reference in zip(names, expected[2:], strict=True):
        assert_near(in_parameters[name], reference)


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


@pytest.mark.parametrize("use_reentrant", [False, True])
@of_each_family
def test_checkpointing_changes_nothing(family, use_reentrant):
    case = Case(family)
    found, expected = [], []

    def call(x, weight):
        return case.conv(x, EDGES, weight, edge_type=case.kinds)

    for gradient, run in (
        (expected, call),
        (found, lambda *inputs: checkpoint(call, *inputs, use_reentrant=use_reentrant)),
    ):
        x, weight = case.x.clone().requires_grad_(), case.weight.clone().requires_grad_()
        case.conv.zero_grad()
        run(x, weight).square().sum().backward()
        gradient += [x.grad, weight.grad, *(p.grad for p in case.conv.parameters())]
    for mine, reference in zip(found, expected, strict=True):
        assert_near(mine, reference)


def test_distributed_data_parallel():
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch was built without gloo")
    case = Case(Walk(2))
    model = Model(Walk(2)).double()
    expected = gradients(model, case.x, case.basis)
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        found = gradients(parallel, case.x, case.basis)
        del parallel  # before the group, which it would wait for while it holds Python's lock
    finally:
        torch.distributed.destroy_process_group()
    for mine, reference in zip(found, expected, strict=True):
        assert_near(mine, reference)
