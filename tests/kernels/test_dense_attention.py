"""Attention of all sources, of bands and of blocks equals attention on their edges."""

import itertools

import pytest
import torch
from oracle import assert_same
from probes import Largest
from torch.nn.attention import SDPBackend, sdpa_kernel

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import (
    attend,
    attend_all,
    attend_band,
    attend_blocks,
    blocks_of,
    dense_attention,
    use_backend,
)
from pyg_outerconv.testing import assert_near

HEADS, DIM, VALUES = 2, 5, 3


@pytest.fixture(params=["in blocks", "by one mask"])
def way(request, monkeypatch):
    """Small windows are one mask for all heads; their blocks have to be right all the same."""
    if request.param == "in blocks":
        monkeypatch.setattr(dense_attention, "_SMALL", 0)


@pytest.fixture
def in_blocks(monkeypatch):
    monkeypatch.setattr(dense_attention, "_SMALL", 0)


def operands(targets, sources, dtype=torch.float64, factor=1.0):
    shapes = (targets, HEADS, DIM), (sources, HEADS, DIM), (sources, HEADS, VALUES)
    return [(factor * torch.randn(shape)).to(dtype).requires_grad_() for shape in shapes]


def on_edges(visible, tensors, bias=None, scale=None):
    """``attend`` where a target (row of ``visible``) sees a source."""
    target, source = visible.nonzero(as_tuple=True)
    size = (visible.size(1), visible.size(0))
    csr = Pattern.build(torch.stack([source, target]), size=size).by_target
    if bias is not None:
        rows = torch.arange(size[1]).repeat_interleave(csr.ptr.diff())
        bias = bias[rows, csr.index.long()]
    with use_backend("reference"):
        return attend(csr, *tensors, bias, scale=scale)


def band(targets, sources, left, right, offset=0, dilation=1):
    """The definition of a window, pair by pair."""
    ahead = torch.arange(sources) - torch.arange(targets).unsqueeze(-1) - offset
    step, rest = ahead.div(dilation, rounding_mode="floor"), ahead % dilation
    low, high = -torch.inf if left is None else -left, torch.inf if right is None else right
    return (rest == 0) & (step >= low) & (step <= high)


SIZES = [(7, 7), (9, 4), (3, 8), (1, 1), (1, 6), (6, 1)]


@pytest.mark.parametrize("causal", [None, 0, -1, 2, -3, 20, -20])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_all_sources_or_those_so_far(size, causal):
    inputs = operands(*size)
    visible = band(*size, None, causal)
    assert_same(attend_all(*inputs, causal=causal), on_edges(visible, inputs), inputs)


