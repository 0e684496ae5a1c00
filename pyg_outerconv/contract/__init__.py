"""The contraction Σ_k A_kᵀ X Θ_k: orders, their cost, and the choice.

To add an order: one file with an :class:`Order` subclass, one entry in ``path.ORDERS``; the tests
under ``tests/contract`` run over every entry.
"""

from .order import Cost, Order
from .path import ORDERS, check_shapes, choose_order, contract
from .problem import Problem

__all__ = ["ORDERS", "Cost", "Order", "Problem", "check_shapes", "choose_order", "contract"]
