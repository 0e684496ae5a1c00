"""What each family claims to be, written out densely; families as text, and their sums."""

import copy
import inspect
import pickle
from dataclasses import fields

import formulas
import numpy as np
import pytest
import torch
from cases import CASES, STRUCTURES
from torch_geometric.data import Data
from torch_geometric.transforms import GDC

from pyg_outerconv import nn, record
from pyg_outerconv.basis.algebra import Stacked
from pyg_outerconv.contract import contract, contraction_path
from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Chebyshev,
    Cluster,
    Diffusion,
    Directed,
    Explicit,
    Full,
    Grid,
    Hops,
    Identity,
    Pool,
    Relation,
    Stack,
    Walk,
    parse_family,
)
from pyg_outerconv.families.chebyshev import largest_eigenvalues
from pyg_outerconv.families.combinators import of_one_type
from pyg_outerconv.families.registry import WELL_KNOWN
from pyg_outerconv.graph import Graph
from pyg_outerconv.graph.spectrum import DENSE_LIMIT
from pyg_outerconv.lab.family_options import short_name
from pyg_outerconv.nn import attention, recipes
from pyg_outerconv.testing import (
    assert_near,
    awkward_structures,
)
from pyg_outerconv.theta import Theta

EDGES = awkward_structures()["weighted"]


def adjacency(edges):
    """W[m, n], parallel edges added."""
    dense = torch.zeros(edges.size, dtype=torch.float64)
    weight = edges.weight(torch.float64).double()
    return dense.index_put((edges.source, edges.target), weight, accumulate=True)


# Walk ----------------------------------------------------------------------------------------


def walks_by_hand(w, length):
    """Weights of all walks m → n of that length, listed one by one over parallel edges."""
    walks = {(m, n): ([1.0] if m == n else []) for m in range(5) for n in range(5)}
    for _ in range(length):
        longer = {key: [] for key in walks}
        for (m, j), weights in walks.items():
            for source, target, weight in w:
                if source == j:
                    longer[m, target] += [weight * other for other in weights]
        walks = longer
    return walks


@pytest.mark.parametrize(
    ("aggr", "function"), [("sum", sum), ("mean", np.mean), ("max", max), ("min", min)]
)
@pytest.mark.parametrize("name", ["weighted", "multi-edge", "self-loops"])
def test_walk_aggregates_over_walks_listed_one_by_one(name, aggr, function):
    edges = awkward_structures()[name]
    listed = list(zip(*edges.edge_index.tolist(), edges.edge_weight.tolist(), strict=True))
    dense = Walk(3, norm=None, aggr=aggr).basis(edges).to_dense()
    for length in range(4):
        for (m, n), weights in walks_by_hand(listed, length).items():
            expected = function(weights) if weights else 0.0
            assert float(dense[length, m, n].detach()) == pytest.approx(expected, rel=1e-12)


# Chebyshev -----------------------------------------------------------------------------------


def random_graph(num_nodes, num_edges, symmetric):
    index = torch.randint(num_nodes, (2, num_edges))
    index = torch.cat([index, index.flip(0)], 1) if symmetric else index
    weight = torch.rand(num_edges).double() + 0.1
    weight = torch.cat([weight, weight]) if symmetric else weight
    return Graph.read(index, weight, size=(num_nodes, num_nodes))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [DENSE_LIMIT - 1, DENSE_LIMIT + 40])
def test_largest_eigenvalue_is_exact_below_and_above_the_dense_limit(size, symmetric):
    edges = random_graph(size, 4 * size, symmetric)
    actual = float(largest_eigenvalues(edges))
    expected = float(torch.linalg.eigvals(adjacency(edges)).abs().max())
    assert actual == pytest.approx(expected, rel=1e-6)


def test_largest_eigenvalue_of_many_equal_ones_in_float32():
    """Many separate pairs of nodes with uneven weights: each has the eigenvalue 2."""
    index = torch.arange(300).view(2, 150)
    index = torch.cat([index, index.flip(0)], 1)
    weight = torch.rand(150) + 0.1
    weight = torch.cat([weight, weight])
    actual = Chebyshev(2, "exact").basis(Graph.read(index, weight, size=(300, 300))).to_dense()
    graph = formulas.Graph(*index, weight, index[0], (300, 300), False)
    assert_near(actual, formulas.chebyshev(graph, 2, 2.0).dense.float())


def test_exact_eigenvalue_is_computed_once_without_gradient(monkeypatch):
    calls = []

    def count(*args):
        calls.append(args)
        return largest_eigenvalues(*args)

    monkeypatch.setattr("pyg_outerconv.families.chebyshev.largest_eigenvalues", count)
    index, weight = EDGES.edge_index.clone(), EDGES.edge_weight.detach().clone()
    for _ in range(3):
        Chebyshev(3, "exact").basis(index, weight, size=(5, 5))
    assert len(calls) == 1
    weight.mul_(2.0)
    Chebyshev(3, "exact").basis(index, weight, size=(5, 5))
    assert len(calls) == 2, "an in-place change is noticed"
    Chebyshev(3, "exact").basis(index.clone(), weight, size=(5, 5))
    assert len(calls) == 3, "other edges are other edges"


