"""Compilation, export, autocast, activation checkpointing, and torch's own checks of operators."""

import pytest
import torch
from matrices import EVERY, HERE, calls_of, csr_of, each_call, random_inputs
from oracle import assert_same_steps
from torch.utils.checkpoint import checkpoint

from pyg_outerconv.kernels import BACKENDS, attend, grouped_matmul, record, sddmm, spmm, use_backend
from pyg_outerconv.testing import assert_near


# The backend is an argument of each operator, so what is traced does not depend on it.
@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("heads", [None, 2], ids=lambda heads: f"{heads} heads")
@pytest.mark.parametrize("name", [name for name, *_ in calls_of("native", csr_of("tall"), 3)])
def test_compiles_into_one_graph_with_its_backward(name, heads):
    calls = calls_of("native", csr_of("tall"), 3, heads)
    ((function, shapes),) = (call for call_name, *call in calls if call_name == name)
    inputs = random_inputs(shapes)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert_same_steps(compiled, function, inputs, 1.0)


@pytest.mark.slow
def test_compiles_by_inductor():
    csr = csr_of("tall")

    def network(x, w):
        heads = x.unsqueeze(1)
        return attend(csr, spmm(csr, w, x, aggr="max").unsqueeze(1), heads, heads)

    inputs = random_inputs({"x": (4, 3), "w": (15,)})
    compiled = torch.compile(network, fullgraph=True)
    assert_same_steps(compiled, network, inputs, 1.0)


@pytest.mark.slow
def test_compiles_where_one_tensor_is_several_operands():
    csr, place = csr_of("square"), torch.arange(7)
    ptr = torch.tensor([0, 3, 7])

    def network(x, theta):
        heads = x.unsqueeze(1)
        score = sddmm(csr, x, x) + sddmm(csr, x[:, 0], x[:, 0], op="add")
        attended = attend(csr, heads, heads, heads, score).squeeze(1)
        return attended + grouped_matmul(x, ptr, theta, gather=place, scatter=place, num_rows=7)

    inputs = random_inputs({"x": (7, 3), "theta": (2, 3, 3)})
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    assert_same_steps(compiled, network, inputs, 1.0)


@pytest.mark.slow
def test_a_pattern_may_be_an_argument_of_what_is_compiled():
    compiled = torch.compile(lambda csr, x: spmm(csr, None, x), fullgraph=True, backend="aot_eager")
    for name in ("tall", "wide", "int64"):
        csr = csr_of(name)
        x = torch.randn(csr.shape[1], 3)
        assert_near(compiled(csr, x), spmm(csr, None, x))


@pytest.mark.slow
def test_a_compiled_call_still_follows_the_choice_of_backend():
    csr, x = csr_of("tall"), torch.randn(4, 3)
    compiled = torch.compile(lambda d: spmm(csr, None, d), fullgraph=True, backend="aot_eager")
    for name in ("native", "reference", "native"):
        with use_backend(name), record() as calls:
            compiled(x)
        assert [call.backend for call in calls] == [name]


