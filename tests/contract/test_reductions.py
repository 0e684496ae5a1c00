"""Means, maxima and minima over inputs and labels: dense forms, orders that may, and ties."""

import random
from functools import partial

import pytest
import torch
from cases import CELL_PAIRS, CELLS, PAIRS, STRUCTURES, edges_for, over
from contractions import (
    COMPARED,
    OF_EDGES,
    REDUCTIONS,
    both,
    edges_of,
    features,
    has_edges,
    identity,
    normal,
    not_sums,
    parameter,
    random_edges,
    tensors_of,
)
from matrices import HERE
from oracle import assert_same
from probes import Largest, held_by
from shifts import box

from pyg_outerconv.basis import Eye, Pattern
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.contract.cost import constants
from pyg_outerconv.contract.problem import problems
from pyg_outerconv.families import Chebyshev, Identity, Pool, Relation, Stack, Walk
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.nn import GridPool, OuterConv
from pyg_outerconv.testing import assert_contraction, assert_near, dense_contraction, legal_orders
from pyg_outerconv.theta import Theta

OF_INPUTS = [name for name in OF_EDGES if "max" in ORDERS[name].reductions]

# Values and gradients -----------------------------------------------------------------------------


@not_sums
@pytest.mark.parametrize("name", STRUCTURES)
def test_equal_the_dense_form_with_its_support(name, aggr, label_aggr):
    edges = edges_of(name)
    for widths, matrices in (((4, 2), None), ((2, 4), None), ((2, 4), 2), ((4, 2), 2)):
        x, theta = normal(edges.size[0], widths[0]), parameter(3, 1, *widths, matrices)
        assert_contraction(edges, x, theta, [edges.value], 2, aggr, label_aggr)


@both
@pytest.mark.parametrize("name", STRUCTURES)
def test_equal_the_dense_form_without_a_parameter(name, aggr, label_aggr):
    edges = edges_of(name)
    x, theta = normal(edges.size[0], 4), identity(3, 4)
    assert_contraction(edges, x, theta, [edges.value], 2, aggr, label_aggr)
    single = Pattern.build(edges.index, size=edges.size).with_values(edges.value)
    assert_contraction(single, x, identity(1, 4), [edges.value], 1, aggr, label_aggr)


@over([(family, name) for family, name in PAIRS if name in ("multi-edge", "rectangular")])
def test_every_family_that_is_made_of_explicit_edges(family, name):
    edges = edges_for(family, name)
    basis = family.basis(edges, dtype=torch.float64)
    weights = [edges.edge_weight] if edges.edge_weight is not None else []
    x, theta = normal(edges.size[0], 2), parameter(basis.num_bases, 1, 2, 3)
    for aggr, label_aggr in COMPARED:
        if has_edges(basis):
            assert_contraction(basis, x, theta, weights, 1, aggr, label_aggr)
        else:
            with pytest.raises(ValueError, match="edges must be explicit"):
                contract(basis, x, theta, aggr=aggr, label_aggr=label_aggr)
        one = basis.edges()
        assert_near(
            contract(one, x, theta, aggr=aggr, label_aggr=label_aggr),
            dense_contraction(one, x, theta, aggr, label_aggr),
        )


@over([pair for pair in CELL_PAIRS if pair[1] in ("shape", "holes", "empty axis", "unbounded")])
def test_every_family_of_cells(family, name):
    """Pooling of grids too, which torch does where a grid is full."""
    basis = family.basis(CELLS[name], dtype=torch.float64)
    x, theta = normal(basis.size[0], 2), parameter(basis.num_bases, 1, 2, 3)
    for aggr, label_aggr in (("sum", "max"), ("max", "max"), ("mean", "min")):
        for which in (theta, identity(basis.num_bases, 2)):
            assert_contraction(basis, x, which, (), 1, aggr, label_aggr)


