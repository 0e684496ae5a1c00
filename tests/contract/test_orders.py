"""Every order equals the dense oracle, with first and second derivatives in everything."""

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
from oracle import assert_same

from pyg_outerconv.basis import EdgeBasis, Pattern
from pyg_outerconv.contract import contract
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.testing import (
    assert_contraction,
    assert_near,
    assert_same_gradients,
    awkward_structures,
    dense_contraction,
    legal_orders,
)

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


@pytest.mark.parametrize("widths", [(4, 2), (2, 4)], ids=str)
@pytest.mark.parametrize("kind", FAMILIES)
def test_in_single_precision(kind, widths):
    family = FAMILIES[kind]
    edges = awkward_structures(torch.float32)["multi-edge"]
    basis = family.basis(edges, dtype=torch.float32)
    for of_x, matrices in product(("dense", "batch", "sparse"), (None, 2)):
        x = features(of_x, 5, widths[0], torch.float32)
        theta = parameter(basis.num_bases, 1, *widths, matrices, torch.float32)
        assert_contraction(basis, x, theta, [edges.edge_weight], depth=2)


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
def test_torch_agrees_with_the_derivatives(order):
    basis, matrices = home_of(order)
    theta = parameter(basis.num_bases, 1, 3, 2, matrices)
    values = values_of(basis)

    def run(x, *tensors):
        parts = tensors[: len(tensors_of(theta))]
        of_theta = parts[0] if matrices is None else type(theta)(*parts)
        edges = with_values(basis, *tensors[len(parts) :])
        return contract(edges, x, of_theta, order)

    with use_backend("reference" if order in NEEDS_REFERENCE else "native"):
        inputs = (normal(5, 3), *tensors_of(theta), *values)
        assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


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
        found = torch.autograd.grad(out.sum(), [x, *tensors_of(theta)])
        assert all(not gradient.any() for gradient in found)
