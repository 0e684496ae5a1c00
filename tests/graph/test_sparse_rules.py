"""Every function of torch: by its rule it stays sparse, or it runs on a dense copy and says so."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from bags import bag
from torch import Tensor, nn
from torch.overrides import get_overridable_functions, resolve_name
from torch.utils._pytree import tree_flatten

from pyg_outerconv.errors import RefusedIndex
from pyg_outerconv.graph import BecameDense, SparseFeatures, sparse_rules
from pyg_outerconv.graph.sparse_features import RULES, _said, writes
from pyg_outerconv.testing import assert_near

M, P, Q = 7, 6, 3
silent = pytest.mark.filterwarnings("error::pyg_outerconv.graph.BecameDense")


@pytest.fixture(autouse=True)
def _nothing_said():
    _said.clear()


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def learned(seed=0):
    """A dense matrix of numbers in (−1, 1), and its sparse features; both learn."""
    dense = bag(M, P, seed).tanh().requires_grad_()
    x = SparseFeatures.of(dense.detach())
    return dense, x.with_values(x.value.clone().requires_grad_())


class Self:
    """Stands for the features themselves, times a number, where they are a second argument."""

    def of(self, x):
        return 2 * x


def scales(*, bounds=0.0, own=True):
    shapes = [(M, 1), (1, P), (P,), (M, P), (), (1, 1), (1,)]
    for shape in shapes:
        yield (drawn(*shape) if not bounds else (bounds + drawn(*shape) ** 2).detach(),)
    yield from [(0.5,), (-3,)] + [(Self(),)] * own


# What functions are called with beside X, by name; each of these in turn. Without a name: nothing.
INDEX = torch.tensor([3, 0, 3, 6])
GROUP = torch.tensor([0, 2, 2, 6, 1, 0, 3])
BESIDE = {
    "mul": list(scales()),
    "div": list(scales(bounds=0.5, own=False)),
    "add": [(0,), (0.0,), (torch.zeros(()).double(),), (torch.zeros(M, 1).double(),), (Self(),)],
    "pow": [(2,), (3.0,), (1,)],
    "clamp": [(-0.5, 0.4), (None, 0.1), (0.0,)],
    "clamp_min": [(-0.2,), (0,)],
    "clamp_max": [(0.3,), (0.0,)],
    "threshold": [(0.1, 0.0)],
    "leaky_relu": [(), (0.3,)],
    "to": [(torch.float32,), ("cpu",), (torch.zeros(1),), ("cpu", torch.float32)],
    "type": [(torch.float32,)],
    "type_as": [(torch.zeros(1),)],
    "new_full": [((2, 3), 1.5)],
    "full_like": [(1.5,)],
    "new_tensor": [([1.0],)],
    **{name: [((2, 3),)] for name in ("new_empty", "new_ones", "new_zeros")},
    "getitem": [
        *[(slice(1, 5),), (slice(None, None, 2),), (slice(3, 3),), (slice(None),), (Ellipsis,)],
        *[([5, 4, 3],), (torch.tensor([3, 0, 3, -1]),), (torch.arange(M) % 2 == 0,), ([],)],
        *[((INDEX, slice(1, 4)),), ((slice(None), torch.tensor([5, 1, 1])),)],
        *[((slice(None), torch.arange(P) > 2),), ((Ellipsis, slice(2, None)),)],
        *[(2,), (-1,), (torch.tensor(3),), ((slice(None), 1),), ((2, slice(1, 3)),)],
    ],
    "index_select": [(0, INDEX), (-2, INDEX.int()), (1, torch.tensor([5, 0, 5])), (0, INDEX[:0])],
    "narrow": [(0, 2, 3), (1, 1, 4), (0, -3, 2), (-1, 0, 0)],
    "select": [(0, 2), (1, 4), (-1, -1)],
    "split": [(3,), ([2, 4], -1), (4, 1)],
    "split_with_sizes": [([3, 4],), ([1, 2, 3], 1)],
    "cat": [(0,), (1,), (-1,)],
    "sum": [(), (0,), (1,), (-1, True), (0, True), (None, True)],
    "normalize": [(), (1.0,), (3.0, 0), (2.0, -1, 0.5)],
    "linear": [(drawn(Q, P),), (drawn(Q, P), drawn(Q)), (drawn(P),)],
    "mm": [(drawn(P, Q),)],
    "matmul": [(drawn(P, Q),), (drawn(P),)],
    "mv": [(drawn(P),)],
    "rmatmul": [(drawn(Q, M),), (drawn(M),)],
}
SAME = {
    **dict.fromkeys(["multiply", "rmul", "imul"], "mul"),
    **dict.fromkeys(["divide", "true_divide", "truediv", "itruediv", "idiv"], "div"),
    **dict.fromkeys(["sub", "subtract", "radd", "iadd", "rsub", "isub"], "add"),
    **dict.fromkeys(["float_power", "ipow"], "pow"),
    "new_index_select": "index_select",
    "new_select": "select",  # PyG's, in their place
    "clip": "clamp",
    "mean": "sum",
    "concat": "cat",
    "concatenate": "cat",
}
NO_GRADIENT = {"asinh_", "arcsinh_", "atanh_", "arctanh_"}  # torch has none in place
STAYS = ["pointwise", "on_values", "getitem", "index_select", "narrow", "split", "transpose"]
STAYS += ["cat", "normalize"]
BECOMES = ["select", "total", "extreme", "linear", "matmul", "add_rows", "to_dense", "of_shape"]
OF_TENSORS = {"requires_grad_", "retain_grad", "backward", "is_shared", "is_pinned", "pin_memory"}
APART = OF_TENSORS | {"new", "cuda", "half", "bfloat16", "expand_as", "view_as", "reshape_as"}


def plain_name(function):
    """``mul`` of ``mul_`` and of ``__mul__``."""
    return function.__name__.strip("_") if function.__name__ != "t" else "t"


TABLE = sorted(
    [
        function
        for function, rule in RULES.items()
        if rule.__name__ in (*STAYS, *BECOMES)
        and resolve_name(function)
        and not {"__get__", "__set__", "__delete__", *APART} & {function.__name__}
    ],
    key=resolve_name,
)


def call(function, x, beside):
    """The function of X, or of a tensor of the same numbers in memory of its own if it writes."""
    beside = [b.of(x) if isinstance(b, Self) else b for b in beside]
    name = plain_name(function)
    if RULES[function] is sparse_rules.cat:
        dim = beside[0]
        return function([x, x * 2, x[:2] if dim == 0 else x[:, :2]], dim)
    if RULES[function] is sparse_rules.add_rows:
        index = GROUP if name == "index_add" else GROUP[:, None].expand(M, P)
        return function(torch.ones(M, P).double(), 0, index, x)
    return function(x * 1 if writes(function, {}) else x, *beside)


def assert_same(actual, expected, sparse):
    assert isinstance(actual, SparseFeatures) == sparse
    actual = actual.to_dense() if sparse else actual
    if not isinstance(expected, Tensor):
        assert actual == expected
        return
    assert_near(actual.nan_to_num(), expected.nan_to_num())
    assert torch.equal(actual.isnan(), expected.isnan())


@silent
@pytest.mark.filterwarnings("ignore:.*floor_divide|.*deprecated")
@pytest.mark.parametrize("function", TABLE, ids=resolve_name)
def test_a_function_of_the_table_gives_what_it_gives_of_the_dense_matrix(function):
    name = plain_name(function)
    for seed, beside in enumerate(BESIDE.get(SAME.get(name, name), [()])):
        dense, x = learned(seed)
        actual, expected = call(function, x, beside), call(function, dense, beside)
        if "empty" in name or name in ("rand_like", "randn_like"):
            assert (type(actual), actual.shape, actual.dtype) == (
                Tensor,
                expected.shape,
                dense.dtype,
            )
            continue
        for one, wanted in zip(*map(parts_of, (actual, expected)), strict=True):
            of_one = isinstance(wanted, Tensor) and wanted.dim() == 2
            stays = RULES[function].__name__ in STAYS and of_one
            assert_same(one, wanted, stays)
            if of_one and wanted.requires_grad and function.__name__ not in NO_GRADIENT:
                same_gradients(one, wanted, dense, x, [b for b in beside if learns(b)])


def parts_of(out):
    return list(out) if isinstance(out, tuple) else [out]


def learns(x):
    return isinstance(x, Tensor) and x.requires_grad


def same_gradients(actual, expected, dense, x, others):
    direction = torch.randn(expected.shape, dtype=expected.dtype)
    actual = actual.to_dense() if isinstance(actual, SparseFeatures) else actual
    options = {"materialize_grads": True, "allow_unused": True, "retain_graph": True}
    of_values, *rest = torch.autograd.grad(actual, [x.value, *others], direction, **options)
    of_dense, *wanted = torch.autograd.grad(expected, [dense, *others], direction, **options)
    row, column = dense.detach().nonzero().unbind(1)
    assert_near(of_values.nan_to_num(), of_dense[row, column].nan_to_num())
    for one, reference in zip(rest, wanted, strict=True):
        assert_near(one, reference)


def test_the_law_above_is_of_all_rules():
    rules = {rule.__name__ for rule in RULES.values()}
    apart = {"of_shell", "gradient", "gradients", "hook", "share", "dropout"}
    assert rules == {*STAYS, *BECOMES} | apart
    assert {RULES[function].__name__ for function in TABLE} == {*STAYS, *BECOMES}


# All other functions ------------------------------------------------------------------------------

# Of ComplexHalf nothing is compared, lstsq returns memory that nothing was written to, and where
# Python's operators in place refuse, it goes on with x = x // y.
NOT_TRIED = ("chalf", "lstsq", "__ifloordiv__", "__imod__")
HOMES = (torch, F, torch.special, torch.linalg, Tensor)
OTHERS = sorted(
    {
        f
        for home, names in get_overridable_functions().items()
        for f in names
        if home in HOMES and f not in RULES and callable(f) and resolve_name(f)
        if f.__name__ not in (*NOT_TRIED, "__get__")
    },
    key=resolve_name,
)


def outcome(function, *args):
    """What a function returns, or the type of its error."""
    torch.manual_seed(0)
    try:
        return function(*args)
    except Exception as error:  # whatever torch raises of the dense matrix is compared
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("beside", [0, 1])
@pytest.mark.parametrize("part", range(6))
def test_any_other_function_runs_on_a_dense_copy_and_says_so_once(part, beside):
    tried, dense = 0, bag(M, M, 3).tanh() + 0.0  # without −0
    for function in OTHERS[part::6]:
        x, others = SparseFeatures.of(dense), [dense] * beside
        expected = outcome(function, dense.clone(), *others)
        if isinstance(expected, type) or expected is NotImplemented:
            continue
        _said.clear()
        if writes(function, {}):
            with pytest.raises(TypeError, match="does not change sparse features in place"):
                function(x, *others)
        else:
            with pytest.warns(BecameDense, match=r"has no rule .* 7 x 7 \(0\.00037"):
                same_leaves(outcome(function, x, *others), expected, resolve_name(function))
            assert len(_said) == 1
        assert torch.equal(x.to_dense(), dense)
        tried += 1
    assert tried > 15


def same_leaves(actual, expected, name):
    ours, theirs = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(ours) == len(theirs), name
    for one, reference in zip(ours, theirs, strict=True):
        assert type(one) is type(reference), name
        if isinstance(one, Tensor) and "empty" not in name:
            one, reference = one.to_dense().nan_to_num(), reference.to_dense().nan_to_num()
            assert torch.equal(one, reference), name


def test_the_warning_is_said_once_and_names_the_function():
    dense, x = bag(M, P), SparseFeatures.of(bag(M, P))
    with pytest.warns(BecameDense, match=r"torch\.exp has no rule .* 7 x 6 \(0\.00032 MiB\)"):
        assert_near(torch.exp(x), dense.exp())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_near(torch.exp(x), dense.exp())


ELSEWHERE = {  # functions of the table whose result is not sparse for these arguments
    "f(0) is 1": lambda x: x.clamp(min=0.5),
    "plus one": lambda x: x + 1,
    "1 - x": lambda x: 1 - x,
    "0 ** 0": lambda x: x**0,
    "0 / 0": lambda x: x / torch.tensor([1.0, 0, 1, 1, 1, 1]).double(),
    "0 * inf": lambda x: x * torch.full((M, 1), torch.inf).double(),
    "0 * nan": lambda x: x * float("nan"),
    "1 / x": lambda x: torch.div(torch.ones(P).double(), x).abs(),  # there is a −0
    "complex": lambda x: x * torch.ones(P, dtype=torch.complex128),
    "learned addend": lambda x: x + torch.zeros(P).double().requires_grad_(),
    "more dimensions": lambda x: x * torch.ones(2, M, P).double(),
    "other pattern": lambda x: x * x[[6, 5, 4, 3, 2, 1, 0]],
    "integers": lambda x: x.to(torch.long),
    "a mask": lambda x: x[torch.ones(M, P, dtype=torch.bool)],
    "numbers": lambda x: x[[0, 1], [2, 3]],
    "both sums": lambda x: x.sum((0, 1)),
    "norm of inf": lambda x: F.normalize(x, p=torch.inf),
    "dense beside": lambda x: torch.cat([x, torch.ones(M, 1).double()], dim=1),
    "dense first": lambda x: torch.cat([torch.ones(1, P).double(), x]),
    "itself below": lambda x: torch.ones(M, P).double().add_(x),
    "view": lambda x: x.view(P, M),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_would_not_stay_sparse_becomes_dense(name):
    dense = bag(M, P)
    expected = ELSEWHERE[name](dense)
    with pytest.warns(BecameDense):
        actual = ELSEWHERE[name](SparseFeatures.of(dense))
    assert type(actual) is Tensor
    torch.testing.assert_close(actual, expected, equal_nan=True)
    assert actual.requires_grad == expected.requires_grad


@silent
def test_rows_out_of_range_are_refused():
    x = SparseFeatures.of(bag(M, P))
    for call_of, message in (
        (lambda: x[M], r"lie in range: expected within \[0, 7\), got \[7, 8\)"),
        (lambda: x.narrow(1, 4, 3), r"expected within \[0, 6\), got \[4, 7\)"),
        (lambda: x[torch.ones(P, dtype=torch.bool)], r"a boolean for each: expected shape \(7,\)"),
    ):
        with pytest.raises(RefusedIndex, match=message):
            call_of()
    with pytest.raises(IndexError):
        x[torch.tensor([M])]


# In place -----------------------------------------------------------------------------------------


@silent
def test_rows_are_a_view_and_other_selections_are_not():
    dense, x = bag(M, P), SparseFeatures.of(bag(M, P))
    seen = x.detach()
    for both in (dense, x):
        both[2:5].mul_(3)
        both.narrow(0, 1, 2).div_(2)
        F.relu(both, inplace=True)
        both[[0, 1]].mul_(100)
        both.clone().mul_(100)
        both.t().clone().mul_(100)
        (both - 0).mul_(100)
    assert_near(x.to_dense(), dense)
    assert_near(seen.to_dense(), dense)


REFUSED = {
    "add_": lambda x: x.add_(1),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "copy_": lambda x: x.copy_(torch.ones(M, P)),
    "div_ zero": lambda x: x.div_(0),
    "clamp_": lambda x: x.clamp_(min=0.5),
    "out": lambda x: torch.mm(torch.ones(M, M).double(), x.to_dense(), out=x),
    "F.threshold": lambda x: F.threshold(x, 0.1, 1.0, inplace=True),
    "transpose": lambda x: x.t().mul_(2),
    "columns": lambda x: x[:, 1:].mul_(2),
    "seen columns": lambda x: x[:, 1:].detach().mul_(2),
    "data": lambda x: setattr(x, "data", torch.ones(M, P)),
    "another gradient": lambda x: setattr(x, "grad", x[[6, 5, 4, 3, 2, 1, 0]]),
    "dropout of a transpose": lambda x: F.dropout(x.t(), 0.5, inplace=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_write_to_a_copy_is_refused(name):
    dense, x = bag(M, P), SparseFeatures.of(bag(M, P))
    with pytest.raises(TypeError, match="does not change .* expected the function .* got Sparse"):
        REFUSED[name](x)
    assert torch.equal(x.to_dense(), dense)


# Dropout and gradients ----------------------------------------------------------------------------


@silent
@pytest.mark.parametrize("inplace", [False, True])
def test_dropout_keeps_the_pattern_and_the_law(inplace):
    torch.manual_seed(0)
    x = SparseFeatures.of(torch.ones(100, 50) * (torch.rand(100, 50) < 0.5))
    module, draws = nn.Dropout(0.25, inplace=inplace), []
    for _ in range(20):
        features = x.clone()
        draws.append(module(features))
        assert (draws[-1] is features) == inplace
        assert draws[-1].csr is x.csr
    values = torch.stack([draw.value for draw in draws])
    assert set(values.unique().tolist()) == {0.0, float(torch.tensor(4 / 3))}
    assert abs(float((values == 0).float().mean()) - 0.25) < 0.01
    assert module.eval()(x) is x
    assert not F.dropout(x, 1.0).value.any()
    with pytest.raises(ValueError, match="probability"):
        F.dropout(x, 1.5)


@silent
def test_gradients_are_asked_for_as_of_any_tensor():
    dense, x = bag(M, P), SparseFeatures.of(bag(M, P))
    assert not x.requires_grad
    assert x.requires_grad_() is x
    assert (x.requires_grad, x.is_leaf, x.grad) == (True, True, None)
    seen = []
    x.register_hook(seen.append)
    weight = torch.randn(P, 2, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((x @ weight).sum(), x)
    expected = weight.sum(1).expand(M, P) * (dense != 0)
    (x @ weight).sum().backward()
    for one in (gradient, x.grad, *seen):
        assert isinstance(one, SparseFeatures)
        assert_near(one.to_dense(), expected)
    assert len(seen) == 2
    assert not x.detach().requires_grad
    assert (2 * x).grad_fn is not None
    x.grad = None
    assert x.value.grad is None


def test_what_runs_below_autograd_is_refused_where_values_learn():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
                return torch.add(x, x)

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    dense, x = bag(M, P), SparseFeatures.of(bag(M, P))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BecameDense)
        assert_near(Double.apply(x), 2 * dense)
    with pytest.raises(TypeError, match="below autograd"):
        Double.apply(x.requires_grad_())
