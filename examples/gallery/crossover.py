"""Sparse or dense: where a matrix product of all pairs becomes faster than one along the edges.

Times of one layer of 1,024 nodes at growing density, from the run of `outerconv bench` that is kept
in `examples/bench/bench.json`; the dotted line is the density at which both take as long.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyg_outerconv.plot.canvas import new_figure, save

RUN = Path(__file__).resolve().parents[1] / "bench" / "bench.json"
CASES = {
    "density-base": "64 channels",
    "density-narrow": "16 channels",
    "density-labels": "64 channels, 4 labels",
    "density-batch": "64 channels, a batch of 8",
}
WAYS = ("outerconv, kept sparse", "dense einsum")
MODE = "forward + backward"
PICTURES = {
    "crossover.svg": "Four pairs of curves over the density of a graph: the time along the edges "
    "grows with the density, that of a dense product is flat, and they cross at 14 to 19 percent.",
}


def draw(folder: Path) -> None:
    """Draw the picture into a folder."""
    run = json.loads(RUN.read_text(encoding="utf-8"))
    figure = new_figure(9.0, 6.0)
    for axes, (case, title) in zip(figure.subplots(2, 2).flat, CASES.items(), strict=True):
        records = [one for one in run["records"] if one["case"] == case]
        for way, colour in zip(WAYS, ("tab:blue", "tab:orange"), strict=True):
            points = [one["modes"][MODE][way]["median"] * 1e3 for one in records]
            axes.loglog([one["at"] for one in records], points, "o-", label=way, color=colour)
        densities = {(one["case"], one["mode"]): one["density"] for one in run["crossovers"]}
        at = densities[case, MODE]
        axes.axvline(at, linestyle=":", color="grey")
        axes.set_title(f"{title}: {100 * at:.0f} %", fontsize=10)
        axes.set_xlabel("share of pairs that have an edge")
        axes.set_ylabel("ms, forward and backward")
        axes.legend(fontsize=8)
    save(figure, folder / "crossover.svg")


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
