"""torch's functions of sparse features give what they give of the dense matrix, and stay sparse."""

import pytest
import torch
import torch.nn.functional as F
from bags import bag
from torch import Tensor

from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.graph.sparse_functions.table import _said
from pyg_outerconv.testing import assert_near

M, P, Q = 7, 6, 3
SHAPES = {
    "W": (P, Q),
    "W'": (Q, P),
    "b": (Q,),
    "v": (P,),
    "u": (M,),
    "D": (Q, M),
    "E": (M, Q),
    "rows": (M, 1),
    "columns": (1, P),
    "full": (M, P),
    "one": (),
    "B": (M, Q),
}

# Functions of X and of dense operands, by name: what they are called with in order.
DENSE_RESULTS = {
    "F.linear": (lambda x, w, b: F.linear(x, w, b), "W'", "b"),
    "F.linear without bias": (F.linear, "W'"),
    "mm": (torch.mm, "W"),
    "matmul": (torch.matmul, "W"),
    "@": (lambda x, w: x @ w, "W"),
    "matrix of keyword": (lambda x, w: torch.mm(x, mat2=w), "W"),
    "x.mm": (lambda x, w: x.mm(w), "W"),
    "mv": (torch.mv, "v"),
    "@ vector": (lambda x, v: x @ v, "v"),
    "D @ x": (lambda x, d: d @ x, "D"),
    "vector @ x": (lambda x, u: u @ x, "u"),
    "addmm": (lambda x, b, w: torch.addmm(b, x, w, beta=0.5, alpha=2), "B", "W"),
    "b.addmm": (lambda x, b, w: b.addmm(x, w), "B", "W"),
    "x.t() @ y": (lambda x, y: x.t() @ y, "E"),
    "x.T @ y": (lambda x, y: x.T @ y, "E"),
    "transpose": (lambda x, y: x.transpose(0, 1) @ y, "E"),
    "permute": (lambda x, y: x.permute(1, 0) @ y, "E"),
    "twice transposed": (lambda x, w: x.t().t() @ w, "W"),
    "sum": (torch.sum,),
    "sum of rows": (lambda x: x.sum(-1),),
    "sum of columns": (lambda x: x.sum(0),),
    "sums kept": (lambda x: x.sum(dim=1, keepdim=True),),
    "sums of columns kept": (lambda x: x.sum(0, keepdim=True),),
    "sum of both": (lambda x: x.sum((0, 1)),),
    "mean": (torch.mean,),
    "mean of rows": (lambda x: x.mean(1),),
    "mean of columns": (lambda x: x.mean(0),),
    "min": (torch.min,),
    "max": (lambda x: x.max(),),
    "amax": (torch.amax,),
    "amin": (torch.amin,),
    "a row": (lambda x: x[2],),
    "the last row": (lambda x: x[-1],),
    "a number's row": (lambda x: x[torch.tensor(3)],),
    "a column": (lambda x: x[:, 1],),
    "select": (lambda x: x.select(1, 4),),
    "to_dense": (lambda x: x.to_dense(),),
    "index_add": (
        lambda x, f: f.index_add(0, torch.tensor([0, 2, 2, 6, 1, 0, 3]), x, alpha=2),
        "full",
    ),
    "scatter_add": (
        lambda x, f: (f * 1).scatter_add_(
            0, torch.tensor([0, 2, 2, 6, 1, 0, 3])[:, None].expand(M, P), x
        ),
        "full",
    ),
}
SPARSE_RESULTS = {
    "relu": (F.relu,),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1),),
    "elu": (F.elu,),
    "tanh": (torch.tanh,),
    "gelu": (F.gelu,),
    "silu": (F.silu,),
    "abs": (torch.abs,),
    "neg": (lambda x: -x,),
    "square": (torch.square,),
    "pow": (lambda x: x**2,),
    "sign": (torch.sign,),
    "sin": (lambda x: x.sin(),),
    "expm1": (torch.expm1,),
    "log1p": (lambda x: x.abs().log1p(),),
    "clamp": (lambda x: x.clamp(-0.5, 0.5),),
    "clamp min": (lambda x: x.clamp(min=0.0),),
    "clamp max": (lambda x: torch.clamp(x, max=0.25),),
    "hardtanh": (F.hardtanh,),
    "softsign": (F.softsign,),
    "mish": (F.mish,),
    "nan_to_num": (torch.nan_to_num,),
    "x * 2": (lambda x: x * 2,),
    "2 * x": (lambda x: 2 * x,),
    "x / 3": (lambda x: x / 3,),
    "mul": (lambda x: torch.mul(x, 0.5),),
    "x * number": (lambda x, one: x * one, "one"),
    "number * x": (lambda x, one: one * x, "one"),
    "x * rows": (lambda x, r: x * r, "rows"),
    "x / rows": (lambda x, r: x / (2 + r.tanh()), "rows"),
    "x * columns": (lambda x, c: x * c, "columns"),
    "x * vector": (lambda x, v: x * v, "v"),
    "x * full": (lambda x, f: x * f, "full"),
    "full * x": (lambda x, f: f * x, "full"),
    "x * x": (lambda x: x * x,),
    "x + x": (lambda x: x + x,),
    "x - x / 2": (lambda x: x - x / 2,),
    "x + 0": (lambda x: x + 0,),
    "x - zero": (lambda x: x - torch.zeros(()).double(),),
    "0 + x": (lambda x: 0 + x,),
    "other pattern": (
        lambda x: x + x.flip(0) if type(x) is Tensor else x + x[list(range(M))[::-1]],
    ),
    "other product": (
        lambda x: x * x.flip(0) if type(x) is Tensor else x * x[list(range(M))[::-1]],
    ),
    "clone": (lambda x: x.clone(),),
    "contiguous": (lambda x: x.contiguous(),),
    "float": (lambda x: x.float(),),
    "to": (lambda x: x.to(torch.float32),),
    "to cpu": (lambda x: x.to("cpu", torch.float32),),
    "cpu": (lambda x: x.cpu(),),
    "type_as": (lambda x: x.type_as(torch.zeros(1)),),
    "slice": (lambda x: x[1:5],),
    "steps": (lambda x: x[::2],),
    "empty": (lambda x: x[3:3],),
    "reversed": (lambda x: x[[5, 4, 3]],),
    "rows": (lambda x: x[torch.tensor([3, 0, 3, -1])],),
    "mask": (lambda x: x[torch.arange(M) % 2 == 0],),
    "no rows": (lambda x: x[torch.zeros(M, dtype=torch.bool)],),
    "all": (lambda x: x[:],),
    "dots": (lambda x: x[...],),
    "rows and columns": (lambda x: x[torch.tensor([3, 0]), 1:4],),
    "columns": (lambda x: x[:, torch.tensor([5, 1, 1])],),
    "mask of columns": (lambda x: x[:, torch.arange(P) > 2],),
    "last columns": (lambda x: x[..., 2:],),
    "index_select": (lambda x: x.index_select(0, torch.tensor([1, 1, 6])),),
    "index_select columns": (lambda x: torch.index_select(x, 1, torch.tensor([5, 0, 5])),),
    "negative dimension": (lambda x: x.index_select(-2, torch.tensor([2], dtype=torch.int32)),),
    "narrow": (lambda x: x.narrow(0, 2, 3),),
    "narrow columns": (lambda x: torch.narrow(x, 1, 1, 4),),
    "split": (lambda x: x.split(3)[1],),
    "split columns": (lambda x: torch.split(x, [2, 4], -1)[1],),
    "cat": (lambda x: torch.cat([x, x * 2, x[:1]]),),
    "cat columns": (lambda x: torch.cat([x, x[:, :2], 3 * x], dim=-1),),
    "vstack": (lambda x: torch.vstack([x, x]),),
    "hstack": (lambda x: torch.hstack((x, x)),),
    "t": (lambda x: x.t(),),
    "mT": (lambda x: x.mT,),
    "view": (lambda x: x.view(-1, P),),
    "reshape": (lambda x: x.reshape(M, P),),
    "squeeze": (lambda x: x.squeeze(),),
    "normalised": (lambda x: F.relu(x) / F.relu(x).sum(-1, keepdim=True).clamp(min=1.0),),
}
ALL = {**DENSE_RESULTS, **SPARSE_RESULTS}


