"""Values against dense oracles, and where floating point is at its limits."""

import math
from types import SimpleNamespace

import oracle
import pytest
import torch
from matrices import EVERY, HERE, PLACES, calls_of, csr_of, random_inputs

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import (
    BACKENDS,
    REDUCTIONS,
    attend,
    grouped_matmul,
    sddmm,
    segment_softmax,
    spmm,
    use_backend,
)
from pyg_outerconv.kernels.backends import native_grouped
from pyg_outerconv.testing import assert_near

INF, NAN = math.inf, math.nan


def one_row(count):
    """One row with an entry in each of ``count`` columns, in order."""
    index = torch.stack([torch.arange(count), torch.zeros(count, dtype=torch.long)])
    return Pattern.build(index, size=(count, 1)).by_target


def dense_of(csr, value, empty=0.0):
    """(R, C) with the values of a pattern without repeated entries."""
    out = torch.full(csr.shape, empty, dtype=value.dtype)
    rows = torch.arange(csr.shape[0]).repeat_interleave(csr.ptr.diff())
    out[rows, csr.index.long()] = value
    return out


def distinct(rows, cols, share=0.4):
    """A pattern in which no entry is repeated, and some rows are empty."""
    source, target = (torch.rand(cols, rows) < share).nonzero().t()
    keep = target != 0
    index = torch.stack([source[keep], target[keep]])
    return Pattern.build(index, size=(cols, rows)).by_target


PLAIN = {*REDUCTIONS, "dot", "add", "biased", "tanh"}


@pytest.mark.parametrize("shape", ["square", "tall", "wide", "no entries", "repeated entries"])
@pytest.mark.parametrize("backend", EVERY)
def test_primitives_with_heads_are_what_they_are_entry_by_entry(backend, shape):
    csr = csr_of(shape)
    for name, function, shapes in calls_of(backend, csr, 3, 2):
        if set(name.split()[1:]) <= PLAIN:
            inputs = [x.detach() for x in random_inputs(shapes)]
            with use_backend(backend):
                assert_near(function(*inputs), oracle.primitive(name, csr)(*inputs))


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_grouped_products_equal_a_loop(backend):
    ptr = torch.tensor([0, 3, 3, 7])
    x, theta = torch.randn(5, 3).double(), torch.randn(3, 3, 2).double()
    gather, scatter = torch.tensor([0, 2, 1, 4, 3, 2, 0]), torch.tensor([1, 0, 5, 5, 1, 0, 2])
    expected = torch.zeros(6, 2, dtype=torch.float64)
    for i in range(7):
        expected[scatter[i]] += x[gather[i]] @ theta[0 if i < 3 else 2]
    with use_backend(backend):
        actual = grouped_matmul(x, ptr, theta, gather=gather, scatter=scatter, num_rows=6)
    assert_near(actual, expected)


one_kernel = pytest.mark.skipif(
    native_grouped._of_all_groups is None, reason="this torch has no kernel for all groups"
)


@one_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("indexed", [True, False])
def test_one_kernel_for_all_groups_equals_the_products_group_by_group(dtype, indexed, monkeypatch):
    """By torch's kernel of a CPU, which does what that of an H100 does."""
    ptr = torch.tensor([0, 0, 3, 3, 7])
    x, theta = torch.randn(7, 16, dtype=dtype), torch.randn(4, 16, 8, dtype=dtype)
    grad = torch.randn(9, 8, dtype=dtype)
    places = (torch.randperm(7), torch.tensor([1, 0, 5, 5, 1, 0, 2])) if indexed else (None, None)

    def results():
        products = native_grouped.grouped_matmul(x, ptr, theta, *places, 9)
        return products, native_grouped.grouped_outer(x, ptr, grad, *places)

    wanted = results()
    monkeypatch.setattr(native_grouped, "is_one_kernel", lambda *_: True)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for found, expected in zip(results(), wanted, strict=True):
        assert found.dtype == dtype
        assert_near(found[:7], expected[:7], tolerance)
    if not indexed:
        assert torch.equal(results()[0][7:], torch.zeros(2, 8, dtype=dtype))


