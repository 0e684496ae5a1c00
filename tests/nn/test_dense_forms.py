"""The layer against its dense form: every family, form of Θ and reduction, and label by label."""

import copy
from itertools import product

import pytest
import torch
from cases import (
    ALL_PAIRS,
    CELL_PAIRS,
    CELLS,
    PAIRS,
    STRUCTURES,
    arguments_of,
    edges_for,
    over,
    structure_for,
)
from contractions import REDUCTIONS, has_edges

from pyg_outerconv import AttentionConv, OuterConv, nn, testing
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.nn import gat_conv, label_terms, linear_attention
from pyg_outerconv.testing import assert_near, dense_contraction

THETAS = [
    "full",
    "shared",
    "basis-decomposed(num_bases=2)",
    "channelwise",
    "block-diagonal(num_blocks=2)",
    "low-rank(rank=2)",
    "grouped:4",
    "depthwise",
    "identity",
]


def filled(conv):
    conv = conv.double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return conv


def layer(family, channels=(4, 8), **options):
    return filled(OuterConv(*channels, family, **options))


def features(edges, channels=4):
    return torch.randn(edges.size[0], channels, dtype=torch.float64, requires_grad=True)


@over(ALL_PAIRS)
def test_layer_equals_dense(family, name):
    structure = structure_for(family, name)
    testing.assert_layer_equals_dense(layer(family), features(structure), structure)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("family", [Relation(3), Walk(2), Stack(Chebyshev(2), Walk(1))], ids=str)
def test_every_form_of_theta(family, theta):
    edges = STRUCTURES["weighted"]
    conv = layer(family, (4, 4 if theta == "identity" else 8), theta=theta)
    testing.assert_layer_equals_dense(conv, features(edges), edges)


def test_kronecker_flattenings_multiply_flattened_inputs():
    edges = STRUCTURES["directed"]
    conv, x = layer(Walk(2), bias=False), features(edges)
    y = conv(x, edges.edge_index, size=edges.size)
    hat = nn.phi_hat(conv, edges.edge_index, size=edges.size)
    check = nn.phi_check(conv, edges.edge_index, size=edges.size)
    assert hat.shape == (5 * 4, 5 * 8)
    assert check.shape == (4 * 5, 8 * 5)
    torch.testing.assert_close(x.flatten() @ hat, y.flatten())
    torch.testing.assert_close(x.t().flatten() @ check, y.t().flatten())
    basis = conv.basis(x, edges.edge_index, size=edges.size).to_dense()
    expected = sum(torch.kron(a, t) for a, t in zip(basis, conv.theta()[:, 0], strict=True))
    torch.testing.assert_close(hat, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "family",
    [
        GCN(norm="target"),
        GCN(),
        Walk(1, norm="target"),
        Walk(1, norm="source", direction="backward"),
        Relation(1),
        Chebyshev(2, "bound", norm="source"),
    ],
    ids=str,
)
def test_short_types_count_a_thousand_neighbours(family, dtype):
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    conv = OuterConv(1, 1, family, bias=False)
    torch.nn.init.ones_(conv.theta.weight)
    x = torch.ones(1001, 1)
    short = copy.deepcopy(conv).to(dtype)(x.to(dtype), star)
    assert_near(short, conv(x, star).to(dtype))


ALL = list(product(REDUCTIONS, REDUCTIONS))

every = pytest.mark.parametrize(("aggr", "label_aggr"), ALL)


# Against the dense form ---------------------------------------------------------------------------


@every
@pytest.mark.parametrize("name", STRUCTURES)
def test_all_sixteen_equal_the_dense_form_fused_and_by_messages(name, aggr, label_aggr):
    edges = STRUCTURES[name]
    for family in (Relation(3, None), Stack(Relation(3), Identity())):
        conv = layer(family, aggr=aggr, label_aggr=label_aggr)
        testing.assert_layer_equals_dense(conv, features(edges), edges)


