"""The lowering of shifts of a full grid to torch's convolutions."""

import pytest
import torch
from contractions import normal, parameter
from shifts import box, draw_shifts, some_shifts

from pyg_outerconv.basis import Eye
from pyg_outerconv.contract import ORDERS, Problem, contract, contraction_path
from pyg_outerconv.contract.orders.grids import as_images, as_nodes
from pyg_outerconv.families import GCN
from pyg_outerconv.testing import assert_contraction, assert_near, dense_contraction
from pyg_outerconv.testing.reference import derivatives

CONVOLUTION = ORDERS["convolution"]
SEEDS = range(240)


def problem_of(basis, *batch, groups=1, dtype=torch.float64):
    theta = parameter(basis.num_bases, groups, 2 * groups, 3 * groups)
    return Problem(basis, normal(basis.size[0], *batch, 2 * groups), theta)


def legal(basis):
    return not CONVOLUTION.why_not(problem_of(basis))


# Equal to the dense form ------------------------------------------------------------------------


LEGAL = [seed for seed in SEEDS if legal(draw_shifts(seed))]


@pytest.mark.parametrize("seed", LEGAL)
def test_equals_the_dense_form_for_any_shifts(seed):
    basis, groups = draw_shifts(seed), 1 + seed % 2
    matrices = 2 if seed % 5 == 0 else None
    theta = parameter(basis.num_bases, groups, 2 * groups, 3 * groups, matrices)
    x = normal(basis.size[0], *((), (2,), (2, 3))[seed % 3], 2 * groups)
    inputs = [x, *([theta.inner, theta.coefficient] if matrices else [theta])]
    out = contract(basis, x, theta, order="convolution")
    reference = dense_contraction(basis, x, theta)
    found, expected = (derivatives(y, inputs, 1) for y in (out, reference))
    for ours, theirs in zip(found, expected, strict=True):
        assert_near(ours, theirs, at_least=0.1)


def test_many_random_shifts_are_lowered():
    transposed = [draw_shifts(seed).is_transposed for seed in LEGAL]
    assert len(transposed) > len(SEEDS) / 3
    assert transposed.count(True) > 20


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 3, 4)], ids=str)
def test_second_derivatives(shape, transposed):
    basis = box(shape, 2, stride=2, padding=1, transposed=transposed)
    x, theta = normal(basis.size[0], 2, 2), parameter(basis.num_bases, 1, 2, 3)
    out = contract(basis, x, theta, order="convolution")
    reference = dense_contraction(basis, x, theta)
    found, expected = (derivatives(y, [x, theta], 2) for y in (out, reference))
    for ours, theirs in zip(found, expected, strict=True):
        assert_near(ours, theirs, at_least=0.1)


def test_labels_with_one_shift_add_up():
    basis = some_shifts([(0, 1), (0, 0), (0, 1)], (4, 4))
    x, theta = normal(16, 2), parameter(3, 1, 2, 3)
    assert_near(contract(basis, x, theta, order="convolution"), dense_contraction(basis, x, theta))


def test_four_axes_equal_the_dense_form_without_a_lowering():
    basis = box((3, 2, 3, 2), 2, padding=1)
    assert CONVOLUTION.why_not(problem_of(basis)) == ["torch has no more than 3 axes, not 4"]
    assert_contraction(basis, normal(basis.size[0], 2), parameter(basis.num_bases, 1, 2, 2))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_bias_reaches_every_cell(transposed):
    # Turned, some outputs lie outside of what the kernel reaches.
    basis = some_shifts([(2, 3), (3, 3)], (4, 6), transposed=transposed)
    x, theta, bias = normal(24, 2), parameter(2, 1, 2, 3), normal(3)
    out = contract(basis, x, theta, order="convolution", bias=bias)
    assert_near(out, dense_contraction(basis, x, theta) + bias)
    sparse = contract(basis, x, theta, order="propagate_first", bias=bias)
    assert_near(sparse, out)


# What it may not ----------------------------------------------------------------------------------


def test_reasons_name_what_torch_lacks():
    transposed = box((4, 4), 3, padding=1, mode="circular", transposed=True)
    for basis, reason in (
        (box((2, 2, 2, 2), 2), "torch has no more than 3 axes, not 4"),
        (box((4, 4), 3, padding=1, mode="reflect", transposed=True), "transposed shifts"),
        (transposed, "torch has no transposed shifts with padding_mode='circular'"),
        (some_shifts([(5,), (0,)], (3,), mode="circular"), "circular by 3 at most, not by 5"),
        (some_shifts([(3,), (0,)], (3,), mode="reflect"), "reflect by 2 at most, not by 3"),
        (box((0, 4), 1), "needs cells, and there are none"),
        (GCN().basis(torch.tensor([[0], [1]]), size=(2, 2)), "solves GridShift, not a EdgeBasis"),
        (Eye((3, 3), torch.device("cpu")), "solves GridShift, not a Eye"),
    ):
        reasons = "; ".join(CONVOLUTION.why_not(problem_of(basis)))
        assert reason in reasons, reasons