# The others ----------------------------------------------------------------------------------


LABELS = {
    "stack(walk(1, direction=both), relation(2), identity)": (
        *("forward walks of length 0", "forward walks of length 1"),
        *("backward walks of length 0", "backward walks of length 1"),
        *("relation 0", "relation 1", "self"),
    ),
    "directed(gcn)": ("neighbours", "neighbours, reversed"),
    "Reverse(gcn)": ("neighbours, reversed",),
    "sub(gcn, identity)": ("neighbours minus self",),
    "scale(gcn, 0.5)": ("0.5 times neighbours",),
    "select(walk(2), (2,))": ("forward walks of length 2",),
}


@pytest.mark.parametrize("text", LABELS)
def test_labels_say_what_each_matrix_means(text):
    assert parse_family(text).labels == LABELS[text]


def test_self_loops_are_a_setting_of_nested_families():
    family = Stack(Directed(GCN()), Identity())
    assert family.add_self_loops
    assert family.set_self_loops(False) == Stack(Directed(GCN(add_self_loops=False)), Identity())
    assert Hops().set_self_loops(True) == Hops(add_self_loops=True)


# Weights -------------------------------------------------------------------------------------


NEGATIVE = Graph.read(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, -2.0]), size=(2, 2))


@pytest.mark.parametrize("family", [Relation(1), Walk(1, None), Relation(1, None)], ids=str)
def test_families_without_a_norm_take_negative_weights(family):
    assert float(family.basis(NEGATIVE).to_dense().min()) < 0


@pytest.mark.parametrize("family", [GCN(norm="target"), Walk(1, norm="target")], ids=str)
def test_degrees_of_short_types_count_past_what_these_hold(family):
    many = 1000  # bfloat16 counts to 256
    edge_index = torch.stack([torch.arange(1, many + 1), torch.zeros(many).long()])
    basis = family.basis(edge_index, torch.ones(many, dtype=torch.bfloat16))
    assert basis.dtype == torch.bfloat16
    assert float(basis.edges().values().float().min()) == pytest.approx(1 / many, rel=0.01)


@pytest.mark.parametrize("family", CASES, ids=str)
def test_values_have_the_type_of_the_weights_and_no_weight_makes_them_nan(family):
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 3]])
    weight = torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    basis = family.basis(Graph.read(edge_index, weight, torch.zeros(4).long(), size=(5, 5)))
    assert basis.dtype in (None, torch.bfloat16)
    dense = basis.to_dense(torch.bfloat16)
    assert dense.isfinite().all()
    if dense.requires_grad:
        (gradient,) = torch.autograd.grad(dense.float().pow(2).sum(), weight, allow_unused=True)
        assert gradient is None or gradient.isfinite().all()


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("relation(2, norm=given)", Relation(2, norm="given")),
        ("relation(2, given)", Relation(2, norm="given")),
        ("walk(2, norm=None)", Walk(2, norm=None)),
        ("stack(gcn, walk(2, norm=sym))", Stack(GCN(), Walk(2, norm="sym"))),
        ("diffusion(heat, t=2.0)", Diffusion("heat", t=2.0)),
        ("grid((3, 3), padding=same)", Grid((3, 3), padding="same")),
        ("grid(window=(3,3), padding=1)", Grid((3, 3), padding=1)),
        ("grid(3, padding='same', dim=2)", Grid(3, padding="same", dim=2)),
        ("Grid(offsets=((0, 1), (2, -1)))", Grid(offsets=((0, 1), (2, -1)))),
        ("stack(grid((3,), padding=1), identity)", Stack(Grid((3,), padding=1), Identity())),
        ("pool((2, 2), stride=1)", Pool((2, 2), stride=1)),
        ("pool(2, dim=3)", Pool(2, dim=3)),
        ("diffusion(kind='heat', t=2.0)", Diffusion("heat", t=2.0)),
        ("diffusion((0.5, 0.5))", Diffusion((0.5, 0.5))),
        ("cluster(2, positions=3)", Cluster(2, 3)),
        ("full((3, 2), max_parameters=None)", Full((3, 2), None)),
        ("explicit(walk(2))", Explicit(Walk(2))),
    ],
)
def test_a_string_needs_no_quotes(text, family):
    assert parse_family(text) == family
    assert parse_family(repr(family)) == family


def test_a_text_without_what_the_family_needs_is_refused():
    with pytest.raises(ValueError, match="pool refuses its options: .*'window'"):
        parse_family("pool")


@pytest.mark.parametrize("layer", WELL_KNOWN)
def test_what_a_well_known_layer_is_exists(layer):
    meant = WELL_KNOWN[layer]
    assert layer not in FAMILIES
    for where, module in (("nn.attention", attention), ("nn.recipes", recipes), ("nn", nn)):
        if meant.endswith(f" of pyg_outerconv.{where}"):
            assert hasattr(module, meant.split()[-3]), meant
            break
    else:
        assert FAMILIES.find(meant.split("(")[0].split(",")[0]) is not None