@pytest.mark.parametrize("causal", [None, 0, -2, 1])
@pytest.mark.parametrize("shape", ["sources", "sources and heads"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_masked_sources_are_not_seen_whatever_they_hold(size, shape, causal):
    inputs = operands(*size)
    mask = torch.rand(size[1], HEADS) < 0.5
    mask = mask[:, 0] if shape == "sources" else mask
    every = mask.unsqueeze(-1).expand(-1, HEADS) if mask.dim() == 1 else mask
    visible = band(*size, None, causal)
    bias = torch.zeros(*size, HEADS, dtype=torch.float64).masked_fill(~every, -torch.inf)
    truth = on_edges(visible, inputs, bias)
    assert_same(attend_all(*inputs, source_mask=mask, causal=causal), truth, inputs)
    with torch.no_grad():
        hidden = ~every.unsqueeze(-1)
        broken = [inputs[0], *(x.masked_fill(hidden, torch.nan) for x in inputs[1:])]
        assert_near(attend_all(*broken, source_mask=mask, causal=causal), truth)
        actual = attend_band(*broken, left=2, right=1, source_mask=mask)
        assert_near(actual, on_edges(band(*size, 2, 1), inputs, bias))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [None, 0, -1, 1])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_bias_of_pairs_and_its_gradient(size, causal, masked):
    bias = torch.randn(*size, HEADS, dtype=torch.float64)
    bias[torch.rand(bias.shape) < 0.3] = -torch.inf
    bias[0] = -torch.inf
    inputs = [*operands(*size), bias.requires_grad_()]
    mask = torch.rand(size[1]) < 0.6 if masked else None
    visible = band(*size, None, causal)
    hidden = 0.0 if mask is None else torch.zeros(size[1]).masked_fill(~mask, -torch.inf)
    total = bias if mask is None else bias + hidden.view(1, -1, 1)
    assert_same(
        attend_all(*inputs, source_mask=mask, causal=causal),
        on_edges(visible, inputs[:3], total),
        inputs,
    )


LIMITS = [(2, 1), (0, 0), (None, 0), (None, -1), (0, None), (-1, None), (3, -2), (-1, 4), (50, 50)]


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("limits", [*LIMITS, (None, None)], ids=str)
@pytest.mark.parametrize("size", [*SIZES, (70, 75)], ids=str)
@pytest.mark.usefixtures("way")
def test_windows(size, limits, dilation):
    left, right = limits
    for offset in (0, -2, 5, 100):
        inputs = operands(*size)
        options = {"left": left, "right": right, "offset": offset, "dilation": dilation}
        visible = band(*size, **options)
        assert_same(attend_band(*inputs, **options), on_edges(visible, inputs), inputs)


@pytest.mark.parametrize("elements", [1, 10_000])
@pytest.mark.parametrize("limits", [(20, 20), (0, 90), (130, 0), (None, 3), (3, 400)], ids=str)
@pytest.mark.usefixtures("in_blocks")
def test_windows_of_many_blocks_and_chunks(limits, elements, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.attention_tiles.CHUNK_ELEMENTS", {"cpu": elements})
    inputs, mask = operands(300, 290), torch.rand(290) < 0.8
    left, right = limits
    visible = band(300, 290, left, right, 4)
    assert_same(
        attend_band(*inputs, left=left, right=right, offset=4), on_edges(visible, inputs), inputs
    )
    assert_same(
        attend_band(*inputs, left=left, right=right, offset=4, source_mask=mask),
        on_edges(visible & mask, inputs),
        inputs,
    )


def test_the_scale_is_given_or_that_of_the_channels():
    inputs, visible = operands(9, 9), band(9, 9, 3, 0)
    truth = on_edges(visible, inputs, scale=-0.7)
    assert_near(attend_band(*inputs, left=3, right=0, scale=-0.7), truth)
    truth = on_edges(torch.ones(9, 9), inputs, scale=0.3)
    assert_near(attend_all(*inputs, scale=0.3), truth)


def test_gradients_need_no_fused_kernel():
    inputs = operands(9, 8)
    with sdpa_kernel(SDPBackend.MATH):
        assert_same(attend_all(*inputs), on_edges(torch.ones(9, 8), inputs), inputs)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([0, 0, 1, 1, 2, 2], [0, 1, 2]),
        ([3, 1, 2, 2, 3, 3, 9], [2, 3, 1, 9, 9, 2]),
        ([0] * 40 + [1, 2, 2], [2, 0, 1, 1, 1]),
        ([5, 5, 5], [6, 6]),
        ([-1, 7, 7], [7, 8, -1, 8]),
        ([], [1, 2]),
        ([1], []),
    ],
)
def test_blocks(source, target):
    source, target = torch.tensor(source).long(), torch.tensor(target).long()
    inputs = operands(len(target), len(source))
    visible = target.unsqueeze(-1) == source
    ours = attend_blocks(*inputs, blocks_of(source, target))
    assert_same(ours, on_edges(visible, inputs), inputs)


def test_blocks_of_one_size_are_not_padded_and_few_large_ones_do_not_pad_many_small_ones():
    equal = blocks_of(torch.arange(12) % 4, torch.arange(8) % 4)
    assert [(tuple(x.targets.shape), x.missing) for x in equal.padded] == [((4, 2), None)]
    block = torch.cat([torch.arange(100), torch.zeros(500).long()])
    ragged = blocks_of(block, block)
    assert sum(x.targets.size(0) * x.targets.size(1) for x in ragged.padded) < 1200


@pytest.mark.parametrize(
    "call",
    [
        lambda *x: attend_all(*x),
        lambda *x: attend_all(*x, causal=-1),
        lambda *x: attend_band(*x, left=1, right=1),
        lambda *x: attend_blocks(*x, blocks_of(torch.arange(x[1].size(0)), torch.arange(4))),
    ],
)
@pytest.mark.usefixtures("way")
def test_nothing_to_see_is_zero_and_has_gradients_of_zero(call):
    inputs = operands(4, 0)
    out = call(*inputs)
    assert out.tolist() == torch.zeros(4, HEADS, VALUES).tolist()
    assert all(not x.any() for x in torch.autograd.grad(out.sum(), inputs))