def test_features_and_channels_are_needed():
    basis = box((3,), 2)
    theta = parameter(2, 1, 3, 2)
    assert "dense node features" in CONVOLUTION.why_not(Problem(basis, None, theta))[0]
    no_channels = Problem(basis, normal(3, 0), parameter(2, 1, 0, 2))
    assert CONVOLUTION.why_not(no_channels) == ["needs at least one channel"]


def test_several_inputs_of_a_label_are_added_up_only():
    basis = box((4,), 3, padding=2, mode="replicate", transposed=True)
    theta = parameter(3, 1, 2, 2)
    problem = Problem(basis, normal(basis.size[0], 2), theta, aggr="max")
    assert any("several share a label under max" in r for r in CONVOLUTION.why_not(problem))
    assert not CONVOLUTION.why_not(
        Problem(box((4,), 3, padding=2), normal(4, 2), theta, aggr="max")
    )


def test_an_empty_batch():
    basis = box((3, 3), 3, padding=1)
    x, theta = normal(9, 0, 2), parameter(9, 1, 2, 3)
    out = contract(basis, x, theta, order="convolution")
    assert out.shape == (9, 0, 3)
    gradient = torch.autograd.grad(out.sum(), theta)[0]
    assert not gradient.any()


# The choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("channels", [1, 4, 32])
def test_a_full_kernel_is_lowered(channels, dtype):
    basis = box((64, 64), 3, padding=1)
    x = torch.empty(4096, 8, channels, dtype=dtype).zero_().requires_grad_()
    theta = torch.zeros(9, 1, channels, channels, dtype=dtype, requires_grad=True)
    path = contraction_path(basis, x, theta)
    assert path.chosen == ["convolution"]
    assert "→ convolution" in str(path)
    assert not basis.has_edges


def test_few_shifts_leave_holes_and_stay_sparse():
    basis = some_shifts([(0, 0), (37, 41), (-30, 13)], (64, 64))
    assert basis.geometry.kernel == (68, 42)
    x = torch.zeros(4096, 8, 32, requires_grad=True)
    theta = torch.zeros(3, 1, 32, 32, requires_grad=True)
    path = contraction_path(basis, x, theta, verbose=True)
    assert path.chosen[0] != "convolution"
    lowered = next(c for c in path.steps[0].candidates if c.order.name == "convolution")
    assert lowered.reasons == (
        "needs a label at every position of a box, because zero times NaN is NaN",
    )


def test_far_shifts_in_even_steps_are_dilated():
    basis = some_shifts([(-20, 0), (0, 20), (20, -20)], (64, 64))
    assert basis.geometry.kernel == (3, 3)
    assert [window.spacing for window in basis.geometry.axes] == [20, 20]


# Views --------------------------------------------------------------------------------------------


def test_images_are_read_and_written_where_they_are():
    images = torch.randn(2, 3, 4, 5)
    nodes = images.flatten(2).movedim(-1, 0)
    back = as_images(nodes, (4, 5))
    assert back.data_ptr() == images.data_ptr()
    assert back.is_contiguous()
    out = contract(box((4, 5), 3, padding=1), nodes, torch.randn(9, 1, 3, 6), order="convolution")
    assert as_images(out, (4, 5)).is_contiguous()
    assert as_nodes(images, (2,)).data_ptr() == images.data_ptr()


# torch's own machinery ----------------------------------------------------------------------------


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("offsets", [None, [(0, 1), (1, 0), (2, 2)]], ids=str)
def test_compiled_in_one_graph(offsets):
    basis = box((5, 5), 3, padding=1) if offsets is None else some_shifts(offsets, (5, 5))
    x, theta = normal(25, 2), parameter(basis.num_bases, 1, 2, 3)
    torch._dynamo.reset()
    if offsets is not None:  # holes, so that there are edges, which no graph makes
        contract(basis, x, theta).sum().backward()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(x, theta):
        return contract(basis, x, theta)

    out = run(x, theta)
    assert basis.has_edges == (offsets is not None)
    assert_near(out, dense_contraction(basis, x, theta))
