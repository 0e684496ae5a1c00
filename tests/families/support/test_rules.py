"""Bands and blocks: rules that equal their dense masks, counted without edges."""

import copy
import pickle
from itertools import product

import pytest
import torch

from pyg_outerconv.basis import Band, SameBlock
from pyg_outerconv.testing import assert_near

CPU = torch.device("cpu")
SIZES = (0, 1, 2, 5, 8)
LIMITS = ((None, None), (None, 0), (0, 0), (1, 2), (3, None), (-1, 2), (2, -2))


def mask_of(m, n, left, right, dilation, offset):
    """A band as a dense mask, pair by pair."""
    mask = torch.zeros(m, n, dtype=torch.bool)
    for source, target in product(range(m), range(n)):
        step, rest = divmod(source - target - offset, dilation)
        inside = (left is None or step >= -left) and (right is None or step <= right)
        mask[source, target] = rest == 0 and inside
    return mask


def assert_is(basis, mask):
    """Edges in order, one for each pair of the mask, and counts that need none."""
    assert basis.size == tuple(mask.shape)
    assert not basis.has_edges
    assert basis.num_edges == int(mask.sum())
    assert basis.num_source_pairs == int(mask.any(1).sum())
    assert basis.num_target_pairs == int(mask.any(0).sum())
    assert not basis.has_edges, "counting makes no edges"
    pattern = basis.edges().pattern
    assert pattern.num_edges == basis.num_edges
    assert bool((pattern.target.long() * len(mask) + pattern.source).diff().gt(0).all())
    assert torch.equal(basis.support()[0], mask)


@pytest.mark.parametrize(("m", "n"), list(product(SIZES, SIZES)))
def test_a_band_is_its_mask(m, n):
    for (left, right), dilation, offset in product(LIMITS, (1, 2, 7), (-4, -1, 0, 3)):
        band = Band(m, n, left, right, dilation, offset, on=CPU)
        mask = mask_of(m, n, left, right, dilation, offset)
        assert_is(band, mask)
        assert_is(band.transpose(), mask.t())
        assert isinstance(band.T, Band)
        assert band.is_complete == bool(mask.all())


def test_a_band_of_a_long_sequence_is_counted_without_work():
    long = 10**7
    assert Band(long, long, on=CPU).num_edges == long**2
    assert Band(long, long, None, 0, on=CPU).num_edges == long * (long + 1) // 2
    window = Band(long, long, 128, 128, on=CPU)
    assert window.num_edges == 257 * long - 128 * 129
    assert window.num_source_pairs == window.num_target_pairs == long


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_blocks_are_their_mask(dtype):
    generator = torch.Generator().manual_seed(3)
    for m, n in product(SIZES, SIZES):
        source = torch.randint(-1, 4, (m,), generator=generator, dtype=dtype)
        target = torch.randint(-2, 5, (n,), generator=generator, dtype=dtype)
        mask = (source.unsqueeze(1) == target) & (target >= 0)
        blocks = SameBlock(source, target)
        assert_is(blocks, mask)
        assert_is(blocks.transpose(), mask.t())
        assert isinstance(blocks.T, SameBlock)


RULES = [Band(4, 5, 1, None, on=CPU), SameBlock(torch.tensor([0, 1, -1]), torch.tensor([1, 1]))]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_are_pickled_and_copied_without_edges(rule):
    rule.edges()
    for again in (pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        assert type(again) is type(rule)
        assert not again.has_edges
        assert torch.equal(again.support(), rule.support())


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_move_with_all_that_they_hold(rule):
    assert rule.to("cpu") is rule
    moved = rule.to("meta")
    assert moved.device.type == "meta"
    assert moved.size == rule.size
    held = [part for part in vars(moved).values() if isinstance(part, torch.Tensor)]
    assert all(part.device.type == "meta" for part in held)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rows_and_columns_of_a_rule_are_those_of_its_mask(rule):
    dense = rule.to_dense(torch.float64)
    assert_near(rule.restrict([2, 0], [1]).to_dense(torch.float64), dense[:, [2, 0]][:, :, [1]])
    for target in range(rule.size[1]):
        assert torch.equal(rule.receptive_field(target), dense[0, :, target].nonzero().view(-1))
