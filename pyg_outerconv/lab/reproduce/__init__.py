"""Tables of results: rows and data sets in TOML, trained, resumed, and held against figures."""

from .run import reproduce
from .table import Cell, Published, Row, Table, find_table, read_table

__all__ = ["Cell", "Published", "Row", "Table", "find_table", "read_table", "reproduce"]
