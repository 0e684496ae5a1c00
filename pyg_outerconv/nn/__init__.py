"""The layer, and the forms of its parameter."""

from .outer_conv import OuterConv
from .theta import FORMS, Theta, make_theta

__all__ = ["FORMS", "OuterConv", "Theta", "make_theta"]