def operands(names, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(SHAPES[name], dtype=torch.float64).requires_grad_() for name in names]


def learned(seed=0):
    """Sparse features and the dense matrix, both with values that learn; X has a stored zero."""
    dense = bag(M, P, seed).requires_grad_()
    x = SparseFeatures.of(dense.detach())
    return dense, x.with_values(x.value.clone().requires_grad_())


def same_gradients(found, expected, dense, x, others):
    direction = torch.randn(expected.shape, dtype=expected.dtype)
    kept = found.to_dense() if isinstance(found, SparseFeatures) else found
    of_values, *rest = torch.autograd.grad(
        kept, [x.value, *others], direction, materialize_grads=True, allow_unused=True
    )
    of_dense, *wanted = torch.autograd.grad(
        expected, [dense, *others], direction, materialize_grads=True, allow_unused=True
    )
    row, column = x.nonzero().unbind(1)
    assert_near(of_values, of_dense[row, column])
    for one, reference in zip(rest, wanted, strict=True):
        assert_near(one, reference)


@pytest.fixture(autouse=True)
def _nothing_said():
    _said.clear()


@pytest.mark.filterwarnings("error::pyg_outerconv.graph.BecameDense")
@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients_are_those_of_the_dense_matrix(name):
    function, *names = ALL[name]
    dense, x = learned()
    others = operands(names)
    found, expected = function(x, *others), function(dense, *others)
    assert isinstance(found, SparseFeatures) == (name in SPARSE_RESULTS)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert_near(found.to_dense() if name in SPARSE_RESULTS else found, expected)
    if expected.requires_grad:
        same_gradients(found, expected, dense, x, others)