def test_a_copy_and_a_pickle_are_the_family():
    assert copy.deepcopy(Walk(2)) == Walk(2) == pickle.loads(pickle.dumps(Walk(2)))


def test_a_family_has_the_signature_of_its_options():
    assert list(inspect.signature(Walk).parameters) == [field.name for field in fields(Walk)]
    assert list(inspect.signature(Stack).parameters) == ["families"]


SEVEN_EDGES = torch.tensor([[0, 1, 1, 2, 3, 0, 3], [1, 0, 2, 1, 0, 3, 1]])
SEVEN_WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.25, 1.5, 3.0, 0.75], dtype=torch.float64)


def dense_of(text, weight=SEVEN_WEIGHTS):
    edges = (
        (SEVEN_EDGES, weight) if parse_family(text).makes_use_of("edge_weight") else (SEVEN_EDGES,)
    )
    return parse_family(text).basis(*edges, size=(5, 5), dtype=torch.float64).to_dense()


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("norm", ["sym", "target", "source", None])
def test_high_pass_is_epsilon_i_minus_the_normalised_adjacency(norm, loops):
    graph = formulas.Graph(*SEVEN_EDGES, SEVEN_WEIGHTS, SEVEN_EDGES[0], (5, 5), False)
    dense = dense_of(f"high_pass(norm={norm}, add_self_loops={loops}, epsilon=0.75)")
    assert_near(dense[0], 0.75 * torch.eye(5).double() - formulas.gcn(graph, norm, loops).dense[0])


def test_sums_of_families_are_sums_of_their_matrices():
    gcn, step, walk = (
        dense_of("gcn"),
        dense_of("walk(1, norm=None, powers=(1,))"),
        dense_of("walk(2)"),
    )
    assert_near(dense_of("sub(gcn, walk(1, norm=None, powers=(1,)))"), gcn - step)
    assert_near(dense_of("add(gcn, walk(1, norm=None, powers=(1,)))"), gcn + step)
    assert_near(dense_of("scale(walk(2), -0.5)"), -0.5 * walk)
    factors = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64).view(3, 1, 1)
    assert_near(dense_of("scale(walk(2), (2.0, 0, -1.0))"), factors * walk)
    assert_near(dense_of("select(walk(2), (2, 0))"), walk[[2, 0]])
    assert_near(dense_of("sub(identity, gcn)"), dense_of("high_pass"))
    reversed_edges = parse_family("gcn").basis(SEVEN_EDGES.flip(0), SEVEN_WEIGHTS, size=(5, 5))
    assert_near(dense_of("reverse(gcn)"), reversed_edges.to_dense())
    assert_near(dense_of("stack(gcn, reverse(gcn))"), dense_of("directed(gcn)"))


@pytest.mark.parametrize("text", ["high_pass", "HighPass()", "highpass", "high_pass(norm=sym)"])
def test_a_name_may_have_underscores(text):
    assert short_name(parse_family(text)) == "high_pass"


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


# Attention beside other families ---------------------------------------------------------------


def graph_of(nodes, edges):
    generator = torch.Generator().manual_seed(nodes)
    index = torch.randint(nodes, (2, edges), generator=generator)
    return torch.randn(nodes, 4, generator=generator), index


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "family",
    [
        "stack(gat(heads=2), gcn)",
        "stack(walk(2), stack(gatv2, jacobi(2)))",
        "add(gat, gcn)",
        "sub(gcn, gat)",
        "compose(gat, gcn)",
        "compose(gcn, gat(heads=2))",
    ],
)
def test_attention_beside_other_values_is_near_float32_under_autocast(family, dtype):
    torch.manual_seed(0)
    conv, (x, index) = nn.OuterConv(4, 6, family), graph_of(30, 200)
    inputs = [x.requires_grad_(), *conv.parameters()]

    def results():
        out = conv(x, index).float()
        return out, *torch.autograd.grad(out.square().sum(), inputs)

    expected = results()
    with torch.autocast("cpu", dtype):
        actual = results()
    for one, exact in zip(actual, expected, strict=True):
        assert (one - exact).norm() <= 0.05 * max(exact.norm(), 1.0)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("family", ["stack(gcn, identity)", "stack(gat, walk(2))"])
def test_an_exported_stack_takes_graphs_of_any_size(family):
    conv = nn.OuterConv(4, 3, family).eval()
    sizes = {0: torch.export.Dim("N", min=2)}, {1: torch.export.Dim("E", min=2)}
    traced = torch.export.export(conv, graph_of(30, 200), dynamic_shapes=sizes).module()
    for size in [(40, 99), (5, 3)]:
        assert torch.allclose(traced(*graph_of(*size)), conv(*graph_of(*size)), atol=1e-5)


@pytest.mark.parametrize("other", [torch.float64, torch.float16], ids=str)
def test_autocast_casts_no_other_types(other):
    basis = GCN().basis(EDGES).float()
    with torch.autocast("cpu", torch.bfloat16):
        parts = of_one_type(basis, basis.to(other))
        assert [part.dtype for part in parts] == [torch.float32, other]
        with pytest.raises(ValueError, match="must have one dtype"):
            Stacked(parts)
