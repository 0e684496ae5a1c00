"""Normalisers are their formulas, and give zeros, never NaN, where there is nothing."""

import pytest
import torch
from oracle import assert_same
from scores import VALUES

from pyg_outerconv.attention import NORMALISERS, make_normaliser
from pyg_outerconv.basis.pattern import Pattern
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 2, 0, 3, 1, 1], [0, 0, 0, 2, 2, 2, 2, 4]])
PATTERN = Pattern.build(EDGES, size=(4, 6))  # targets 1, 3 and 5 have none
NAMES = sorted(NORMALISERS)


def by_rows(name, score):
    """f row by row; an entry of -inf is not there, and a row of zeros stays one."""
    rows = []
    for target in PATTERN.target.unique():
        row = score[PATTERN.target == target]
        columns = []
        for column in row.unbind(1):
            there = column > -torch.inf
            value = VALUES[name](column[there])
            value = torch.where(value.isnan(), 0.0, value)
            columns.append(torch.zeros_like(column).masked_scatter(there, value))
        rows.append(torch.stack(columns, 1))
    return torch.cat(rows)


def scores(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_the_formula(name):
    score = scores(PATTERN.num_edges, 3)
    found, expected = make_normaliser(name)(PATTERN.by_target, score), by_rows(name, score)
    assert_same(found, expected, [score])


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_derivatives_are_right(name):
    score = scores(PATTERN.num_edges, 2)
    values = make_normaliser(name)
    assert torch.autograd.gradgradcheck(lambda s: values(PATTERN.by_target, s), score)


@pytest.mark.parametrize("name", NAMES)
def test_entries_of_minus_infinity_are_not_there(name):
    score = scores(PATTERN.num_edges, 2)
    absent = torch.zeros(PATTERN.num_edges, 2, dtype=torch.bool)
    absent[0] = absent[3, 1] = True
    absent[PATTERN.target == 4] = True  # all of a row
    masked = score.masked_fill(absent, -torch.inf)
    found = make_normaliser(name)(PATTERN.by_target, masked)
    assert not found[absent].any()
    assert_near(found, by_rows(name, masked.detach()))
    found.square().sum().backward()
    assert score.grad.isfinite().all()
    assert not score.grad[absent].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_zeros_has_finite_gradients(name):
    score = torch.zeros(PATTERN.num_edges, 2, dtype=torch.float64, requires_grad=True)
    found = make_normaliser(name)(PATTERN.by_target, score)
    assert found.isfinite().all()
    found.sum().backward()
    assert score.grad.isfinite().all()
    if name == "l1":
        assert not found.any()
        assert not score.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("name", NAMES)
def test_large_scores_are_right_in_any_type(name, size, dtype):
    score = (torch.randn(PATTERN.num_edges, 3).clamp(-1, 1) * size).to(dtype).requires_grad_()
    found = make_normaliser(name)(PATTERN.by_target, score)
    assert found.dtype == dtype
    expected = by_rows(name, score.detach().double())
    assert_near(found, expected.to(dtype))
    found.sum().backward()
    assert score.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_no_entries_give_no_values(name):
    empty = Pattern.build(EDGES[:, :0], size=(4, 6))
    score = scores(0, 3)
    found = make_normaliser(name)(empty.by_target, score)
    assert found.shape == (0, 3)
    found.sum().backward()


@pytest.mark.parametrize("name", NAMES)
def test_only_normalisers_that_say_so_add_up_to_one(name):
    normaliser = make_normaliser(name)
    found = normaliser(PATTERN.by_target, scores(PATTERN.num_edges, 1))
    total = torch.zeros(6, dtype=found.dtype).index_add_(0, PATTERN.target, found[:, 0])
    reached = PATTERN.target.long().unique()
    assert torch.allclose(total[reached], torch.ones(3).double()) == normaliser.is_stochastic
    assert not total[[1, 3, 5]].any()


@pytest.mark.parametrize("name", NAMES)
def test_dropout_drops_in_training_alone_and_keeps_the_mean(name):
    normaliser = make_normaliser(name, dropout=0.5)
    score = scores(PATTERN.num_edges, 500).detach()
    kept = normaliser.values(PATTERN.by_target, score)
    dropped = normaliser(PATTERN.by_target, score)
    assert_near(dropped[dropped != 0], 2 * kept[dropped != 0])
    assert 0.4 < float((dropped == 0).double().mean()) < 0.6
    assert_near(normaliser.eval()(PATTERN.by_target, score), kept)
