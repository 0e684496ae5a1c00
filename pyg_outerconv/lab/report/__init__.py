"""Reports of finished runs: one run looked at closely, several compared."""

from .compare import Comparison, compare, compare_runs
from .show_run import confusion, look_at, show_run

__all__ = ["Comparison", "compare", "compare_runs", "confusion", "look_at", "show_run"]
