"""Every primitive of every backend against the reference, with first and second derivatives."""

import pytest
import torch
from matrices import PLACES, SHAPES, csr_of

from pyg_outerconv import testing
from pyg_outerconv.kernels import BACKENDS


@pytest.mark.parametrize("heads", [None, 1, 3], ids=lambda heads: f"{heads} heads")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("backend", "device"), PLACES)
def test_equals_reference_with_first_and_second_derivatives(backend, device, shape, dtype, heads):
    tolerance = 1e-10 if dtype == torch.float64 else 5 * BACKENDS[backend].tolerance
    testing.assert_backend_equals_reference(
        backend, csr_of(shape, device), dtype, 3, tolerance, heads
    )