@one_kernel
def test_what_goes_to_one_kernel_is_what_torch_says_that_it_takes(monkeypatch):
    capability = {"h100": (9, 0), "a100": (8, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability.get)

    def goes(device, dtype, inputs, outputs):
        x = SimpleNamespace(is_cuda=True, dtype=dtype, device=device)
        return native_grouped.is_one_kernel(x, 5, torch.Size((2, inputs, outputs)))

    def taken(dtype, inputs, outputs):
        ends = torch.empty(2, dtype=torch.int32, device="meta")
        x = torch.empty(5, inputs, dtype=dtype, device="meta")
        theta = torch.empty(2, inputs, outputs, dtype=dtype, device="meta")
        try:
            return native_grouped._of_all_groups(x, theta, offs=ends).shape == (5, outputs)
        except RuntimeError:
            return False

    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for sizes in ((16, 8), (16, 4), (4, 16)):
            assert goes("h100", dtype, *sizes) == taken(dtype, *sizes)
    assert not goes("a100", torch.bfloat16, 16, 8)


@pytest.mark.parametrize("channels", [0, 1, 2, 17])
@pytest.mark.parametrize("backend", EVERY)
def test_odd_widths_and_no_channels_at_all(backend, channels):
    csr = csr_of("tall")
    for heads in (None, 2):
        for _, function, shapes in calls_of(backend, csr, channels, heads):
            inputs = [x.detach() for x in random_inputs(shapes)]
            with use_backend(backend):
                actual = function(*inputs)
            with use_backend("reference"):
                assert_near(actual, function(*inputs), at_least=1.0)


@pytest.mark.parametrize("backend", EVERY)
def test_one_head_that_no_heads_share(backend):
    csr = csr_of("square")
    rows, cols = csr.shape
    with use_backend(backend):
        if "spmm" in BACKENDS[backend].primitives:
            out = spmm(csr, torch.randn(csr.num_entries), torch.randn(cols, 0, 4))
            assert out.shape == (rows, 0, 4)
        if "sddmm" in BACKENDS[backend].primitives:
            out = sddmm(csr, torch.randn(rows, 1, 4), torch.randn(cols, 0, 4))
            assert out.shape == (csr.num_entries, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("backend", "device"), PLACES)
def test_short_types_are_near_the_reference(backend, device, dtype):
    csr = csr_of("square", device)
    for heads in (None, 3):
        for _, function, shapes in calls_of(backend, csr, 5, heads):
            results = {}
            inputs = random_inputs(shapes, dtype, device)
            direction = None
            for name in (backend, "reference"):
                with use_backend(name):
                    out = function(*inputs)
                    direction = torch.randn_like(out) if direction is None else direction
                    results[name] = (out, *torch.autograd.grad(out, inputs, direction))
            for actual, expected in zip(results[backend], results["reference"], strict=True):
                assert_near(actual, expected, at_least=1.0)


@pytest.mark.parametrize("backend", HERE)
def test_products_of_short_types_do_not_overflow_before_they_cancel(backend):
    csr = one_row(2)
    large = torch.tensor([[300.0], [300.0]], dtype=torch.float16)  # 300 * 300 is too much for it
    signed = torch.tensor([300.0, -300.0], dtype=torch.float16)
    with use_backend(backend):
        assert float(spmm(csr, signed, large)) == 0
        assert float(sddmm(one_row(1), large.t(), signed.view(1, 2))) == 0


@pytest.mark.parametrize(
    ("values", "aggr", "expected"),
    [
        ([1.0, NAN, 3.0], "max", NAN),
        ([1.0, NAN, 3.0], "min", NAN),
        ([INF, 2.0], "max", INF),
        ([-INF, -INF], "max", -INF),
        ([INF, INF], "min", INF),
        ([INF, NAN], "max", NAN),
        ([-INF, 2.0], "min", -INF),
        ([1.0, INF, -INF], "sum", NAN),
        ([1.0, INF], "sum", INF),
        ([1.0, NAN], "sum", NAN),
    ],
)
@pytest.mark.parametrize("backend", HERE)
def test_what_is_not_finite_is_not_lost(backend, values, aggr, expected):
    x = torch.tensor(values).view(-1, 1)
    with use_backend(backend):
        for value in (None, torch.ones(len(values))):
            actual = float(spmm(one_row(len(values)), value, x, aggr=aggr))
            assert actual == expected or (math.isnan(actual) and math.isnan(expected))


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("backend", HERE)
def test_a_score_that_is_no_number_spoils_its_own_row_as_in_a_dense_softmax(backend, bad):
    index = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]])
    csr = Pattern.build(index, size=(2, 2)).by_target
    score = torch.tensor([0.0, bad, 0.0, 1.0])
    ones = torch.ones(2, 1, 1)
    with use_backend(backend):
        share = segment_softmax(csr, score)
        out = attend(csr, ones, ones, ones, score)
    assert share.isnan().tolist() == [True, True, False, False]
    assert out.isnan().flatten().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("backend", HERE)
