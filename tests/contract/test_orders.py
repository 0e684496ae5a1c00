"""Every order equals the dense oracle, with all derivatives, whatever of torch is around it."""

from itertools import product

import pytest
import torch
from cases import ALL_PAIRS, STRUCTURES, edges_for, over, structure_for
from contractions import (
    FAMILIES,
    GENERAL,
    KINDS,
    NEEDS_REFERENCE,
    OF_EDGES,
    OF_MIXTURES,
    features,
    home_of,
    normal,
    parameter,
    tensors_of,
    values_of,
    with_values,
)
from oracle import assert_same, assert_same_steps, steps
from torch.utils.checkpoint import checkpoint

from pyg_outerconv.basis import EdgeBasis, Pattern, Polynomial, Stacked
from pyg_outerconv.contract import contract
from pyg_outerconv.families import Chebyshev, Identity, Relation, Stack
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.testing import (
    TOLERANCE,
    assert_contraction,
    assert_near,
    assert_same_gradients,
    awkward_structures,
    dense_contraction,
    legal_orders,
)
from pyg_outerconv.theta import Theta

HOMES = [
    (kind, name)
    for kind, name in product(FAMILIES, STRUCTURES)
    if not STRUCTURES[name].bipartite or kind not in ("polynomial", "stack")
]
COMBINATIONS = [
    (kind, groups, matrices)
    for kind, groups, matrices in product(KINDS, (1, 2), (None, 2))
    if groups == 1 or kind not in ("none", "indices")  # those are an embedding: full matrices
]


@over(ALL_PAIRS)
def test_every_family_on_every_structure_by_every_order(family, name):
    structure = structure_for(family, name)
    basis = family.basis(structure, dtype=torch.float64)
    weight = getattr(structure, "edge_weight", None)
    weights = [] if weight is None else [weight]
    for groups, matrices, widths in ((1, None, (4, 2)), (2, None, (4, 6)), (2, 2, (2, 4))):
        theta = parameter(basis.num_bases, groups, *widths, matrices)
        assert_contraction(basis, normal(basis.size[0], widths[0]), theta, weights)


@pytest.mark.parametrize(
    ("kind", "name", "of_x", "groups", "matrices"),
    [(*home, *combination) for home, combination in product(HOMES, COMBINATIONS)],
    ids=[
        f"{kind} and {of_x} x-{name}-{groups} groups of {matrices}"
        for (kind, name), (of_x, groups, matrices) in product(HOMES, COMBINATIONS)
    ],
)
def test_every_kind_of_features_and_parameter_with_second_derivatives(
    kind, name, of_x, groups, matrices
):
    family = FAMILIES[kind]
    edges = edges_for(family, name)
    basis = family.basis(edges, dtype=torch.float64)
    weights = [] if edges.edge_weight is None else [edges.edge_weight]
    width = basis.size[0] if of_x == "none" else 4
    x = features(of_x, basis.size[0], width)
    theta = parameter(basis.num_bases, groups, width, 2, matrices)
    assert_contraction(basis, x, theta, weights, depth=2)


def test_every_order_is_tried_above():
    edges = STRUCTURES["multi-edge"]
    tried = {
        name
        for family, of_x, matrices in product(FAMILIES.values(), KINDS, (None, 2))
        for basis in [family.basis(edges, dtype=torch.float64)]
        for x in [features(of_x, 5, 5)]
        for name, reasons in legal_orders(
            basis, x, parameter(basis.num_bases, 1, 5, 2, matrices)
        ).items()
        if not reasons
    }
    assert tried == set(GENERAL) - NEEDS_REFERENCE


@pytest.mark.parametrize("order", GENERAL)
def test_every_order_by_the_reference(order):
    basis, matrices = home_of(order)
    values = values_of(basis)
    with use_backend("reference"):
        x, theta = normal(5, 4), parameter(basis.num_bases, 1, 4, 2, matrices)
        assert not legal_orders(basis, x, theta)[order]
        assert_contraction(basis, x, theta, values, depth=2)


@pytest.mark.parametrize("order", GENERAL)
@pytest.mark.parametrize("widths", [(4, 2), (2, 4)], ids=str)
def test_gradients_of_some_inputs_alone(order, widths):
    basis, matrices = home_of(order)
    for which in product((False, True), repeat=3):
        x = normal(5, widths[0], grad=which[0])
        theta = parameter(basis.num_bases, 1, *widths, matrices, grad=which[1])
        values = [value.detach().requires_grad_(which[2]) for value in values_of(basis)]
        one = with_values(basis, *values)
        inputs = [t for t in (x, *tensors_of(theta), *values) if t.requires_grad]
        with use_backend("reference" if order in NEEDS_REFERENCE else "native"):
            actual = contract(one, x, theta, order)
        expected = dense_contraction(one, x, theta)
        assert_near(actual, expected)
        if inputs:
            assert_same_gradients(actual, expected, inputs)