@both
def test_batches_and_blocks(aggr, label_aggr):
    edges, x = edges_of("multi-edge"), normal(5, 2, 3, 4)
    for theta in (parameter(3, 2, 4, 2), parameter(3, 2, 4, 2, 2), identity(3, 4)):
        assert_contraction(edges, x, theta, [edges.value], 1, aggr, label_aggr)
    empty = contract(edges, x[:, :0], theta, aggr=aggr, label_aggr=label_aggr)
    assert empty.shape == (5, 0, 3, 4)


@not_sums
@pytest.mark.parametrize("kind", ["none", "indices", "sparse"])
def test_features_of_every_kind_where_theta_may_come_first(kind, aggr, label_aggr):
    edges = edges_of("multi-edge")
    x, theta = features(kind, 5, 5), parameter(3, 1, 5, 2)
    if aggr in ("max", "min") or label_aggr == "sum":  # a layer folds its mean into the basis
        with pytest.raises(ValueError, match="needs dense node features"):
            contract(edges, x, theta, aggr=aggr, label_aggr=label_aggr)
        return
    assert_contraction(edges, x, theta, [edges.value], 1, aggr, label_aggr)
    nothing = edges_of("zero edges")
    x, theta = features(kind, 4, 4), parameter(3, 1, 4, 2)
    assert_contraction(nothing, x, theta, (), 1, aggr, label_aggr)


# What is compared ---------------------------------------------------------------------------------


def test_a_label_without_an_edge_is_left_out_and_a_zero_is_not():
    # Target 0 has label 0 alone, and target 1 has both; target 2 has none.
    pattern = Pattern.build(
        torch.tensor([[0, 0, 0], [0, 1, 1]]), torch.tensor([0, 0, 1]), size=(1, 3), num_labels=2
    )
    edges = pattern.with_values(torch.tensor([-2.0, -2.0, 0.0]))
    x = torch.ones(1, 1)
    for theta in (torch.ones(2, 1, 1, 1), identity(2, 1, torch.float32)):
        for aggr in REDUCTIONS:
            for order in (None, "compare_labels"):
                outputs = [
                    contract(edges, x, theta, order, aggr=aggr, label_aggr=how).flatten()
                    for how in ("sum", "max", "min")[order is not None :]
                ]
                expected = [[-2.0, -2.0, 0.0], [-2.0, 0.0, 0.0], [-2.0, -2.0, 0.0]]
                assert [tuple(f.tolist()) for f in outputs] == [
                    tuple(e) for e in expected[order is not None :]
                ]


def test_a_zero_value_is_an_input_and_no_edge_is_none():
    pattern = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 2))
    edges = pattern.with_values(torch.tensor([0.0, -1.0]))
    x, theta = torch.ones(2, 1), torch.ones(1, 1, 1, 1)
    for order in OF_INPUTS:
        assert contract(edges, x, theta, order, aggr="max").tolist() == [[0.0], [0.0]]
        assert contract(edges, x, theta, order, aggr="min").tolist() == [[-1.0], [0.0]]


def test_parallel_edges_are_compared_within_a_label_and_not_added():
    pattern = Pattern.build(
        torch.zeros(2, 3).long(), torch.tensor([0, 0, 1]), size=(1, 1), num_labels=2
    )
    edges, x = pattern.with_values(torch.tensor([1.0, 2.0, 2.5])), torch.ones(1, 1)
    for theta in (torch.ones(2, 1, 1, 1), identity(2, 1, torch.float32)):
        for aggr, label_aggr, expected in (
            ("max", "max", 2.5),
            ("sum", "max", 3.0),
            ("mean", "max", 2.5),
            ("max", "min", 2.0),
            ("min", "min", 1.0),
            ("sum", "min", 2.5),
        ):
            actual = contract(edges, x, theta, aggr=aggr, label_aggr=label_aggr)
            assert actual.item() == expected


def test_theta_comes_between_the_two_reductions():
    pattern = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 1))
    x, theta = torch.tensor([[1.0], [2.0]]), torch.full((1, 1, 1, 1), -1.0)
    out = contract(pattern.with_values(None), x, theta, aggr="max", label_aggr="max")
    assert out.item() == -2.0, "max, then Θ: not the largest of what Θ makes"


