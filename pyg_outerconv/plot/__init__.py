"""Pictures of bases: matrices, shifts, flattenings, receptive fields, graphs; by matplotlib alone.

What is here takes arrays and knows no basis: :meth:`.Basis.plot` and :meth:`.OuterConv.plot` bring
the arrays. Importing this needs no matplotlib; the files that draw do, and :func:`check_matplotlib`
comes before them.
"""

from .extra import check_matplotlib

__all__ = ["check_matplotlib"]
