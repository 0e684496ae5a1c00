"""The contraction Σ_k A_kᵀ X Θ_k: its orders, their costs, and how one of them is chosen.

To add an order, put a subclass of :class:`Order` with a name into a file of ``orders/``; the tests
in ``tests/contract`` run over every order.
"""

from ..registry import import_files
from . import orders
from .cost import Cost
from .order import ORDERS, Order
from .plan import ContractionPath, contract, contraction_path
from .problem import Problem

__all__ = [
    "ORDERS",
    "ContractionPath",
    "Cost",
    "Order",
    "Problem",
    "contract",
    "contraction_path",
]

import_files(orders.__name__, orders.__path__)
