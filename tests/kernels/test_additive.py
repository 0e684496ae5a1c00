"""Additive scores: their functions, derivatives of high orders, extremes, and what is refused."""

import pytest
import torch
from matrices import HERE, backends_on, csr_of, random_inputs
from oracle import additive as oracle
from oracle import assert_same_derivatives
from probes import Largest

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import BACKENDS, Request, additive, record, use_backend
from pyg_outerconv.kernels.activation import ACTIVATIONS, Activation
from pyg_outerconv.testing import assert_near

EVERY = pytest.mark.parametrize("activation", ACTIVATIONS)


def shapes_of(csr, heads=2, channels=3):
    rows, cols = csr.shape
    return {
        "a": (rows, heads, channels),
        "b": (cols, heads, channels),
        "weight": (heads, channels),
    }


def gathered(csr, *tensors, activation="leaky_relu"):
    rows = torch.arange(csr.shape[0]).repeat_interleave(csr.ptr.diff())
    return oracle(rows, csr.index.long(), *tensors, activation)


@EVERY
@pytest.mark.parametrize("order", range(5))
def test_an_activation_has_every_derivative(activation, order):
    z = torch.randn(50, dtype=torch.float64, requires_grad=True)
    functions = {"tanh": torch.tanh, "exp": torch.exp, "square": torch.square}
    value = functions.get(activation, lambda z: torch.nn.functional.leaky_relu(z, 0.3))(z)
    for _ in range(order):
        if not value.requires_grad:
            value = torch.zeros_like(z)
            break
        (value,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    phi = Activation(activation, 0.3, order)
    numbers = z.detach().clone()
    assert_near(phi.write(numbers, torch.empty_like(numbers)), value.detach(), at_least=1.0)
    assert phi.vanishes == (order > {"leaky_relu": 1, "square": 2}.get(activation, order))
    assert_near(phi.write(numbers, numbers), value.detach(), at_least=1.0)


@EVERY
@pytest.mark.parametrize("backend", HERE)
def test_three_derivatives_equal_those_of_gathers(backend, activation):
    csr = csr_of("tall")
    inputs = random_inputs(shapes_of(csr))
    with use_backend(backend):
        actual = additive(csr, *inputs, activation=activation)
    wanted = gathered(csr, *inputs, activation=activation)
    assert_same_derivatives(actual.sin(), wanted.sin(), inputs, 3, at_least=1.0)


@pytest.mark.parametrize("backend", HERE)
def test_the_slope_is_given_and_that_at_zero_is_the_one_below_zero(backend):
    csr = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 1)).by_target
    a = torch.zeros(1, 1, 1, requires_grad=True)
    b = torch.tensor([[[0.0]], [[-2.0]]])
    weight = torch.tensor([[3.0]])
    with use_backend(backend):
        out = additive(csr, a, b, weight, negative_slope=0.5)
        (of_a,) = torch.autograd.grad(out[0].sum(), a)
    assert sorted(out.flatten().tolist()) == [-3.0, 0.0]
    assert of_a.item() == 1.5


@EVERY
@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_large_sums_and_short_types(backend, dtype, activation):
    csr = csr_of("square")
    inputs = [x.detach() for x in random_inputs(shapes_of(csr))]
    factor = 3e2 if dtype == torch.float16 else 1e4  # sums of these are below the largest float16
    factor = {"exp": 1.0, "square": factor**0.5}.get(activation, factor)
    short = [inputs[0] * factor, inputs[1] * factor, inputs[2]]
    short = [x.to(dtype).requires_grad_() for x in short]
    wide = [x.detach().double().requires_grad_() for x in short]
    with use_backend(backend):
        ours = additive(csr, *short, activation=activation)
    truth = gathered(csr, *wide, activation=activation)
    assert ours.dtype == dtype
    for actual, expected in zip(
        (ours, *torch.autograd.grad(ours.sum(), short)),
        (truth, *torch.autograd.grad(truth.sum(), wide)),
        strict=True,
    ):
        assert_near(actual.detach(), expected.detach().to(dtype), at_least=1.0)


