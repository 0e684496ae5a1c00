"""Reports of finished runs: one run looked at closely, several compared."""

from .compare import Comparison, compare
from .compare_page import compare_runs
from .confusion import confusion
from .show_run import look_at, show_run

__all__ = ["Comparison", "compare", "compare_runs", "confusion", "look_at", "show_run"]
