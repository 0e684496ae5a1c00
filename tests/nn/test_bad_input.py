"""Bad input is refused by a line that states the rule, what it expects and what came."""

import copy
import re

import pytest
import torch
from calls import named
from torch_geometric import EdgeIndex

from pyg_outerconv import OuterConv, Pattern, nn, parse_family
from pyg_outerconv.families import GCN, Chebyshev, Directed, Identity, Relation, Walk

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
X = torch.ones(5, 4)
KINDS = torch.tensor([0, 1, 2, 0])
NAN, MINUS = torch.tensor([1.0, float("nan"), 1, 1]), torch.tensor([1.0, -2.0, 1, 1])
BASIS = GCN().basis(EDGES, size=(5, 5))


def assert_refused(kind, rule, expected, got, call):
    """The message holds the three parts, each given as the start of it."""
    parts = (re.escape(part) for part in (rule, f"expected {expected}", f"got {got}"))
    with pytest.raises(kind, match=".*".join(parts)) as caught:
        call()
    assert "\n" not in str(caught.value)


CALLS = {
    # name: (options of the layer, arguments of the call, exception, rule, expected, got)
    "x of one dimension": (
        {},
        (torch.ones(4), EDGES),
        (ValueError, "features must have a row for each node", "shape (M, P)", "(4,)"),
    ),
    "x with other channels": (
        {},
        (torch.ones(5, 3), EDGES),
        (ValueError, "x must have a row for each source and a column", "(5, 4)", "(5, 3)"),
    ),
    "x with too few nodes": (
        {},
        (torch.ones(3, 4), EDGES),
        (ValueError, "every source in edge_index must be one of", "an index below 3", "3"),
    ),
    "x of another type than the layer": (
        {},
        (X.double(), EDGES),
        (TypeError, "x must have the dtype of theta", "torch.float32", "torch.float64"),
    ),
    "boolean x": (
        {},
        (X.bool(), EDGES),
        (TypeError, "x must hold features or node indices", "a tensor of floating", "torch.bool"),
    ),
    "complex x": (
        {},
        (X.cfloat(), EDGES),
        (TypeError, "x must hold features or node indices", "a tensor", "torch.complex64"),
    ),
    "x that is no tensor": (
        {},
        ([[1.0, 2.0]] * 5, EDGES),
        (ValueError, "a bipartite x is a pair", "(x_source, x_target)", "5 entries"),
    ),
    "a pair of lists": (
        {},
        (([1.0], [2.0]), EDGES),
        (TypeError, "x must hold features or node indices", "a tensor", "list"),
    ),
    "sparse x of integers": (
        {},
        (X.long().to_sparse(), EDGES),
        (TypeError, "sparse features must be floating point", "torch.float32", "torch.int64"),
    ),
    "sparse x of three dimensions": (
        {},
        (torch.ones(2, 5, 4).to_sparse(), EDGES),
        (ValueError, "sparse features must be a matrix", "shape (M, P), without", "(2, 5, 4)"),
    ),
    "sparse x with dense dimensions": (
        {},
        (X.to_sparse(1), EDGES),
        (ValueError, "sparse features must be a matrix", "shape (M, P), without", "(5, 4)"),
    ),
    "sparse x with other channels": (
        {},
        (torch.ones(5, 3).to_sparse(), EDGES),
        (ValueError, "x must have a row for each source", "(5, 4)", "(5, 3)"),
    ),
    "sparse x of another type": (
        {},
        (X.double().to_sparse_csr(), EDGES),
        (TypeError, "x must have the dtype of theta", "torch.float32", "torch.float64"),
    ),
    "sparse targets with other channels": (
        {"family": Relation(1), "root_weight": True},
        ((X, torch.ones(5, 3).to_sparse()), EDGES),
        (ValueError, "targets must have a column for each of their channels", "4", "3"),
    ),
    "sparse targets of another type": (
        {"family": Relation(1), "root_weight": True},
        ((X, X.double().to_sparse()), EDGES),
        (TypeError, "targets must have the type of the root", "torch.float32", "torch.float64"),
    ),
    "integer x of two dimensions": (
        {},
        (X.long(), EDGES),
        (ValueError, "node indices must be one for each node", "shape (M,)", "(5, 4)"),
    ),
    "node indices out of range": (
        {},
        (torch.tensor([0, 1, 2, 3, 4]), EDGES),
        (ValueError, "indices of x must be rows of theta", "[0, 4)", "[0, 4]"),
    ),
    "no x, and more sources than rows of theta": (
        {},
        (None, torch.tensor([[4], [0]])),
        (ValueError, "every source in edge_index must be one of", "an index below 4", "4"),
    ),
    "targets with other channels": (
        {"family": Relation(1), "root_weight": True},
        ((X, torch.ones(5, 3)), EDGES),
        (ValueError, "targets must have a column for each of their channels", "4", "3"),
    ),
    "targets of another type": (
        {"family": Relation(1), "root_weight": True},
        ((X, X.double()), EDGES),
        (TypeError, "targets must have the type of the root", "torch.float32", "torch.float64"),
    ),
    "target indices out of range": (
        {"family": Relation(1), "root_weight": True},
        ((X, torch.tensor([0, 0, 0, 0, 9])), EDGES),
        (ValueError, "indices of targets must be rows of the root weight", "[0, 4)", "[0, 9]"),
    ),
    "edges as floats": (
        {},
        (X, EDGES.float()),
        (TypeError, "edge_index must hold integers", "torch.int64", "torch.float32"),
    ),
    "edges as a list": (
        {},
        (X, EDGES.tolist()),
        (TypeError, "edge_index must be a tensor, an EdgeIndex", "Tensor", "list"),
    ),
    "edges turned": (
        {},
        (X, EDGES.t()),
        (ValueError, "edge_index must hold a source and a target", "shape (2, E)", "(4, 2)"),
    ),
    "an index too large": (
        {},
        (X, torch.tensor([[0], [5]])),
        (ValueError, "every target in edge_index must be one of", "an index below 5", "5"),
    ),
    "a negative index": (
        {},
        (X, torch.tensor([[0], [-1]])),
        (ValueError, "edge_index must not be negative", ">= 0", "-1"),
    ),
    "size that is not that of x": (
        {},
        (X, EDGES, None, None, (6, 5)),
        (ValueError, "size must agree with x in the number of sources", "5", "6"),
    ),
    "size that is not that of the targets": (
        {"family": Relation(1)},
        ((X, torch.ones(3, 4)), torch.tensor([[0], [1]]), None, None, (5, 4)),
        (ValueError, "size must agree with x in the number of targets", "3", "4"),
    ),
    "size that is not that of the matrix": (
        {},
        (X, torch.eye(5).to_sparse(), None, None, (5, 4)),
        (ValueError, "size must agree with x in the number of targets", "5", "4"),
    ),
    "a matrix that does not fit x": (
        {},
        (X, torch.eye(6).to_sparse()),
        (ValueError, "size must fit the sparse matrix", "(6, 6)", "(5, 5)"),
    ),
    "NaN among the weights": (
        {},
        (X, EDGES, NAN),
        (ValueError, "edge_weight must be finite", "numbers", "NaN or infinity"),
    ),
    "an infinite weight": (
        {},
        (X, EDGES, 1 / (MINUS + 2)),
        (ValueError, "edge_weight must be finite", "numbers", "NaN or infinity"),
    ),
    "negative weights under a norm": (
        {},
        (X, EDGES, MINUS),
        (
            ValueError,
            "norm='sym' divides by degrees",
            "weights that are not negative, or whose sums are positive",
            "weights that add up to -1 at node 2",
        ),
    ),
    "negative weights in a walk": (
        {"family": Walk(2)},
        (X, EDGES, MINUS),
        (ValueError, "norm='source' divides by degrees", "weights", "weights that add up to -2"),
    ),
    "negative weights in a Laplacian": (
        {"family": Chebyshev(2)},
        (X, EDGES, MINUS),
        (ValueError, "lambda_max='bound' needs edge", "edge_weight >= 0, or lambda", "a weight of"),
    ),
    "boolean weights": (
        {},
        (X, EDGES, torch.ones(4, dtype=torch.bool)),
        (
            TypeError,
            "edge_weight must be numbers",
            "floating point or integers (to select edges",
            "torch",
        ),
    ),
    "complex weights": (
        {},
        (X, EDGES, torch.ones(4, dtype=torch.complex64)),
        (TypeError, "edge_weight must be numbers", "floating point or integers", "torch.complex64"),
    ),
    "weights of shape (E, 2)": (
        {},
        (X, EDGES, torch.ones(4, 2)),
        (ValueError, "edge_weight needs one entry for each edge", "shape (4,)", "(4, 2)"),
    ),
    "edge types in the place of weights": (
        {"family": Relation(3)},
        (X, EDGES, KINDS),
        (
            ValueError,
            "Relation(3) needs the type of every",
            "edge_type of shape (E,), by its",
            "None",
        ),
    ),
    "too few weights": (
        {},
        (X, EDGES, torch.ones(3)),
        (ValueError, "edge_weight needs one entry for each edge", "shape (4,)", "(3,)"),
    ),
    "weights that are no tensor": (
        {},
        (X, EDGES, [1.0] * 4),
        (TypeError, "edge_weight must be a tensor", "Tensor", "list"),
    ),
    "an edge type too large": (
        {"family": Relation(2)},
        (X, EDGES, None, KINDS),
        (ValueError, "edge types must be below num_relations", "[0, 2)", "2"),
    ),
    "a negative edge type": (
        {"family": Relation(3)},
        (X, EDGES, None, KINDS - 1),
        (ValueError, "edge_type must not be negative", ">= 0", "-1"),
    ),
    "edge types missing": (
        {"family": Relation(3)},
        (X, EDGES),
        (ValueError, "Relation(3) needs the type of every edge", "edge_type of shape (E,)", "None"),
    ),
    "edge types as floats": (
        {"family": Relation(3)},
        (X, EDGES, None, KINDS.float()),
        (TypeError, "edge_type must hold integers", "torch.int64", "torch.float32"),
    ),
    "too few edge types": (
        {"family": Relation(3)},
        (X, EDGES, None, KINDS[:3]),
        (ValueError, "edge_type needs one entry for each edge", "shape (4,)", "(3,)"),
    ),
    "constants missing": (
        {"family": Relation(1, "given")},
        (X, EDGES),
        (ValueError, "Relation(norm='given') takes its constants", "edge_weight", "None"),
    ),
    "a batch of another length": (
        {"family": Chebyshev(2)},
        (X, EDGES, None, None, None, torch.zeros(4, dtype=torch.long)),
        (ValueError, "batch needs one graph for each node", "(5,)", "(4,)"),
    ),
    "eigenvalues for other graphs": (
        {"family": Chebyshev(2, (1.0, 2.0))},
        (X, EDGES),
        (ValueError, "lambda_max needs a number for each graph", "1", "2"),
    ),
    "two sets of nodes with self-loops": (
        {},
        ((X, None), EDGES, None, None, (5, 4)),
        (
            ValueError,
            "adding self-loops needs sources and targets that are the same nodes",
            "one x, not a pair; for a pair add_self_loops=False",
            "a pair of M = 5 sources and N = 4 targets",
        ),
    ),
    "two sets of as many nodes with self-loops": (
        {},
        ((X, X.clone()), EDGES),
        (
            ValueError,
            "adding self-loops needs sources and targets that are the same nodes",
            "one x, not a pair; for a pair add_self_loops=False",
            "a pair of M = 5 sources and N = 5 targets",
        ),
    ),
    "a mean over a polynomial": (
        {"family": Walk(2), "aggr": "mean"},
        (X, EDGES),
        (
            ValueError,
            "a mean within labels counts edges, which a Polynomial",
            "an explicit",
            "Poly",
        ),
    ),
    "a matrix against the other flow": (
        {"flow": "target_to_source"},
        (X, torch.eye(5).to_sparse()),
        (ValueError, "flow='target_to_source' takes edges as indices", "(2, E)", "a sparse matrix"),
    ),
    "a basis with other labels": (
        {"family": Walk(2)},
        (X, BASIS),
        (ValueError, "a basis must have the labels of the layer's family", "K = 3", "1"),
    ),
    "a basis of another size": (
        {},
        (torch.ones(6, 4), BASIS),
        (ValueError, "the basis must have the sources of x and size", "6", "5"),
    ),
    "a basis and another size": (
        {},
        (X, BASIS, None, None, (5, 6)),
        (ValueError, "the basis must have the targets of x and size", "6", "5"),
    ),
    "a basis of another type": (
        {},
        (X, BASIS.double()),
        (TypeError, "the basis must have the dtype of x", "torch.float32", "torch.float64"),
    ),
    "a basis and weights": (
        {},
        (X, BASIS, torch.ones(4)),
        (ValueError, "a basis has its own weights and types", "no edge_weight", "one of them"),
    ),
    "no x for a lazy layer": (
        {"in_channels": -1},
        (None, EDGES),
        (ValueError, "in_channels=-1 is derived from features", "a float tensor", "none"),
    ),
    "no x for blocks": (
        {"theta": "grouped:2"},
        (None, EDGES),
        (ValueError, "without features the rows of theta are the embedding", "G = 1", "2"),
    ),
    "channels that blocks do not divide, found late": (
        {"in_channels": -1, "theta": "grouped:3"},
        (X, EDGES),
        (ValueError, "groups must divide in_channels", "a divisor of 4", "3"),
    ),
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_refused_and_leaves_the_layer_as_it_was(name, cached):
    options, arguments, (kind, rule, expected, got) = CALLS[name]
    options = {"in_channels": 4, "out_channels": 6, "family": GCN(), **options}
    conv = OuterConv(**options, cached=cached)
    state, lazy = copy.deepcopy(conv.state_dict()), options["in_channels"] < 0
    x, beside = arguments[0], named(*arguments[1:])
    for fuse in (True, False):
        conv.fuse = fuse
        assert_refused(kind, rule, expected, got, lambda: conv(x, **beside))
    after = conv.state_dict()
    assert list(after) == list(state)
    assert conv.flow == options.get("flow", "source_to_target")
    for key, value in after.items():
        if lazy and key.startswith("theta"):
            assert isinstance(value, torch.nn.parameter.UninitializedParameter)
        else:
            assert torch.equal(value, state[key])
    # It still works.
    kinds = KINDS if conv.family == Relation(3) else None
    if conv.aggr == "sum" and not lazy and conv.family.num_bases != 2:
        weight = torch.ones(4)
        assert conv(X, EDGES, weight, edge_type=kinds).shape == (5, 6)


MAKING = {
    "the identity with other out_channels": (
        lambda: OuterConv(4, 6, GCN(), theta="identity"),
        (
            ValueError,
            "theta 'identity' has as many out_channels as in_channels",
            "4, or -1",
            "6",
        ),
    ),
    "the identity with an option": (
        lambda: OuterConv(4, 4, GCN(), theta="identity:4"),
        (ValueError, "theta 'identity' is written with its option", "'identity'", "'identity:4'"),
    ),
    "a bias of unknown size": (
        lambda: OuterConv(-1, -1, GCN(), theta="identity"),
        (ValueError, "bias needs out_channels", "in_channels or out_channels >= 0", "both -1"),
    ),
    "a root weight of unknown size": (
        lambda: OuterConv(-1, -1, GCN(), theta="identity", bias=False, root_weight=True),
        (
            ValueError,
            "root_weight needs out_channels",
            "in_channels or out_channels >= 0",
            "both -1",
        ),
    ),
    "a family of another class": (
        lambda: OuterConv(4, 6, 7),
        (TypeError, "a family is an object or text", "a Family or its name", "int"),
    ),
    "a family that is not made": (
        lambda: OuterConv(4, 6, GCN),
        (TypeError, "a family is an object or text", "a Family or its name", ""),
    ),
    "text that is no family": (
        lambda: OuterConv(4, 6, "3 +"),
        (ValueError, "a family is a name with options", "such as walk(length=2)", "'3 +'"),
    ),
    "theta without its option": (
        lambda: OuterConv(4, 6, GCN(), theta="low-rank"),
        (
            ValueError,
            "theta 'low-rank' is written with its option",
            "'low-rank(rank=...)'",
            "'low-rank'",
        ),
    ),
    "theta with an option of another form": (
        lambda: OuterConv(4, 6, GCN(), theta="low-rank(groups=2)"),
        (
            ValueError,
            "theta 'low-rank' is written with its option",
            "'low-rank(rank=...)'",
            "'low-rank(g",
        ),
    ),
    "theta with a superfluous option": (
        lambda: OuterConv(4, 6, GCN(), theta="full:2"),
        (ValueError, "theta 'full' is written with its option", "'full'", "'full:2'"),
    ),
    "a rank of zero": (
        lambda: OuterConv(4, 6, GCN(), theta="low-rank:0"),
        (ValueError, "theta 'low-rank' needs its rank", ">= 1", "0"),
    ),
    "groups that do not divide": (
        lambda: OuterConv(4, 6, GCN(), theta="grouped:4"),
        (ValueError, "groups must divide out_channels", "a divisor of 6", "4"),
    ),
    "depthwise that does not divide": (
        lambda: OuterConv(4, 6, GCN(), theta="depthwise"),
        (
            ValueError,
            "depthwise needs out_channels that in_channels divides",
            "a multiple of 4",
            "6",
        ),
    ),
    "a walk of negative length": (
        lambda: Walk(-1),
        (ValueError, "length of Walk is bounded", "length >= 0", "-1"),
    ),
    "powers that a walk does not have": (
        lambda: Walk(2, powers=(3,)),
        (ValueError, "powers of a walk must be lengths that it has", "some of [0, 2]", "(3,)"),
    ),
    "no terms": (
        lambda: Chebyshev(0),
        (ValueError, "num_terms of Chebyshev is bounded", "num_terms >= 1", "0"),
    ),
    "an eigenvalue of zero": (
        lambda: Chebyshev(2, 0.0),
        (ValueError, "lambda_max must be positive", "> 0", "0.0"),
    ),
    "an eigenvalue by an unknown name": (
        lambda: Chebyshev(2, "largest"),
        (ValueError, "lambda_max must be known", "'exact', 'bound' or a number", "'largest'"),
    ),
    "no relations": (
        lambda: Relation(0),
        (ValueError, "num_relations of Relation is bounded", "num_relations >= 1", "0"),
    ),
    "in_channels of another class": (
        lambda: OuterConv("4", 6, GCN()),
        (TypeError, "in_channels must be a number of channels", "an integer", "'4'"),
    ),
    "in_channels below -1": (
        lambda: OuterConv(-2, 6, GCN()),
        (ValueError, "in_channels must be a number of channels", "an integer >= -1", "-2"),
    ),
    "in_channels of three": (
        lambda: OuterConv((4, 4, 4), 6, GCN()),
        (ValueError, "in_channels of sources and targets must be a pair", "2", "3"),
    ),
    "out_channels of zero": (
        lambda: OuterConv(4, -1, GCN()),
        (ValueError, "out_channels must be a number of channels", "an integer >= 0", "-1"),
    ),
}


@pytest.mark.parametrize("name", MAKING)
def test_a_layer_or_family_is_not_made(name):
    make, (kind, rule, expected, got) = MAKING[name]
    assert_refused(kind, rule, expected, got, make)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: OuterConv(4, 6, "gnc"),
            r"unknown family 'gnc' \(did you mean 'gcn'\?\): expected one of .*chebyshev, ",
        ),
        (
            lambda: OuterConv(4, 6, GCN(), theta="low_rank:2"),
            r"unknown form of theta 'low_rank' \(did you mean 'low-rank'\?\): expected one of ",
        ),
        (
            lambda: OuterConv(4, 6, GCN(), aggr="average"),
            r"unknown aggr 'average'.*: expected one of max, mean, min, sum",
        ),
        (
            lambda: OuterConv(4, 6, GCN(), label_aggr="total"),
            r"unknown label_aggr 'total'.*: expected one of max, mean, min, sum",
        ),
        (lambda: GCN(norm="symm"), r"unknown norm 'symm' \(did you mean 'sym'\?\)"),
        (lambda: Walk(2, norm="targets"), r"unknown norm 'targets' \(did you mean 'target'\?\)"),
        (lambda: Walk(2, direction="back"), r"unknown direction 'back'.*backward, both, forward"),
        (lambda: Walk(2, aggr="product"), r"unknown aggr 'product'.*max, mean, min, sum"),
        (lambda: Relation(2, norm="means"), r"unknown norm 'means' \(did you mean 'mean'\?\)"),
        (
            lambda: parse_family("walk(lenght=2)"),
            r"unknown option of Walk 'lenght' \(did you mean 'length'\?\)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unknown_names_come_with_the_nearest(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_add_is_sum_as_in_pyg():
    conv = OuterConv(4, 6, GCN(), aggr="add", label_aggr="add")
    assert (conv.aggr, conv.label_aggr) == ("sum", "sum")


def test_values_of_a_pattern_are_checked():
    pattern = Pattern.build(EDGES, size=(5, 5))
    assert_refused(
        ValueError,
        "a basis needs one value for each edge",
        "shape (4,)",
        "(3,)",
        lambda: pattern.with_values(torch.ones(3)),
    )
    assert_refused(
        TypeError,
        "a basis holds floating point values",
        "torch.float32",
        "torch.int64",
        lambda: pattern.with_values(torch.ones(4, dtype=torch.long)),
    )
    assert_refused(
        ValueError,
        "every target of a pattern must lie in range",
        "[0, 3)",
        "3",
        lambda: Pattern.build(EDGES, size=(4, 3)),
    )


def test_the_quadri_tensor_of_a_bipartite_root_is_refused():
    conv = OuterConv((4, 3), 6, Identity(), root_weight=True)
    assert_refused(
        ValueError,
        "a root weight is part of the quadri-tensor only where targets are the sources",
        "one set of nodes and one in_channels",
        "M = 5, N = 5, in_channels=(4, 3)",
        lambda: nn.quadri_tensor(conv, EDGES, size=(5, 5)),
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("family", ["gcn", "chebyshev", "walk", "relation", "directed"])
def test_short_integers_are_indices_too(dtype, family):
    edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]])
    conv, x = OuterConv(3, 2, family), torch.randn(300, 3)
    torch.testing.assert_close(conv(x, edge_index.to(dtype)), conv(x, edge_index))


