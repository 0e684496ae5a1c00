"""The primitives on sparse matrices and dense tensors, and their backends.

A backend is added as one file in ``backends/`` with a subclass of :class:`Backend`; the tests in
``tests/kernels`` run over every backend.
"""

from ..registry import import_files
from . import backends
from .additive import additive
from .attend import NodeBlocks, attend
from .backend import BACKENDS, REDUCTIONS, Backend, Request
from .csr import CSR
from .dense_attention import attend_all, attend_band, attend_blocks, blocks_of
from .dispatch import Call, get_backend, record, use_backend
from .grouped import grouped_matmul
from .sddmm import sddmm
from .softmax import segment_softmax
from .spmm import spmm

__all__ = [
    "BACKENDS",
    "CSR",
    "REDUCTIONS",
    "Backend",
    "Call",
    "NodeBlocks",
    "Request",
    "additive",
    "attend",
    "attend_all",
    "attend_band",
    "attend_blocks",
    "blocks_of",
    "get_backend",
    "grouped_matmul",
    "record",
    "sddmm",
    "segment_softmax",
    "spmm",
    "use_backend",
]

import_files(backends.__name__, backends.__path__)
