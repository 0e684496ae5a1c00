"""Sparse features changed in place, made dense, differentiated, copied and compiled."""

import copy
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from bags import bag
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, Linear, SAGEConv
from torch_geometric.utils import is_sparse

from pyg_outerconv import OuterConv
from pyg_outerconv.graph import BecameDense, SparseFeatures
from pyg_outerconv.graph.sparse_functions.table import _said
from pyg_outerconv.kernels import Sparsity
from pyg_outerconv.nn import dropout_features
from pyg_outerconv.testing import assert_near

ROWS, COLUMNS = 7, 6
RING = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
silent = pytest.mark.filterwarnings("error::pyg_outerconv.graph.BecameDense")


@pytest.fixture(autouse=True)
def _nothing_said():
    _said.clear()


def pair(seed=0):
    dense = bag(ROWS, COLUMNS, seed)
    return dense, SparseFeatures.of(dense)


def repeated():
    """Features of which an entry is stored twice: 1 and −3 add up to −2."""
    pattern = Sparsity(*map(torch.tensor, ([0, 2, 3], [1, 1, 0], [0, 1, 3], [1, 0, 0], [2, 0, 1])))
    return SparseFeatures(pattern, torch.tensor([1.0, -3.0, 5.0]))


# What PyG's code asks of features -----------------------------------------------------------------


@silent
def test_it_is_a_tensor_of_the_sizes_of_the_dense_one():
    dense, x = pair()
    assert isinstance(x, Tensor)
    assert not is_sparse(x)
    assert (x.layout, x.dim(), x.ndim, len(x)) == (torch.strided, 2, 2, ROWS)
    assert (x.shape, x.size(), x.size(-2), x.numel()) == (dense.shape,) * 2 + (ROWS, 42)
    assert (x.dtype, x.device, x.is_cuda) == (torch.float64, dense.device, False)
    assert x.is_floating_point()
    assert torch.is_floating_point(x)
    assert x.is_contiguous()
    assert x.stride() == dense.stride()
    assert torch.equal(x.new_zeros(2), torch.zeros(2).double())
    assert type(torch.zeros_like(x)) is Tensor
    assert torch.rand_like(x).shape == dense.shape
    assert x.type() == dense.type()
    assert "7 x 6" in repr(x)
    assert "7 x 6" in f"{x}"
    assert x.density == x.num_entries / 42


@silent
def test_non_zeros_are_counted_and_compared():
    dense, x = pair()
    assert torch.equal(x.nonzero(), dense.nonzero())
    assert torch.count_nonzero(x) == torch.count_nonzero(dense)
    for dim in (0, 1):
        assert torch.equal(x.count_nonzero(dim), dense.count_nonzero(dim))
    other = x * 1.0
    assert torch.equal(x, other)
    assert torch.equal(x, dense)
    assert torch.equal(dense, x)
    assert not torch.equal(x, x * 2)
    assert not torch.equal(x, x[1:])
    assert torch.allclose(x, x * (1 + 1e-9))
    assert not torch.allclose(x, x.t().t() + x)
    assert torch.allclose(dense + 1e-12, x)
    assert not torch.allclose(dense + 1e-3, x)


@silent
def test_sparse_layouts_of_torch_are_made():
    dense, x = pair()
    for made in (x.to_sparse(), x.to_sparse_csr(), x.to_sparse(layout=torch.sparse_csr)):
        assert_near(made.to_dense(), dense)


def test_dense_matrices_that_are_none_are_refused():
    with pytest.raises(ValueError, match="must be a matrix"):
        SparseFeatures.of(torch.ones(3))
    with pytest.raises(TypeError, match="floating point"):
        SparseFeatures.of(torch.ones(3, 3, dtype=torch.long))


# In place -----------------------------------------------------------------------------------------