@EVERY
@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("heads_channels", [(0, 3), (2, 0), (2, 3)])
def test_without_entries_heads_or_channels(backend, heads_channels, activation):
    for shape in ("no entries", "square"):
        csr = csr_of(shape)
        inputs = random_inputs(shapes_of(csr, *heads_channels))
        with use_backend(backend):
            out = additive(csr, *inputs, activation=activation)
        assert_near(out.detach(), gathered(csr, *inputs, activation=activation).detach())
        assert [x.shape for x in torch.autograd.grad(out.sum(), inputs)] == [
            x.shape for x in inputs
        ]


@EVERY
@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("wild", [torch.nan, torch.inf])
def test_nothing_of_nodes_without_entries_arrives_in_a_gradient(backend, wild, activation):
    csr = Pattern.build(torch.tensor([[0, 2, 2], [1, 1, 3]]), size=(4, 5)).by_target
    inputs = random_inputs(shapes_of(csr), torch.float32)
    tame = [x.detach().clone().requires_grad_() for x in inputs]
    with torch.no_grad():
        inputs[0][[0, 2, 4]] = inputs[1][[1, 3]] = wild
    with use_backend(backend):
        gradients, expected = (
            torch.autograd.grad(additive(csr, *x, activation=activation).sin().sum(), x)
            for x in (inputs, tame)
        )
    for actual, truth in zip(gradients, expected, strict=True):
        assert_near(actual, truth)


@pytest.mark.parametrize("backend", HERE)
def test_infinite_numbers_of_an_edge_reach_the_weight(backend):
    csr = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 1)).by_target
    a, b = torch.zeros(1, 1, 1), torch.tensor([[[torch.inf]], [[1.0]]])
    inputs = [x.requires_grad_() for x in (a, b, torch.tensor([[3.0]]))]
    with use_backend(backend):
        out = additive(csr, *inputs)
        of_a, of_b, of_weight = torch.autograd.grad(out.sum(), inputs)
    assert of_weight.item() == torch.inf
    assert of_a.item() == 6.0
    assert of_b.flatten().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("backend", backends_on("cpu"))
def test_a_call_in_inference_mode_leaves_nothing_that_training_cannot_use(backend):
    csr = csr_of("square")
    inputs = random_inputs(shapes_of(csr, 2, 5), torch.float32)
    with use_backend(backend):
        with torch.inference_mode():
            inferred = additive(csr, *inputs).clone()
        out = additive(csr, *inputs)
        out.sum().backward()
    assert_near(out.detach(), inferred)


@pytest.mark.parametrize("backend", backends_on("cpu"))
def test_a_training_step_holds_no_more_than_its_operands_and_tiles(backend, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.tiles.TILE_ELEMENTS", 4096)
    size, entries, heads, channels = 300, 30_000, 2, 32
    index = torch.randint(size, (2, entries))
    csr = Pattern.build(index, size=(size, size)).by_target
    inputs = random_inputs(shapes_of(csr, heads, channels), torch.float32)
    with use_backend(backend), Largest() as largest:
        for activation in ACTIVATIONS:
            additive(csr, *inputs, activation=activation).sum().backward()
    assert largest.nbytes <= entries * heads * 4


def test_who_serves_it_and_who_says_why_not():
    csr = csr_of("square")
    inputs = random_inputs(shapes_of(csr), torch.float32)
    with record() as calls:
        additive(csr, *inputs).sum().backward()
    assert {(call.primitive, call.backend) for call in calls} == {("additive", "native")}
    request = Request("additive", "cuda", torch.float32, torch.int32, (7, 7), 20, 3, 2)
    for name in ("native", "triton"):
        assert BACKENDS[name].why_not(request) == BACKENDS[name].missing()
    assert "has no additive" in BACKENDS["small"].why_not(request)
