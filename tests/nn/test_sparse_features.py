"""A layer takes sparse features wherever it takes dense ones; dropout of either."""

import pytest
import torch
import torch.nn.functional as F
from bags import MAKE, bag
from cases import ALL_PAIRS, arguments_of, over, structure_for
from torch import nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GATConv, GCNConv, Linear, SAGEConv

from pyg_outerconv import OuterConv
from pyg_outerconv.families import HighPass
from pyg_outerconv.nn import SparseFeatures, dropout_features
from pyg_outerconv.testing import assert_near, assert_same_gradients

FORMS = (
    "full",
    "shared",
    "basis-decomposed(num_bases=2)",
    "channelwise",
    "low-rank(rank=2)",
    "block-diagonal(num_blocks=2)",
    "grouped(groups=2)",
    "depthwise",
)
RING = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])


silent = pytest.mark.filterwarnings("error::pyg_outerconv.graph.BecameDense")
every_layout = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def layer(*args, **kwargs):
    torch.manual_seed(5)
    return OuterConv(*args, **kwargs).double()


def assert_same(conv, dense, sparse, *args, learn=(), at_least=0.0, **kwargs):
    """One output, and one gradient in every parameter and in ``learn``."""
    expected, actual = conv(dense, *args, **kwargs), conv(sparse, *args, **kwargs)
    assert_near(actual, expected, at_least=at_least)
    assert_same_gradients(actual, expected, [*conv.parameters(), *learn], 1e-9)


@over(ALL_PAIRS)
def test_every_family_takes_them_on_every_structure(family, name):
    structure = structure_for(family, name)
    rows, columns = structure.size
    dense, conv = bag(rows, 6) if rows else torch.zeros(0, 6).double(), layer(6, 3, family)
    ends = (lambda x: x) if rows == columns else (lambda x: (x, None))
    where, beside = arguments_of(structure)
    weight = beside.get("edge_weight")
    terms = 0.1 if isinstance(family, HighPass) else 0.0  # without edges I − Â cancels
    for make in (MAKE["csr"], MAKE["uncoalesced coo"]):
        learn = () if weight is None else (weight,)
        for conv.fuse in (True, False):
            inputs = ends(dense), ends(make(dense))
            assert_same(conv, *inputs, where, learn=learn, at_least=terms, **beside)


@pytest.mark.parametrize("form", FORMS)
@every_layout
def test_every_form_of_theta_takes_them(form, make):
    dense = bag(5, 6)
    kinds = torch.tensor([0, 1, 2, 2, 1, 0])
    conv = layer(6, 12, "relation(num_relations=3)", theta=form, root_weight=True)
    assert_same(conv, dense, make(dense), RING, edge_type=kinds)


@pytest.mark.parametrize("make", [MAKE["csr"], MAKE["coo"]])
def test_an_explainer_weighs_edges_as_it_does_with_dense_features(make):
    dense, masks = bag(5, 6).float(), []
    for x in (dense, make(dense)):
        torch.manual_seed(0)
        explainer = Explainer(
            layer(6, 3, "gcn").float(),
            GNNExplainer(epochs=5),
            explanation_type="model",
            edge_mask_type="object",
            model_config={"mode": "regression", "task_level": "node"},
        )
        masks.append(explainer(x, RING).edge_mask)
    assert bool((masks[0] > 0).any())
    assert_near(masks[1], masks[0], 1e-4)


