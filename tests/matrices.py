"""What the tests of kernels run on: patterns, devices, and the backends that can be tested here."""

import pytest
import torch

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import BACKENDS, CSR, use_backend
from pyg_outerconv.testing import primitive_calls
from pyg_outerconv.testing.backend_laws import has_call

SHAPES = {
    "square": (7, 7, 20),
    "tall": (9, 4, 15),
    "wide": (3, 11, 15),
    "no entries": (4, 5, 0),
    "no rows": (0, 5, 0),
    "no columns": (5, 0, 0),
    "one": (1, 1, 1),
    "repeated entries": (2, 2, 17),
    "int64": (7, 7, 20),
}


def backends_on(device, every=False):
    """Names of backends of a device: all, or those with attention that serve it unasked."""
    return [
        pytest.param(name, marks=pytest.mark.skipif(bool(why), reason="; ".join(why)))
        for name, backend in BACKENDS.items()
        if device in backend.devices
        and (every or (backend.priority > 0 and "attend" in backend.primitives))
        for why in [backend.missing()]
    ]


NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
PLACES = [
    pytest.param(
        *param.values, device, id=f"{param.values[0]}-{device}", marks=[*param.marks, *marks]
    )
    for device, marks in (("cpu", []), ("cuda", [NO_CUDA]))
    for param in backends_on(device)
]
"""(backend, device) of all backends but the reference."""


HERE = [*backends_on("cpu"), "reference"]
"""The backends with attention that serve a CPU here."""
EVERY = backends_on("cpu", every=True)
"""All backends that serve a CPU here."""


def calls_of(backend, csr, channels=3, heads=None):
    """The calls of every primitive that a backend has: (name, function, shapes)."""
    for name, (function, shapes) in primitive_calls(csr, channels, heads).items():
        if has_call(backend, name):
            yield name, function, shapes


def each_call(backend, csr, channels=3, heads=2, dtype=torch.float64):
    """Each call of a backend: its name, the function served by it, and its operands."""
    for name, function, shapes in calls_of(backend, csr, channels, heads):
        yield name, served(backend, function), random_inputs(shapes, dtype, csr.index.device)


def served(backend, function):
    """The function by a backend, which then serves its derivatives too."""

    def run(*tensors):
        with use_backend(backend):
            return function(*tensors)

    return run


def csr_of(name, device="cpu"):
    """A random pattern of one of SHAPES; 'tall' and 'wide' have rows without entries."""
    rows, cols, entries = SHAPES[name]
    index = torch.stack(
        [torch.randint(max(cols, 1), (entries,)), torch.randint(max(rows, 1), (entries,))]
    )
    csr = Pattern.build(index.to(device), size=(cols, rows)).by_target
    if name == "int64":
        csr = CSR(csr.ptr.long(), csr.index.long(), cols)
    return csr


def random_inputs(shapes, dtype=torch.float64, device="cpu"):
    """Normal tensors of these shapes (a dict), which want gradients."""
    return [
        torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
        for shape in shapes.values()
    ]
