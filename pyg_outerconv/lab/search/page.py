"""The page of a search, one HTML file that loads nothing from outside; its template: page.html."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from matplotlib import rc_context

from ...plot.canvas import new_figure
from ..pages import COLOURS, INK, as_svg, render_page, svg_style
from .report import Report


def make_page(report: Report) -> str:
    """The whole page."""
    return render_page(
        Path(__file__).with_suffix(".html"),
        report=report,
        trials=[trials_over_time(report)],
        marginals=[marginals(report)] if report.marginals() else [],
        labels=[contributions(report)] if report.finals["labels"] else [],
    )


def trials_over_time(report: Report) -> str:
    """The validation metric of each trial, and the best so far, a colour for each contestant."""
    with rc_context(svg_style("trials")):
        figure = new_figure(7.4, 3.6)
        axes = figure.add_subplot()
        lowest, highest = 1.0, 0.0
        for number, (name, shown) in enumerate(report.shown.items()):
            trials = [trial for trial in report.trials[name] if trial["value"] is not None]
            at = [trial["number"] + 1 for trial in trials]
            values = [trial["value"] for trial in trials]
            colour = COLOURS[number % len(COLOURS)]
            best = [100 * value for value in accumulate(values, max)]
            axes.plot(at, [100 * value for value in values], ".", color=colour, ms=5, alpha=0.6)
            axes.step(at, best, where="post", color=colour, linewidth=1.4, label=shown)
            lowest, highest = min(lowest, *values), max(highest, *values)
        early = [t["number"] + 1 for t in report.trials["outerconv"] if t["value"] is None]
        floor = 100 * lowest - 2
        axes.plot(early, [floor] * len(early), "x", color=COLOURS[0], ms=4, label="ended early")
        axes.set_xlabel("trial")
        axes.set_ylabel(f"validation {report.metric}, %")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return as_svg(figure)


def marginals(report: Report) -> str:
    """The validation metric of our trials by each choice of the basis, a panel for each."""
    groups = report.marginals()
    with rc_context(svg_style("marginals")):
        tallest = max(map(len, groups.values()), default=1)
        figure = new_figure(2.6 * max(1, len(groups)), 1.0 + 0.3 * tallest)
        for place, (title, values) in enumerate(groups.items(), start=1):
            axes = figure.add_subplot(1, len(groups), place)
            for row, trials in enumerate(values.values()):
                reached = [100 * t["value"] for t in trials if t["value"] is not None]
                axes.plot(reached, [row] * len(reached), "|", color=COLOURS[0], ms=9, alpha=0.7)
                if reached:
                    axes.plot([max(reached)], [row], "o", color=COLOURS[1], ms=4)
            axes.set_yticks(range(len(values)), list(values))
            axes.set_ylim(-0.6, len(values) - 0.4)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel(f"validation {report.metric}, %")
        return as_svg(figure)


def contributions(report: Report) -> str:
    """‖A_kᵀ X Θ_k‖ of each layer and label, and the change of the loss without it."""
    rows = report.finals["labels"][::-1]
    with rc_context(svg_style("labels")):
        figure = new_figure(9, 0.9 + 0.28 * len(rows))
        names = [f"{row['layer']}: {row['name']}" for row in rows]
        panels = (
            ("norm", "‖A_kᵀ X Θ_k‖", 1.0),
            ("loss_change", "validation loss without it, change", 1.0),
        )
        for place, (key, title, factor) in enumerate(panels, start=1):
            axes = figure.add_subplot(1, 2, place)
            at = range(len(rows))
            axes.barh(at, [factor * row[key] for row in rows], color=COLOURS[place - 1], height=0.6)
            axes.axvline(0, color=INK, linewidth=0.6)
            axes.set_yticks(at, names if place == 1 else [""] * len(rows))
            axes.set_xlabel(title)
        return as_svg(figure)