@every
@over([(family, name) for family, name in PAIRS if name == "multi-edge"])
def test_every_family_is_equal_or_says_that_it_hides_its_edges(family, name, aggr, label_aggr):
    edges = edges_for(family, name)
    conv, x = layer(family, aggr=aggr, label_aggr=label_aggr), features(edges)
    lists_edges = has_edges(family.basis(edges, dtype=torch.float64))
    if lists_edges or (aggr, label_aggr) in product(("sum",), ("sum", "mean")):
        testing.assert_layer_equals_dense(conv, x, edges)
        return
    for conv.fuse in (True, False):
        with pytest.raises(ValueError, match=r"expected .*basis\.edges\(\)"):
            conv(x, edges.edge_index, edges.edge_weight, edge_type=edges.edge_type, size=edges.size)


@pytest.mark.parametrize(("aggr", "label_aggr"), [("sum", "max"), ("max", "sum"), ("mean", "min")])
@over([pair for pair in CELL_PAIRS if pair[1] in ("shape", "holes", "unbounded batch")])
def test_every_family_of_cells(family, name, aggr, label_aggr):
    cells = CELLS[name]
    for options in ({}, {"theta": "identity", "channels": (4, -1), "bias": False}):
        conv = layer(family, aggr=aggr, label_aggr=label_aggr, **options)
        x = torch.randn(cells.num_cells, 4, dtype=torch.float64, requires_grad=True)
        testing.assert_layer_equals_dense(conv, x, cells)


@pytest.mark.parametrize("label_aggr", ["max", "min"])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_node_indices_and_no_features(aggr, label_aggr):
    conv = layer(Relation(3), (5, 6), aggr=aggr, label_aggr=label_aggr)
    eye = torch.eye(5, dtype=torch.float64)
    index = torch.tensor([4, 0, 1, 1, 2])
    for x, dense in ((None, eye), (index, eye[index])):
        for conv.fuse in (True, False):
            actual = conv(x, EDGES, edge_type=TYPES, size=(5, 5))
            assert_near(actual, conv(dense, EDGES, edge_type=TYPES))


# Equal to PyG's -----------------------------------------------------------------------------------


def test_sums_and_means_of_messages_are_those_of_pyg():
    names = {
        (aggr, label_aggr): type(
            OuterConv(4, 6, Relation(3), aggr=aggr, label_aggr=label_aggr).aggr_module
        ).__name__
        for aggr, label_aggr in ALL
    }
    for (aggr, label_aggr), name in names.items():
        folded = aggr == "mean" and label_aggr in ("sum", "mean")
        of_pyg = f"{'Sum' if folded else aggr.capitalize()}Aggregation"
        assert name == ("FirstOfEqual" if aggr in ("max", "min") else of_pyg)


