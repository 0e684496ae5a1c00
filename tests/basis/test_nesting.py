"""Bases of bases of bases: taken apart where the algebra allows, and refused beyond a depth."""

import random

import pytest
import torch

from pyg_outerconv.basis import Composed, Mixed, Pattern, Polynomial, Stacked
from pyg_outerconv.basis.algebra import DEEPEST, MOST_PIECES
from pyg_outerconv.contract import contract
from pyg_outerconv.families import GCN, Directed, Family, Stack, parse_family
from pyg_outerconv.testing import assert_near

INDEX = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
ONE = GCN().basis(INDEX, dtype=torch.float64)
WALK = Polynomial(ONE, "monomial", 2)
CELL = Pattern.build(torch.zeros(2, 1, dtype=torch.long), size=(1, 1)).with_values(None)


def numbers(*shape):
    return torch.rand(shape, dtype=torch.float64) - 0.4


STEPS = {
    "stack": lambda b: b.stack(ONE),
    "stack left": lambda b: ONE.stack(b),
    "scale": lambda b: b.scale(0.9),
    "scale by what may learn": lambda b: b.scale(numbers(b.num_bases).requires_grad_()),
    "select": lambda b: b.select([-1, 0][: min(b.num_bases, 2)]),
    "mix": lambda b: b.mix(numbers(2, b.num_bases)),
    "transpose": lambda b: b.transpose(),
    "compose": lambda b: b.compose(ONE),
    "compose left": lambda b: ONE.compose(b),
    "kron": lambda b: b.kron(CELL),
    "restrict": lambda b: b.restrict([0, 1, 2], [0, 1, 2]),
}
ENDLESS = ("stack", "stack left", "scale", "select", "transpose", "compose", "compose left")


def assert_usable(basis):
    """Everything that goes from level to level comes to an end, and is right."""
    dense = basis.to_dense()
    assert dense.shape == (basis.num_bases, *basis.size)
    assert basis.dtype == torch.float64
    assert repr(basis)
    x = torch.randn(basis.size[0], 2, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(basis.num_bases, 1, 2, 2, dtype=torch.float64)
    out = contract(basis, x, theta)
    expected = torch.einsum("kmn,mp,kpq->nq", dense, x, theta[:, 0])
    assert_near(out, expected, at_least=1e-3)
    actual, wanted = (torch.autograd.grad(y.sum(), x)[0] for y in (out, expected))
    assert_near(actual, wanted, at_least=1e-3)
    assert_near(basis.edges().to_dense(), dense, at_least=1e-6)
    assert_near(basis.transpose().to_dense(), dense.transpose(1, 2))
    assert_near(basis.float().double().to_dense().float(), dense.float(), at_least=1e-6)
    basis.receptive_field(0, 2)


def repeat(step, count, basis=ONE):
    for _ in range(count):
        basis = step(basis)
    return basis


@pytest.mark.parametrize("name", ENDLESS)
def test_what_the_algebra_takes_apart_goes_on_for_ever(name):
    basis = repeat(STEPS[name], 60 if "compose" in name else 300)
    assert basis.nesting <= 10
    assert_usable(basis)


@pytest.mark.parametrize("name", [name for name in STEPS if name not in ENDLESS])
def test_what_it_does_not_is_refused_beyond_a_depth(name):
    basis = ONE
    with pytest.raises(ValueError, match=f"expected at most {DEEPEST} levels, got "):
        for _ in range(1000):
            if name == "restrict":  # of what a restriction goes no further into
                basis = basis.kron(CELL)
            basis = STEPS[name](basis)
    assert DEEPEST - 3 <= basis.nesting <= DEEPEST
    assert_usable(basis)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("seed", range(6))
def test_towers_of_anything_are_right_or_refused(seed):
    pick, basis = random.Random(seed), WALK
    names = pick.sample(["scale by what may learn", "select", "transpose", "compose", "kron"], 3)
    with pytest.raises(ValueError, match=f"expected at most {DEEPEST} levels, got "):
        for _ in range(400):
            basis = STEPS[pick.choice([*names, "mix"])](basis)
    assert_usable(basis)


def test_stacks_of_stacks_and_selections_of_selections_are_one():
    basis = ONE.stack(WALK).stack(ONE.stack(ONE))
    assert isinstance(basis, Stacked)
    assert basis.parts == (ONE, WALK, ONE, ONE)
    chosen = WALK.stack(ONE).select([2, 0, 1]).select([1, 1, 2])
    assert isinstance(chosen, Mixed)
    assert chosen.matrix == (0, 0, 1)
    assert isinstance(repeat(STEPS["scale"], 5).base, type(ONE))


def test_factors_that_learn_stay_as_they_are():
    factor = torch.ones(1, dtype=torch.float64, requires_grad=True)
    basis = ONE.scale(factor).scale(2.0).scale(factor)
    assert isinstance(basis.base, Mixed)
    for _ in range(2):  # each time anew: nothing was multiplied beforehand
        basis.to_dense().sum().backward()
    with torch.no_grad():
        factor.fill_(3.0)
    assert_near(basis.to_dense(), 18.0 * ONE.to_dense())


def test_a_long_chain_is_a_balanced_tree_with_the_same_labels():
    basis = repeat(lambda b: b.compose(WALK if b.num_bases < 8 else ONE), 40)
    assert isinstance(basis, Composed)
    dense, expected = basis.to_dense(), ONE.to_dense()
    for factor in [WALK] * 3 + [ONE] * 37:
        expected = torch.einsum("iml,jln->ijmn", expected, factor.to_dense()).flatten(0, 1)
    assert_near(dense, expected)


@pytest.mark.parametrize("name", ["stack", "directed", "mean", "explicit", "union", "compose"])
def test_families_in_families_are_parsed_or_refused(name):
    deep = {depth: f"{name}(" * depth for depth in (3, 16, 17, 60, 150, 10**4)}
    end = ", gcn)" if name == "compose" else ")"
    for depth, opened in deep.items():
        text = opened + "gcn" + end * depth
        if depth <= 16:
            assert isinstance(parse_family(text), Family)
        else:
            with pytest.raises(ValueError, match="expected .*, got "):
                parse_family(text)


def test_nested_families_make_bases_in_linear_time():
    family = GCN()
    for _ in range(16):
        family = Stack(family, GCN())
    basis = family.basis(INDEX, dtype=torch.float64)
    assert basis.num_bases == 17
    assert_usable(basis)
    with pytest.raises(ValueError, match="expected at most 16 levels, got 17"):
        Directed(family)


@pytest.mark.parametrize(
    "double", [lambda b: b.stack(b).select([1]), lambda b: b.compose(b), lambda b: b.stack(b)]
)
def test_a_basis_that_doubles_at_every_step_is_refused_before_it_takes_for_ever(double):
    basis = ONE
    with pytest.raises(
        ValueError,
        match=f"the number of parts of a basis is limited.*at most {MOST_PIECES}.*, got ",
    ):
        for _ in range(40):
            basis = double(basis)
    assert basis.pieces <= MOST_PIECES
