"""torch-scatter, which the set-up compiles, does what our primitives do where they overlap."""

import pytest
import torch

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import spmm
from pyg_outerconv.testing import assert_near

torch_scatter = pytest.importorskip("torch_scatter", reason="torch-scatter is not installed")


@pytest.mark.parametrize("num_edges", [0, 1, 200])
def test_segments_of_gathered_rows_are_a_sparse_product(num_edges):
    pattern = Pattern.build(torch.randint(30, (2, num_edges)), size=(30, 30))
    sparsity, value = pattern.by_target, torch.randn(num_edges, requires_grad=True)
    x = torch.randn(30, 8, requires_grad=True)
    messages = x.index_select(0, sparsity.col) * value[:, None]
    expected = torch_scatter.segment_csr(messages, sparsity.rowptr.long(), reduce="sum")
    actual = spmm(sparsity, value, x)
    assert_near(actual, expected)
    direction = torch.randn_like(actual)
    for found, wanted in zip(
        torch.autograd.grad(actual, (value, x), direction),
        torch.autograd.grad(expected, (value, x), direction),
        strict=True,
    ):
        assert_near(found, wanted, 5e-5)
