"""vmap, func.grad, jacrev, jvp and batched gradients equal a loop, and one another."""

from itertools import product

import pytest
import torch
from matrices import EVERY, HERE, calls_of, csr_of, random_inputs
from torch.autograd import forward_ad

from pyg_outerconv.kernels import BACKENDS, use_backend
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.kernels.tiles import rows_of
from pyg_outerconv.testing import assert_near

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
    for _name, function, shapes in calls_of(backend, csr, 3, heads):
        for dims in product((None, 0, -1), repeat=len(shapes)):
            if not any(dim is not None for dim in dims):
                continue
            inputs = [batched(shape, dim) for shape, dim in zip(shapes.values(), dims, strict=True)]
            with use_backend(backend):
                actual = torch.vmap(function, in_dims=dims)(*inputs)
                expected = torch.stack(
                    [
                        function(
                            *(
                                x if dim is None else x.select(dim, item)
                                for x, dim in zip(inputs, dims, strict=True)
                            )
                        )
                        for item in range(4)
                    ]
                )
            assert_near(actual, expected)


@pytest.mark.slow(cases=3)
@HEADS
@pytest.mark.parametrize("backend", EVERY)
def test_gradients_of_each_item_of_a_batch(backend, heads):
    csr = csr_of("wide")
    for _, function, shapes in calls_of(backend, csr, 3, heads):
        inputs, every = [batched(shape, 0) for shape in shapes.values()], tuple(range(len(shapes)))

        def loss(*tensors, function=function):
            return function(*tensors).sin().sum()

        with use_backend(backend):
            actual = torch.vmap(torch.func.grad(loss, argnums=every))(*inputs)
            found = [torch.func.grad(loss, argnums=every)(*items) for items in zip(*inputs)]  # noqa: B905
        for ours, theirs in zip(actual, zip(*found), strict=True):  # noqa: B905
            assert_near(ours, torch.stack(theirs), at_least=1.0)


@pytest.mark.slow(cases=3)
@HEADS
@pytest.mark.parametrize("backend", EVERY)
def test_jacobians_by_any_road_are_equal(backend, heads):
    csr = csr_of("repeated entries")
    for _, function, shapes in calls_of(backend, csr, 2, heads):
        inputs = [x.detach() for x in random_inputs(shapes)]
        every = tuple(range(len(inputs)))
        with use_backend("reference"):
            row_by_row = torch.autograd.functional.jacobian(function, tuple(inputs))
        with use_backend(backend):
            roads = [
                torch.func.jacrev(function, argnums=every)(*inputs),
                torch.autograd.functional.jacobian(function, tuple(inputs), vectorize=True),
            ]
        for road in roads:
            for actual, expected in zip(road, row_by_row, strict=True):
                assert_near(actual, expected, at_least=1.0)


@pytest.mark.parametrize("backend", EVERY)
def test_vmap_within_vmap(backend):
    csr = csr_of("tall")
    for _, function, shapes in calls_of(backend, csr, 3, 2):
        inputs = [torch.randn((2, 3, *shape), dtype=torch.float64) for shape in shapes.values()]
        with use_backend(backend):
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
    for _, function, shapes in calls_of(backend, csr, 3, heads):
        inputs = random_inputs(shapes)
        points = tuple(x.detach() for x in inputs)
        every = tuple(map(torch.randn_like, points))
        alone = [
            tuple(v if i == j else torch.zeros_like(v) for j, v in enumerate(every))
            for i in range(len(every))
        ]
        with use_backend(backend):
            out = function(*inputs)
            direction = torch.randn_like(out)
            gradients = torch.autograd.grad(out, inputs, direction)
            for tangents in (every, *alone) if name == "tall" else (every,):
                expected = sum((g * v).sum() for g, v in zip(gradients, tangents, strict=True))
                primal, found = torch.func.jvp(function, points, tangents)
                assert_near(primal, out.detach())
                assert_near((direction * found).sum(), expected, at_least=1.0)
            assert_near(by_dual_numbers(function, points, tangents), found)


def one_of_each_kind(backend, csr, channels):
    """The calls with two heads, of which one stands for others that are differentiated alike."""
    alike = ("mean", "min", "transposed", "ones", "one", "of", "gathered")
    for name, function, shapes in calls_of(backend, csr, channels, 2):
        if not any(word in name.split() for word in alike):
            yield name, function, shapes


@pytest.mark.parametrize("backend", HERE)
def test_a_batch_of_tangents_or_of_points_equals_a_loop(backend):
    csr = csr_of("tall")
    for _, function, shapes in one_of_each_kind(backend, csr, 3):
        points, tangents = (
            tuple(torch.randn((2, *shape), dtype=torch.float64) for shape in shapes.values())
            for _ in range(2)
        )

        def along(points, tangents, function=function):
            return torch.func.jvp(function, points, tangents)[1]

        first, second = (tuple(x[item] for x in points) for item in range(2))
        ways = [tuple(x[item] for x in tangents) for item in range(2)]
        with use_backend(backend):
            of_first = along(first, ways[0])
            found = torch.vmap(along, in_dims=(None, 0))(first, tangents)
            assert_near(found, torch.stack([of_first, along(first, ways[1])]))
            found = torch.vmap(along)(points, tangents)
            assert_near(found, torch.stack([of_first, along(second, ways[1])]))


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("backend", HERE)
def test_second_derivatives_by_any_two_modes_are_equal(backend):
    csr = csr_of("repeated entries")
    grad, jvp = torch.func.grad, torch.func.jvp
    for _, function, shapes in one_of_each_kind(backend, csr, 2):
        points = [x.detach() for x in random_inputs(shapes)]
        sizes = [x.numel() for x in points]

        def loss(flat, function=function, sizes=sizes, points=points):
            parts = zip(flat.split(sizes), points, strict=True)
            return function(*(part.view_as(x) for part, x in parts)).sin().sum()

        flat = torch.cat([x.flatten() for x in points])
        one, other = torch.randn_like(flat), torch.randn_like(flat)
        with use_backend(backend):
            expected = torch.autograd.functional.hvp(loss, flat, one)[1]
            found = [
                jvp(grad(loss), (flat,), (one,))[1],
                grad(lambda x: jvp(loss, (x,), (one,))[1])(flat),  # noqa: B023
            ]
            with forward_ad.dual_level():  # over a backward pass that keeps no graph
                dual = forward_ad.make_dual(flat.clone().requires_grad_(), one)
                (gradient,) = torch.autograd.grad(loss(dual), dual)
                found.append(forward_ad.unpack_dual(gradient).tangent)
            for hessian_times_one in found:
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
        found = torch.where(arg[row] == number.view(-1, 1, 1), product, 0.0).sum(-1)
        called.append(number)
        return torch.zeros_like(found).index_copy_(0, number, found)

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