@pytest.mark.parametrize("label_aggr", ["max", "min"])
def test_what_is_not_a_number_wins(label_aggr):
    index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    pattern = Pattern.build(index, torch.tensor([0, 1, 2]), size=(3, 1), num_labels=3)
    for place in range(3):
        x = torch.tensor([[1.0], [2.0], [3.0]])
        x[place] = float("nan")
        for theta in (torch.ones(3, 1, 1, 1), identity(3, 1, torch.float32)):
            assert contract(pattern.with_values(None), x, theta, label_aggr=label_aggr).isnan()


@pytest.mark.parametrize("label_aggr", ["max", "min"])
def test_infinite_inputs_win_over_no_edge(label_aggr):
    worst = float("-inf") if label_aggr == "max" else float("inf")
    pattern = Pattern.build(torch.tensor([[0], [0]]), size=(1, 2))
    x = torch.full((1, 1), worst)
    for theta in (torch.ones(1, 1, 1, 1), identity(1, 1, torch.float32)):
        out = contract(pattern.with_values(None), x, theta, label_aggr=label_aggr)
        assert out.flatten().tolist() == [worst, 0.0]


# torch's own features -----------------------------------------------------------------------------


def test_what_was_made_in_inference_mode_serves_training():
    basis = Stack(Relation(3), Identity()).basis(STRUCTURES["weighted"], dtype=torch.float64)
    x, theta = normal(5, 4), parameter(4, 1, 4, 2)
    with torch.inference_mode():
        before = contract(basis, x, theta, label_aggr="max")
    after = contract(basis, x, theta, label_aggr="max")
    assert_near(after, before)
    after.sum().backward()


HIDDEN = r"(edges must be explicit|over the inputs of a label).*basis.edges\(\).*, got Polynomial"


# Lazy bases ---------------------------------------------------------------------------------------


@both
def test_the_algebra_commutes_with_reductions(aggr, label_aggr):
    """A negative scale makes the largest the smallest, and labels of all parts are compared."""
    relation = Relation(3).basis(STRUCTURES["multi-edge"], dtype=torch.float64)
    stack = Stack(Relation(3), Identity()).basis(STRUCTURES["multi-edge"], dtype=torch.float64)
    factor = torch.tensor([-1.0, 2.0, -0.5], dtype=torch.float64, requires_grad=True)
    wide = torch.cat([factor, -factor[:1]])
    for basis in (
        stack,
        stack.transpose(),
        relation.scale(-1.0),
        relation.scale(factor).scale(-2.0),
        relation.transpose().scale(factor),
        relation.scale(factor).select([2, 0, 2]),
        relation.select([1, 1, 0]).scale(factor),
        stack.scale(wide).scale(-1.0).transpose(),
        relation.stack(relation.scale(factor)),
        Eye((5, 5), torch.device("cpu")).scale(torch.tensor([-1.0]).double()),
        Eye((5, 3), torch.device("cpu")),
    ):
        x, theta = normal(5, 4), parameter(basis.num_bases, 1, 4, 2)
        assert_contraction(basis, x, theta, [factor], 1, aggr, label_aggr)
        assert_contraction(basis, x, identity(basis.num_bases, 4), [factor], 1, aggr, label_aggr)


def test_the_edges_of_a_lazy_basis_are_sorted_once(monkeypatch):
    stack = Stack(Relation(3), Walk(2), Identity()).basis(STRUCTURES["weighted"])
    relation = Relation(3).basis(STRUCTURES["weighted"])
    lazy = relation.stack(Eye((5, 5), torch.device("cpu"))).scale(-1.0).select([0, 3])
    x = normal(5, 4)
    for basis in (lazy, lazy.transpose(), lazy.stack(relation)):
        theta = parameter(basis.num_bases, 1, 4, 2)
        first = contract(basis, x, theta, label_aggr="max")
        with monkeypatch.context() as patch:
            patch.setattr(Pattern, "build", None)
            assert torch.equal(contract(basis, x, theta, label_aggr="max"), first)
    assert not has_edges(stack)


