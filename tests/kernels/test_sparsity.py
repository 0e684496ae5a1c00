"""What a sparsity and groups of rows must be: checked when made, and what checking saves."""

import copy
import pickle
import random
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from sparsities import HERE, calls_of, random_inputs, sparsity_of

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import BACKENDS, Sparsity, grouped_matmul, use_backend
from pyg_outerconv.testing import assert_near

NAMES = ("rowptr", "col", "colptr", "row", "perm")


def draw(seed):
    """The tensors of a random matrix, of at least two rows, columns and entries."""
    pick = torch.Generator().manual_seed(seed)
    rows, cols, entries = (int(torch.randint(2, 9, (), generator=pick)) for _ in range(3))
    ends = [torch.randint(n, (entries + 1,), generator=pick) for n in (cols, rows)]
    made = Pattern.build(torch.stack(ends), size=(cols, rows)).by_target
    dtype = random.Random(seed).choice((torch.int32, torch.int64))
    return {name: getattr(made, name).to(dtype) for name in NAMES}


def placed(tensor, place, number):
    out = tensor.clone()
    out[place] = number
    return out


def corruptions(tensor, pick):
    """What may happen to one field, by name."""
    place, huge = pick.randrange(tensor.numel()), 2**31 - 1
    yield "a list", tensor.tolist()
    yield "floats", tensor.float()
    yield "another type", tensor.to(torch.int64 if tensor.dtype == torch.int32 else torch.int32)
    yield "short integers", tensor.to(torch.int16)
    yield "a matrix", tensor.view(1, -1)
    yield "a number", tensor.sum()
    yield "nothing", tensor[:0]
    yield "too short", tensor[:-1]
    yield "too long", torch.cat([tensor, tensor[-1:]])
    yield "far beyond", placed(tensor, place, huge)
    yield "negative", placed(tensor, place, -1 - pick.randrange(5))
    yield "far below", placed(tensor, place, -huge)
    yield "one more", placed(tensor, place, int(tensor[place]) + 1)
    yield "one less", placed(tensor, place, int(tensor[place]) - 1)
    yield "elsewhere", tensor.to("meta")
    yield "backwards", tensor.flip(0)
    yield "falling", placed(tensor, slice(1, None), torch.arange(tensor.numel() - 1, 0, -1))


def may_be_right(name, what, tensors):
    """Whether it may list parallel entries in another order, or empty rows more or fewer."""
    if name.endswith("ptr"):
        return what == "too long" or (
            what == "too short" and tensors[name][-2] == tensors[name][-1]
        )
    return what == "backwards" and name == "perm"


@pytest.mark.parametrize("seed", range(20))
def test_every_field_that_is_not_of_the_matrix_is_refused(seed):
    tensors, pick = draw(seed), random.Random(seed)
    good = Sparsity(**tensors)
    for name in NAMES:
        for what, bad in corruptions(tensors[name], pick):
            if isinstance(bad, torch.Tensor) and not bad.is_meta:
                if bad.dtype == tensors[name].dtype and torch.equal(bad, tensors[name]):
                    continue  # nothing has happened
                if may_be_right(name, what, tensors):
                    continue
            for make in (
                lambda n=name, b=bad: Sparsity(**{**tensors, n: b}),
                lambda n=name, b=bad: replace(good, **{n: b}),
            ):
                with pytest.raises((TypeError, ValueError), match="expected .*, got "):
                    make()


def test_what_was_checked_stays():
    good = Sparsity(**draw(0))
    with pytest.raises(FrozenInstanceError):
        good.col = good.col + 100
    made = Pattern.build(torch.tensor([[0, 1], [1, 0]]), size=(2, 2)).by_target
    with pytest.raises(ValueError, match="every entry of col lies in range"):
        replace(made, col=made.col + 100)  # nor of one that was never checked
    for again in (copy.copy(good), copy.deepcopy(good), pickle.loads(pickle.dumps(good))):
        assert all(map(torch.equal, again.tensors, good.tensors))
    assert all(map(torch.equal, good.to("cpu").tensors, good.tensors))


def test_two_orders_of_parallel_entries_are_one_matrix():
    ptr, zeros = torch.tensor([0, 2]), torch.zeros(2, dtype=torch.long)
    for perm in ([0, 1], [1, 0]):
        made = Sparsity(ptr, zeros, ptr, zeros, torch.tensor(perm))
        assert made.shape == (1, 1)


def strided(tensor):
    """The same numbers, two apart in memory."""
    return torch.stack([tensor, torch.full_like(tensor, 10**6)], dim=1)[:, 0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("backend", HERE)
def test_strided_indices_give_the_numbers_of_contiguous_ones(backend, dtype):
    plain = Sparsity(*(tensor.to(dtype) for tensor in sparsity_of("square").tensors))
    other = Sparsity(*map(strided, plain.tensors))
    assert all(tensor.is_contiguous() for tensor in other.tensors)
    ours = {name: call for name, call, _ in calls_of(backend, plain, 3, 2)}
    for name, call, shapes in calls_of(backend, other, 3, 2):
        inputs = random_inputs(shapes)
        with use_backend(backend):
            found, expected = call(*inputs), ours[name](*inputs)
            assert_near(found, expected)
            for gradient, wanted in zip(
                torch.autograd.grad(found.sin().sum(), inputs, materialize_grads=True),
                torch.autograd.grad(expected.sin().sum(), inputs, materialize_grads=True),
                strict=True,
            ):
                assert_near(gradient, wanted, at_least=0.1)


# Groups of rows -----------------------------------------------------------------------------------

GROUPED = [
    name for name in ("native", "reference") if "grouped_matmul" in BACKENDS[name].primitives
]


@pytest.mark.parametrize("seed", range(15))
def test_indices_of_groups_that_do_not_fit_are_refused(seed):
    pick = random.Random(seed)
    rows, groups = pick.randint(2, 6), pick.randint(2, 4)
    cuts = sorted(pick.randrange(rows + 1) for _ in range(groups - 1))
    ptr, gather = torch.tensor([0, *cuts, rows]), torch.randperm(rows)
    x, theta = torch.randn(rows, 3), torch.randn(groups, 3, 2)
    cases = [
        {"ptr": bad}
        for bad in (
            [0, *cuts, rows],
            ptr.float(),
            ptr.view(1, -1),
            placed(ptr, -1, rows - 1),
            placed(ptr, -1, rows + 1),
            placed(ptr, 0, 1),
            placed(ptr, 0, -1),
            placed(ptr, 1, rows + 1),
            placed(ptr, 1, -1),
            ptr[:-1],
            torch.cat([ptr, ptr[-1:]]),
            ptr[:0],
        )
    ]
    for name in ("gather", "scatter"):
        cases += [
            {name: bad}
            for bad in (
                gather.tolist(),
                gather.float(),
                gather.view(1, -1),
                gather[:-1],
                placed(gather, 0, rows),
                placed(gather, 0, -1),
            )
        ]
    for case in cases:
        given = {"x": x, "ptr": ptr, "theta": theta, "num_rows": rows, **case}
        with pytest.raises((TypeError, ValueError), match="expected .*, got "):
            grouped_matmul(**given)


@pytest.mark.parametrize("backend", GROUPED)
def test_strided_groups(backend):
    ptr, gather = torch.tensor([0, 2, 5]), torch.tensor([3, 0, 1, 2, 4])
    x, theta = torch.randn(5, 3).double(), torch.randn(2, 3, 2).double()
    with use_backend(backend):
        found = grouped_matmul(x, strided(ptr), theta, gather=strided(gather))
        assert_near(found, grouped_matmul(x, ptr, theta, gather=gather))
