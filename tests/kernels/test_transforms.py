"""vmap, func.grad, jacrev and batched gradients equal a loop; forward mode raises."""

from itertools import product

import pytest
import torch
from sparsities import HERE, calls_of, random_inputs, sparsity_of

from pyg_outerconv.kernels import BACKENDS, use_backend
from pyg_outerconv.testing import assert_near

HEADS = pytest.mark.parametrize("heads", [None, 2], ids=lambda heads: f"{heads} heads")


def batched(shape, dim, size=4):
    """A random tensor with a batch of ``size`` at ``dim`` (0 or -1); None is no batch."""
    if dim is None:
        return torch.randn(shape, dtype=torch.float64)
    return torch.randn((*shape, size) if dim else (size, *shape), dtype=torch.float64)


@HEADS
@pytest.mark.parametrize("backend", HERE)
def test_vmap_over_every_set_of_operands_and_over_either_end_equals_a_loop(backend, heads):
    sparsity = sparsity_of("tall")
    for _name, function, shapes in calls_of(backend, sparsity, 3, heads):
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


@HEADS
@pytest.mark.parametrize("backend", HERE)
def test_gradients_of_each_item_of_a_batch(backend, heads):
    sparsity = sparsity_of("wide")
    for _, function, shapes in calls_of(backend, sparsity, 3, heads):
        inputs, every = [batched(shape, 0) for shape in shapes.values()], tuple(range(len(shapes)))

        def loss(*tensors, function=function):
            return function(*tensors).sin().sum()

        with use_backend(backend):
            actual = torch.vmap(torch.func.grad(loss, argnums=every))(*inputs)
            found = [torch.func.grad(loss, argnums=every)(*items) for items in zip(*inputs)]  # noqa: B905
        for ours, theirs in zip(actual, zip(*found), strict=True):  # noqa: B905
            assert_near(ours, torch.stack(theirs), at_least=1.0)


@HEADS
@pytest.mark.parametrize("backend", HERE)
def test_jacobians_by_any_road_are_equal(backend, heads):
    sparsity = sparsity_of("repeated entries")
    for _, function, shapes in calls_of(backend, sparsity, 2, heads):
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


@pytest.mark.parametrize("backend", HERE)
def test_vmap_within_vmap(backend):
    sparsity = sparsity_of("tall")
    for _, function, shapes in calls_of(backend, sparsity, 3, 2):
        inputs = [torch.randn((2, 3, *shape), dtype=torch.float64) for shape in shapes.values()]
        with use_backend(backend):
            actual = torch.vmap(torch.vmap(function))(*inputs)
            expected = torch.vmap(function)(*(x.flatten(0, 1) for x in inputs))
        assert_near(actual, expected.unflatten(0, (2, 3)))


@HEADS
@pytest.mark.parametrize("backend", HERE)
def test_forward_mode_raises_and_is_never_zero(backend, heads):
    sparsity = sparsity_of("square")
    with use_backend(backend):
        for _, function, shapes in calls_of(backend, sparsity, 3, heads):
            inputs = [x.detach() for x in random_inputs(shapes)]
            for position in range(len(inputs)):

                def of_one(x, function=function, inputs=inputs, position=position):
                    return function(*inputs[:position], x, *inputs[position + 1 :])

                point = inputs[position]
                with pytest.raises(NotImplementedError, match="jvp"):
                    torch.func.jvp(of_one, (point,), (torch.ones_like(point),))
                with pytest.raises(NotImplementedError, match="jvp"):
                    torch.func.jacfwd(of_one)(point)
                with torch.autograd.forward_ad.dual_level():
                    dual = torch.autograd.forward_ad.make_dual(point, torch.ones_like(point))
                    with pytest.raises((NotImplementedError, RuntimeError), match="jvp"):
                        of_one(dual)


def test_every_primitive_is_called_above():
    called = {name.split()[0] for name, _, _ in calls_of("reference", sparsity_of("square"))}
    assert called == BACKENDS["reference"].primitives - {"spmm_theta"}