@not_sums
def test_rules_that_hide_their_edges_are_refused_by_name(aggr, label_aggr):
    basis = Chebyshev(3).basis(STRUCTURES["undirected"], dtype=torch.float64)
    x = normal(5, 4)
    for lazy in (
        basis,
        basis.transpose(),
        basis.scale(2.0),
        basis.select([0, 1]),
        basis.stack(Eye((5, 5), torch.device("cpu"))),
    ):
        theta = parameter(lazy.num_bases, 1, 4, 2)
        for order in (None, "compare_labels", "recurrence_forward"):
            for function in (contract, contraction_path):
                with pytest.raises(ValueError, match=HIDDEN):
                    function(lazy, x, theta, order, aggr=aggr, label_aggr=label_aggr)
        assert_contraction(lazy.edges(), x, theta, (), 1, aggr, label_aggr)


# Which order may ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", OF_EDGES)
def test_orders_for_sums_are_refused_by_name(order):
    edges, x = edges_of("multi-edge"), normal(5, 4)
    theta = parameter(3, 1, 4, 2, 2 if order == "label_mixing" else None)
    refused = {
        ("sum", "max"): f"order '{order}' cannot solve this problem: .*reduces labels with sum, not"
    }
    if order not in ("propagate_first", "propagate_first_compact", "label_by_label"):
        follows = f"order '{order}' cannot solve .*: Θ must come after a reduction"
        refused |= {("max", "sum"): follows, ("min", "sum"): follows}
        refused["mean", "sum"] = "a mean divides the sum of each label"
    with use_backend("reference"):
        assert not legal_orders(edges, x, theta)[order]
        for (aggr, label_aggr), said in refused.items():
            with pytest.raises(ValueError, match=said):
                contract(edges, x, theta, order, aggr=aggr, label_aggr=label_aggr)
        with pytest.raises(ValueError, match="reduces labels with max, min, not with sum"):
            contract(edges, x, theta, "compare_labels")


@both
def test_all_edges_take_one_reduction_or_one_edge_a_target_and_label(aggr, label_aggr):
    x = normal(5, 4)
    several = edges_of("multi-edge")
    index, label = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]]), torch.tensor([0, 2, 0, 1])
    single = Pattern.build(index, label, size=(5, 5), num_labels=3).with_values(None)
    legal = not legal_orders(several, x, identity(3, 4), aggr, label_aggr)["all_edges"]
    assert legal == (aggr == label_aggr)
    assert not legal_orders(single, x, identity(3, 4), aggr, label_aggr)["all_edges"]
    for theta in (parameter(3, 1, 4, 4), parameter(3, 1, 4, 4, 2)):
        reasons = legal_orders(single, x, theta, aggr, label_aggr)["all_edges"]
        assert reasons == ["needs Θ_k = c I with one number c for all labels"]


def test_sums_of_a_scaled_identity_are_one_product_without_theta():
    edges, x = edges_of("multi-edge"), normal(5, 4)
    ones = torch.ones(1, 4, 1, 1, dtype=torch.float64)
    third = Theta(
        ones, torch.full((3, 1), 1 / 3, dtype=torch.float64), is_unit=True, constant=1 / 3
    )
    assert_contraction(edges, x, third, [edges.value], 2)
    assert contraction_path(edges, x, third).chosen == ["all_edges"]
    uneven = Theta(ones, normal(3, 1), is_unit=True)
    assert_contraction(edges, x, uneven, [edges.value], 2)
    assert legal_orders(edges, x, uneven)["all_edges"]
    reasons = legal_orders(edges, x, third, "max", "max")["all_edges"]
    assert reasons == ["needs Θ_k = I for max over labels"]


