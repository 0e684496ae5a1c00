"""The primitives and their backends. Nothing here knows what a basis is.

To add a backend: one file with a :class:`Backend` subclass, one entry in ``dispatch.BACKENDS``;
the tests under ``tests/kernels`` run over every entry.
"""

from .backend import Backend, Request
from .dispatch import BACKENDS, Call, backends, get_backend, record, use_backend
from .ops import sddmm, spmm
from .sparsity import Sparsity

__all__ = [
    "BACKENDS",
    "Backend",
    "Call",
    "Request",
    "Sparsity",
    "backends",
    "get_backend",
    "record",
    "sddmm",
    "spmm",
    "use_backend",
]
