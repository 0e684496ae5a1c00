"""Every recipe of docs/extending.md runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Relation
from pyg_outerconv.kernels import record
from pyg_outerconv.kernels.backend import Backend
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.nn import AttentionConv, SparseFeatures
from pyg_outerconv.testing import (
    assert_adjoint,
    assert_backend_equals_reference,
    assert_compose,
    assert_contraction,
    assert_declared_laws,
    assert_is_dense,
    assert_kron,
    assert_restrict,
    assert_transpose,
    legal_orders,
)

pytestmark = pytest.mark.pages

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
WEIGHTED, SERIES, NEAREST, SCORED, LEARNED, SUPPORT, KIND, ORDER, BACKEND, LAWS = range(10)


@pytest.fixture
def run(registries):
    """Run a block whose names are forgotten afterwards, and return what it defined."""

    def run_block(number):
        namespace = {"__name__": "recipe"}
        exec(compile(BLOCKS[number], "extending.md", "exec"), namespace)
        return namespace

    return run_block


@pytest.mark.parametrize("number", range(LAWS))
def test_a_block_runs_with_its_own_imports(run, number):
    assert run(number)["out"].shape == (34, 16)


def test_the_weighted_basis_has_the_laws_of_a_family(run):
    namespace = run(WEIGHTED)
    for seed in range(5):
        assert_declared_laws(namespace["Hub"](2), seed)
    count = torch.bincount(namespace["edge_index"][1], minlength=34)
    sums = namespace["basis"].to_dense()[0].sum(0)
    torch.testing.assert_close(sums, (count > 2).float())


def test_the_filter_of_a_formula_is_the_exponential_of_a_matrix(run):
    family = run(SERIES)["Heat"]
    for seed in range(5):
        assert_declared_laws(family(1.0, 4), seed)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 3], [1, 0, 2, 1, 3, 2, 3, 0]])
    matrix = torch.zeros(4, 4, dtype=torch.float64)
    matrix[tuple(edges)] = 0.5  # a ring, whose nodes have two neighbours
    basis = family(2.0, 30).basis(edges, dtype=torch.float64)
    expected = torch.matrix_exp(2.0 * (matrix - torch.eye(4, dtype=torch.float64)))
    torch.testing.assert_close(basis.to_dense()[0], expected)


def test_the_nearest_neighbours_are_those_of_the_features(run):
    namespace = run(NEAREST)
    family, x = namespace["NearestFeatures"](4), namespace["x"]
    basis = OuterConv(8, 16, family).basis(x, None)
    distance = torch.cdist(x, x)
    kth = distance.sort(dim=0).values[3]
    assert torch.equal(basis.to_dense()[0] > 0, distance <= kth)
    thin = SparseFeatures.of(x.to_sparse_csr())
    torch.testing.assert_close(
        OuterConv(8, 16, family).basis(thin, None).to_dense(), basis.to_dense()
    )


def test_features_are_asked_for_outside_a_layer(run):
    family = run(NEAREST)["NearestFeatures"]()
    with pytest.raises(ValueError, match=r"NearestFeatures makes its basis of the features"):
        family.basis(None, size=(4, 4))


def test_the_own_score_goes_by_its_name(run):
    namespace = run(SCORED)
    conv = AttentionConv(8, 16, heads=4, score="negative-distance")
    assert conv(namespace["x"], namespace["edge_index"]).shape == (34, 16)


def test_the_option_learns(run):
    namespace = run(LEARNED)
    conv = namespace["conv"]
    (exponent,) = (
        one for name, one in conv.named_parameters() if name.endswith("weight") and not one.dim()
    )
    assert exponent.grad.abs() > 0
    for seed in range(5):
        assert_declared_laws(namespace["DegreePower"](namespace["Exponent"]()), seed)
    count = torch.bincount(namespace["edge_index"][1], minlength=34)
    sums = conv.basis(namespace["x"], namespace["edge_index"]).to_dense()[0].sum(0)
    torch.testing.assert_close(sums, count.sqrt())


def test_the_support_has_the_edges_that_it_says(run):
    namespace = run(SUPPORT)
    conv, x, edge_index = (namespace[name] for name in ("conv", "x", "edge_index"))
    _, learned = conv(x, edge_index, return_attention_weights=True)
    seen = torch.zeros(34, 34, dtype=torch.bool)
    seen[tuple(edge_index)] = True
    assert torch.equal(learned.to_dense()[0] > 0, seen.triu())
    for seed in range(5):
        assert_declared_laws(namespace["Earlier"](), seed)


def test_the_kind_of_basis_has_the_laws_of_bases_and_its_order_those_of_orders(run):
    namespace = run(KIND)

    def basis(labels, sources, targets):
        ends = ((labels, count, 2) for count in (sources, targets))
        drawn = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ends]
        return namespace["LowRank"](*drawn), drawn

    (one, weights), (other, _) = basis(3, 5, 4), basis(2, 4, 6)
    assert_is_dense(one, torch.einsum("kmr,knr->kmn", *weights), weights)
    assert_transpose(one)
    assert_adjoint(one)
    assert_compose(one, other)
    assert_kron(one, other)
    assert_restrict(one, [3, 1], None, weights)
    theta = torch.randn(3, 1, 5, 2, dtype=torch.float64, requires_grad=True)
    x = torch.randn(5, 2, 5, dtype=torch.float64, requires_grad=True)
    for features in (x, x[:, 0], torch.tensor([0, 3, 3, 1, 4]), None):
        assert not legal_orders(one, features, theta)["bottleneck"]
        assert_contraction(one, features, theta, weights, depth=2)
    for aggr in ("mean", "max"):
        assert_contraction(one, x[:, 0], theta, weights, aggr=aggr)
    again = namespace["LowRank"](*(weight.clone() for weight in weights))
    assert one.plan_key() == again.plan_key() != other.plan_key()
    assert repr(one) == "LowRank(bases=3, size=(5, 4))"


def test_the_order_equals_the_others(run):
    run(ORDER)
    index, kinds = torch.randint(0, 6, (2, 20)), torch.randint(0, 3, (20,))
    basis = Relation(3).basis(index, torch.rand(20, dtype=torch.float64), kinds, size=(6, 6))
    x, theta = (
        torch.randn(*size, dtype=torch.float64, requires_grad=True)
        for size in ((6, 4), (3, 1, 4, 2))
    )
    assert legal_orders(basis, x, theta)["label_by_label"] == []
    assert_contraction(basis, x, theta, depth=2)


def test_the_backend_equals_the_reference_and_is_the_one_that_runs(run):
    namespace = run(BACKEND)
    index = torch.tensor([[0, 3, 1, 1, 2], [0, 0, 2, 2, 2]])
    csr = Relation(1).basis(index, size=(4, 3)).edges().pattern.by_target
    for heads in (None, 2):
        assert_backend_equals_reference("scipy", csr, torch.float64, 5, 1e-10, heads)
    with record() as calls, namespace["use_backend"]("scipy"):
        again = namespace["conv"](namespace["x"], namespace["edge_index"])
    torch.testing.assert_close(again, namespace["conv"](namespace["x"], namespace["edge_index"]))
    assert {call.backend for call in calls} == {"scipy"}


def test_a_backend_has_the_primitives_of_which_derivatives_are_made(run):
    run(BACKEND)
    abilities = {
        "priority": 0,
        "devices": frozenset({"cpu"}),
        "dtypes": frozenset({torch.float64}),
        "reductions": frozenset({"sum"}),
        "deterministic": frozenset({"cpu"}),
        "tolerance": 0.0,
        "primitives": frozenset({"spmm"}),
        "spmm": Reference.spmm,
    }
    with pytest.raises(TypeError, match=r"spmm and its derivatives call sddmm of the same backend"):
        type("Halved", (Backend,), {"name": "halved", **abilities})
    whole = {**abilities, "sddmm": Reference.sddmm, "segment_sum": Reference.segment_sum}
    type("Halved", (Backend,), {"name": "halved", **whole})
    csr = Relation(1).basis(torch.tensor([[0, 1], [1, 1]]), size=(2, 2)).edges().pattern.by_target
    assert_backend_equals_reference("halved", csr, torch.float64, 3, 1e-10)
    with pytest.raises(TypeError, match=r"states its abilities: .*, got no devices, tolerance"):
        whole = {name: one for name, one in whole.items() if name not in ("devices", "tolerance")}
        type("Silent", (Backend,), {"name": "silent", **whole})