WRITES = {
    "mul_": lambda x: x.mul_(2),
    "*=": lambda x: x.__imul__(0.5),
    "div_": lambda x: x.div_(3),
    "div_ rows": lambda x: x.div_(torch.arange(1.0, 1 + ROWS).double().unsqueeze(1)),
    "mul_ columns": lambda x: x.mul_(torch.arange(COLUMNS).double()),
    "/=": lambda x: x.__itruediv__(4),
    "relu_": lambda x: x.relu_(),
    "F.relu": lambda x: F.relu(x, inplace=True),
    "abs_": lambda x: x.abs_(),
    "clamp_": lambda x: x.clamp_(min=0.0),
    "neg_": lambda x: x.neg_(),
    "zero_": lambda x: x.zero_(),
    "add_ zero": lambda x: x.add_(0),
    "sub_ zero": lambda x: x.sub_(torch.zeros(()).double()),
    "add_ itself": lambda x: x.add_(x, alpha=2),
}


@silent
@pytest.mark.parametrize("name", WRITES)
def test_it_is_changed_in_place(name):
    dense, x = pair()
    seen = x.detach()
    assert WRITES[name](x) is x
    WRITES[name](dense)
    assert_near(x.to_dense(), dense)
    assert_near(seen.to_dense(), dense)


@silent
def test_rows_are_a_view_and_other_selections_are_not():
    dense, x = pair()
    x[2:5].mul_(3)
    x.narrow(0, 1, 2).div_(2)
    dense[2:5] *= 3
    dense[1:3] /= 2
    assert_near(x.to_dense(), dense)
    x[[0, 1]].mul_(100)
    x.clone().mul_(100)
    (x - 0).mul_(100)
    assert_near(x.to_dense(), dense)