@pytest.mark.parametrize("sparse_end", ["sources", "targets", "both"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_a_pair_is_sparse_at_either_end(sparse_end, flow):
    family = "gcn(add_self_loops=False)"
    conv = layer((6, 5), 4, family, root_weight=True, flow=flow)
    pair = bag(7, 6), bag(5, 5, seed=1)
    ends = pair if flow == "source_to_target" else pair[::-1]
    sparse = [
        x.to_sparse_csr() if sparse_end in (end, "both") else x
        for x, end in zip(pair, ("sources", "targets"), strict=True)
    ]
    sparse_ends = tuple(sparse if flow == "source_to_target" else sparse[::-1])
    index = torch.tensor([[6, 0, 3, 3], [0, 4, 1, 1]])
    assert_same(conv, ends, sparse_ends, index if flow == "source_to_target" else index.flip(0))


@pytest.mark.parametrize("make", [MAKE["csr"], MAKE["uncoalesced coo"]])
@pytest.mark.parametrize("shape", [(5, 6), (5, 0), (0, 6)])
def test_a_matrix_without_entries_gives_the_bias(make, shape):
    dense, conv = torch.zeros(shape).double(), layer(shape[1], 3, "gcn")
    index = RING if shape[0] else RING[:, :0]
    assert_same(conv, dense, make(dense), index)


def test_lazy_channels_are_read_off_them():
    conv = layer(-1, 3, "gcn", root_weight=True)
    assert conv(bag(5, 6).float().to_sparse_csr().double(), RING).shape == (5, 3)
    assert conv.theta.in_channels == conv.root.in_channels == 6


def test_edges_given_as_a_basis_are_taken():
    dense, conv = bag(5, 6), layer(6, 3, "chebyshev(num_terms=3)")
    basis = conv.basis(dense, RING)
    assert_same(conv, dense, dense.to_sparse_csr(), basis)


@pytest.mark.parametrize("order", ["coo", "uncoalesced coo", "csr", "csc"])
def test_gradients_reach_the_values_of_x(order):
    dense, conv = bag(5, 6), layer(6, 3, "walk(length=2)", root_weight=True)
    leaf = dense.clone().requires_grad_()
    sparse = MAKE[order](dense)
    value = (
        (sparse._values() if order.endswith("coo") else sparse.values()).clone().requires_grad_()
    )
    if order.endswith("coo"):
        x = torch.sparse_coo_tensor(sparse._indices(), value, sparse.shape)
    elif order == "csc":
        x = torch.sparse_csc_tensor(
            sparse.ccol_indices(), sparse.row_indices(), value, sparse.shape
        )
    else:
        x = torch.sparse_csr_tensor(
            sparse.crow_indices(), sparse.col_indices(), value, sparse.shape
        )
    direction = torch.randn(5, 3, dtype=torch.float64)
    (expected,) = torch.autograd.grad(conv(leaf, RING), leaf, direction)
    (actual,) = torch.autograd.grad(conv(x, RING), value, direction)
    place = sparse.to_sparse_coo()._indices() if order != "uncoalesced coo" else sparse._indices()
    if order == "csc":
        place = place[:, (place[1] * 5 + place[0]).argsort()]
    assert_near(actual, expected[place[0], place[1]])


@pytest.mark.parametrize("make", [MAKE["csr"], MAKE["coo"]])
def test_a_sparse_leaf_gets_a_gradient(make):
    dense, conv = bag(5, 6), layer(6, 3, "gcn")
    leaf, x = dense.clone().requires_grad_(), make(dense).requires_grad_()
    conv(leaf, RING).square().sum().backward()
    conv(x, RING).square().sum().backward()
    assert_near(x.grad.to_dense(), leaf.grad * (dense != 0))


def test_second_derivatives_are_right():
    features = SparseFeatures.of(bag(5, 6).to_sparse_csr())
    value = features.value.clone().requires_grad_()
    conv = layer(6, 2, "gcn")

    def loss(value, weight):
        out = torch.func.functional_call(
            conv, {"theta.weight": weight}, (features.with_values(value), RING)
        )
        return out.tanh()

    weight = conv.theta.weight.detach().requires_grad_()
    assert torch.autograd.gradgradcheck(loss, (value, weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_type_that_it_gives_dense_features(dtype):
    dense, conv = bag(5, 6).float(), layer(6, 4, "gcn", root_weight=True).float()
    with torch.autocast("cpu", dtype=dtype):
        expected, actual = conv(dense, RING), conv(dense.to_sparse_csr(), RING)
    assert_near(actual, expected, 2e-2)
    actual.float().sum().backward()
    assert conv.theta.weight.grad.dtype == torch.float32


def test_half_features_are_multiplied():
    dense, conv = bag(5, 6).bfloat16(), layer(6, 4, "gcn").bfloat16()
    assert_near(conv(dense.to_sparse(), RING), conv(dense, RING), 4e-2)


@pytest.mark.slow
def test_a_compiler_leaves_sparse_tensors_to_torch():
    """It breaks the graph there, or refuses a whole one; the result is right."""
    dense, conv = bag(5, 6), layer(6, 3, "gcn")
    basis = conv.basis(dense, RING)
    whole = torch.compile(conv, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="sparse"):
        whole(dense.to_sparse_csr(), basis)
    torch._dynamo.reset()
    compiled = torch.compile(conv, backend="eager")
    assert_near(compiled(dense.to_sparse_csr(), basis), conv(dense, basis))


# PyG's layers, and compilers ----------------------------------------------------------------------


@silent
@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(6, 3),
        lambda: Linear(-1, 3),
        lambda: nn.Linear(6, 3),
        lambda: GCNConv(6, 3),
        lambda: GCNConv(-1, 3, cached=True),
        lambda: SAGEConv(6, 3),
        lambda: SAGEConv(6, 3, aggr="sum", project=True),
        lambda: GATConv(6, 3, heads=2),
    ],
)
def test_layers_of_pyg_take_them_and_nothing_becomes_dense(make):
    dense = bag(7, 6)
    x = SparseFeatures.of(dense)
    torch.manual_seed(0)
    layer = make().double()
    args = () if "Linear" in type(layer).__name__ else (RING,)
    actual, expected = layer(x, *args), layer(dense, *args)
    assert_near(actual, expected)
    assert_same_gradients(actual, expected, layer.parameters(), 1e-9)


def compiled(function, *args):
    torch._dynamo.reset()
    torch.manual_seed(0)
    out = torch.compile(function, backend="aot_eager", fullgraph=True)(*args)
    torch.manual_seed(0)
    return out, function(*args)


@silent
@pytest.mark.slow
def test_a_model_of_two_layers_is_compiled_as_one_graph():
    dense = bag(7, 6)
    x = SparseFeatures.of(dense)
    first = OuterConv(6, 4, "gcn", root_weight=True).double()
    second = OuterConv(4, 3, "gcn").double()
    basis = first.basis(dense, RING)

    def model(x):
        x = F.dropout(x, 0.5)
        return second(F.dropout(first(x, basis).relu(), 0.5), basis)

    actual, expected = compiled(model, x)
    assert_near(actual, expected)
    assert_same_gradients(actual, expected, [*first.parameters(), *second.parameters()])
    half = compiled(lambda x: F.relu(x) * 0.5, x)[0]
    assert isinstance(half, SparseFeatures)
    assert_near(half.to_dense(), dense.relu() * 0.5)


@silent
@pytest.mark.slow
def test_values_that_learn_are_compiled_or_refused():
    dense = bag(7, 6)
    x = SparseFeatures.of(dense)
    conv = OuterConv(6, 4, "gcn").double()
    basis, value = conv.basis(dense, RING), x.value.clone().requires_grad_()
    learns = x.with_values(value)
    for function, argument in (
        (lambda x: conv(dropout_features(x, 0.5), basis), learns),
        (lambda v: conv(x.with_values(2 * v), basis), value),
    ):
        actual, expected = compiled(function, argument)
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [value])
    with pytest.raises(RuntimeError, match="get no gradients"):
        compiled(lambda x: F.dropout(x, 0.5), learns)
    with pytest.raises(RuntimeError, match="get no gradients"):
        compiled(lambda v: x.with_values(2 * v), value)


@every_layout
def test_dropout_keeps_the_layout_and_scales_what_is_left(make):
    dense = bag(40, 30)
    x = make(dense)
    torch.manual_seed(0)
    out = dropout_features(x, 0.25)
    assert type(out) is type(x)
    if not isinstance(x, SparseFeatures):
        assert out.layout == x.layout
    out = out.to_dense()
    kept = out != 0
    assert_near(out[kept], dense[kept] / 0.75)
    share = 1 - float(kept.sum() / (dense != 0).sum())
    assert 0.15 < share < 0.35


@every_layout
def test_dropout_is_nothing_without_training(make):
    x = make(bag(5, 6))
    if isinstance(x, SparseFeatures):
        assert bool((dropout_features(x, 1.0).value == 0).all())
    assert dropout_features(x, 0.5, training=False) is x


def test_gradients_pass_through_dropout():
    value = bag(5, 6).to_sparse_csr().values().clone().requires_grad_()
    csr = bag(5, 6).to_sparse_csr()
    x = torch.sparse_csr_tensor(csr.crow_indices(), csr.col_indices(), value, csr.shape)
    out = dropout_features(x, 0.5)
    conv = OuterConv(6, 4, "gcn").double()
    (gradient,) = torch.autograd.grad(conv(out, RING).sum(), value)
    dropped = out.values() == 0
    assert bool(dropped.any())
    assert bool((gradient[dropped] == 0).all())
    assert bool((gradient[~dropped] != 0).any())


def test_dropout_of_dense_features_is_that_of_torch():
    x = bag(5, 6)
    torch.manual_seed(3)
    expected = torch.nn.functional.dropout(x, 0.5, True)
    torch.manual_seed(3)
    assert torch.equal(dropout_features(x, 0.5), expected)


def test_torch_refuses_dropout_of_sparse_features_by_itself():
    # Should it learn to, dropout_features can leave it to torch.
    with pytest.raises(NotImplementedError):
        torch.nn.functional.dropout(bag(5, 6).to_sparse_csr(), 0.5, True)
