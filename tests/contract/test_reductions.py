"""Mean, max and min over the inputs of a label: Θ follows the reduction."""

import pytest
import torch
from contractions import OF_EDGES, normal, parameter, reduced, tensors_of
from oracle import assert_same

from pyg_outerconv.basis import EdgeBasis, Eye, Pattern, Scaled
from pyg_outerconv.contract import ORDERS, contract
from pyg_outerconv.families import Chebyshev, Identity, Relation, Stack
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.testing import assert_near, awkward_structures, legal_orders
from pyg_outerconv.theta import full

LEGAL = [name for name in OF_EDGES if "max" in ORDERS[name].reductions]
LINEAR = [name for name in OF_EDGES if name not in LEGAL]
EDGES = [name for name in awkward_structures() if "no nodes" not in name]


def edges_of(name):
    """Edges of three labels with values of both signs."""
    found = awkward_structures()[name]
    pattern = Pattern.build(found.edge_index, found.edge_type, size=found.size, num_labels=3)
    return EdgeBasis(pattern, normal(pattern.num_edges))


def test_orders_that_hold_the_inputs_of_a_label_declare_all_reductions():
    assert set(LEGAL) == {"propagate_first", "propagate_first_compact", "label_by_label"}


@pytest.mark.parametrize("aggr", ["mean", "max", "min"])
@pytest.mark.parametrize("name", EDGES)
def test_equal_the_oracle_edge_by_edge(name, aggr):
    edges = edges_of(name)
    for order in (None, *LEGAL):
        for widths, matrices in (((4, 2), None), ((2, 4), 2)):
            x = normal(edges.size[0], widths[0])
            theta = parameter(3, 1, *widths, matrices)
            expected = reduced(edges, x, full(theta), aggr)
            actual = contract(edges, x, theta, order, aggr=aggr)
            assert_same(actual, expected, [x, *tensors_of(theta), edges.value])


def test_a_zero_value_is_an_input_and_no_edge_is_none():
    pattern = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 2))
    edges = pattern.with_values(torch.tensor([0.0, -1.0]))
    x, theta = torch.ones(2, 1), torch.ones(1, 1, 1, 1)
    for order in LEGAL:
        assert contract(edges, x, theta, order, aggr="max").tolist() == [[0.0], [0.0]]
        assert contract(edges, x, theta, order, aggr="min").tolist() == [[-1.0], [0.0]]


@pytest.mark.parametrize("order", LINEAR)
def test_other_orders_are_refused_because_theta_follows(order):
    edges, x = edges_of("multi-edge"), normal(5, 4)
    theta = parameter(3, 1, 4, 2, 2 if order == "label_mixing" else None)
    with use_backend("reference"):
        assert not legal_orders(edges, x, theta)[order]
        for aggr in ("max", "min"):
            with pytest.raises(
                ValueError,
                match=f"order '{order}' cannot solve .*{aggr}: Θ must come after a reduction",
            ):
                contract(edges, x, theta, order, aggr=aggr)
        with pytest.raises(ValueError, match="a mean divides the sum of each label"):
            contract(edges, x, theta, order, aggr="mean")


@pytest.mark.parametrize("aggr", ["mean", "max", "min"])
def test_polynomials_are_refused(aggr):
    basis = Chebyshev(3).basis(awkward_structures()["undirected"])
    x, theta = torch.randn(5, 4), torch.randn(3, 1, 4, 2)
    basis = basis.float()
    for order in (None, "recurrence_forward", "recurrence_clenshaw"):
        with pytest.raises(ValueError, match=f"{aggr} over the inputs.*expected an explicit"):
            contract(basis, x, theta, order, aggr=aggr)
    for lazy in (basis.scale(-1.0), basis.stack(basis), basis.select([0, 2]), basis.transpose()):
        with pytest.raises(ValueError, match=f"{aggr} over the inputs.*expected an explicit"):
            contract(lazy, x, torch.randn(lazy.num_bases, 1, 4, 2), aggr=aggr)
    explicit = basis.edges()
    assert_near(contract(explicit, x, theta, aggr=aggr), reduced(explicit, x, theta, aggr))


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_the_algebra_commutes_with_reductions(aggr):
    """A negative scale makes the largest the smallest, so it may not be moved into Θ."""
    relation = Relation(3).basis(awkward_structures()["multi-edge"], dtype=torch.float64)
    stack = Stack(Relation(3), Identity()).basis(
        awkward_structures()["multi-edge"], dtype=torch.float64
    )
    factor = torch.tensor([-1.0, 2.0, -0.5], dtype=torch.float64, requires_grad=True)
    wide = torch.cat([factor, -factor[:1]])
    for basis in (
        relation.scale(-1.0),
        relation.scale(factor),
        relation.scale(factor).scale(-2.0),
        relation.scale(factor).transpose(),
        relation.transpose().scale(factor),
        relation.scale(factor).select([2, 0, 2]),
        relation.select([1, 1, 0]).scale(factor),
        stack.scale(wide),
        stack.scale(wide).scale(-1.0).transpose(),
        relation.stack(relation.scale(factor)),
        Scaled.of(Eye((5, 5), torch.device("cpu")), torch.tensor([-1.0]).double()),
    ):
        x, theta = normal(5, 4), parameter(basis.num_bases, 1, 4, 2)
        expected = reduced(basis.edges(), x, theta, aggr)
        inputs = [x, theta, factor]
        assert_same(contract(basis, x, theta, aggr=aggr), expected, inputs)


def test_reductions_need_features():
    edges = edges_of("multi-edge")
    with pytest.raises(ValueError, match="needs dense node features"):
        contract(edges, None, parameter(3, 1, 5, 2), aggr="max")