@pytest.mark.slow
def test_exports():
    csr = csr_of("tall")
    for _, function, shapes in calls_of("native", csr, 3, 2):

        class Module(torch.nn.Module):
            def forward(self, *inputs, function=function):
                return function(*inputs)

        inputs = tuple(x.detach() for x in random_inputs(shapes))
        exported = torch.export.export(Module(), inputs)
        assert_near(exported.module()(*inputs), function(*inputs))


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("backend", HERE)
def test_operators_pass_the_checks_of_torch(backend):
    ops, csr = torch.ops.pyg_outerconv, csr_of("tall")
    ptr, index, (ptr_t, index_t, perm) = csr.ptr, csr.index, csr.columns
    value, x, a = torch.randn(15, 2), torch.randn(4, 2, 3), torch.randn(9, 2, 3)
    rows = torch.randn(15, 3)
    theta, place = torch.randn(9, 3, 2), perm.flip(0)
    out, lse = torch.randn(9, 2, 3), torch.rand(9, 2) + 5
    samples = {
        "spmm": [
            (ops.spmm, (ptr, index, value, x)),
            (ops.spmm, (ptr_t, index_t, value, a)),
        ],
        "spmm_arg": [(ops.spmm_arg, (ptr, index, value, x, True))],
        "sddmm": [(ops.sddmm, (ptr, index, a, x))],
        "segment_softmax": [
            (ops.segment_softmax, (ptr, value)),
            (ops.segment_sum, (ptr, value)),
        ],
        "attend": [
            (ops.attend, (ptr, index, a, x, x, value, 0.5, False)),
            (ops.attend, (ptr, index, a, x, x, None, 0.5, False)),
            *(
                (
                    ops.attend_backward,
                    (ptr, index, ptr_t, index_t, perm, a, x, x, bias, 0.5, False, out, lse, out),
                )
                for bias in (value, None)
            ),
        ],
        "grouped_matmul": [
            (ops.grouped_matmul, (rows, theta, ptr, None, None, 15)),
            (ops.grouped_matmul, (rows, theta, ptr, perm, place, 15)),
            (ops.grouped_outer, (rows, rows, ptr, perm, place, 15)),
        ],
        "spmm_theta": [
            (ops.spmm_theta, (ptr, index, index * 0, weight, torch.randn(4, 3), theta[:1]))
            for weight in (value[:, 0], None)
        ],
    }
    for primitive, calls in samples.items():
        if primitive.removesuffix("_arg") in BACKENDS[backend].primitives:
            for operator, arguments in calls:
                torch.library.opcheck(
                    operator.default,
                    (*arguments, backend),
                    test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
                )


@pytest.mark.parametrize("backend", HERE)
def test_autocast_brings_operands_of_different_types_together(backend):
    csr = csr_of("tall")
    for name, function, inputs in each_call(backend, csr, dtype=torch.float32):
        same = [x.detach().bfloat16().requires_grad_() for x in inputs]
        expected = function(*same)
        if len(inputs) == 1:  # nothing to bring together: the type stays
            with torch.autocast("cpu", torch.bfloat16):
                assert function(*inputs).dtype == torch.float32, name
            continue
        mixed = [inputs[0], *same[1:]]
        with torch.autocast("cpu", torch.bfloat16):
            actual = function(*mixed)
        assert_near(actual, expected, at_least=1.0)
        for x, gradient, wanted in zip(
            mixed,
            torch.autograd.grad(actual.float().sum(), mixed),
            torch.autograd.grad(expected.float().sum(), same),
            strict=True,
        ):
            assert gradient.dtype == x.dtype
            assert_near(gradient, wanted.to(x.dtype), 4e-2, at_least=1.0)


@pytest.mark.parametrize("backend", HERE)
def test_a_layer_under_autocast_mixes_with_linear_maps(backend):
    csr, linear = csr_of("square"), torch.nn.Linear(3, 4)
    x, value = torch.randn(7, 3), torch.rand(20, requires_grad=True)
    with use_backend(backend), torch.autocast("cpu", torch.bfloat16):
        out = spmm(csr, value, linear(x))
        out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    assert value.grad.dtype == linear.weight.grad.dtype == torch.float32
    hidden = linear(x).detach()
    assert_near(value.grad, (hidden[csr.index.long()]).sum(-1).detach(), 4e-2)


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("backend", EVERY)
def test_activation_checkpointing_changes_nothing(backend, use_reentrant):
    csr = csr_of("tall")
    for _, function, inputs in each_call(backend, csr):
        again = lambda *x: checkpoint(function, *x, use_reentrant=use_reentrant)  # noqa: E731, B023
        assert_same_steps(again, function, inputs, exactly=True)


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_a_recomputed_forward_uses_the_backend_of_the_first(use_reentrant):
    csr, x = csr_of("tall"), torch.randn(4, 3, requires_grad=True)
    with record() as calls, use_backend("reference"):
        out = checkpoint(lambda d: spmm(csr, None, d).sin(), x, use_reentrant=use_reentrant)
        out.sum().backward()
    assert {call.backend for call in calls} == {"reference"}
    assert len(calls) == 3  # forward, forward again, backward
