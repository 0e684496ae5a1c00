"""First and second derivatives against numbers, against dense ones, and where they are delicate."""

import pytest
import torch
from matrices import EVERY, HERE, calls_of, csr_of, random_inputs

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import attend, spmm, use_backend
from pyg_outerconv.testing import assert_near


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("heads", [None, 2], ids=lambda heads: f"{heads} heads")
@pytest.mark.parametrize("backend", EVERY)
def test_numerical_derivatives(backend, heads):
    csr = csr_of("repeated entries")
    with use_backend(backend):
        for _, function, shapes in calls_of(backend, csr, 2, heads):
            inputs = random_inputs(shapes)
            assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
            assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("aggr", ["max", "min"])
def test_the_gradient_goes_to_the_first_of_equal_entries(backend, aggr):
    # Row 0 has entries from columns 0, 1 and 2 which are all equal; row 1 has none.
    csr = Pattern.build(torch.tensor([[0, 1, 2], [0, 0, 0]]), size=(3, 2)).by_target
    x = torch.full((3, 2), 5.0, requires_grad=True)
    value = torch.ones(3, requires_grad=True)
    with use_backend(backend):
        out = spmm(csr, value, x, aggr=aggr)
        of_x, of_value = torch.autograd.grad(out.sum(), (x, value))
    assert out.tolist() == [[5.0, 5.0], [0.0, 0.0]]
    assert of_x.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert of_value.tolist() == [10.0, 0.0, 0.0]


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(("aggr", "sign"), [("max", -1.0), ("min", 1.0)])
def test_a_row_of_infinities_has_a_first_entry_too(backend, aggr, sign):
    # Row 0 has an entry from column 0; row 1 has those from columns 1 and 2.
    csr = Pattern.build(torch.tensor([[0, 1, 2], [0, 1, 1]]), size=(3, 2)).by_target
    x = torch.tensor([[1.0], [sign * torch.inf], [sign * torch.inf]], requires_grad=True)
    with use_backend(backend):
        out = spmm(csr, None, x, aggr=aggr)
        out.sum().backward()
    assert out.flatten().tolist() == [1.0, sign * torch.inf]
    assert x.grad.flatten().tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("backend", EVERY)
def test_one_of_the_operands_may_want_no_gradient(backend):
    """Of each operand alone two derivatives are those where all want them."""
    csr = csr_of("wide")
    for _, function, shapes in calls_of(backend, csr, 3, 2):
        inputs = random_inputs(shapes)
        for position, one in enumerate(inputs):
            alone = [x.detach() for x in inputs]
            alone[position].requires_grad_()
            found = []
            with use_backend(backend):
                for given, x in ((inputs, one), (alone, alone[position])):
                    total = function(*given).sin().sum()
                    (first,) = torch.autograd.grad(total, x, create_graph=True)
                    found.append((first, *torch.autograd.grad(first.sin().sum(), x)))
            for actual, expected in zip(found[1], found[0], strict=True):
                assert_near(actual, expected, at_least=1.0)


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("backend", HERE)
def test_the_fused_backward_of_attention_equals_the_differentiable_one(backend, biased):
    csr = csr_of("tall")
    shapes = {"q": (9, 2, 3), "k": (4, 2, 3), "v": (4, 2, 5)} | ({"b": (15, 2)} if biased else {})
    inputs, direction = random_inputs(shapes), torch.randn(9, 2, 5, dtype=torch.float64)
    with use_backend(backend):
        out = attend(csr, *inputs)
        fused = torch.autograd.grad(out, inputs, direction, retain_graph=True)
        unfused = torch.autograd.grad(out, inputs, direction, create_graph=True)
    assert all(gradient.requires_grad for gradient in unfused)
    for actual, expected in zip(fused, unfused, strict=True):
        assert_near(actual, expected.detach(), at_least=1.0)


@pytest.mark.parametrize("backend", HERE)
def test_rows_without_anything_to_attend_to_give_zeros_and_zero_gradients(backend):
    csr = csr_of("tall")
    rows = torch.arange(9).repeat_interleave(csr.ptr.diff())
    assert (csr.ptr.diff() == 0).any()
    masked = int(rows[0])
    query, key, value = random_inputs({"q": (9, 2, 3), "k": (4, 2, 3), "v": (4, 2, 5)})
    bias = torch.zeros(15, 2, dtype=torch.float64).masked_fill_(
        (rows == masked).unsqueeze(-1), -torch.inf
    )
    bias.requires_grad_()
    inputs = (query, key, value, bias)
    with use_backend(backend):
        out = attend(csr, *inputs)
        for create_graph in (False, True):
            found = torch.autograd.grad(
                out.sin().sum(), inputs, retain_graph=True, create_graph=create_graph
            )
            assert all(bool(gradient.isfinite().all()) for gradient in found)
            assert not found[0][masked].any()
            assert not found[3][rows == masked].any()
        second = torch.autograd.grad(sum(gradient.sum() for gradient in found), inputs)
        assert all(bool(gradient.isfinite().all()) for gradient in second)
    assert not out[masked].any()
    assert not out[csr.ptr.diff() == 0].any()
    assert out[rows.unique()[1:]].any(-1).all()