@pytest.mark.parametrize(("aggr", "label_aggr"), COMPARED)
def test_the_choice_takes_all_edges_at_once_where_it_may(aggr, label_aggr):
    basis = edges_of("multi-edge")
    path = contraction_path(basis, normal(5, 4), identity(3, 4), aggr=aggr, label_aggr=label_aggr)
    one = aggr == label_aggr
    assert path.chosen == ["all_edges" if one else "compare_labels"]
    assert f"→ {path.chosen[0]}" in str(path)


def test_labels_compared_are_one_problem():
    basis = Stack(Relation(3), Identity()).basis(STRUCTURES["multi-edge"])
    x, theta = torch.randn(5, 4), torch.randn(4, 1, 4, 2)
    assert len(problems(Problem(basis, x, theta))) == 2
    (one,) = problems(Problem(basis, x, theta, "sum", "max"))
    assert one.basis.num_bases == 4


# What it costs ------------------------------------------------------------------------------------


def test_nothing_of_all_labels_is_held():
    """The largest result while labels are compared is that of one label, or the output itself."""
    nodes, labels, channels = 30, 20, 4
    edges = random_edges(nodes, 60, labels, dtype=torch.float64)
    x, theta = normal(nodes, channels), parameter(labels, 1, channels, channels)
    contract(edges, x, theta, "compare_labels", label_aggr="max")
    with Largest() as largest:
        contract(edges, x, theta, "compare_labels", label_aggr="max").sum().backward()
    assert largest.nbytes <= 8 * max(nodes * channels, theta.numel())


def test_costs_count_both_passes():
    edges, x, theta = edges_of("multi-edge"), normal(5, 4), parameter(3, 1, 4, 2)
    order, case = ORDERS["compare_labels"], Problem(edges, x, theta, "sum", "max")
    trained = order.cost(case)
    with torch.no_grad():
        asked = order.cost(Problem(edges, x, theta, "sum", "max"))
    assert trained.forward.dense_flops == 2 * asked.forward.dense_flops > 0
    assert asked.backward.seconds(constants("cpu")) == 0.0
    assert asked.memory < trained.memory
    with pytest.raises(ValueError, match="more than max_memory=8"):
        contract(edges, x, theta, "compare_labels", label_aggr="max", max_memory=8)


@pytest.mark.parametrize(("aggr", "label_aggr"), [("sum", "max"), ("max", "min"), ("max", "max")])
@pytest.mark.parametrize("count", [20_000, 1_000])
@pytest.mark.parametrize("widths", [(16, 16), (16, 4), (4, 16)], ids=str)
@pytest.mark.parametrize("values", [False, True], ids=["ones", "values"])
def test_an_order_holds_what_its_cost_says(values, widths, count, aggr, label_aggr):
    edges, x = random_edges(200, count, 8, values), normal(200, widths[0], dtype=torch.float32)
    edge_values = [edges.value] if values else []
    for theta in (
        parameter(8, 1, *widths, dtype=torch.float32),
        identity(8, widths[0], torch.float32),
    ):
        inputs = [x, *edge_values, *(tensors_of(theta) if isinstance(theta, torch.Tensor) else [])]
        how = {"aggr": aggr, "label_aggr": label_aggr}
        taken = contraction_path(edges, x, theta, **how).chosen[0]
        claimed = ORDERS[taken].cost(Problem(edges, x, theta, **how)).memory
        saved, largest = held_by(partial(contract, edges, x, theta, **how), inputs)
        assert saved <= 1.4 * claimed
        assert claimed <= 3 * (saved + largest)
        assert largest < count * min(widths) * 4 or count < 10_000, "edges × channels"


WAYS = [
    (inner, outer)
    for inner in ("sum", "mean", "max", "min")
    for outer in ("sum", "max", "min")
    if "m" in (inner[0] * (inner != "mean"), outer[0])
]


def whole(*shape, low=-1, high=2):
    """Few whole numbers, so that ties abound."""
    return torch.randint(low, high, shape).double().requires_grad_()


