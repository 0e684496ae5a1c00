"""The page of a search, one HTML file that loads nothing from outside; its template: page.html."""

from __future__ import annotations

from pathlib import Path

from ..pages.pages import render_page
from . import plots
from .report import Report


def make_page(report: Report) -> str:
    """The whole page."""
    return render_page(
        Path(__file__).with_suffix(".html"),
        report=report,
        trials=[plots.trials_over_time(report)],
        marginals=[plots.marginals(report)] if report.marginals() else [],
        labels=[plots.contributions(report)] if report.finals["labels"] else [],
    )