def test_large_scores_neither_overflow_nor_vanish(backend, size, dtype):
    csr = distinct(6, 8, 0.7)
    score = (torch.randint(-4, 5, (csr.num_entries,)) / 4 * size).to(dtype)
    dense = dense_of(csr, score.double(), -INF).softmax(-1).nan_to_num()
    value = torch.randn(8, 1, 3).to(dtype)
    nothing = torch.zeros(6, 1, 1, dtype=dtype), torch.zeros(8, 1, 1, dtype=dtype)
    with use_backend(backend):
        share = segment_softmax(csr, score)
        out = attend(csr, *nothing, value, score)
    assert_near(dense_of(csr, share), dense.to(dtype))
    assert_near(out.squeeze(1), (dense @ value.double().squeeze(1)).to(dtype))


@pytest.mark.parametrize("backend", HERE)
def test_scores_beyond_float16_are_kept_within_attention(backend):
    # 200 * 200 * 4 is more than float16 can hold, and the scores differ.
    query = torch.full((1, 1, 4), 200.0, dtype=torch.float16, requires_grad=True)
    key = torch.tensor([[200.0] * 4, [100.0] * 4], dtype=torch.float16).view(2, 1, 4)
    value = torch.tensor([1.0, 2.0], dtype=torch.float16).view(2, 1, 1)
    with use_backend(backend):
        out = attend(one_row(2), query, key, value, scale=1.0)
        out.sum().backward()
    assert out.item() == 1.0
    assert not query.grad.any()


@pytest.mark.parametrize("heads", [None, 1, 2], ids=lambda heads: f"{heads} heads")
@pytest.mark.parametrize("backend", HERE)
def test_results_may_be_changed_in_place(backend, heads):
    with use_backend(backend):
        for _, function, shapes in calls_of(backend, csr_of("square"), 3, heads):
            out = function(*random_inputs(shapes))
            expected = 2 * out.detach()
            assert torch.equal(out.mul_(2), expected)


@pytest.mark.parametrize(("backend", "device"), PLACES)
def test_two_runs_give_the_same_bits(backend, device):
    if device not in BACKENDS[backend].deterministic:
        pytest.skip(f"{backend} declares that it is not deterministic on {device}")
    index = torch.randint(50, (2, 3000))
    csr = Pattern.build(index.to(device), size=(50, 50)).by_target
    for _, function, shapes in calls_of(backend, csr, 16, 2):
        inputs = random_inputs(shapes, torch.float32, device)
        runs = []
        for _ in range(2):
            with use_backend(backend):
                out = function(*inputs)
                runs.append((out, *torch.autograd.grad(out.sin().sum(), inputs)))
        for first, second in zip(*runs, strict=True):
            assert torch.equal(first, second)
