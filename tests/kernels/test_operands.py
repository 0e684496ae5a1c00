"""What primitives take: tensors, on one device, with numbers or without."""

import inspect
import itertools
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyg_outerconv import kernels
from pyg_outerconv.errors import Refused
from pyg_outerconv.kernels import CSR
from pyg_outerconv.kernels.grouped import grouped_matmul, grouped_outer
from pyg_outerconv.testing import assert_near


def ints(*numbers):
    return torch.tensor(numbers)


def matrix():
    return CSR(ints(0, 2, 3, 3), ints(0, 2, 1), 3)


def dense(*shape):
    return torch.randn(shape)


def attended(**beside):
    """Operands of attention of three targets to five sources."""
    return {"query": dense(3, 2, 4), "key": dense(5, 2, 4), "value": dense(5, 2, 6), **beside}


def grouped(**beside):
    return {"x": dense(3, 2), "ptr": ints(0, 1, 3), "theta": dense(2, 2, 4), **beside}


PLACES = {"gather": ints(0, 1, 2), "scatter": ints(3, 4, 5)}
BLOCKS = {"source_block": ints(0, 0, 1, 1, 1), "target_block": ints(0, 1, 1)}
CALLS = {
    # name: (primitive, operands, options)
    "spmm": ("spmm", lambda: {"value": dense(3), "x": dense(3, 4)}, {}),
    "spmm, max": ("spmm", lambda: {"value": dense(3, 2), "x": dense(3, 2, 4)}, {"aggr": "max"}),
    "spmm, mean": ("spmm", lambda: {"value": None, "x": dense(3, 4)}, {"aggr": "mean"}),
    "sddmm": ("sddmm", lambda: {"a": dense(3, 2), "b": dense(3, 2)}, {}),
    "sddmm, add": ("sddmm", lambda: {"a": dense(3, 2), "b": dense(3, 2)}, {"op": "add"}),
    "segment_softmax": ("segment_softmax", lambda: {"score": dense(3, 2)}, {}),
    "additive": (
        "additive",
        lambda: {"a": dense(3, 2, 4), "b": dense(3, 2, 4), "weight": dense(2, 4)},
        {},
    ),
    "attend": (
        "attend",
        lambda: {**dict.fromkeys(("query", "key", "value"), dense(3, 2, 4)), "bias": dense(3, 2)},
        {},
    ),
    "attend_all": ("attend_all", lambda: attended(bias=dense(3, 5, 2)), {}),
    "attend_all, masked": ("attend_all", lambda: attended(source_mask=dense(5) > 0), {}),
    "attend_all, causal": (
        "attend_all",
        lambda: attended(source_mask=dense(5) > 0),
        {"causal": 0},
    ),
    "attend_band": ("attend_band", attended, {"left": 1, "right": 1}),
    "attend_band, masked": (
        "attend_band",
        lambda: attended(source_mask=dense(5) > 0),
        {"left": 1, "right": 1},
    ),
    "attend_blocks": ("attend_blocks", attended, {"blocks": kernels.blocks_of(**BLOCKS)}),
    "blocks_of": ("blocks_of", lambda: dict(BLOCKS), {}),
    "grouped_matmul": ("grouped_matmul", grouped, {}),
    "grouped_matmul, scattered": (
        "grouped_matmul",
        lambda: grouped(**PLACES),
        {"num_rows": 9},
    ),
    "grouped_outer": (
        "grouped_outer",
        lambda: {"x": dense(3, 2), "ptr": ints(0, 1, 3), "y": dense(3, 4)},
        {},
    ),
}
OF_NUMBERS = {"attend_blocks", "blocks_of"}  # sizes of blocks are numbers
of_each_call = pytest.mark.parametrize("name", CALLS)


def prepared(name):
    """The primitive, its operands by name, with a matrix where it takes one, and its options."""
    primitive, make, options = CALLS[name]
    call = {"grouped_outer": grouped_outer}.get(primitive) or getattr(kernels, primitive)
    operands = make()
    if "csr" in inspect.signature(call).parameters:
        operands = {"csr": matrix(), **operands}
    return call, operands, options


def moved(operand, change):
    """An operand with each of its tensors changed."""
    if isinstance(operand, CSR):
        return CSR(change(operand.ptr), change(operand.index), operand.shape[1])
    return operand if operand is None else change(operand)


def differentiated(call, operands, options):
    """The result, after a backward pass."""
    floats = [x for x in operands.values() if torch.is_tensor(x) and x.is_floating_point()]
    for x in floats:
        x.requires_grad_()
    out = call(**operands, **options)
    out.sum().backward()
    assert all(x.grad.shape == x.shape and x.grad.device == out.device for x in floats)
    return out


@of_each_call
def test_operands_are_on_one_device(name):
    call, operands, options = prepared(name)
    present = [key for key, operand in operands.items() if operand is not None]
    for count in range(1, len(present)):
        for chosen in itertools.combinations(present, count):
            mixed = {
                key: moved(operand, lambda x: x.to("meta")) if key in chosen else operand
                for key, operand in operands.items()
            }
            with pytest.raises(Refused, match="device|with values"):
                call(**mixed, **options)


@of_each_call
def test_operands_without_numbers_give_shapes(name):
    call, operands, options = prepared(name)
    meta = {key: moved(operand, lambda x: x.to("meta")) for key, operand in operands.items()}
    if name in OF_NUMBERS:
        with pytest.raises(Refused, match="device|with values"):
            call(**meta, **options)
        return
    expected = differentiated(call, operands, options)
    actual = differentiated(call, meta, options)
    assert actual.is_meta
    with FakeTensorMode() as mode:
        fake = {key: moved(operand, mode.from_tensor) for key, operand in prepared(name)[1].items()}
        faked = differentiated(call, fake, options)
    for one in (actual, faked):
        assert (one.shape, one.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("gather", [None, ints(2, 0, 1, 1)])
def test_rows_beyond_the_products_are_zero(gather):
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    ptr = ints(0, 1, 4)

    def product(x, theta):
        return grouped_matmul(x, ptr, theta, gather=gather, num_rows=9)

    rows = x if gather is None else x[gather]
    expected = torch.cat([rows[:1] @ theta[0], rows[1:] @ theta[1], x.new_zeros(5, 3)])
    assert_near(product(x, theta), expected)
    assert torch.autograd.gradcheck(product, (x, theta))
    with pytest.raises(Refused, match="a row for each product: expected 4, got 3"):
        grouped_matmul(x, ptr, theta, num_rows=3)


@of_each_call
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_operands_are_floating_point(name, dtype):
    call, operands, options = prepared(name)
    floats = [key for key, x in operands.items() if torch.is_tensor(x) and x.is_floating_point()]
    with pytest.raises(Refused, match="dtype|float") if floats else nullcontext():
        call(**{**operands, **{key: operands[key].to(dtype) for key in floats}}, **options)
