"""The contraction Σ_k A_kᵀ X Θ_k: its orders, their costs, and how one of them is chosen.

To add an order, put a file with a subclass of :class:`Order` into ``orders/``; the tests in
``tests/contract`` run over every order.
"""

from ..found import import_files
from . import orders
from .choose import candidates, check_memory, check_order, choose_order
from .cost import Cost, Work
from .density import predicted_share, sparse_pays
from .machine import Constants, constants
from .order import ORDERS, Order, orders_of
from .path import ContractionPath, contract, contraction_path
from .problem import Problem
from .shapes import check_shapes
from .values import project

__all__ = [
    "ORDERS",
    "Constants",
    "ContractionPath",
    "Cost",
    "Order",
    "Problem",
    "Work",
    "candidates",
    "check_memory",
    "check_order",
    "check_shapes",
    "choose_order",
    "constants",
    "contract",
    "contraction_path",
    "orders_of",
    "predicted_share",
    "project",
    "sparse_pays",
]

import_files(orders.__name__, orders.__path__)
