"""A plan: what a call decides is decided once for its key, and never served to another key."""

import copy
import gc
import pickle
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.autograd import forward_ad

from pyg_outerconv import OuterConv, clear_caches, use_backend
from pyg_outerconv.contract.plan import MOST_PLANS, PLANS, plan_key
from pyg_outerconv.contract.problem import Problem

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
