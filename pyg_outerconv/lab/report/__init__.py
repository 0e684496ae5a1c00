"""Reports of finished runs: one run looked at closely, several compared."""

from .compare import compare, compare_runs
from .show_run import confusion, look_at, show_run

__all__ = ["compare", "compare_runs", "confusion", "look_at", "show_run"]
