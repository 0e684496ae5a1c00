"""What every primitive means, entry by entry in plain torch, and whether two results are one."""

import math

import torch

from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.testing.reference import derivatives


def spmm(rows, cols, shape, value, x, aggr):
    """(R, H, channels) from value (E, H) and x (C, H, channels)."""
    messages, out = value.unsqueeze(-1) * x[cols], []
    for row in range(shape[0]):
        mine = messages[rows == row]
        if len(mine) == 0:
            out.append(torch.zeros_like(x[0]))
        elif aggr in ("max", "min"):
            out.append(getattr(mine, f"a{aggr}")(0))
        else:
            out.append(getattr(mine, aggr)(0))
    return torch.stack(out)


def softmax(rows, score):
    """(E, H) from score (E, H), row by row."""
    out = torch.zeros_like(score)
    for row in rows.unique():
        mine = (rows == row).nonzero().view(-1)
        out = out.index_put((mine,), score[mine].softmax(0))
    return out


def attend(rows, cols, shape, query, key, value, bias=None):
    """(R, H, V), with a softmax of scaled products."""
    score = (query[rows] * key[cols]).sum(-1) / math.sqrt(query.size(2))
    share = softmax(rows, score if bias is None else score + bias)
    return spmm(rows, cols, shape, share, value, "sum")


def attend_ends(rows, cols, shape, at_target, at_source, value):
    """(R, H, V), with a softmax of a leaky ReLU, with slope 0.2, of sums of both ends."""
    z = at_target[rows] + at_source[cols]
    share = softmax(rows, torch.where(z > 0, z, 0.2 * z))
    return spmm(rows, cols, shape, share, value, "sum")


def additive(rows, cols, a, b, weight, form):
    """(E, H), of a leaky ReLU with slope 0.2, of tanh, of exp or of squares."""
    z = a[rows] + b[cols]
    bent = {"tanh": torch.tanh, "exp": torch.exp, "square": torch.square}.get(
        form, lambda z: torch.where(z > 0, z, 0.2 * z)
    )
    return (weight * bent(z)).sum(-1)


def primitive(name, csr):
    """The function that a call of :func:`primitive_calls` (with heads) should be equal to."""
    shape, cols = csr.shape, csr.index.long()
    rows = torch.arange(shape[0], device=cols.device).repeat_interleave(csr.ptr.diff())
    word, _, form = name.partition(" ")
    return {
        "spmm": lambda v, x: spmm(rows, cols, shape, v, x, form),
        "sddmm": lambda a, b: (a[rows] * b[cols]).sum(-1) if form == "dot" else a[rows] + b[cols],
        "segment_softmax": lambda score: softmax(rows, score),
        "attend": lambda *tensors: (attend_ends if form == "ends" else attend)(
            rows, cols, shape, *tensors
        ),
        "additive": lambda *tensors: additive(rows, cols, *tensors, form),
        "grouped_matmul": lambda x, theta: (x.unsqueeze(1) @ theta[rows]).squeeze(1),
    }[word]


def assert_same(actual, expected, inputs, tolerance=None):
    """Results that are near each other, and their gradients in whatever of the inputs has one."""
    assert_near(actual, expected, tolerance)
    assert_same_gradients(actual, expected, inputs, tolerance)


def assert_same_derivatives(actual, expected, inputs, depth=1, tolerance=None, at_least=0.1):
    """Results that are near each other, and their derivatives up to some order."""
    both = (derivatives(out, inputs, depth) for out in (actual, expected))
    for derivative, wanted in zip(*both, strict=True):
        assert_near(derivative, wanted, tolerance, at_least)


def steps(function, inputs):
    """What a function gives, and the gradients of a sum of sines of it."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves)
    out.sin().sum().backward()
    return [out, *(torch.zeros_like(x) if x.grad is None else x.grad for x in leaves)]


def assert_same_steps(one, other, inputs, at_least=0.1, exactly=False):
    """Two functions give the same, and the same gradients."""
    for actual, expected in zip(steps(one, inputs), steps(other, inputs), strict=True):
        assert_near(actual, expected, 0.0 if exactly else None, at_least)
