"""Pictures of bases by matplotlib: matrices, shifts, flattenings, receptive fields and graphs.

``basis.py`` extracts arrays from a basis for :meth:`.Basis.plot`; the other files draw arrays.
Importing this package does not import matplotlib; call :func:`check_matplotlib` before importing
the files that draw.
"""

from .extra import check_matplotlib

__all__ = ["check_matplotlib"]
