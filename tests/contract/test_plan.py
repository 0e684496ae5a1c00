"""A plan: what a call decides is decided once for its key; and the problem that it is made for."""

import copy
import gc
import pickle
from contextlib import contextmanager, nullcontext

import pytest
import torch
from contractions import features, normal, parameter, random_edges
from torch.autograd import forward_ad

from pyg_outerconv import OuterConv, clear_caches, use_backend
from pyg_outerconv.contract import Problem, contract
from pyg_outerconv.contract.plan import MOST_PLANS, PLANS, plan_key
from pyg_outerconv.families import Relation, Walk
from pyg_outerconv.testing import assert_near, awkward_structures

X, EDGES = torch.randn(340, 16), torch.randint(340, (2, 1560))  # not a tiny graph, without a plan


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


SURROUNDINGS = {
    "eager": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "one more thread": lambda: threads(torch.get_num_threads() + 1),
    "another backend": lambda: use_backend("reference"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "forward mode": forward_ad.dual_level,
}


def key_of(x=X, edges=EDGES, conv=None):
    conv = OuterConv(16, 8, "gcn") if conv is None else conv
    return plan_key(Problem(conv.basis(x, edges), x, conv.theta()))


def test_each_surrounding_has_a_plan_of_its_own():
    conv, keys = OuterConv(16, 8, "gcn", cached=False), {}
    for name, surrounding in SURROUNDINGS.items():
        with surrounding():
            keys[name] = key_of(conv=conv)
    assert len(set(keys.values())) == len(keys), keys


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (lambda: key_of(X.double(), conv=OuterConv(16, 8, "gcn").double()), False),
        (lambda: key_of(X.clone().requires_grad_()), False),
        (lambda: key_of(conv=OuterConv(16, 4, "gcn")), False),
        (lambda: key_of(edges=EDGES[:, :10]), False),
        (lambda: key_of(X.clone(), EDGES.clone()), True),
        (lambda: key_of(X[:339], EDGES.clamp(max=338)), True),
    ],
    ids=["type", "gradients", "channels", "fewer edges", "another graph", "one node less"],
)
def test_what_a_key_tells_apart(changed, same):
    assert (changed() == key_of()) is same


def test_calls_of_one_key_share_a_plan_and_it_holds_nothing_of_them():
    clear_caches()
    assert len(PLANS) == 0
    conv = OuterConv(16, 8, "gcn", cached=False)
    for seed in range(3):
        conv(X, EDGES.roll(seed))
    assert len(PLANS) == 1
    (shelf,) = PLANS._shelves.values()
    (plan,) = (entry.result for entry in shelf.entries.values())
    parts = [plan.order, plan.few, plan.mode]
    reached = [*parts, *(two for one in parts for two in gc.get_referents(one))]
    assert not any(isinstance(one, torch.Tensor | torch.nn.Module) for one in reached)
    assert "propagate_first" in str(plan) or "transform_first" in str(plan)
    assert f"plan: {plan}" in str(conv.contraction_path(X, EDGES))


def test_plans_are_bounded_and_left_behind_by_copies():
    clear_caches()
    for width in range(1, MOST_PLANS + 10):
        PLANS.get(("test", width), object)
    assert len(PLANS) == MOST_PLANS
    clear_caches()
    conv = OuterConv(16, 8, "gcn")
    conv(X, EDGES)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(twin(X, EDGES), conv(X, EDGES))
    assert len(PLANS) == 1


def test_a_changed_option_is_never_served_an_old_plan():
    conv = OuterConv(16, 8, "gcn", cached=True)
    first = conv(X, EDGES)
    conv.order = "transform_first"
    assert conv.contraction_path(X, EDGES).chosen == ["transform_first"]
    torch.testing.assert_close(conv(X, EDGES), first)
    conv.order, conv.max_memory = None, 0
    with pytest.raises(ValueError, match="max_memory"):
        conv(X, EDGES)


STRUCTURE = awkward_structures()["multi-edge"]


def test_under_autocast_a_basis_may_be_of_its_type():
    basis = Relation(3).basis(STRUCTURE, dtype=torch.float32).float()
    x, theta = torch.ones(5, 4), torch.ones(3, 1, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert contract(basis.to(torch.bfloat16), x, theta).dtype == torch.bfloat16


def test_what_a_problem_says_of_its_gradients():
    plain, learned = random_edges(5, 9, 3, values=False), random_edges(5, 9, 3)
    polynomial = Walk(2).basis(awkward_structures(torch.float32)["weighted"]).float()
    assert polynomial.operator.value.requires_grad
    for of_x in (False, True):
        for of_theta in (False, True):
            for matrices in (None, 2):
                x = normal(5, 4, dtype=torch.float32, grad=of_x)
                theta = parameter(3, 1, 4, 2, matrices, torch.float32, of_theta)
                for basis, of_basis in ((plain, False), (learned, True), (polynomial, True)):
                    case = Problem(basis, x, theta)
                    assert case.gradients == (of_x, of_theta, of_basis)
                    with torch.no_grad():
                        assert Problem(basis, x, theta).gradients == (False, False, False)
                assert not Problem(learned.detach(), x, theta).gradients[2]
    mixture = parameter(3, 1, 4, 2, 2, torch.float32, grad=False)
    mixture = mixture.but(coefficient=mixture.coefficient.detach().requires_grad_())
    assert Problem(plain, None, mixture).gradients == (False, True, False)
    sparse = features("sparse", 5, 4, torch.float32)
    assert Problem(plain, sparse, mixture).gradients == (True, True, False)


def test_indices_of_nodes_may_be_short():
    basis, index = Relation(3).basis(STRUCTURE), torch.tensor([6, 2, 2, 0, 5])
    table = torch.randn(3, 1, 7, 3, dtype=torch.float64)
    assert_near(contract(basis, index.int(), table), contract(basis, index, table))
