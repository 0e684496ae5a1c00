"""Diffusion: truncated PageRank and heat, equal to their dense formulas, to GDC and to APPNP."""

import pytest
import torch
from cases import STRUCTURES
from torch_geometric.data import Data
from torch_geometric.transforms import GDC

from pyg_outerconv import record
from pyg_outerconv.contract import contract, contraction_path
from pyg_outerconv.families import Diffusion, parse_family
from pyg_outerconv.graph import Graph
from pyg_outerconv.testing import assert_near
from pyg_outerconv.theta import Theta

NODES = 20
PAIRS = {(n, (n * step + 1) % NODES) for n in range(NODES) for step in (1, 3, 7)}
EDGE_INDEX = torch.tensor(sorted(pair for pair in PAIRS if pair[0] != pair[1])).t().contiguous()
WEIGHT = torch.linspace(0.1, 1.1, EDGE_INDEX.size(1), dtype=torch.float64)
GRAPH = Graph.read(EDGE_INDEX, WEIGHT, size=(NODES, NODES))


def test_the_remainder_is_kept_dropped_or_shared():
    alpha, length = 0.2, 3
    series = [alpha * (1 - alpha) ** k for k in range(length + 1)]
    assert Diffusion(alpha=alpha, length=length, remainder="drop").coefficients == pytest.approx(
        series
    )
    kept = Diffusion(alpha=alpha, length=length).coefficients
    assert kept == pytest.approx([*series[:-1], (1 - alpha) ** length])
    shared = Diffusion(alpha=alpha, length=length, remainder="normalise").coefficients
    assert shared == pytest.approx([weight / sum(series) for weight in series])
    for kind in ("ppr", "heat"):
        assert sum(Diffusion(kind).coefficients) == pytest.approx(1)
        assert Diffusion(kind, length=0).coefficients == (1,)
    assert Diffusion("heat", t=0.0, length=2, remainder="drop").coefficients == (1, 0, 0)


def test_weights_that_are_shared_add_up_however_long_the_time():
    weights = Diffusion("heat", t=2000.0, length=3, remainder="normalise").coefficients
    assert abs(sum(weights) - 1) < 1e-12
    assert abs(weights[3] / weights[2] - 2000.0 / 3) < 1e-9
    assert Diffusion("heat", t=0.0, length=2, remainder="normalise").coefficients == (1, 0, 0)


def test_nothing_that_walks_is_lost_where_the_remainder_is_kept():
    dense = Diffusion("heat", norm="source", length=3).basis(GRAPH).to_dense()[0]
    assert_near(dense.sum(1), torch.ones(NODES).double())


@pytest.mark.parametrize("options", [{"method": "ppr", "alpha": 0.3}, {"method": "heat", "t": 2.0}])
@pytest.mark.parametrize(("norm", "theirs"), [("sym", "sym"), ("target", "col"), ("source", "row")])
def test_a_long_series_is_the_exact_diffusion_of_gdc(options, norm, theirs):
    data = Data(edge_index=EDGE_INDEX, edge_attr=WEIGHT, num_nodes=NODES)
    # What they drop is what is not positive: every entry here is, or is zero.
    sparse = {"method": "threshold", "eps": -1.0}
    data = GDC(1, theirs, None, options, sparse)(data)
    expected = torch.zeros(NODES, NODES).double()
    expected[data.edge_index[0], data.edge_index[1]] = data.edge_attr
    known = {key: value for key, value in options.items() if key != "method"}
    family = Diffusion(options["method"], length=90, norm=norm, **known)
    assert_near(family.basis(GRAPH).to_dense()[0], expected)


def test_gdc_with_coefficients_of_ones_own():
    weights = (0.5, 0.0, 0.3, -0.2)
    data = Data(edge_index=EDGE_INDEX, edge_attr=WEIGHT.float(), num_nodes=NODES)
    options = {"method": "coeff", "coeffs": weights}
    data = GDC(1, "col", None, options, {"method": "threshold", "eps": -9.0})(data)
    expected = torch.zeros(NODES, NODES)
    expected[data.edge_index[0], data.edge_index[1]] = data.edge_attr
    family = Diffusion(weights, norm="target")
    assert_near(family.basis(EDGE_INDEX, WEIGHT.float()).to_dense()[0], expected)
    assert family.labels == ("weighted walks of length 0 to 3",)


def test_no_power_is_made_and_theta_multiplies_once():
    basis = Diffusion("heat", length=7).basis(STRUCTURES["weighted"])
    x = torch.randn(basis.size[0], 4).double()
    theta = torch.randn(1, 1, 4, 2).double()
    with record() as calls:
        contract(basis, x, theta)
    assert [call.request.channels for call in calls] == [2] * 7
    assert {call.request.num_entries for call in calls} == {basis.base.operator.num_edges}
    unit = Theta.identity(1, 4, x)
    assert "mixed" in contraction_path(basis, x, unit).chosen[0]


def test_a_diffusion_is_named_in_text():
    assert parse_family("diffusion(kind='heat', t=2.0)") == Diffusion("heat", t=2.0)
    assert parse_family("diffusion((0.5, 0.5))").coefficients == (0.5, 0.5)