@pytest.mark.parametrize("factor", [1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.usefixtures("way")
def test_short_types_and_scores_of_ten_thousand(dtype, factor):
    # With channels of about 100, scores are about 10 000.
    inputs = operands(9, 7, dtype, factor)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    block = torch.arange(9) % 2, torch.arange(7) % 2
    for ours, visible in (
        (attend_all(*inputs, scale=1.0), torch.ones(9, 7)),
        (attend_all(*inputs, scale=1.0, causal=0), band(9, 7, None, 0)),
        (attend_band(*inputs, scale=1.0, left=2, right=1), band(9, 7, 2, 1)),
        (
            attend_blocks(*inputs, blocks_of(block[1], block[0]), scale=1.0),
            block[0].unsqueeze(-1) == block[1],
        ),
    ):
        truth = on_edges(visible, wide, scale=1.0)
        assert ours.dtype == dtype
        unit = {torch.float32: 3e-4, torch.bfloat16: 5e-2, torch.float16: 5e-3}[dtype]
        assert_near(ours.detach().double(), truth.detach(), unit)
        for x in torch.autograd.grad(ours.float().sum(), inputs):
            assert x.isfinite().all()


GROUPS = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([0, 1, 1, 2, 2, 3])
TWICE = {
    "window": lambda *x: attend_band(*x, left=2, right=1, offset=1, dilation=2),
    "all": attend_all,
    "causal": lambda *x: attend_all(*x, causal=0),
    "present": lambda *x: attend_all(*x, source_mask=GROUPS[0] != 2),
    "present and causal": lambda *x: attend_all(*x, source_mask=GROUPS[0] != 2, causal=0),
    "blocks": lambda *x: attend_blocks(*x, blocks_of(*GROUPS)),
}


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.usefixtures("way")
def test_second_derivatives(name):
    inputs = operands(6, 6)
    assert torch.autograd.gradcheck(TWICE[name], inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(TWICE[name], inputs, fast_mode=True)


@pytest.mark.parametrize("dims", list(itertools.product((None, 0, 1), repeat=3))[1:], ids=str)
@pytest.mark.usefixtures("way")
def test_vmap_and_its_gradients_equal_a_loop(dims):
    tensors = [
        torch.randn(shape if dim is None else (*shape[:dim], 4, *shape[dim:]), dtype=torch.float64)
        for shape, dim in zip(
            ((6, HEADS, DIM), (5, HEADS, DIM), (5, HEADS, VALUES)), dims, strict=True
        )
    ]
    mask = torch.tensor([True, True, False, True, True])

    def loss(*x):
        return attend_band(*x, left=1, right=1, source_mask=mask).sin().sum()

    for function in (loss, torch.func.grad(loss, argnums=1)):
        actual = torch.vmap(function, in_dims=dims)(*tensors)
        expected = [
            function(
                *(x if d is None else x.select(d, i) for x, d in zip(tensors, dims, strict=True))
            )
            for i in range(4)
        ]
        assert_near(actual, torch.stack(expected), at_least=1.0)


@pytest.mark.usefixtures("way")
def test_dropout_keeps_the_mean_and_backward_sees_what_forward_saw():
    query, key, _ = operands(40, 40)
    value = torch.ones(40, HEADS, VALUES, dtype=torch.float64, requires_grad=True)
    for call in (
        lambda: attend_band(query, key, value, left=10, right=10, dropout_p=0.25),
        lambda: attend_all(query, key, value, dropout_p=0.25),
    ):
        torch.manual_seed(0)
        out = call()
        assert 0.9 < out.mean() < 1.1
        assert out.std() > 0.01
        # Linear in the values, so the gradient times the values is the result.
        (grad,) = torch.autograd.grad(out.sum(), value)
        assert_near((grad * value).sum(), out.sum())
        assert not torch.equal(out, call())
    assert not attend_band(query, key, value, left=1, right=1, dropout_p=1.0).any()


@pytest.mark.usefixtures("in_blocks")
def test_no_tensor_of_windows_times_channels_and_no_square_one():
    size, channels = 4096, 8
    inputs = [torch.randn(size, 1, channels, requires_grad=True) for _ in range(3)]
    mask = torch.rand(size) < 0.9
    with Largest() as largest:
        attend_band(*inputs, left=64, right=64).sum().backward()
        attend_band(*inputs, left=64, right=64, source_mask=mask, dilation=3).sum().backward()
        attend_all(*inputs, causal=0).sum().backward()
        attend_all(*inputs, source_mask=mask).sum().backward()
        attend_all(*inputs, source_mask=mask, causal=5).sum().backward()
    assert largest.nbytes <= 16 * (1 << 20)
    assert largest.nbytes < size * 129 * channels * 4
