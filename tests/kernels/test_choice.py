"""Which backend serves a call, how it is chosen, and what is said where none can."""

import dataclasses
import importlib.util
import threading

import pytest
import torch
from matrices import calls_of, csr_of, random_inputs, served
from oracle import assert_same_steps

from pyg_outerconv.kernels import (
    BACKENDS,
    Request,
    get_backend,
    grouped_matmul,
    mode,
    record,
    spmm,
    use_backend,
)
from pyg_outerconv.kernels.backends.native import Native
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.kernels.dispatch import backends, choose
from pyg_outerconv.lab.cli import main
from pyg_outerconv.testing import primitive_calls

REQUEST = Request("spmm", "cpu", torch.float32, torch.int32, (7, 7), 20, 3)


def test_automatic_choice_and_its_record():
    csr, x = csr_of("square"), torch.randn(7, 3, requires_grad=True)
    with record() as calls:
        spmm(csr, torch.rand(20, requires_grad=True), x).sum().backward()
    assert [(call.primitive, call.backend) for call in calls] == [
        ("spmm", "native"),
        ("spmm", "native"),
        ("sddmm", "native"),
    ]
    with use_backend("reference"), record() as calls:
        spmm(csr, None, x)
    assert [call.backend for call in calls] == ["reference"]


def test_every_call_is_recorded_with_what_was_asked():
    csr = csr_of("tall")
    for name, function, shapes in calls_of("native", csr, 3, 2):
        inputs = [torch.randn(shape) for shape in shapes.values()]
        with record() as calls:
            function(*inputs)
        if name == "sddmm add":  # two gathers of torch, no kernel
            assert calls == []
            continue
        (call,) = calls
        assert call.primitive == name.split()[0]
        assert call.request.dtype == torch.float32
        if name.split()[1:2] in (["max"], ["min"]):
            assert call.request.reduction == name.split()[1]


def test_inner_choice_wins_and_ends(monkeypatch):
    csr, x = csr_of("square"), torch.randn(7, 3)
    with use_backend("reference"):
        with use_backend("native"), record() as calls:
            spmm(csr, None, x)
        assert calls[0].backend == "native"
        with record() as calls:
            spmm(csr, None, x)
        assert calls[0].backend == "reference"
    monkeypatch.setattr(mode, "BACKEND_OF_PROCESS", "reference")
    with record() as calls:
        spmm(csr, None, x)
    assert calls[0].backend == "reference"


@pytest.mark.slow
def test_a_process_is_told_its_backend(fresh):
    code = "from pyg_outerconv.kernels.dispatch import forced; print(forced())"
    assert fresh(code, PYG_OUTERCONV_BACKEND="reference").stdout == "reference\n"


def test_a_backward_pass_outside_the_block_uses_the_backend_of_its_forward_pass():
    csr = csr_of("tall")
    for name, (function, shapes) in primitive_calls(csr, 3, 2).items():
        inputs = [torch.randn(shape, requires_grad=True) for shape in shapes.values()]
        with use_backend("reference"):
            out = function(*inputs)
        with record() as calls:
            out.sum().backward()
        assert {call.backend for call in calls} <= {"reference"}, name
        assert calls or name.startswith(("spmm max", "spmm min"))  # whose backward is torch's


def test_unknown_backend_names_the_nearest(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown backend 'nativ' \(did you mean 'native'\?\)"):
        use_backend("nativ").__enter__()
    monkeypatch.setattr(mode, "BACKEND_OF_PROCESS", "cuda")
    with pytest.raises(ValueError, match="unknown backend 'cuda'.*one of .*native, .*reference"):
        spmm(csr_of("square"), None, torch.randn(7, 3))


def test_refusals_are_listed_for_every_backend():
    x = torch.randn(7, 3).to(torch.complex64)
    with pytest.raises(ValueError, match="no backend serves spmm") as refused:
        spmm(csr_of("square"), None, x)
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        backend.name
        for backend in sorted(BACKENDS.values(), key=lambda one: (-one.priority, one.name))
    ]
    assert all("not in torch.complex64" in line for line in lines[1:])
    request = Request("sort", "tpu", torch.int8, torch.int32, (1, 1), 1, 1)
    reasons = BACKENDS["native"].why_not(request)
    assert len(reasons) == 3
    assert "has no sort" in reasons


