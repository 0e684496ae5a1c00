"""The cost model: work adds up, and what it predicts is what runs."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from contractions import (
    GENERAL,
    NEEDS_REFERENCE,
    features,
    home_of,
    normal,
    parameter,
    tensors_of,
    values_of,
    with_values,
)
from torch.utils.flop_counter import FlopCounterMode

from pyg_outerconv import record
from pyg_outerconv.contract import ORDERS, Cost, Order, Problem
from pyg_outerconv.contract.cost import (
    Constants,
    Operations,
    moving,
    picking_in_turn,
)
from pyg_outerconv.kernels import absent_pairs, edge_sums, use_backend

SPEEDS = Constants(
    dense_flops=1000.0,
    gather=((10.0, 0.1), (1000.0, 0.3)),
    move=((10.0, 1.0), (100.0, 2.0)),
    call_seconds=5.0,
    group_seconds=7.0,
)
COUNTED = [name for name in GENERAL if name not in NEEDS_REFERENCE]


@pytest.fixture(autouse=True)
def numbers_can_be_looked_at(monkeypatch):
    """A mode, such as the one that counts here, hides numbers, and `dense` goes by edges then."""
    monkeypatch.setattr(absent_pairs, "can_look", lambda *_: True)


def test_work_adds_up_and_multiplies():
    one = Operations(
        dense_flops=2.0, gathers=((3.0, 10.0),), moves=((4.0, 10.0),), calls=1, groups=2
    )
    two = Operations(dense_flops=1.0, gathers=((5.0, 1000.0),), calls=3)
    both = one + two
    assert both.dense_flops == 3.0
    assert (both.gathered, both.moves) == (8.0, ((4.0, 10.0),))
    assert (both.calls, both.groups) == (4, 2)
    twice = both * 2
    assert (twice.dense_flops, twice.gathered, twice.moves) == (6.0, 16.0, ((8.0, 10.0),))
    assert twice.gathers == ((6.0, 10.0), (10.0, 1000.0)), "operands are as large as before"
    assert Cost(one, two).work == both
    assert (one + Operations()).seconds(SPEEDS) == one.seconds(SPEEDS)
    assert both.seconds(SPEEDS) == pytest.approx(one.seconds(SPEEDS) + two.seconds(SPEEDS))
    assert (both * 3).seconds(SPEEDS) == pytest.approx(3 * both.seconds(SPEEDS))
    assert (both * 0).seconds(SPEEDS) == 0.0


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Operations(), 0.0),
        (Operations(dense_flops=500.0), 0.5),
        (Operations(calls=2), 10.0),
        (Operations(groups=2), 14.0),
        (Operations(gathers=((10.0, 1.0),)), 1.0),
        (Operations(gathers=((10.0, 100.0),)), 2.0),  # half way between 10 and 1000
        (Operations(gathers=((10.0, 1e9),)), 3.0),
        (moving(10.0, 100.0), 10.0 * 1.0 + 100.0 * 2.0),
        (picking_in_turn(10.0, 3), 4 * 10.0 * 0.3 + 3 * 7.0),
    ],
)
def test_time_is_work_by_the_speeds_of_a_machine(work, expected):
    assert work.seconds(SPEEDS) == pytest.approx(expected)


def of_groups(x, theta, ptr, gather, scatter, num_rows, backend, out_shape=None):
    """Of x[gather i] Θ_g, with Θ (G, P, Q)."""
    return 2 * (x if gather is None else gather)[0] * theta[1] * theta[2]


def of_outer(x, y, ptr, gather, scatter, num_rows, backend, out_shape=None):
    """Of x[gather i]ᵀ y[scatter i]."""
    return 2 * next(shape for shape in (gather, scatter, x) if shape is not None)[0] * x[1] * y[1]


def of_sum(out, a, b, out_shape=None, **factors):
    """Of out + a b, into out."""
    return 2 * a[0] * a[1] * b[1]


OPERATORS = {
    torch.ops.aten.addmm_: of_sum,
    torch.ops.pyg_outerconv.grouped_matmul: of_groups,
    torch.ops.pyg_outerconv.grouped_outer: of_outer,
}


@pytest.fixture(autouse=True)
def no_graph_is_small(monkeypatch):
    """What is predicted is what kernels do, also for graphs that need none."""
    monkeypatch.setattr(edge_sums, "MOST", -1)


def gathered(calls):
    """Bytes that sparse products and samples read through an index."""
    return sum(
        4.0 * call.request.num_entries * call.request.channels * call.request.heads
        for call in calls
        if call.primitive in ("spmm", "sddmm")
    )


def counted(function):
    """Flops of dense products, and bytes that sparse ones gather."""
    with FlopCounterMode(display=False, custom_mapping=OPERATORS) as counter, record() as calls:
        function()
    return counter.get_total_flops(), gathered(calls)


def case_of(order, widths, gradients=(True, True, True), batch=()):
    basis, matrices = home_of(order, torch.float32)
    values = [value.detach().requires_grad_(gradients[2]) for value in values_of(basis)]
    x = normal(5, *batch, widths[0], dtype=torch.float32, grad=gradients[0])
    theta = parameter(basis.num_bases, 1, *widths, matrices, torch.float32, gradients[1])
    return Problem(with_values(basis, *values), x, theta), [x, *tensors_of(theta), *values]


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("widths", [(6, 2), (2, 6), (4, 4)], ids=str)
@pytest.mark.parametrize("order", COUNTED)
def test_a_forward_pass_does_what_was_predicted(order, widths, batch):
    case, _ = case_of(order, widths, batch=batch)
    ORDERS[order].run(case)
    cost = ORDERS[order].cost(case)
    predicted = (cost.forward.dense_flops, cost.forward.gathered)
    assert counted(lambda: ORDERS[order].run(case)) == predicted


BACKWARD = [
    (order, gradients)
    for order, *gradients in product(COUNTED, *[(False, True)] * 3)
    if any(gradients[: 2 if order == "per_node" else 3])
]


@pytest.mark.parametrize("widths", [(6, 2), (2, 6)], ids=str)
@pytest.mark.parametrize(("order", "gradients"), BACKWARD)
def test_a_backward_pass_does_what_was_predicted(order, gradients, widths):
    case, inputs = case_of(order, widths, gradients)
    cost = ORDERS[order].cost(case)
    out = ORDERS[order].run(case)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    predicted = (cost.backward.dense_flops, cost.backward.gathered)
    assert counted(lambda: torch.autograd.grad(out.sum(), wanted)) == predicted


@pytest.mark.parametrize("kind", ["none", "indices", "sparse"])
@pytest.mark.parametrize("order", COUNTED)
def test_other_features_do_what_was_predicted(order, kind):
    basis, matrices = home_of(order, torch.float32)
    theta = parameter(basis.num_bases, 1, 5, 3, matrices, torch.float32)
    case = Problem(basis, features(kind, 5, 5, torch.float32), theta)
    if ORDERS[order].why_not(case):
        return
    cost = ORDERS[order].cost(case)
    predicted = (cost.forward.dense_flops, cost.forward.gathered)
    assert counted(lambda: ORDERS[order].run(case)) == predicted


@pytest.mark.parametrize("order", GENERAL)
def test_a_cost_is_that_of_the_steps(order):
    with use_backend("reference"):
        case, _ = case_of(order, (4, 2))
        steps = ORDERS[order].steps(case)
        assert steps.cost == ORDERS[order].cost(case)
    assert all(words for words, _ in steps.parts)


def test_an_order_says_its_steps():
    with pytest.raises(
        TypeError, match="an order says what it costs: expected its steps, got Silent"
    ):

        class Silent(Order):
            name = "silent"

            def run(self, problem):
                return problem.features

    assert "silent" not in ORDERS


def test_every_order_costs_something_and_more_for_more():
    for order in GENERAL:
        with use_backend("reference"):
            small, large = case_of(order, (4, 4))[0], case_of(order, (40, 40))[0]
            seconds = [
                ORDERS[order].cost(case).work.seconds(replace(SPEEDS, call_seconds=0.0))
                for case in (small, large)
            ]
        assert 0.0 < seconds[0] < seconds[1]