@pytest.mark.parametrize("size", [5, (5,), (5, 5, 5), (5.0, 5.0), (-1, 5), "ab"], ids=str)
def test_a_size_that_is_no_pair_of_numbers_is_refused(size):
    edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"size must .*: expected .*, got"):
        OuterConv(3, 2, "gcn")(torch.randn(5, 3), edge_index, size=size)
    with pytest.raises(ValueError, match=r"size must .*: expected .*, got"):
        GCN().basis(edge_index, size=size)


def test_an_edge_index_that_knows_another_size_is_refused():
    edges = EdgeIndex([[0, 1], [1, 2]], sparse_size=(7, 7))
    with pytest.raises(ValueError, match=r"fit the EdgeIndex: expected \(7, 7\), got \(5, 5\)"):
        OuterConv(3, 2, "gcn")(torch.randn(5, 3), edges)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (torch.zeros(5), TypeError),
        (torch.zeros(5, dtype=torch.bool), TypeError),
        ([0] * 5, TypeError),
        (torch.zeros(4, dtype=torch.long), ValueError),
        (torch.full((5,), -1), ValueError),
    ],
    ids=["float", "bool", "list", "short", "negative"],
)
def test_a_batch_that_numbers_no_graphs_is_refused(batch, error):
    with pytest.raises(error, match=r"batch .*: expected .*, got"):
        OuterConv(3, 2, "chebyshev")(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]]), batch=batch)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Walk(2.5),
        lambda: Walk("2"),
        lambda: Walk(True),
        lambda: Walk(2, powers=("a",)),
        lambda: Chebyshev(None),
        lambda: Chebyshev(3, lambda_max=None),
        lambda: Relation(2.0),
        lambda: GCN(add_self_loops="no"),
        lambda: Directed("gcn"),
        lambda: Directed(3),
    ],
)
def test_options_of_a_family_have_types(make):
    with pytest.raises(TypeError, match="has a type: expected .*, got"):
        make()
