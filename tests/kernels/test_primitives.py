"""Primitives: values by definition, derivatives, transforms that agree, the limits of numbers."""

import math
from itertools import product
from types import SimpleNamespace

import oracle
import pytest
import torch
from matrices import EVERY, HERE, PLACES, SHAPES, calls_of, csr_of, each_call, random_inputs, served
from oracle import assert_same_steps
from torch.autograd import forward_ad

from pyg_outerconv import testing
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
from pyg_outerconv.kernels.backend import Groups
from pyg_outerconv.kernels.backends import native
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.kernels.tiles import rows_of
from pyg_outerconv.testing import assert_near, primitive_calls


@pytest.mark.parametrize("heads", [None, 1, 3], ids=lambda heads: f"{heads} heads")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("backend", "device"), PLACES)
def test_equals_reference_with_first_and_second_derivatives(backend, device, shape, dtype, heads):
    tolerance = 1e-10 if dtype == torch.float64 else 5 * BACKENDS[backend].tolerance
    testing.assert_backend_equals_reference(
        backend, csr_of(shape, device), dtype, 3, tolerance, heads
    )


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
    for name, function, inputs in each_call(backend, csr):
        if set(name.split()[1:]) <= PLAIN:
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
    native._of_all_groups is None, reason="this torch has no kernel for all groups"
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
        groups = Groups(ptr, *places, 9)
        return native.grouped_matmul(x, theta, groups), native.grouped_outer(x, grad, groups)

    wanted = results()
    monkeypatch.setattr(native, "is_one_kernel", lambda *_: True)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for actual, expected in zip(results(), wanted, strict=True):
        assert actual.dtype == dtype
        assert_near(actual[:7], expected[:7], tolerance)
    if not indexed:
        assert torch.equal(results()[0][7:], torch.zeros(2, 8, dtype=dtype))