REFUSED = {
    "add_": lambda x: x.add_(1),
    "sub_": lambda x: x.sub_(0.5),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "fill_": lambda x: x.fill_(1.0),
    "copy_": lambda x: x.copy_(torch.ones(ROWS, COLUMNS)),
    "div_ zero": lambda x: x.div_(0),
    "exp_": lambda x: x.exp_(),
    "clamp_": lambda x: x.clamp_(min=0.5),
    "normal_": lambda x: x.normal_(),
    "out": lambda x: torch.mm(torch.ones(ROWS, ROWS).double(), x.to_dense(), out=x),
    "F.threshold": lambda x: F.threshold(x, 0.1, 1.0, inplace=True),
    "transpose": lambda x: x.t().mul_(2),
    "columns": lambda x: x[:, 1:].mul_(2),
    "data": lambda x: setattr(x, "data", torch.ones(ROWS, COLUMNS)),
    "dropout of a transpose": lambda x: F.dropout(x.t(), 0.5, inplace=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_write_to_a_copy_is_refused(name):
    dense, x = pair()
    with pytest.raises(TypeError, match="does not change sparse features in place"):
        REFUSED[name](x)
    assert torch.equal(x, dense)


def test_a_dense_tensor_takes_them_in_place():
    dense, x = pair()
    out = torch.ones(ROWS, COLUMNS).double()
    with pytest.warns(BecameDense):
        out.add_(x)
    assert_near(out, 1 + dense)


# Made dense, said once ----------------------------------------------------------------------------


def test_a_function_without_a_rule_says_so_once():
    dense, x = pair()
    with pytest.warns(BecameDense, match=r"torch\.exp has no rule .* 7 x 6 \(0\.00032 MiB\)"):
        found = torch.exp(x)
    assert_near(found, dense.exp())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_near(torch.exp(x), dense.exp())
    with pytest.warns(BecameDense, match="cumsum"):
        x.cumsum(0)


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan")])
def test_zeros_that_would_not_stay_zero_are_kept_right(scale):
    dense, x = pair()
    factor = torch.ones(ROWS, 1).double()
    factor[2] = scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BecameDense)
        for function in (torch.div, torch.mul):
            expected, found = function(dense, factor), function(x, factor)
            found = found.to_dense() if isinstance(found, SparseFeatures) else found
            assert torch.allclose(found, expected, equal_nan=True)


def test_repeated_entries_are_added_up_first():
    x = repeated()
    dense = torch.tensor([[0.0, -2.0], [5.0, 0.0]])
    assert_near(x.to_dense(), dense)
    for function in (F.relu, torch.abs, torch.square):
        assert_near(function(x).to_dense(), function(dense))
    assert x.min() == -2
    assert torch.equal(x, SparseFeatures.of(dense))
    assert_near((x * 2).to_dense(), 2 * dense)
    with pytest.raises(TypeError, match="repeated entries are added up"):
        x.relu_()
    kept = F.dropout(x, 0.5)
    assert kept.num_entries == 2


# Dropout ------------------------------------------------------------------------------------------


@silent
def test_dropout_keeps_the_pattern_and_the_law():
    torch.manual_seed(0)
    x = SparseFeatures.of(torch.ones(100, 50) * (torch.rand(100, 50) < 0.5))
    module = nn.Dropout(0.25)
    draws = [module(x) for _ in range(20)]
    assert all(draw.sparsity is x.sparsity for draw in draws)
    values = torch.stack([draw.value for draw in draws])
    assert set(values.unique().tolist()) == {0.0, float(torch.tensor(4 / 3))}
    assert abs(float((values == 0).float().mean()) - 0.25) < 0.01
    assert abs(float(values.mean()) - 1) < 0.02
    assert module.eval()(x) is x
    assert not F.dropout(x, 1.0).value.any()
    with pytest.raises(ValueError, match="probability"):
        F.dropout(x, 1.5)


@silent
def test_dropout_in_place_changes_the_values():
    x = SparseFeatures.of(torch.ones(30, 20))
    assert F.dropout(x, 0.5, inplace=True) is x
    assert set(x.value.unique().tolist()) == {0.0, 2.0}


# Gradients ----------------------------------------------------------------------------------------


@silent
def test_gradients_are_asked_for_as_of_any_tensor():
    dense, x = pair()
    assert not x.requires_grad
    x.requires_grad_()
    assert x.requires_grad
    assert x.is_leaf
    seen = []
    x.register_hook(seen.append)
    weight = torch.randn(COLUMNS, 2, dtype=torch.float64)
    (found,) = torch.autograd.grad((x @ weight).sum(), x)
    expected = weight.sum(1).expand(ROWS, COLUMNS) * (dense != 0)
    assert isinstance(found, SparseFeatures)
    assert_near(found.to_dense(), expected)
    (x @ weight).sum().backward()
    assert_near(x.grad.to_dense(), expected)
    assert_near(seen[-1].to_dense(), expected)
    assert x.detach().requires_grad is False
    assert (2 * x).grad_fn is not None
    x.grad = None
    assert x.value.grad is None


def test_learned_values_are_a_parameter_of_their_own():
    dense, x = pair()
    value = nn.Parameter(x.value.clone())
    optimizer = torch.optim.Adam([value], lr=0.1)
    conv = OuterConv(COLUMNS, 2, "gcn").double()
    for _ in range(3):
        optimizer.zero_grad()
        loss = conv(x.with_values(value), RING).square().sum()
        loss.backward()
        optimizer.step()
    assert float((value - x.value).abs().max()) > 0.1
    assert_near(x.to_dense(), dense)


def test_what_runs_below_autograd_is_refused_where_values_learn():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
                return torch.add(x, x)

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    dense, x = pair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BecameDense)
        assert_near(Double.apply(x), 2 * dense)
    with pytest.raises(TypeError, match="below autograd"):
        Double.apply(x.requires_grad_())


# Copies, and PyG's own layers ---------------------------------------------------------------------


def test_copies_share_what_they_should():
    dense, x = pair()
    for made in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert isinstance(made, SparseFeatures)
        assert torch.equal(made, dense)
    assert copy.copy(x).value is x.value
    assert copy.deepcopy(x).sparsity is x.sparsity
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]
    module = nn.Module()
    module.register_buffer("x", x)
    assert torch.equal(copy.deepcopy(module).float().x, dense.float())
    assert torch.equal(module.state_dict()["x"], dense)