def test_on_a_device_that_torch_has_no_sparse_kernels_for_all_reasons_are_said():
    with pytest.raises(ValueError, match="float32 on mps") as refused:
        choose(dataclasses.replace(REQUEST, device="mps"))
    said = str(refused.value)
    assert "native: runs on cpu, cuda, not on mps" in said
    assert "reference: runs only when asked for by name" in said
    with use_backend("reference"):
        assert choose(dataclasses.replace(REQUEST, device="mps")).name == "reference"


def test_the_next_backend_serves_what_the_first_cannot(monkeypatch):
    if missing := BACKENDS["scatter"].missing():
        pytest.skip(missing[0])
    monkeypatch.setattr(Native, "primitives", Native.primitives - {"spmm"})
    assert choose(REQUEST).name == "scatter"
    assert choose(dataclasses.replace(REQUEST, primitive="sddmm")).name == "native"


def test_without_mkl_native_serves_by_other_kernels_of_torch(monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    products = []
    matmul = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda a, b: products.append(a.layout) or matmul(a, b)
    )
    csr = csr_of("tall")
    for heads in (None, 2):
        for function, shapes in primitive_calls(csr, 3, heads).values():
            inputs = random_inputs(shapes, torch.float32)
            assert_same_steps(
                served("native", function), served("reference", function), inputs, 1.0
            )
    assert torch.sparse_csr not in products
    assert "native: this torch has no MKL" in backends()


def test_max_and_min_of_native_are_for_cpus_alone():
    request = dataclasses.replace(REQUEST, device="cuda", reduction="max")
    assert BACKENDS["native"].why_not(request) == ["reduces with max on cpu only"]
    assert BACKENDS["native"].why_not(dataclasses.replace(request, reduction="mean")) == []


def test_forced_backend_refuses_rather_than_falls_back(monkeypatch):
    monkeypatch.setattr(Reference, "dtypes", frozenset({torch.float64}))
    with use_backend("reference"), pytest.raises(ValueError, match="'reference' cannot serve"):
        spmm(csr_of("square"), None, torch.randn(7, 3))


def test_scatter_says_that_it_has_no_grouped_product():
    if missing := BACKENDS["scatter"].missing():
        pytest.skip(missing[0])
    with use_backend("scatter"), pytest.raises(ValueError, match="has no grouped_matmul"):
        grouped_matmul(torch.randn(4, 3), torch.tensor([0, 4]), torch.randn(1, 3, 2))


def test_a_backend_that_is_not_installed_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch_scatter" else find(name)
    )
    with pytest.raises(ValueError, match=r"pip install 'pyg_outerconv\[scatter\]' after torch"):
        get_backend("scatter")
    assert any("not installed" in reason for reason in BACKENDS["scatter"].why_not(REQUEST))
    assert choose(REQUEST).name == "native"
    assert "scatter: torch-scatter is not installed" in backends()
    (line,) = (line for line in backends().splitlines() if line.startswith("scatter  "))
    assert line.split()[1] == "missing"


def test_table_of_backends_holds_every_fact_and_fits_a_screen():
    table = backends()
    head, *blocks = table.split("\n\n")
    assert head.split()[:4] == ["backend", "state", "picked", "devices"]
    for backend in BACKENDS.values():
        (block,) = (block for block in blocks if block.startswith(backend.name + " "))
        assert max(map(len, [head, *block.splitlines()])) <= 105
        words = set(block.replace(",", " ").split())
        assert words >= {f"{backend.tolerance:g}", *backend.devices, *backend.reductions}
        assert words >= {*backend.primitives, *(str(d).split(".")[1] for d in backend.dtypes)}
        assert ("automatic" in words) == (backend.priority > 0)
    triton = BACKENDS["triton"]
    if not torch.cuda.is_available() and triton.devices == {"cuda"} and not triton.missing():
        assert "triton: there is no cuda device here" in blocks[-1]


def test_the_command_line_prints_the_table(capsys):
    assert main(["backends"]) == 0
    assert capsys.readouterr().out == backends() + "\n"


def test_a_choice_of_backend_is_of_its_thread():
    ready, checked, seen = threading.Event(), threading.Event(), []

    def other():
        with use_backend("reference"):
            ready.set()
            checked.wait(10)
            seen.append(choose(REQUEST).name)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(10)
    with use_backend("native"):
        seen.append(choose(REQUEST).name)
    seen.append(choose(REQUEST).name)
    checked.set()
    thread.join()
    assert seen == ["native", "native", "reference"]


def test_a_record_within_a_record_ends_alone():
    csr, x = csr_of("square"), torch.randn(7, 3)
    with record() as outer:
        with record() as inner:
            pass  # both are empty, and equal
        spmm(csr, None, x)
    assert (len(outer), len(inner)) == (1, 0)
