"""Graphs of one's own: from tables, arrays, matrices, GraphML, or a PyG ``Data``.

Nodes keep the names that the files give them, nothing is dropped, and a row that breaks a rule is
refused with its file and line.
"""

from .read import load_own

__all__ = ["load_own"]