@pytest.mark.parametrize("broken", ["pointers", "columns"])
def test_a_broken_file_is_refused(broken):
    make, (ptr, column, count, value) = pair()[1].__reduce_ex__(2)
    if broken == "pointers":
        ptr = ptr.flip(0)
    else:
        count = 2
    with pytest.raises(ValueError, match="ascend from 0|lies in range"):
        make(ptr, column, count, value)


@silent
@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(COLUMNS, 3),
        lambda: Linear(-1, 3),
        lambda: nn.Linear(COLUMNS, 3),
        lambda: GCNConv(COLUMNS, 3),
        lambda: GCNConv(-1, 3, cached=True),
        lambda: SAGEConv(COLUMNS, 3),
        lambda: SAGEConv(COLUMNS, 3, aggr="sum", project=True),
        lambda: GATConv(COLUMNS, 3, heads=2),
    ],
)
def test_layers_of_pyg_take_them_and_nothing_becomes_dense(make):
    dense, x = pair()
    torch.manual_seed(0)
    layer = make().double()
    args = () if "Linear" in type(layer).__name__ else (RING,)
    found, expected = layer(x, *args), layer(dense, *args)
    assert_near(found, expected)
    direction = torch.randn_like(expected)
    for one, reference in zip(
        torch.autograd.grad(found, list(layer.parameters()), direction),
        torch.autograd.grad(expected, list(layer.parameters()), direction),
        strict=True,
    ):
        assert_near(one, reference, 1e-9)


# A compiler ---------------------------------------------------------------------------------------


def compiled(function, *args):
    torch._dynamo.reset()
    torch.manual_seed(0)
    out = torch.compile(function, backend="aot_eager", fullgraph=True)(*args)
    torch.manual_seed(0)
    return out, function(*args)


def assert_same_gradients(found, expected, inputs):
    direction = torch.randn_like(expected)
    for one, reference in zip(
        torch.autograd.grad(found, inputs, direction),
        torch.autograd.grad(expected, inputs, direction),
        strict=True,
    ):
        assert_near(one, reference)


@silent
@pytest.mark.slow
def test_a_model_of_two_layers_is_compiled_as_one_graph():
    dense, x = pair()
    first = OuterConv(COLUMNS, 4, "gcn", root_weight=True).double()
    second = OuterConv(4, 3, "gcn").double()
    basis = first.basis(dense, RING)

    def model(x):
        x = F.dropout(x, 0.5)
        return second(F.dropout(first(x, basis).relu(), 0.5), basis)

    found, expected = compiled(model, x)
    assert_near(found, expected)
    assert_same_gradients(found, expected, [*first.parameters(), *second.parameters()])
    half = compiled(lambda x: F.relu(x) * 0.5, x)[0]
    assert isinstance(half, SparseFeatures)
    assert_near(half.to_dense(), dense.relu() * 0.5)


@silent
@pytest.mark.slow
def test_values_that_learn_are_compiled_or_refused():
    dense, x = pair()
    conv = OuterConv(COLUMNS, 4, "gcn").double()
    basis, value = conv.basis(dense, RING), x.value.clone().requires_grad_()
    learns = x.with_values(value)
    for function, given in (
        (lambda x: conv(x, basis), learns),
        (lambda x: conv(dropout_features(x, 0.5), basis), learns),
        (lambda v: conv(x.with_values(2 * v), basis), value),
    ):
        found, expected = compiled(function, given)
        assert_near(found, expected)
        assert_same_gradients(found, expected, [value])
    with pytest.raises(RuntimeError, match="get no gradients"):
        compiled(lambda x: F.dropout(x, 0.5), learns)
    with pytest.raises(RuntimeError, match="get no gradients"):
        compiled(lambda v: x.with_values(2 * v), value)