@one_kernel
def test_what_goes_to_one_kernel_is_what_torch_says_that_it_takes(monkeypatch):
    capability = {"h100": (9, 0), "a100": (8, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability.get)

    def goes(device, dtype, inputs, outputs):
        x = SimpleNamespace(is_cuda=True, dtype=dtype, device=device)
        return native.is_one_kernel(x, 5, torch.Size((2, inputs, outputs)))

    def taken(dtype, inputs, outputs):
        ends = torch.empty(2, dtype=torch.int32, device="meta")
        x = torch.empty(5, inputs, dtype=dtype, device="meta")
        theta = torch.empty(2, inputs, outputs, dtype=dtype, device="meta")
        try:
            return native._of_all_groups(x, theta, offs=ends).shape == (5, outputs)
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
        for name, function, inputs in each_call(backend, csr, channels, heads):
            wanted = primitive_calls(csr, channels, heads)[name][0]
            assert_near(function(*inputs), served("reference", wanted)(*inputs), at_least=1.0)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_entries_are_sampled_at_any_width(backend, dtype):
    target, source = (torch.rand(100, 60) < 0.8).nonzero(as_tuple=True)
    csr = Pattern.build(torch.stack([source, target]), size=(60, 100)).by_target
    assert csr.num_entries > 2**12
    for channels in range(1, 10):
        a = torch.randn(100, channels, dtype=dtype)
        b = torch.randn(60, channels, dtype=dtype)
        with use_backend(backend):
            assert_near(sddmm(csr, a, b), (a @ b.t())[target, source])


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
    for _, function, inputs in each_call(backend, csr_of("square"), 3, heads):
        out = function(*inputs)
        expected = 2 * out.detach()
        assert torch.equal(out.mul_(2), expected)


@pytest.mark.parametrize(("backend", "device"), PLACES)
def test_two_runs_give_the_same_bits(backend, device):
    if device not in BACKENDS[backend].deterministic:
        pytest.skip(f"{backend} declares that it is not deterministic on {device}")
    index = torch.randint(50, (2, 3000))
    csr = Pattern.build(index.to(device), size=(50, 50)).by_target
    for _, function, inputs in each_call(backend, csr, 16, 2, torch.float32):
        assert_same_steps(function, function, inputs, exactly=True)


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
    for _, function, inputs in each_call(backend, csr):
        for position, one in enumerate(inputs):
            alone = [x.detach() for x in inputs]
            alone[position].requires_grad_()
            derivatives = []
            for operands, x in ((inputs, one), (alone, alone[position])):
                total = function(*operands).sin().sum()
                (first,) = torch.autograd.grad(total, x, create_graph=True)
                derivatives.append((first, *torch.autograd.grad(first.sin().sum(), x)))
            for actual, expected in zip(derivatives[1], derivatives[0], strict=True):
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
            gradients = torch.autograd.grad(
                out.sin().sum(), inputs, retain_graph=True, create_graph=create_graph
            )
            assert all(bool(gradient.isfinite().all()) for gradient in gradients)
            assert not gradients[0][masked].any()
            assert not gradients[3][rows == masked].any()
        second = torch.autograd.grad(sum(gradient.sum() for gradient in gradients), inputs)
        assert all(bool(gradient.isfinite().all()) for gradient in second)
    assert not out[masked].any()
    assert not out[csr.ptr.diff() == 0].any()
    assert out[rows.unique()[1:]].any(-1).all()


HEADS = pytest.mark.parametrize("heads", [None, 2], ids=lambda heads: f"{heads} heads")


def batched(shape, dim, size=4):
    """A random tensor with a batch of ``size`` at ``dim`` (0 or -1); None is no batch."""
    if dim is None:
        return torch.randn(shape, dtype=torch.float64)
    return torch.randn((*shape, size) if dim else (size, *shape), dtype=torch.float64)


@pytest.mark.slow(cases=3)
@HEADS
@pytest.mark.parametrize("backend", EVERY)
def test_vmap_over_every_set_of_operands_and_over_either_end_equals_a_loop(backend, heads):
    csr = csr_of("tall")
    for _, function, operands in each_call(backend, csr, 3, heads):
        for dims in [*product((None, 0, -1), repeat=len(operands))][1:]:
            batched_operands = [*zip([batched(x.shape, d) for x, d in zip(operands, dims)], dims)]  # noqa: B905
            items = [
                [x if d is None else x.select(d, item) for x, d in batched_operands]
                for item in range(4)
            ]
            actual = torch.vmap(function, in_dims=dims)(*(x for x, _ in batched_operands))
            assert_near(actual, torch.stack([function(*item) for item in items]))


@pytest.mark.slow(cases=3)
@HEADS
@pytest.mark.parametrize("backend", EVERY)
def test_gradients_of_each_item_of_a_batch(backend, heads):
    csr = csr_of("wide")
    for _, function, operands in each_call(backend, csr, 3, heads):
        inputs, every = [batched(x.shape, 0) for x in operands], tuple(range(len(operands)))

        def loss(*tensors, function=function):
            return function(*tensors).sin().sum()

        actual = torch.vmap(torch.func.grad(loss, argnums=every))(*inputs)
        gradients = [torch.func.grad(loss, argnums=every)(*items) for items in zip(*inputs)]  # noqa: B905
        for ours, theirs in zip(actual, zip(*gradients), strict=True):  # noqa: B905
            assert_near(ours, torch.stack(theirs), at_least=1.0)


@pytest.mark.parametrize("backend", EVERY)
def test_vmap_within_vmap(backend):
    csr = csr_of("tall")
    for _, function, operands in each_call(backend, csr):
        inputs = [torch.randn((2, 3, *x.shape), dtype=torch.float64) for x in operands]
        actual = torch.vmap(torch.vmap(function))(*inputs)
        expected = torch.vmap(function)(*(x.flatten(0, 1) for x in inputs))
        assert_near(actual, expected.unflatten(0, (2, 3)))


def by_dual_numbers(function, inputs, tangents):
    """The derivative along tangents by torch's own forward mode, without torch.func."""
    with forward_ad.dual_level():
        out = function(*map(forward_ad.make_dual, inputs, tangents))
        primal, tangent = forward_ad.unpack_dual(out)
    return torch.zeros_like(primal) if tangent is None else tangent


@HEADS
@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("name", ["tall", "no entries", "no rows"])
def test_forward_mode_is_the_adjoint_of_reverse_mode(backend, heads, name):
    csr = csr_of(name)
    for _, function, inputs in each_call(backend, csr, 3, heads):
        points = tuple(x.detach() for x in inputs)
        every = tuple(map(torch.randn_like, points))
        alone = [
            tuple(v if i == j else torch.zeros_like(v) for j, v in enumerate(every))
            for i in range(len(every))
        ]
        out = function(*inputs)
        direction = torch.randn_like(out)
        gradients = torch.autograd.grad(out, inputs, direction)
        for tangents in (every, *alone) if name == "tall" else (every,):
            expected = sum((g * v).sum() for g, v in zip(gradients, tangents, strict=True))
            primal, out_tangent = torch.func.jvp(function, points, tangents)
            assert_near(primal, out.detach())
            assert_near((direction * out_tangent).sum(), expected, at_least=1.0)
        assert_near(by_dual_numbers(function, points, tangents), out_tangent)


def one_of_each_kind(backend, csr, channels):
    """The calls with two heads, of which one stands for others that are differentiated alike."""
    alike = ("mean", "min", "transposed", "ones", "one", "of", "gathered")
    for name, function, inputs in each_call(backend, csr, channels):
        if not any(word in name.split() for word in alike):
            yield function, inputs


@pytest.mark.parametrize("backend", HERE)
def test_a_batch_of_tangents_or_of_points_equals_a_loop(backend):
    csr = csr_of("tall")
    for function, inputs in one_of_each_kind(backend, csr, 3):
        points, tangents = (
            tuple(torch.randn((2, *x.shape), dtype=torch.float64) for x in inputs) for _ in range(2)
        )

        def along(points, tangents, function=function):
            return torch.func.jvp(function, points, tangents)[1]

        first, second = (tuple(x[item] for x in points) for item in range(2))
        ways = [tuple(x[item] for x in tangents) for item in range(2)]
        of_first = along(first, ways[0])
        actual = torch.vmap(along, in_dims=(None, 0))(first, tangents)
        assert_near(actual, torch.stack([of_first, along(first, ways[1])]))
        actual = torch.vmap(along)(points, tangents)
        assert_near(actual, torch.stack([of_first, along(second, ways[1])]))


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("backend", HERE)
def test_second_derivatives_by_any_two_modes_are_equal(backend):
    csr = csr_of("repeated entries")
    grad, jvp = torch.func.grad, torch.func.jvp
    for function, inputs in one_of_each_kind(backend, csr, 2):
        points = [x.detach() for x in inputs]
        sizes = [x.numel() for x in points]

        def loss(flat, function=function, sizes=sizes, points=points):
            parts = zip(flat.split(sizes), points, strict=True)
            return function(*(part.view_as(x) for part, x in parts)).sin().sum()

        flat = torch.cat([x.flatten() for x in points])
        one, other = torch.randn_like(flat), torch.randn_like(flat)
        expected = torch.autograd.functional.hvp(loss, flat, one)[1]
        hessian_products = [
            jvp(grad(loss), (flat,), (one,))[1],
            grad(lambda x: jvp(loss, (x,), (one,))[1])(flat),  # noqa: B023
        ]
        with forward_ad.dual_level():  # over a backward pass that keeps no graph
            dual = forward_ad.make_dual(flat.clone().requires_grad_(), one)
            (gradient,) = torch.autograd.grad(loss(dual), dual)
            hessian_products.append(forward_ad.unpack_dual(gradient).tangent)
        for hessian_times_one in hessian_products:
            assert_near(hessian_times_one, expected, at_least=1.0)
        _, twice = jvp(lambda x: jvp(loss, (x,), (one,))[1], (flat,), (other,))  # noqa: B023
        assert_near(twice, expected @ other, at_least=1.0)


def test_a_backend_may_differentiate_max_and_min_by_sums_of_its_own(monkeypatch):
    """As Triton does, by the entries that were chosen."""

    def chosen(self, index, arg, value, x):
        entry, (head, channel) = arg.clamp(min=0).long(), map(torch.arange, arg.shape[1:])
        sent = x.expand(-1, arg.size(1), -1)[index[entry].long(), head.unsqueeze(-1), channel]
        sent = sent if value is None else sent * value[entry, head.unsqueeze(-1)]
        return torch.where(arg >= 0, sent, 0.0)

    def chosen_sum(self, ptr, index, perm, arg, value, x):
        number, index = numbers_of(index, perm), index.long()
        sent = torch.where(arg[index] == number.view(-1, 1, 1), x[index], 0.0)
        sent = sent if value is None else sent * value[number].unsqueeze(-1)
        return sent.new_zeros(len(ptr) - 1, *x.shape[1:]).index_add_(0, rows_of(ptr), sent)

    def chosen_sample(self, ptr, index, perm, arg, a, b):
        number, row = numbers_of(index, perm), rows_of(ptr)
        product = a[row] * b[index.long()]
        samples = torch.where(arg[row] == number.view(-1, 1, 1), product, 0.0).sum(-1)
        called.append(number)
        return torch.zeros_like(samples).index_copy_(0, number, samples)

    def numbers_of(index, perm):
        return torch.arange(len(index)) if perm is None else perm.long()

    called = []
    monkeypatch.setattr(Reference, "chosen", chosen)
    monkeypatch.setattr(Reference, "chosen_sum", chosen_sum)
    monkeypatch.setattr(Reference, "chosen_sample", chosen_sample)
    test_second_derivatives_by_any_two_modes_are_equal("reference")
    test_forward_mode_is_the_adjoint_of_reverse_mode("reference", 2, "tall")
    assert called


def test_every_primitive_is_called_above():
    called = {name.split()[0] for name, _, _ in calls_of("reference", csr_of("square"))}
    assert called == BACKENDS["reference"].primitives - {"spmm_theta"}