def test_hooks_see_values_times_inputs_where_theta_follows():
    x, weight = torch.randn(5, 4, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    for aggr, label_aggr in (("max", "sum"), ("min", "max")):
        conv, seen = layer(Relation(3, None), aggr=aggr, label_aggr=label_aggr), []
        conv.register_message_forward_hook(lambda _, inputs, out, seen=seen: seen.append(out))
        conv(x, EDGES, weight, edge_type=TYPES)
        assert_near(seen[0], weight[:, None] * x[EDGES[0]])


# Θ as the identity --------------------------------------------------------------------------------


def test_channels_come_with_the_first_input():
    conv = OuterConv(-1, -1, Relation(3), theta="identity", bias=False)
    assert conv.out_channels == -1
    with pytest.raises(RuntimeError, match="before the first input"):
        conv.theta()
    x = torch.randn(5, 7)
    assert conv(x, EDGES, edge_type=TYPES).shape == (5, 7)
    assert (conv.theta.in_channels, conv.out_channels) == (7, 7)
    with pytest.raises(ValueError, match="a column for each channel"):
        conv(x[:, :3], EDGES, edge_type=TYPES)
    lazy = OuterConv(-1, 7, Relation(3), theta="identity")
    with pytest.raises(ValueError, match="as many out_channels as in_channels: expected 3, or -1"):
        lazy(x[:, :3], EDGES, edge_type=TYPES)
    assert lazy(x, EDGES, edge_type=TYPES).shape == (5, 7)


def test_state_of_a_layer_without_parameters_is_empty_and_loads():
    conv = OuterConv(-1, -1, GCN(), theta="identity", bias=False)
    assert not conv.state_dict()
    conv(torch.randn(5, 2), EDGES)
    again = OuterConv(-1, -1, GCN(), theta="identity", bias=False)
    again.load_state_dict(conv.state_dict())
    x = torch.randn(5, 2)
    again(x, EDGES)  # a first call has a kernel of its own, which may round differently
    assert torch.equal(again(x, EDGES), conv(x, EDGES))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("label_aggr", REDUCTIONS)
def test_type_is_that_of_the_features(dtype, label_aggr):
    conv = OuterConv(-1, -1, Relation(3), False, "identity", label_aggr=label_aggr)
    x = torch.randn(5, 4, dtype=dtype)
    assert conv(x, EDGES, edge_type=TYPES).dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(x, EDGES, edge_type=TYPES).dtype == dtype


def test_the_input_is_not_the_output():
    conv = OuterConv(4, 4, Identity(), theta="identity")
    with torch.no_grad():
        conv.bias.fill_(1.0)
    x = torch.randn(5, 4)
    kept = x.clone()
    assert_near(conv(x, EDGES), x + 1.0)
    assert torch.equal(x, kept), "the bias was not added to the input"


EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 4], [1, 2, 3, 0, 2, 1, 1, 4]])
TYPES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
BESIDE = {"edge_type": TYPES, "size": (6, 6)}


def largest_of(tensor):
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0


def drawn(*shape):
    return torch.randn(shape, dtype=torch.double)


@over(PAIRS)
def test_the_terms_of_every_family_are_the_dense_ones(family, name):
    edges = edges_for(family, name)
    conv = filled(OuterConv(3, 2, family))
    sources = drawn(edges.size[0], 3)
    x = (sources, None) if edges.bipartite else sources
    index, beside = arguments_of(edges)
    terms, out = label_terms(conv, x, index, **beside), conv(x, index, **beside)
    dense = terms.basis.to_dense(torch.double)
    wanted = torch.einsum("kmn,mp,kpq->knq", dense, sources, conv.theta()[:, 0]).detach()
    largest = max(
        [float(part.detach().abs().max()) for part in (wanted, out) if part.numel()] + [0]
    )
    for k in range(family.num_bases):
        assert_near(terms.term(k), wanted[k], at_least=largest)
        rest = wanted.sum(0) - wanted[k] + conv.bias
        assert_near(terms.without(k, out), rest, at_least=largest)


@pytest.mark.parametrize(
    "theta", ["full", "basis-decomposed:2", "low-rank:1", "shared", "identity"]
)
def test_forms_of_theta(theta):
    conv = filled(OuterConv(4, 4, "walk(2)", theta=theta, root_weight=True))
    x = drawn(6, 4)
    terms = label_terms(conv, x, EDGES)
    full = terms.theta.full()
    assert full.size(1) == 1 or theta == "identity"
    dense = terms.basis.to_dense(torch.double)
    eye = torch.eye(4, dtype=torch.double)
    for k in range(3):
        matrix = eye if theta == "identity" else full[k, 0]
        assert_near(terms.term(k), dense[k].T @ x @ matrix)
    total = terms.term(0) + terms.term(1) + terms.term(2)
    assert_near(total + conv.bias + x @ conv.root()[0, 0], conv(x, EDGES))


