"""How features are multiplied with Θ."""

import torch

from pyg_outerconv.testing import assert_near
from pyg_outerconv.theta.theta import by_column


def test_narrow_matrices_are_in_memory_by_column_where_many_rows_meet_them():
    narrow, wide = torch.randn(50, 7), torch.randn(50, 17)
    many, few = torch.randn(2, 500, 50), torch.randn(999, 50)
    assert by_column(narrow, many).stride() == (1, 50)
    assert by_column(narrow, many).equal(narrow)
    assert by_column(narrow, few) is narrow
    assert by_column(wide, many) is wide


def test_the_layout_changes_no_derivative():
    x = torch.randn(1000, 5, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found, expected = (
        torch.autograd.grad((x @ one).sin().sum(), [x, matrix])
        for one in (by_column(matrix, x), matrix)
    )
    for actual, reference in zip(found, expected, strict=True):
        assert_near(actual, reference)
    assert torch.autograd.gradgradcheck(
        lambda x, w: x @ by_column(w, x), (x, matrix), fast_mode=True
    )
