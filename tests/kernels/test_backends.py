"""Every backend against the reference, with derivatives; the memory it holds; what it refuses."""

import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyg_outerconv import testing
from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import BACKENDS, backends, record, sddmm, spmm, use_backend
from pyg_outerconv.kernels.backend import Request
from pyg_outerconv.kernels.dispatch import choose
from pyg_outerconv.kernels.reference import Reference

AUTOMATIC = [name for name, backend in BACKENDS.items() if backend.priority > 0]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            not torch.cuda.is_available(), reason="there is no CUDA device here"
        ),
    ),
]

REQUEST = Request("spmm", "cpu", torch.float32, torch.int32, (7, 7), 20, 3)

SHAPES = {
    "square": (7, 7, 20),
    "tall": (9, 4, 15),
    "wide": (3, 11, 15),
    "no entries": (4, 5, 0),
    "no rows": (0, 5, 0),
    "no columns": (5, 0, 0),
    "one": (1, 1, 1),
    "repeated entries": (2, 2, 17),
    "int64": (7, 7, 20),
}


def sparsity_of(name, device="cpu"):
    rows, cols, entries = SHAPES[name]
    index = torch.stack(
        [torch.randint(max(cols, 1), (entries,)), torch.randint(max(rows, 1), (entries,))]
    )
    pattern = Pattern.build(index.to(device), size=(cols, rows))
    sparsity = pattern.by_target
    if name == "int64":
        sparsity = type(sparsity)(*(tensor.long() for tensor in sparsity))
    return sparsity


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("backend", AUTOMATIC)
def test_equals_reference_with_first_and_second_derivatives(backend, shape, dtype, device):
    tolerance = 1e-10 if dtype == torch.float64 else 5 * BACKENDS[backend].tolerance
    testing.assert_backend_equals_reference(
        backend, sparsity_of(shape, device), dtype, channels=3, tolerance=tolerance
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("backend", AUTOMATIC)
def test_short_types_are_near_the_reference(backend, dtype, device):
    sparsity = sparsity_of("square", device)
    value, x = torch.randn(20).to(device, dtype), torch.randn(7, 5).to(device, dtype)
    results = {}
    for name in (backend, "reference"):
        with use_backend(name):
            results[name] = (spmm(sparsity, value, x), sddmm(sparsity, x, x))
    for actual, expected in zip(results[backend], results["reference"], strict=True):
        testing.assert_near(actual, expected)


@pytest.mark.parametrize("channels", [0, 1, 2, 17])
@pytest.mark.parametrize("backend", AUTOMATIC)
def test_odd_widths(backend, channels):
    sparsity, x = sparsity_of("tall"), torch.randn(4, channels)
    with use_backend(backend):
        actual = spmm(sparsity, None, x)
    dense = torch.zeros(9, 4).index_put(
        (torch.arange(9).repeat_interleave(sparsity.rowptr.diff()), sparsity.col.long()),
        torch.ones(15),
        accumulate=True,
    )
    testing.assert_near(actual, dense @ x)


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_numerical_derivatives(backend):
    sparsity = sparsity_of("repeated entries")
    value = torch.randn(17, dtype=torch.float64, requires_grad=True)
    x, y = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    with use_backend(backend):
        for function, inputs in (
            (lambda v, d: spmm(sparsity, v, d), (value, x)),
            (lambda v, d: spmm(sparsity, v, d, transpose=True), (value, x)),
            (lambda a, b: sddmm(sparsity, a, b), (x, y)),
        ):
            assert torch.autograd.gradcheck(function, inputs)
            assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("backend", AUTOMATIC)
def test_functional_transforms(backend):
    sparsity = sparsity_of("tall")
    value = torch.randn(15, dtype=torch.float64)
    x = torch.randn(6, 4, 3, dtype=torch.float64)
    values = torch.randn(6, 15, dtype=torch.float64)
    with use_backend(backend):
        expected = torch.stack([spmm(sparsity, value, item) for item in x])
        torch.testing.assert_close(torch.vmap(lambda d: spmm(sparsity, value, d))(x), expected)
        expected = torch.stack([spmm(sparsity, v, d) for v, d in zip(values, x, strict=True)])
        torch.testing.assert_close(
            torch.vmap(lambda v, d: spmm(sparsity, v, d))(values, x), expected
        )
        left = torch.randn(6, 9, 3, dtype=torch.float64)
        expected = torch.stack([sddmm(sparsity, a, b) for a, b in zip(left, x, strict=True)])
        torch.testing.assert_close(
            torch.vmap(lambda a, b: sddmm(sparsity, a, b))(left, x), expected
        )
        jacobian = torch.func.jacrev(lambda v: spmm(sparsity, v, x[0]))(value)
        torch.testing.assert_close(
            torch.einsum("rce,e->rc", jacobian, value), spmm(sparsity, value, x[0])
        )


def test_forward_mode_raises_and_is_never_zero():
    sparsity, x = sparsity_of("square"), torch.randn(7, 3)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(lambda d: spmm(sparsity, None, d), (x,), (x,))
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(lambda d: sddmm(sparsity, d, x), (x,), (x,))


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.numel = max(self.numel, tensor.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_native_never_holds_entries_times_channels(dtype, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.native._TILE_ELEMENTS", 4096)
    rows, entries, channels = 256, 20_000, 32
    index = torch.randint(rows, (2, entries))
    sparsity = Pattern.build(index, size=(rows, rows)).by_target
    held = {}
    for backend in ("native", "reference"):
        value = torch.randn(entries, dtype=dtype, requires_grad=True)
        x = torch.randn(rows, channels, dtype=dtype, requires_grad=True)
        with use_backend(backend), Largest() as largest:
            # Inside the operator of a primitive, below autograd, every allocation is seen.
            implementation = BACKENDS[backend]
            args = (sparsity.rowptr, sparsity.col)
            implementation.spmm(*args, value.detach(), x.detach())
            implementation.sddmm(*args, x.detach(), x.detach())
            spmm(sparsity, value, x).sum().backward()
        held[backend] = largest.numel
    product = entries * channels * value.element_size()
    assert held["reference"] >= product, "the probe does not see what it should"
    assert held["native"] < product / 4


def test_automatic_choice_and_its_record():
    sparsity, x = sparsity_of("square"), torch.randn(7, 3, requires_grad=True)
    with record() as calls:
        spmm(sparsity, torch.rand(20, requires_grad=True), x).sum().backward()
    assert [(call.primitive, call.backend) for call in calls] == [
        ("spmm", "native"),
        ("spmm", "native"),
        ("sddmm", "native"),
    ]
    with use_backend("reference"), record() as calls:
        spmm(sparsity, None, x)
    assert [call.backend for call in calls] == ["reference"]


def test_inner_choice_wins_and_ends(monkeypatch):
    sparsity, x = sparsity_of("square"), torch.randn(7, 3)
    with use_backend("reference"):
        with use_backend("native"), record() as calls:
            spmm(sparsity, None, x)
        assert calls[0].backend == "native"
        with record() as calls:
            spmm(sparsity, None, x)
        assert calls[0].backend == "reference"
    monkeypatch.setenv("PYG_OUTERCONV_BACKEND", "reference")
    with record() as calls:
        spmm(sparsity, None, x)
    assert calls[0].backend == "reference"


def test_unknown_backend_names_the_nearest(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown backend 'nativ' \(did you mean 'native'\?\)"):
        use_backend("nativ").__enter__()
    monkeypatch.setenv("PYG_OUTERCONV_BACKEND", "cuda")
    with pytest.raises(ValueError, match="unknown backend 'cuda'.*one of native, reference"):
        spmm(sparsity_of("square"), None, torch.randn(7, 3))


def test_refusals_are_listed_for_every_backend():
    x = torch.randn(7, 3).to(torch.complex64)
    with pytest.raises(
        ValueError,
        match=r"no backend serves spmm.*\n  native: computes in .*"
        r"complex64(.|\n)*reference: ",
    ):
        spmm(sparsity_of("square"), None, x)
    request = Request("sort", "tpu", torch.int8, torch.int32, (1, 1), 1, 1)
    reasons = BACKENDS["native"].why_not(request)
    assert len(reasons) == 3
    assert "has no sort" in reasons


def test_forced_backend_refuses_rather_than_falls_back(monkeypatch):
    monkeypatch.setattr(Reference, "dtypes", frozenset({torch.float64}))
    with use_backend("reference"), pytest.raises(ValueError, match="'reference' cannot serve"):
        spmm(sparsity_of("square"), None, torch.randn(7, 3))


def test_table_of_backends_names_each():
    for name in BACKENDS:
        assert name in backends()


@pytest.mark.parametrize(
    "call",
    [
        lambda s: spmm(s, None, torch.randn(8, 3)),
        lambda s: spmm(s, None, torch.randn(7)),
        lambda s: spmm(s, torch.randn(19), torch.randn(7, 3)),
        lambda s: sddmm(s, torch.randn(7, 3), torch.randn(7, 2)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises(ValueError, match="expected .*, got "):
        call(sparsity_of("square"))


def test_types_that_differ_are_refused():
    with pytest.raises(TypeError, match=r"expected torch.float32, got torch.float64"):
        spmm(sparsity_of("square"), torch.randn(20).double(), torch.randn(7, 3))
    with pytest.raises(TypeError, match="one type"):
        sddmm(sparsity_of("square"), torch.randn(7, 3), torch.randn(7, 3).double())


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
    sparsity, x = sparsity_of("square"), torch.randn(7, 3)
    with record() as outer:
        with record() as inner:
            pass  # both are empty, and equal
        spmm(sparsity, None, x)
    assert (len(outer), len(inner)) == (1, 0)


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_products_of_short_types_do_not_overflow_before_they_cancel(backend):
    pattern = Pattern.build(torch.tensor([[0, 1], [0, 0]]), size=(2, 1))
    large = torch.tensor([[300.0], [300.0]], dtype=torch.float16)  # 300 * 300 is too much for it
    signed = torch.tensor([300.0, -300.0], dtype=torch.float16)
    one = Pattern.build(torch.zeros(2, 1).long(), size=(1, 1)).by_target
    with use_backend(backend):
        assert float(spmm(pattern.by_target, signed, large)) == 0
        assert float(sddmm(one, large.t(), signed.view(1, 2))) == 0


def test_second_derivatives_equal_the_dense_ones():
    sparsity = sparsity_of("tall")
    rows = torch.arange(9).repeat_interleave(sparsity.rowptr.diff())
    value = torch.randn(15, dtype=torch.float64, requires_grad=True)
    a = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    dense = torch.zeros(9, 4, dtype=torch.float64).index_put(
        (rows, sparsity.col.long()), value, accumulate=True
    )
    for ours, theirs in (
        (spmm(sparsity, value, b), dense @ b),
        (spmm(sparsity, value, a, transpose=True), dense.t() @ a),
        (sddmm(sparsity, a, b), (a[rows] * b[sparsity.col.long()]).sum(-1)),
    ):
        found = []
        for out in (ours, theirs):
            inputs = (value, a, b)
            first = torch.autograd.grad(
                out.pow(3).sum(), inputs, create_graph=True, materialize_grads=True
            )
            total = sum(gradient.pow(2).sum() for gradient in first)
            found.append(
                (
                    *first,
                    *torch.autograd.grad(total, inputs, retain_graph=True, materialize_grads=True),
                )
            )
        for actual, expected in zip(*found, strict=True):
            testing.assert_near(actual.detach(), expected.detach(), at_least=1.0)


def test_vmap_over_another_dimension_than_the_first():
    sparsity, x = sparsity_of("tall"), torch.randn(4, 3, 6, dtype=torch.float64)
    actual = torch.vmap(lambda d: spmm(sparsity, None, d), in_dims=2)(x)
    expected = torch.stack([spmm(sparsity, None, x[..., i]) for i in range(6)])
    torch.testing.assert_close(actual, expected)
