"""The contraction Σ_k A_kᵀ X Θ_k: its orders, their costs, and how one of them is chosen.

To add an order, put a file with a subclass of :class:`Order` into ``orders/``; the tests in
``tests/contract`` run over every order.
"""

from ..registration import import_files
from . import orders
from .arguments import check_shapes
from .choose import candidates, check_memory, check_order, choose_order
from .cost import Constants, Cost, Operations, constants, predicted_share, sparse_pays
from .heads import project
from .order import ORDERS, Order, orders_of
from .path import ContractionPath, contract, contraction_path
from .problem import Problem

__all__ = [
    "ORDERS",
    "Constants",
    "ContractionPath",
    "Cost",
    "Operations",
    "Order",
    "Problem",
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