@pytest.mark.parametrize("order", GENERAL)
@pytest.mark.parametrize("batch", [(0,), (2, 0), (1, 2)], ids=str)
def test_batches_of_any_size(order, batch):
    basis, matrices = home_of(order)
    x = normal(5, *batch, 4)
    theta = parameter(basis.num_bases, 2 if order != "fused" else 1, 4, 2, matrices)
    with use_backend("reference" if order in NEEDS_REFERENCE else "native"):
        actual = contract(basis, x, theta, order)
    expected = dense_contraction(basis, x, theta)
    assert_same(actual, expected, [x, *tensors_of(theta)])


@pytest.mark.parametrize("order", OF_EDGES)
@pytest.mark.parametrize("size", [(0, 0), (0, 3), (3, 0), (3, 3)], ids=str)
def test_nothing_to_do_is_done(order, size):
    for num_labels, widths in product((0, 3), ((4, 2), (2, 4), (0, 3), (3, 0))):
        pattern = Pattern.build(torch.zeros(2, 0).long(), size=size, num_labels=num_labels)
        basis = EdgeBasis(pattern, normal(0))
        x = normal(size[0], widths[0])
        theta = parameter(num_labels, 1, *widths, 2 if order in OF_MIXTURES else None)
        with use_backend("reference" if order in NEEDS_REFERENCE else "native"):
            out = contract(basis, x, theta, order)
        assert_near(out, x.new_zeros(size[1], widths[1]))
        gradients = torch.autograd.grad(out.sum(), [x, *tensors_of(theta)])
        assert all(not gradient.any() for gradient in gradients)


each_order = pytest.mark.parametrize("order", GENERAL)


class Case:
    """A function of x, what Θ is made of, and the values of edges, if there are any."""

    def __init__(self, order, dtype=torch.float64):
        self.order = order
        self.basis, matrices = home_of(order, dtype)
        self.theta = parameter(self.basis.num_bases, 1, 4, 3, matrices, dtype)
        self.backend = "reference" if order in NEEDS_REFERENCE else "native"
        self.inputs = [normal(5, 4, dtype=dtype), *tensors_of(self.theta), *values_of(self.basis)]

    def __call__(self, x, *rest):
        num_tensors = len(tensors_of(self.theta))
        theta = Theta(*rest[:num_tensors]) if num_tensors == 2 else rest[0]
        return contract(with_values(self.basis, *rest[num_tensors:]), x, theta, self.order)

    def detached(self):
        return [tensor.detach() for tensor in self.inputs]


@pytest.fixture
def case(request, order):
    order_case = Case(order)
    with use_backend(order_case.backend):
        order_case(*order_case.inputs)  # matrices are made
        yield order_case


@pytest.mark.parametrize("family", FAMILIES)
def test_transforms_of_a_choice_equal_a_loop(family):
    basis = FAMILIES[family].basis(awkward_structures()["multi-edge"], dtype=torch.float64).detach()
    theta = parameter(basis.num_bases, 1, 4, 3, grad=False)

    def loss(x):
        return contract(basis, x, theta).sin().sum()

    many = torch.randn(3, 5, 4, dtype=torch.float64)
    gradients = torch.vmap(torch.func.grad(loss))(many)  # nothing has been made before
    hessian = torch.func.jacrev(torch.func.grad(loss))(many[0])
    for one, gradient in zip(many, gradients, strict=True):
        x = one.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(x), x)
        assert_near(gradient, expected, at_least=0.1)
    assert_near(hessian, torch.autograd.functional.hessian(loss, many[0]), at_least=0.1)
    for tensor in torch.utils._pytree.tree_leaves(
        [vars(part.pattern) for part in _edges_in(basis)], lambda x: isinstance(x, torch.Tensor)
    ):
        assert not (
            isinstance(tensor, torch.Tensor)
            and torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        ), "what is kept outlives the transform"