@every
def test_without_a_label_its_matrix_has_no_edge(aggr, label_aggr):
    family = Stack(Relation(3, None), Identity())
    conv = filled(OuterConv(4, 5, family, aggr=aggr, label_aggr=label_aggr, root_weight=True))
    x = drawn(6, 4)
    out, terms = conv(x, EDGES, **BESIDE), label_terms(conv, x, EDGES, **BESIDE)
    theta, share = conv.theta(), 0.25 if label_aggr == "mean" else 1.0
    reduced = conv.label_reduce
    beside = conv.bias + x @ conv.root()[0, 0]
    for k in range(4):
        others = [j for j in range(4) if j != k]
        one = dense_contraction(terms.basis.select([k]), x, share * theta[[k]], conv.reduce)
        assert_near(terms.term(k), one)
        kept = terms.basis.select(others)
        rest = dense_contraction(kept, x, share * theta[others], conv.reduce, reduced)
        assert_near(terms.without(k, out), rest + beside, at_least=largest_of(out))


@pytest.mark.parametrize("label_aggr", ["sum", "max"])
def test_one_label_alone_leaves_bias_and_root(label_aggr):
    conv = filled(OuterConv(4, 5, GCN(), label_aggr=label_aggr, root_weight=True))
    x = drawn(6, 4)
    left = label_terms(conv, x, EDGES, size=(6, 6)).without(0, conv(x, EDGES, size=(6, 6)))
    assert_near(left, conv.bias + x @ conv.root()[0, 0])


ATTENTION = {
    "concat": lambda: AttentionConv(4, 6, 3, value_bias=True),
    "sum": lambda: AttentionConv(4, 6, 3, combine="sum", value_bias=True),
    "mean": lambda: AttentionConv(4, 6, 3, combine="mean"),
    "projected": lambda: AttentionConv(4, 6, 3, combine="sum", value_channels=2, value_bias=True),
    "gat": lambda: gat_conv(4, 2, heads=3),
    "gat, mean": lambda: gat_conv(4, 6, heads=3, concat=False),
    "max": lambda: AttentionConv(4, 6, 3, theta="full", label_aggr="max"),
    "complete": lambda: AttentionConv(4, 6, 3, support="complete"),
    "linear": lambda: linear_attention(4, 6, heads=3),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_heads_keep_their_shares_when_one_is_removed(name):
    conv = filled(ATTENTION[name]()).eval()
    x = drawn(6, 4)
    index = None if name in ("complete", "linear") else EDGES
    out, terms = conv(x, index), label_terms(conv, x, index)
    dense, theta = terms.basis.to_dense(torch.double), terms.theta
    full, of_bias = theta.full()[:, 0], getattr(theta, "full_bias", lambda: None)()
    wanted = torch.einsum("kmn,mp,kpq->knq", dense, x, full)
    if of_bias is not None:
        wanted = wanted + torch.einsum("kmn,kq->knq", dense, of_bias[:, 0, 0])
    bias = 0.0 if conv.bias is None else conv.bias
    for k in range(3):
        assert_near(terms.term(k), wanted[k])
        rest = wanted[[j for j in range(3) if j != k]]
        rest = rest.amax(0) if name == "max" else rest.sum(0)
        if name == "max":  # targets without an edge have no head to compare
            rest = torch.where((dense != 0).any(1).any(0).unsqueeze(-1), rest, 0.0)
        assert_near(terms.without(k, out), rest + bias, at_least=largest_of(out))


def test_inputs_in_batches_and_none_at_all():
    conv = filled(OuterConv(4, 5, Chebyshev(2)))
    x = drawn(3, 6, 4)
    terms = label_terms(conv, x, EDGES)
    assert_near(terms.term(0) + terms.term(1) + conv.bias, conv(x, EDGES))
    bare = filled(OuterConv(6, 5, Relation(3)))
    terms = label_terms(bare, None, EDGES, **BESIDE)
    for k in range(3):
        dense = terms.basis.to_dense(torch.double)[k]
        assert_near(terms.term(k), dense.T @ bare.theta()[k, 0])