def drawn_edges(seed):
    """Parallel edges in any order, with values or ones, turned round or not."""
    torch.manual_seed(seed)
    pick = random.Random(seed)
    nodes, count = pick.randint(1, 5), pick.randint(1, 25)
    index, label = torch.randint(nodes, (2, count)), torch.randint(3, (count,))
    pattern = Pattern.build(index, label, size=(nodes, nodes), num_labels=3)
    edges = pattern.with_values(whole(count, high=3) if pick.random() < 0.7 else None)
    return edges.transposed_edges() if pick.random() < 0.5 else edges


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("seed", range(6))
def test_every_order_and_backend_picks_the_same(backend, seed):
    edges = drawn_edges(seed)
    x = whole(edges.size[0], 2)
    inputs = [x] if edges.value is None else [x, edges.value]
    for aggr, label_aggr in WAYS:
        for theta in (whole(3, 1, 2, 2), identity(3, 2)):
            expected = dense_contraction(edges, x, theta, aggr, label_aggr)
            problem = Problem(edges, x, theta, aggr, label_aggr)
            with use_backend(backend):
                names = [name for name, order in ORDERS.items() if not order.why_not(problem)]
                for name in names:
                    how = {"aggr": aggr, "label_aggr": label_aggr}
                    actual = contract(edges, x, theta, name, **how)
                    assert_same(actual, expected, inputs)


@pytest.mark.parametrize("seed", range(6))
def test_messages_pick_the_same(seed):
    edges = drawn_edges(seed)
    nodes = whole(edges.size[0], 2)
    for x in (nodes, torch.stack([nodes, -nodes])):
        for aggr, label_aggr in WAYS:
            for theta in ("full", "identity"):
                how = {"theta": theta, "aggr": aggr, "label_aggr": label_aggr}
                layers = [OuterConv(2, 2, Relation(3), **how).double() for _ in range(2)]
                layers[1].load_state_dict(layers[0].state_dict())
                for layer in layers:
                    layer.fuse = layer is layers[1]
                    for one in layer.parameters():
                        one.data.round_()
                inputs = [nodes] if edges.value is None else [nodes, edges.value]
                assert_same(*(layer(x, edges) for layer in layers), inputs)


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("seed", range(20))
def test_lowered_pooling_picks_the_lowest_label(seed, aggr):
    pick = random.Random(seed)
    axes = pick.randint(1, 3)
    shape = tuple(pick.randint(3, 7 - axes) for _ in range(axes))
    options = {"stride": pick.randint(1, 2), "padding": pick.randint(0, 1)}
    for basis in (
        box(shape, 3, **options),
        Pool((3,) * axes, **options).basis(shape),
        Pool((2,) * axes, dilation=2, padding=1, stride=1).basis(shape),
    ):
        x, theta = whole(basis.size[0], 2), identity(basis.num_bases, 2)
        expected = dense_contraction(basis, x, theta, aggr, aggr)
        for order in (None, "pooling", "all_edges", "compare_labels"):
            actual = contract(basis, x, theta, order, aggr=aggr, label_aggr=aggr)
            assert_same(actual, expected, [x])


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("seed", range(6))
def test_pooling_of_images_picks_the_first_cell_as_torch_does(seed, aggr):
    torch.manual_seed(seed)
    options = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0), "aggr": aggr}
    x, sign = whole(2, 3, 6, 5), 1 if aggr == "max" else -1
    expected = sign * torch.nn.functional.max_pool2d(sign * x, (3, 2), (2, 1), (1, 0))
    for order in (None, "pooling", "all_edges", "compare_labels"):
        assert_same(GridPool(**options, order=order)(x), expected, [x])
    nodes = GridPool(**options)(x.flatten(2).transpose(1, 2), (6, 5))
    assert_same(nodes.transpose(1, 2).reshape(expected.shape), expected, [x])
    mask = torch.ones(6, 5, dtype=torch.bool)
    listed = GridPool(**options)(x.flatten(2).transpose(1, 2), mask)
    assert_same(listed.transpose(1, 2).reshape(expected.shape), expected, [x])