def test_transforms_of_the_fused_order_use_the_edges_that_are_kept(monkeypatch):
    basis = FAMILIES["one label"].basis(awkward_structures()["multi-edge"], dtype=torch.float64)
    theta, many = parameter(basis.num_bases, 1, 4, 3, grad=False), normal(3, 5, 4).detach()

    def loss(x):
        return contract(basis, x, theta, "fused").sin().sum()

    with use_backend("reference"):
        loss(many[0].clone().requires_grad_()).backward()
        monkeypatch.setattr(Pattern, "_transpose", lambda _: pytest.fail("edges are turned again"))
        torch.func.grad(loss)(many[0])
        torch.vmap(torch.func.grad(loss))(many)


def _edges_in(basis):
    if isinstance(basis, Stacked):
        return [edges for part in basis.parts for edges in _edges_in(part)]
    edges = basis.operator if isinstance(basis, Polynomial) else basis
    return [edges] if isinstance(edges, EdgeBasis) else []


@pytest.mark.slow(cases=4)
@each_order
def test_compiles_into_one_graph_with_its_backward(case):
    compiled = torch.compile(case.__call__, fullgraph=True, backend="aot_eager")
    assert_same_steps(compiled, case, case.inputs)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    "family", [Relation(3), Chebyshev(3), Identity(), Stack(Relation(3), Identity())], ids=str
)
@pytest.mark.parametrize("prepared_by", [None, "own"])
def test_a_choice_compiles_too_once_something_ran(family, prepared_by):
    basis = family.basis(awkward_structures(torch.float32)["multi-edge"], dtype=torch.float32)
    basis = basis.detach()
    inputs = [normal(5, 4, dtype=torch.float32)]
    inputs.append(parameter(basis.num_bases, 1, 4, 3, dtype=torch.float32))
    order = {Relation: "transform_first"}.get(type(family)) if prepared_by else None

    expected = steps(lambda x, theta: contract(basis, x, theta, order), inputs)
    run = lambda x, theta: contract(basis, x, theta)  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for actual, wanted in zip(steps(compiled, inputs), expected, strict=True):
        assert_near(actual, wanted, at_least=0.1)


@pytest.mark.slow(cases=6)
@each_order
def test_exports(case):
    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return case(*inputs)

    inputs = tuple(case.detached())
    exported = torch.export.export(Module(), inputs)
    others = [torch.randn_like(tensor) for tensor in inputs]
    assert_near(exported.module()(*others), case(*others))


@each_order
def test_a_checkpoint_changes_nothing(case):
    again = lambda *x: checkpoint(case, *x, use_reentrant=False)  # noqa: E731
    assert_same_steps(again, case, case.inputs, exactly=True)


@each_order
def test_under_autocast_all_orders_agree(order):
    case = Case(order, torch.float32)
    direction = torch.randn(5, 3)

    def results():
        out = case(*case.inputs)
        return out, *torch.autograd.grad((out.float() * direction).sum(), case.inputs)

    with use_backend(case.backend):
        expected = results()
        with torch.autocast("cpu", torch.bfloat16):
            actual = results()
    assert actual[0].dtype == torch.bfloat16
    for tensor, wanted in zip(actual, expected, strict=True):
        assert_near(tensor.float(), wanted, TOLERANCE[torch.bfloat16], at_least=0.1)


@pytest.mark.parametrize("name", ["multi-edge", "zero edges"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["edges", "polynomial", "identity"])
def test_the_type_of_a_result_under_autocast_is_no_matter_of_the_order(family, kind, name):
    edges = awkward_structures(torch.float32)[name]
    basis = FAMILIES[family].basis(edges, dtype=torch.float32)
    x = features(kind, basis.size[0], basis.size[0], torch.float32)
    for matrices, aggr in ((None, "sum"), (2, "sum"), (None, "max")):
        if aggr == "max" and kind not in ("dense", "batch"):
            continue  # which is refused
        theta = parameter(basis.num_bases, 1, basis.size[0], 3, matrices, torch.float32)
        with use_backend("reference"), torch.autocast("cpu", torch.bfloat16):
            types = {
                contract(basis, x, theta, order, aggr=aggr).dtype
                for order, reasons in legal_orders(basis, x, theta, aggr).items()
                if not reasons
            }
        expected = torch.float32 if kind in ("none", "indices") else torch.bfloat16
        assert types <= {expected}
        assert types or aggr == "max"


@each_order
def test_inference_mode_and_no_grad(case):
    expected = case(*case.inputs)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            actual = case(*case.inputs)
        assert not actual.requires_grad
        assert_near(actual, expected)
