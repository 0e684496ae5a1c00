"""Products through latent nodes, and scans: what they equal, and what they hold."""

import pytest
import torch
from oracle import assert_same_derivatives
from probes import Kept, Largest

from pyg_outerconv.kernels.linear_attention import (
    Chunks,
    collect,
    running,
    scan,
    scan_exponentials,
    spread,
)
from pyg_outerconv.testing import assert_near

HEADS, CHANNELS, WIDTH = 2, 3, 4


def operands(sources, targets, dtype=torch.float64):
    shapes = (targets, HEADS, CHANNELS), (sources, HEADS, CHANNELS), (sources, HEADS, WIDTH)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def places_of(sources, targets, size):
    return Chunks(size, max(1, -(-max(sources, targets) // size)))


def dense(query, key, value, seen):
    """``seen`` (M, N)."""
    weight = torch.einsum("mrd,nrd->rmn", key, query) * seen
    return torch.einsum("rmn,mrv->nrv", weight, value)


@pytest.mark.parametrize("strict", [False, True], ids=["inclusive", "strict"])
@pytest.mark.parametrize("size", [1, 4, 16, 64])
@pytest.mark.parametrize("ends", [(37, 37), (20, 37), (37, 20), (1, 1), (0, 3), (3, 0)], ids=str)
def test_a_scan_is_the_masked_product_and_so_are_its_derivatives(ends, size, strict):
    inputs = operands(*ends)
    order = torch.arange(ends[0])[:, None] - torch.arange(ends[1])
    wanted = dense(*inputs, order < 0 if strict else order <= 0)
    assert_same_derivatives(scan(*inputs, places_of(*ends, size), strict), wanted, inputs, 2)


def test_blocks_see_themselves_alone():
    """Two blocks in chunks of 4: the first has places 0 and 1, the second 4 to 8."""
    place = torch.tensor([0, 1, 4, 5, 6, 7, 8])
    block = torch.tensor([0, 1, 1])
    chunks = Chunks(4, 3, block, 2, place, place)
    inputs = operands(7, 7)
    same = (place // 4 > 0)[:, None] == (place // 4 > 0)
    wanted = dense(*inputs, same & (place[:, None] <= place))
    assert_same_derivatives(scan(*inputs, chunks), wanted, inputs, 2)
    query, key, value = inputs
    through = spread(query, collect(key, value, chunks), chunks)
    assert_same_derivatives(through, dense(*inputs, same), inputs, 2)


@pytest.mark.parametrize("strict", [False, True], ids=["inclusive", "strict"])
@pytest.mark.parametrize("size", [1, 4, 32])
@pytest.mark.parametrize("ends", [(37, 37), (20, 37), (37, 20), (1, 1), (0, 3), (3, 0)], ids=str)
def test_a_scan_of_exponentials_is_a_softmax_over_what_comes_before(ends, size, strict):
    """Divided by what a value of ones gets; keys grow, so that each makes those before vanish."""
    query, key, value = operands(*ends)
    with torch.no_grad():
        key *= 3.0 * torch.arange(ends[0]).view(-1, 1, 1)
        key[5:6] = -torch.inf
    order = torch.arange(ends[0])[:, None] - torch.arange(ends[1])
    seen = (order < 0) if strict else (order <= 0)
    both = (key[:, None] + query).masked_fill(~seen[..., None, None], -torch.inf)  # (M, N, R, D)
    high = both.detach().amax((0, 3), keepdim=True) if ends[0] else 0.0
    weight = (both - torch.as_tensor(high).nan_to_num(neginf=0.0)).exp().sum(-1)
    wanted = torch.einsum("mnr,mrv->nrv", weight, value)
    inputs = [query, key, value]
    assert_same_derivatives(
        scan_exponentials(*inputs, places_of(*ends, size), strict), wanted, inputs, 2
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100])
def test_running_states_are_sums_of_all_before(count):
    state = torch.randn(count, 2, dtype=torch.float64)
    assert_near(running(state), state.cumsum(0) - state)
    block = torch.arange(count) // 3
    parts = [part.cumsum(0) - part for part in state.split(3)]
    assert_near(running(state, block), torch.cat(parts))


def test_a_scan_holds_neither_pairs_nor_a_state_for_each_node():
    """What is held grows with n (C + D) + n/C D V, in every derivative."""
    nodes, heads, channels = 4096, 2, 16
    inputs = [torch.randn(nodes, heads, channels, requires_grad=True) for _ in range(3)]
    with Largest() as largest, Kept() as kept:
        out = scan(*inputs, places_of(nodes, nodes, 32))
        first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
        torch.autograd.grad(sum(part.sin().sum() for part in first), inputs)
    row = heads * 4
    assert largest.nbytes <= nodes * 32 * row  # the scores of each chunk
    assert largest.nbytes < nodes * channels * channels * row / 4
    assert kept.beside(*inputs)[1] < 40 * nodes * 32 * row < nodes * nodes * row


def test_a_scan_of_exponentials_holds_no_pairs_and_no_state_for_each_node():
    nodes, heads, channels = 8192, 2, 16
    inputs = [torch.randn(nodes, heads, channels, requires_grad=True) for _ in range(3)]
    with Largest() as largest, Kept() as kept:
        out = scan_exponentials(*inputs, places_of(nodes, nodes, 32))
        torch.autograd.grad(out.sin().sum(), inputs)
    line = nodes * heads * 4
    assert largest.nbytes <= line * 32
    assert kept.beside(*inputs)[1] < 25 * line * 32


def test_a_scan_and_latent_nodes_map_over_a_batch_of_functions():
    inputs = operands(9, 9)
    batched = [torch.stack([part.detach(), 2 * part.detach()]) for part in inputs]
    chunks = places_of(9, 9, 4)

    def total(query, key, value):
        both = scan(query, key, value, chunks) + spread(query, collect(key, value))
        return (both + scan_exponentials(query, key, value, chunks)).sin().sum()

    gradients = torch.func.vmap(torch.func.grad(total, argnums=(0, 1, 2)))(*batched)
    for number in range(2):
        one = torch.func.grad(total, argnums=(0, 1, 2))(*(part[number] for part in batched))
        for actual, reference in zip(gradients, one, strict=True):
            assert_near(actual[number], reference)
